#include "broker/checkpoint/retention.h"

#include <chrono>
#include <utility>

#include "base/background.h"
#include "base/log.h"
#include "broker/checkpoint/checkpointer.h"
#include "broker/checkpoint/free_space.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/partition.h"
#include "broker/partitions/partitions.h"

namespace tarry::broker {
namespace {

// How soon a removal that failed is tried again.  Nothing waits for it but space on the disk.
constexpr std::chrono::milliseconds retry_after{10'000};

}  // namespace

Retention::Retention(ShardContext& shard, Partitions& partitions, Checkpointer& checkpointer,
                     FreeSpace& free_space)
    : shard_(shard),
      partitions_(partitions),
      checkpointer_(checkpointer),
      free_space_(free_space),
      look_timer_([this] { look(); }),
      retry_timer_([this] { retry(); }) {}

void Retention::look_later() {
  if (!look_timer_.armed() && !shard_.stopping()) {
    shard_.wheel().schedule(look_timer_, shard_.tick_after(shard_.config().retention_check));
  }
}

void Retention::stop() {
  look_timer_.cancel();
  retry_timer_.cancel();
}

void Retention::look() {
  bool any = false;
  const WallTime now = shard_.clock().wall();
  for (auto& [tp, partition] : partitions_.all()) {
    // The files of a partition that is out of service are the operator's.
    if (partition->fenced()) continue;
    partition->expire_producers(now, shard_.config().producer_id_expiration);
    const auto next = remove_old_segments(*partition);
    any = any || next.has_value() || partition->may_expire();
    // A segment is to be closed before it can go.
    if (partition->is_dirty()) checkpointer_.note_dirty(*partition, 0);
  }
  free_space_.look();
  if (any) look_later();
}

std::optional<WallTime> Retention::remove_old_segments(Partition& partition) {
  auto plan = partition.plan_retention(shard_.clock().wall());
  if (plan.removal) {
    auto& removals = removals_[partition.id()];
    removals.waiting.push_back(std::move(*plan.removal));
    // One that failed waits for its timer, and this one behind it.
    if (!removals.is_running && !removals.has_failed) run_first(partition.id());
  }
  return plan.next;
}

void Retention::run_first(const TopicPartition& tp) {
  auto& removals = removals_.find(tp)->second;
  removals.is_running = true;
  // A copy: the topic may be deleted while it runs.
  shard_.background().run([removal = removals.waiting.front()]() mutable { return removal.run(); },
                          [this, tp](const Result<>& removed) { ran(tp, removed); });
}

void Retention::ran(const TopicPartition& tp, const Result<>& removed) {
  const auto found = removals_.find(tp);
  const auto* partition = partitions_.find(tp);
  // The topic was deleted meanwhile, and its log goes as a whole.
  if (found == removals_.end() || partition == nullptr) return;
  auto& removals = found->second;
  removals.is_running = false;
  if (!removed) {
    if (!std::exchange(removals.has_failed, true)) {
      log_warn(
          "broker",
          "old segments of {}-{} cannot be deleted; retention tries again every {} seconds: {}",
          partition->topic_name(), tp.partition,
          std::chrono::duration_cast<std::chrono::seconds>(retry_after).count(),
          removed.error().message);
    }
    if (!retry_timer_.armed() && !shard_.stopping())
      shard_.wheel().schedule(retry_timer_, shard_.tick_after(retry_after));
    return;
  }
  if (std::exchange(removals.has_failed, false)) {
    log_info("broker", "old segments of {}-{} can be deleted again", partition->topic_name(),
             tp.partition);
  }
  removals.waiting.pop_front();
  if (removals.waiting.empty()) {
    removals_.erase(found);
  } else {
    run_first(tp);
  }
}

void Retention::retry() {
  for (auto& [tp, removals] : removals_) {
    if (removals.has_failed && !removals.is_running) run_first(tp);
  }
}

}  // namespace tarry::broker
