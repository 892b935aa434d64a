#include "relay/assignment.h"

namespace tarry::relay {

std::string_view name_of(Stage stage) {
  switch (stage) {
    case Stage::finding:
      return "finding";
    case Stage::loading:
      return "loading";
    case Stage::reading:
      return "reading";
    case Stage::owned:
      return "owned";
  }
  return "?";
}

}  // namespace tarry::relay
