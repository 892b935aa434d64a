#include "broker/context/connection.h"

#include <algorithm>
#include <utility>

namespace tarry::broker {

std::string Connection::host() const {
  return "/" + peer_.substr(0, peer_.rfind(':'));
}

void Connection::asked_of(Shard* shard) {
  thread_.check();
  in_a_row_ = shard == asked_ ? in_a_row_ + 1 : 1;
  asked_ = shard;
}

void Connection::close() {
  thread_.check();
  closed_ = true;
  // Cancelling queues the answer, which comes when the closer is done; the list stays as it is.
  for (auto& parked : parked_) parked.operation_.cancel();
  for (auto* waiting : on_close_) waiting->then_();
}

Connection::OnClose::OnClose(Connection& connection, std::move_only_function<void()> then)
    : connection_(connection), then_(std::move(then)) {
  connection_.thread_.check();
  connection_.on_close_.push_back(this);
  if (connection_.closed_) then_();
}

Connection::OnClose::~OnClose() {
  std::erase(connection_.on_close_, this);
}

}  // namespace tarry::broker
