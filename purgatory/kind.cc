#include "purgatory/kind.h"

namespace tarry::purgatory {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::fetch:
      return "fetch";
    case Kind::produce:
      return "produce";
    case Kind::join:
      return "join";
    case Kind::sync:
      return "sync";
    case Kind::heartbeat:
      return "heartbeat";
    case Kind::delete_records:
      return "delete_records";
    case Kind::create_topics:
      return "create_topics";
    case Kind::delete_topics:
      return "delete_topics";
    case Kind::create_partitions:
      return "create_partitions";
    case Kind::alter_configs:
      return "alter_configs";
    case Kind::offset_commit:
      return "offset_commit";
    case Kind::offset_delete:
      return "offset_delete";
    case Kind::delete_groups:
      return "delete_groups";
    case Kind::init_producer_id:
      return "init_producer_id";
    case Kind::fetch_watch:
      return "fetch_watch";
  }
  return "unknown";
}

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::satisfied:
      return "satisfied";
    case Outcome::expired:
      return "expired";
    case Outcome::cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace tarry::purgatory
