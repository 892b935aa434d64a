#include "broker/context/connection.h"

namespace tarry::broker {

std::string Connection::host() const {
  return "/" + peer_.substr(0, peer_.rfind(':'));
}

const ListenerInfo& Connection::listener() const {
  static const ListenerInfo unnamed;
  return origin_.listener ? *origin_.listener : unnamed;
}

std::string Connection::principal() const {
  const bool by_sasl = has_sasl(listener().protocol);
  const auto& name = by_sasl ? origin_.sasl_user : origin_.tls_principal;
  return name.empty() ? "User:ANONYMOUS" : "User:" + name;
}

void Connection::note_shard(Shard* shard) {
  thread_.check();
  // By this count a connection goes to the shard of its partitions (better_shard()).
  in_a_row_ = shard == noted_ ? in_a_row_ + 1 : 1;
  noted_ = shard;
}

void Connection::close() {
  thread_.check();
  closed_ = true;
  for (auto& listener : listeners_) listener.on_close();
}

}  // namespace tarry::broker
