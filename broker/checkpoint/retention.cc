#include "broker/checkpoint/retention.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/background.h"
#include "base/log.h"
#include "broker/checkpoint/checkpointer.h"
#include "broker/checkpoint/free_space.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/partition.h"
#include "broker/partitions/partitions.h"
#include "storage/catalog.h"
#include "storage/file.h"
#include "storage/segment.h"

namespace tarry::broker {
namespace {

// How soon a removal that failed is tried again.  Nothing waits for it but space on the disk.
constexpr std::chrono::milliseconds retry_after{10'000};

// The partitions of a shard whose logs have a segment: to open the others would give each a
// directory.  Blocks.
Result<std::vector<TopicPartition>> partitions_with_segments(const BrokerContext& broker,
                                                             const std::string& logs,
                                                             const storage::TopicsImage& topics,
                                                             std::size_t shard) {
  const auto directories = broker.disk->list(logs);
  if (!directories) return std::unexpected(directories.error());
  std::vector<TopicPartition> found;
  for (const auto& topic : topics.by_name()) {
    for (PartitionIndex index = 0; index < topic->partitions; ++index) {
      const TopicPartition id{topic->id, index};
      if (broker.shard_index_of(id) != shard) continue;
      const std::string name = fmt::format("{}-{}", topic->name, index);
      if (!std::ranges::binary_search(*directories, name, {}, &storage::DirectoryEntry::name))
        continue;
      const auto files = broker.disk->list(fmt::format("{}/{}", logs, name));
      if (!files) continue;  // Who opens it is told why.
      const bool has_segment = std::ranges::any_of(
          *files, [](const auto& file) { return storage::segment_base(file.name).has_value(); });
      if (has_segment) found.push_back(id);
    }
  }
  return found;
}

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
  if (!shard_.lost_directory() && !std::exchange(has_sought_unused_, true)) find_unused();
  // A directory that is away may come back.
  bool any = shard_.lost_directory();
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

void Retention::find_unused() {
  shard_.background().run(
      [broker = &shard_.broker_context(), logs = shard_.config().log_directory,
       topics = shard_.topics_image(), shard = std::size_t{shard_.index()}] {
        return partitions_with_segments(*broker, logs, *topics, shard);
      },
      [this](Result<std::vector<TopicPartition>> found) {
        if (!found) {
          has_sought_unused_ = false;
          return look_later();
        }
        unused_ = std::move(*found);
        open_next();
      });
}

// One that is open now is looked at with the others.
void Retention::open_next() {
  if (unused_.empty() || shard_.stopping()) return;
  if (shard_.lost_directory()) {
    unused_.clear();
    has_sought_unused_ = false;
    return look_later();
  }
  const TopicPartition next = unused_.back();
  unused_.pop_back();
  partitions_.with(next, [this](const Partitions::Found&) {
    // In a later turn, because it may have been open already.
    boost::asio::post(shard_.executor(), [this] { open_next(); });
  });
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
