#pragma once

// Requests of a record's owner to the delay engine, and their answers.

#include <chrono>
#include <functional>
#include <variant>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace tarry::delay {

// The result of such a request.
enum class ControlOutcome { done, already_delivered, unknown };

struct Controlled {
  ControlOutcome outcome = ControlOutcome::unknown;
  WallTime due{};      // The due time that a moved record has now.
  Offset offset = -1;  // The offset of a record that was delivered now.
};

using ControlDone = std::move_only_function<void(Result<Controlled>)>;

// Another due time, or one that is later or earlier by a duration.
using NewDue = std::variant<WallTime, std::chrono::milliseconds>;

}  // namespace tarry::delay
