#pragma once

// What a record's owner asks of the delay engine, and its answer.

#include <chrono>
#include <functional>
#include <variant>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace tarry::delay {

// What became of a request of a record's owner.
enum class ControlOutcome { done, already_delivered, unknown };

struct Controlled {
  ControlOutcome outcome = ControlOutcome::unknown;
  WallTime due{};      // Of a record that was moved: its due time now.
  Offset offset = -1;  // Of a record that was delivered now.
};

using ControlDone = std::move_only_function<void(Result<Controlled>)>;

// Another due time, or one that is later or earlier by a duration.
using NewDue = std::variant<WallTime, std::chrono::milliseconds>;

}  // namespace tarry::delay
