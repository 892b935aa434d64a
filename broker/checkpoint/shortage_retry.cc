#include "broker/checkpoint/shortage_retry.h"

#include <utility>

#include "base/log.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {
namespace {

// Nothing is urgent while the journal has room, and a lack of descriptors lasts.
constexpr std::chrono::milliseconds retry_every{1000};

}  // namespace

ShortageRetry::ShortageRetry(ShardContext& shard, std::move_only_function<void()> again)
    : shard_(shard), again_(std::move(again)), timer_([this] { retry(); }) {}

void ShortageRetry::later(const Error& error) {
  if (!std::exchange(is_told_, true)) {
    log_error(
        "broker",
        "shard {} cannot open or read a file for its checkpoint or its journal and tries again "
        "every second: {}; raise the limit (`ulimit -n`, LimitNOFILE=) or close connections, or "
        "repair the disk",
        shard_.index(), error.message);
  }
  if (timer_.armed()) return;
  const auto after = shard_.stopping() ? stop_retry_every : retry_every;
  shard_.wheel().schedule(timer_, shard_.tick_after(after));
}

void ShortageRetry::retry() {
  shard_.retry_journal_space();
  again_();
}

void ShortageRetry::over() {
  if (std::exchange(is_told_, false))
    log_info("broker", "shard {} makes checkpoints again", shard_.index());
}

bool ShortageRetry::may_wait() {
  // Only a stop has an end to its patience, for all that waits together.
  if (!shard_.stopping()) return true;
  const MonoTime now = shard_.clock().mono();
  if (!wait_until_) wait_until_ = now + stop_patience;
  return now < *wait_until_;
}

}  // namespace tarry::broker
