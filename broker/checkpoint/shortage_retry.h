#pragma once

// ShortageRetry: repeats work that found no file descriptor or no memory, or could not read the
// block that a segment goes on in (Errc::exhausted).
//
//    later(error) --> one second --> the journal, then again() --> later(error), or over()
//
// A shortage does not end the broker: records are accepted as long as the journal has room, and the
// failed work is tried once a second.  The log says when a shortage begins and when it is over.  No
// work is tried again in the next turn, where it would fail as well.
//
// While the shard stops, the wait is bounded: some seconds for all such work together.
//
// Belongs to its shard and its thread.

#include <chrono>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class ShardContext;

class ShortageRetry {
 public:
  // A stop tries more often than a broker that serves, and gives up in the end.
  static constexpr std::chrono::milliseconds stop_retry_every{100};
  static constexpr std::chrono::milliseconds stop_patience{10'000};

  // `again` tries the work that waits beside the journal, and may call later().
  ShortageRetry(ShardContext& shard, std::move_only_function<void()> again);

  void later(const Error& error);
  bool is_waiting() const { return timer_.armed(); }
  // A checkpoint was made, which needs more files than anything else.
  void over();

  // Whether work that found none may go on waiting.  While the shard stops it may for some seconds
  // from the first call, whichever work asks.
  bool may_wait();

 private:
  void retry();

  ShardContext& shard_;
  std::move_only_function<void()> again_;
  bool is_told_ = false;                // The operator knows of it.
  std::optional<MonoTime> wait_until_;  // In a stop, once something waits.
  timing::CallbackTimer timer_;
};

}  // namespace tarry::broker
