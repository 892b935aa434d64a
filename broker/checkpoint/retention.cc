#include "broker/checkpoint/retention.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

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
#include "storage/log.h"
#include "storage/segment.h"

namespace tarry::broker {
namespace {

// How soon a removal that failed is tried again.  Nothing waits for it but space on the disk.
constexpr std::chrono::milliseconds retry_after{10'000};

// A look at a partition, or a producer that is forgotten, takes a microsecond or so.
constexpr std::size_t work_a_turn = 512;

// Removes what may go of a log that nobody has open, and lets go of it.  When time makes its next
// segment go.  Blocks.
Result<WallTime> remove_of_closed(storage::Disk& disk, const std::string& directory,
                                  const TopicId& topic, const storage::LogConfig& config,
                                  WallTime now) {
  auto opened = storage::Log::open(disk, directory, topic, config);
  if (!opened) return std::unexpected(opened.error());
  if (opened->damage) return fail(Errc::corrupt, opened->damage->message);
  // The contents of segments are durable.
  auto plan = opened->log.plan_retention(now, opened->log.end_offset());
  if (plan.removal) {
    if (auto removed = plan.removal->run(); !removed) return std::unexpected(removed.error());
  }
  return plan.next.value_or(WallTime::max());
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
  // The look under way may have passed the partition already.
  if (is_looking_) {
    look_again_ = true;
    return;
  }
  if (!look_timer_.armed() && !shard_.stopping()) {
    shard_.wheel().schedule(look_timer_, shard_.tick_after(shard_.config().retention_check));
  }
}

void Retention::stop() {
  look_timer_.cancel();
  retry_timer_.cancel();
}

void Retention::settings_changed(const TopicId& topic) {
  changed_.insert(topic);
  look_later();
}

void Retention::settings_changed() {
  all_changed_ = true;
  look_later();
}

void Retention::look() {
  is_looking_ = true;
  // A directory that is away may come back.
  look_again_ = shard_.lost_directory();
  if (!shard_.lost_directory()) look_at_closed();
  walk_ = {};
  look_at_some();
}

void Retention::look_at_some() {
  if (shard_.stopping()) return;
  const WallTime now = shard_.clock().wall();
  const bool more = partitions_.walk(walk_, work_a_turn, [&](Partition& partition) {
    // The files of a partition that is out of service are the operator's.
    if (partition.fenced()) return std::size_t{0};
    const auto gone = partition.expire_producers(now, shard_.config().producer_id_expiration);
    const auto next = remove_old_segments(partition);
    look_again_ = look_again_ || next.has_value() || partition.may_expire();
    // A segment is to be closed before it can go.
    if (partition.is_dirty()) checkpointer_.note_dirty(partition, 0);
    return gone;
  });
  if (more) return boost::asio::post(shard_.executor(), [this] { look_at_some(); });
  is_looking_ = false;
  free_space_.look();
  if (look_again_) look_later();
}

// --- Partitions that nobody has open

// To open one without a segment would give it a directory.  Blocks.
Result<std::vector<Retention::Closed>> Retention::find_closed(const BrokerContext& broker,
                                                              const std::string& logs,
                                                              const storage::TopicsImage& topics,
                                                              std::size_t shard) {
  const auto directories = broker.disk->list(logs);
  if (!directories) return std::unexpected(directories.error());
  std::vector<Closed> found;
  for (const auto& topic : topics.by_name()) {
    for (PartitionIndex index = 0; index < topic->partitions; ++index) {
      const TopicPartition id{topic->id, index};
      if (broker.shard_index_of(id) != shard) continue;
      const std::string name = fmt::format("{}-{}", topic->name, index);
      if (!std::ranges::binary_search(*directories, name, {}, &storage::DirectoryEntry::name))
        continue;
      const auto files = broker.disk->list(fmt::format("{}/{}", logs, name));
      if (!files && files.error().code == Errc::exhausted) return std::unexpected(files.error());
      if (!files) continue;  // A request that opens it gets the error.
      const bool has_segment = std::ranges::any_of(
          *files, [](const auto& file) { return storage::segment_base(file.name).has_value(); });
      if (has_segment) found.push_back({id, WallTime::min()});
    }
  }
  return found;
}

void Retention::look_at_closed() {
  if (is_looking_at_closed_) return;
  if (has_found_closed_) return go_through_closed();
  is_looking_at_closed_ = true;
  shard_.background().run(
      [broker = &shard_.broker_context(), logs = shard_.config().log_directory,
       topics = shard_.topics_image(),
       shard = std::size_t{shard_.index()}] { return find_closed(*broker, logs, *topics, shard); },
      [this](Result<std::vector<Closed>> found) {
        is_looking_at_closed_ = false;
        if (!found) return look_later();
        has_found_closed_ = true;
        closed_ = std::move(*found);
        go_through_closed();
      });
}

void Retention::go_through_closed() {
  if (all_changed_ || !changed_.empty()) {
    for (auto& closed : closed_) {
      if (all_changed_ || changed_.contains(closed.id.topic)) closed.look_at = WallTime::min();
    }
    changed_.clear();
    all_changed_ = false;
  }
  is_looking_at_closed_ = true;
  next_closed_ = 0;
  look_at_next();
}

void Retention::look_at_next() {
  const WallTime now = shard_.clock().wall();
  while (next_closed_ < closed_.size() && closed_[next_closed_].look_at > now) ++next_closed_;
  if (next_closed_ == closed_.size()) {
    shortage_is_told_ = false;
    return end_look_at_closed();
  }
  // Those that it has not come to are looked at the next time.
  if (shard_.stopping() || shard_.lost_directory()) return end_look_at_closed();
  const TopicPartition id = closed_[next_closed_].id;
  const bool is_begun = partitions_.visit(
      id,
      [disk = shard_.broker_context().disk, topic = id.topic, now](
          const std::string& directory, const storage::LogConfig& config) {
        return remove_of_closed(*disk, directory, topic, config, now);
      },
      [this](const Result<WallTime>& next) { looked_at(next); });
  if (is_begun) return;
  if (partitions_.find(id) != nullptr || !shard_.topics().find(id.topic)) {
    forget_next();  // One that is open is looked at with the others.
  } else {
    ++next_closed_;  // It is being opened, which may fail.
  }
  boost::asio::post(shard_.executor(), [this] { look_at_next(); });
}

void Retention::looked_at(const Result<WallTime>& next) {
  if (next) {
    closed_[next_closed_++].look_at = *next;
    return look_at_next();
  }
  if (next.error().code == Errc::exhausted) {
    if (!std::exchange(shortage_is_told_, true)) {
      log_warn("broker",
               "retention cannot look for old segments of partitions that nobody uses, and tries "
               "again at its next check: {}",
               next.error().message);
    }
    return end_look_at_closed();
  }
  // Opened, it is reported and taken out of service, or what has failed is tried again.
  partitions_.with(closed_[next_closed_].id, [this](const Partitions::Found& found) {
    if (found) {
      forget_next();
    } else {
      ++next_closed_;
    }
    // In a later turn, because it may have been open already.
    boost::asio::post(shard_.executor(), [this] { look_at_next(); });
  });
}

void Retention::forget_next() {
  closed_[next_closed_] = closed_.back();
  closed_.pop_back();
}

void Retention::end_look_at_closed() {
  is_looking_at_closed_ = false;
  const auto waits = [](const Closed& closed) { return closed.look_at < WallTime::max(); };
  // A look that changed settings have asked for may have found this one under way.
  if (all_changed_ || !changed_.empty() || std::ranges::any_of(closed_, waits)) look_later();
}

// --- Those that are open

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
