#include "broker/checkpoint/stop_drain.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "broker/checkpoint/checkpointer.h"
#include "broker/checkpoint/shortage_retry.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {
namespace {

using std::chrono::milliseconds;

// A round of the journal ends by itself, in about that time.
constexpr milliseconds round_takes{1};

}  // namespace

StopDrain::StopDrain(ShardContext& shard, Checkpointer& checkpointer, ShortageRetry& shortage)
    : shard_(shard),
      checkpointer_(checkpointer),
      shortage_(shortage),
      timer_([this] { go_on(); }) {}

void StopDrain::start(std::move_only_function<void()> then) {
  then_ = std::move(then);
  go_on();
}

// First the journal's rounds until it is idle, then one checkpoint of everything; each call takes
// the next step.
void StopDrain::go_on() {
  const auto& journal = shard_.journal();
  if (shard_.failed() || checkpointer_.has_failed()) return finish();
  if (!journal.is_idle()) {
    shard_.start_journal_round();
    const bool waits = journal.disk_is_full() || journal.is_postponed();
    if (waits && !journal_may_wait()) return finish();
    const auto again = waits ? ShortageRetry::stop_retry_every : round_takes;
    return shard_.wheel().schedule(timer_, shard_.tick_after(again));
  }
  // The run that is under way ends the stop; what came since it began is in the journal.
  if (checkpointer_.busy()) return;
  if (checkpointer_.noted() >= journal.end_lsn()) return finish();
  checkpointer_.run_now();
}

void StopDrain::checkpoint_ended() {
  // With the timer armed it was begun before all was in the journal: the timer looks again.
  if (checkpointer_.has_failed() || !timer_.armed()) finish();
}

bool StopDrain::journal_may_wait() {
  const bool may_wait = shortage_.may_wait();
  if (!std::exchange(is_told_, true)) {
    log_warn(
        "broker",
        "shard {} has records that cannot be written to the disk now; the stop waits up to {} ms",
        shard_.index(), ShortageRetry::stop_patience.count());
  }
  if (!may_wait) {
    log_error("broker",
              "shard {} stops without the records that could not be written; none of them "
              "was acknowledged",
              shard_.index());
    return false;
  }
  shard_.retry_journal_space();
  return true;
}

void StopDrain::finish() {
  if (!then_) return;
  timer_.cancel();
  checkpointer_.close();
  std::exchange(then_, nullptr)();
}

}  // namespace tarry::broker
