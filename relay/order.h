#pragma once

// Order: an operator asks to cancel, move or deliver one pending record.

#include <string>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "delay/controlled.h"
#include "relay/cluster.h"

namespace tarry::relay {

struct Order {
  // look: changes nothing, needs no transaction, and is told when all that was acknowledged before
  // it is there to be seen.
  enum class Kind { cancel, move, deliver, look };

  Kind kind = Kind::cancel;
  std::string name{};   // Its id, or its handle.
  delay::NewDue due{};  // The due time of a move.
};

// The answer to an order.  Errc::invalid: the record is there, and does not allow it.
using OrderResult = Result<delay::Controlled>;

}  // namespace tarry::relay
