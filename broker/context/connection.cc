#include "broker/context/connection.h"

namespace tarry::broker {

std::string Connection::host() const {
  return "/" + peer_.substr(0, peer_.rfind(':'));
}

const ListenerInfo& Connection::listener() const {
  static const ListenerInfo unnamed;
  return origin_.listener ? *origin_.listener : unnamed;
}

void Connection::note_shard(Shard* shard) {
  thread_.check();
  in_a_row_ = shard == noted_ ? in_a_row_ + 1 : 1;
  noted_ = shard;
}

void Connection::close() {
  thread_.check();
  closed_ = true;
  for (auto& listener : listeners_) listener.on_close();
}

}  // namespace tarry::broker
