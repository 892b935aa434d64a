#pragma once

// The answers of a TimerService: values, never exceptions.

#include <cstdint>
#include <string_view>

#include "base/assert.h"
#include "timing/service/timer_id.h"

namespace tarry::timing {

enum class Refusal {
  full,      // max_pending timers exist.
  stopped,   // stop() was called.
  no_period  // A period has to be longer than zero.
};
std::string_view to_string(Refusal refusal);

// A timer's id, or why it was refused; used like a std::expected, and returned in two registers.
class Scheduled {
 public:
  Scheduled(TimerId id) : id_(id) {}
  Scheduled(Refusal refusal) : id_{.sequence = 0, .shard = static_cast<std::uint32_t>(refusal)} {}

  bool has_value() const { return id_.sequence != 0; }
  explicit operator bool() const { return has_value(); }
  TimerId operator*() const {
    TARRY_ASSERT(has_value(), "a refused timer has no id");
    return id_;
  }
  Refusal error() const {
    TARRY_ASSERT(!has_value(), "a scheduled timer was not refused");
    return static_cast<Refusal>(id_.shard);
  }

 private:
  TimerId id_;
};

enum class CancelResult { cancelled, running, gone };
std::string_view to_string(CancelResult result);

enum class RescheduleResult {
  moved,    // It was waiting, and waits for the new deadline now.
  running,  // Its callback is running; it runs once more at the new deadline.
  gone      // As for cancelling; also while a cancelled callback is still running.
};
std::string_view to_string(RescheduleResult result);

}  // namespace tarry::timing
