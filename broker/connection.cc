#include "broker/connection.h"

#include <algorithm>

namespace tarry::broker {

void Connection::close() {
  closed_ = true;
  // Cancelling queues the answer, which comes when the closer is done; the list stays as it is.
  for (auto* operation : parked_) operation->cancel();
}

Connection::Parking::Parking(Connection& connection, purgatory::DelayedOperation& operation)
    : connection_(connection), operation_(operation) {
  connection_.parked_.push_back(&operation_);
}

Connection::Parking::~Parking() {
  std::erase(connection_.parked_, &operation_);
}

}  // namespace tarry::broker
