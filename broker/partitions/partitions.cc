#include "broker/partitions/partitions.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/log.h"
#include "broker/context/one_shot_event.h"
#include "broker/partitions/partition_host.h"
#include "storage/producer_states.h"
#include "storage/retention.h"

namespace tarry::broker {

using protocol::ErrorCode;

std::string Partitions::directory_of(const storage::Topic& topic, PartitionIndex partition) const {
  return fmt::format("{}/{}-{}", shard_.config().log_directory, topic.name, partition);
}

Partition* Partitions::find(const TopicPartition& tp) const {
  shard_.assert_on_shard();
  const auto found = open_.find(tp);
  return found == open_.end() ? nullptr : found->second.get();
}

Result<std::unique_ptr<Partition>> Partitions::load(const Loading& loading) const {
  const BrokerContext& broker = shard_.broker_context();
  const auto whose = storage::topic_of_log(*broker.disk, loading.directory);
  if (!whose) return std::unexpected(whose.error());
  if (*whose && **whose != loading.tp.topic) {
    // Somebody has moved it here by hand, and it has that topic's records.
    if (const auto owner = loading.topics->find(**whose)) {
      return fail(Errc::corrupt,
                  fmt::format("{}: is a log of the topic {}, which exists: stop the broker, move "
                              "the directory back, and start again",
                              loading.directory, owner->name));
    }
    // A topic of the same name may have been deleted, and its log not be gone yet, or a crash have
    // come in between.  Its id is not in the catalog any more, or this one could not have the name.
    storage::LogRemoval stale(*broker.disk, loading.directory, **whose);
    if (auto removed = stale.run(); !removed) return std::unexpected(removed.error());
  }
  auto log = storage::Log::open(*broker.disk, loading.directory, loading.tp.topic,
                                Partition::log_config_of(*loading.config));
  if (!log) return std::unexpected(log.error());
  auto rows = storage::load_producer_states(*broker.meta, loading.tp);
  if (!rows) return std::unexpected(rows.error());
  storage::ProducerStates producers;
  producers.restore(std::move(*rows));
  auto partition =
      std::make_unique<Partition>(shard_, host_, loading.tp, loading.topic_name, loading.config,
                                  std::move(log->log), std::move(producers));
  // No error yet: in recovery the journal may have what follows the good end.
  if (log->damage) partition->found_damage(log->damage->message);
  return partition;
}

std::optional<Partitions::Loading> Partitions::loading_of(const TopicPartition& tp) {
  const auto topic = shard_.topics().find(tp.topic);
  // Only now: while it was opened the topic may have been deleted.
  if (!topic || tp.partition < 0 || tp.partition >= topic->partitions) return std::nullopt;
  return Loading{tp, topic->name, directory_of(*topic, tp.partition), shard_.config_of(*topic),
                 shard_.topics_image()};
}

void Partitions::with(TopicPartition tp, Take take) {
  shard_.assert_on_shard();
  // It is here also while the waiting callers are being called: a later one comes after them.
  if (const auto opening = opening_.find(tp); opening != opening_.end()) {
    opening->second.waiting.push_back(std::move(take));
    return;
  }
  if (auto* partition = find(tp)) return take(partition);
  // Its log would be made anew, empty, where the directory is not.
  if (shard_.lost_directory()) return take(std::unexpected(ErrorCode::kafka_storage_error));
  auto loading = loading_of(tp);
  if (!loading) return take(std::unexpected(ErrorCode::unknown_topic_or_partition));
  try {
    // Before the pool is asked, so that a second caller waits for the same log.
    opening_[tp].waiting.push_back(std::move(take));
    begin_load(std::move(*loading));
  } catch (...) {
    opening_.erase(tp);  // Nobody would open it.
    throw;
  }
}

void Partitions::begin_load(Loading loading) {
  const TopicPartition tp = loading.tp;
  shard_.background().run([this, loading = std::move(loading)] { return load(loading); },
                          [this, tp](Result<std::unique_ptr<Partition>> partition) {
                            opened(tp, std::move(partition));
                          });
}

bool Partitions::visit(const TopicPartition& tp, Visit work, Visited done) {
  shard_.assert_on_shard();
  if (opening_.contains(tp) || find(tp) != nullptr) return false;
  auto loading = loading_of(tp);
  if (!loading) return false;
  const auto visited = std::make_shared<const Loading>(std::move(*loading));
  try {
    opening_.try_emplace(tp);  // From here on whoever asks for it waits.
    shard_.background().run(
        [visited, work = std::move(work)]() mutable {
          return work(visited->directory, Partition::log_config_of(*visited->config));
        },
        [this, visited, done = std::move(done)](Result<WallTime> next) mutable {
          end_visit(*visited);
          done(std::move(next));
        });
  } catch (...) {
    opening_.erase(tp);
    throw;
  }
  return true;
}

void Partitions::end_visit(const Loading& visited) {
  const TopicPartition& tp = visited.tp;
  auto loading = loading_of(tp);
  if (!loading) {
    // Deleted meanwhile: drop() left its files to us.
    std::vector<storage::LogRemoval> removals;
    removals.emplace_back(*shard_.broker_context().disk, visited.directory, tp.topic);
    removals_.add(shard_.background(), std::move(removals));
    opened(tp, fail(Errc::not_found, "the topic is deleted"));
  } else if (opening_.at(tp).waiting.empty()) {
    opening_.erase(tp);
  } else {
    begin_load(std::move(*loading));
  }
}

void Partitions::opened(TopicPartition tp, Result<std::unique_ptr<Partition>> loaded) {
  Found answer = std::unexpected(ErrorCode::kafka_storage_error);
  if (!loading_of(tp)) {
    answer = std::unexpected(ErrorCode::unknown_topic_or_partition);  // Deleted meanwhile.
    // drop() left it to us, because it was still being opened.
    if (loaded) {
      std::vector<storage::LogRemoval> removals;
      removals.push_back((*loaded)->removal());
      removals_.add(shard_.background(), std::move(removals));
    }
  } else if (loaded) {
    answer = open_.emplace(tp, std::move(*loaded)).first->second.get();
    // The config may have changed while the log was opened.
    (*answer)->set_config(shard_.config_of(*shard_.topics().find(tp.topic)));
    (*answer)->fence_if_damaged();
    unopened_.erase(tp);
    host_.opened(**answer);
  } else if (auto& told = unopened_[tp]; told != loaded.error().message) {
    // Every request for it tries again; the outcome is logged when it is another one.
    told = loaded.error().message;
    log_error("broker", "partition {}-{} cannot be opened: {}",
              shard_.topics().find(tp.topic)->name, tp.partition, told);
  }
  // In the order of asking.  A caller may go on at once and ask again.
  auto& waiting = opening_.at(tp).waiting;
  // By index, because those that are called may add to the list.
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    auto take = std::move(waiting[i]);
    take(answer);
  }
  opening_.erase(tp);
}

boost::asio::awaitable<Partitions::Found> Partitions::open(TopicPartition tp) {
  if (auto* found = find(tp)) co_return found;
  OneShotEvent ready;
  Found answer = std::unexpected(ErrorCode::unknown_topic_or_partition);
  with(tp, [&](Found found) {
    answer = found;
    ready.fire();
  });
  if (!ready.fired()) co_await ready.wait();
  co_return answer;
}

Result<Partition*> Partitions::open_now(const TopicPartition& tp) {
  if (auto* found = find(tp)) return found;
  auto loading = loading_of(tp);
  if (!loading) {
    const auto topic = shard_.topics().find(tp.topic);
    return fail(
        Errc::corrupt,
        fmt::format("the journal names partition {} of topic {}, which has only {} partitions",
                    tp.partition, topic ? topic->name : tp.topic.text(),
                    topic ? topic->partitions : 0));
  }
  auto loaded = load(*loading);
  if (!loaded) return std::unexpected(loaded.error());
  return open_.emplace(tp, std::move(*loaded)).first->second.get();
}

bool Partitions::walk(Walk& progress, std::size_t work,
                      const std::function<std::size_t(Partition&)>& look) const {
  shard_.assert_on_shard();
  auto& [place, places] = progress;
  // An element stays in its place of the table until the table grows.
  if (places != open_.bucket_count()) progress = {0, open_.bucket_count()};
  for (std::size_t done = 0; done < work && place < places; ++place) {
    ++done;
    for (auto at = open_.begin(place); at != open_.end(place); ++at) done += 1 + look(*at->second);
  }
  return place < places;
}

std::vector<Partitions::OutOfService> Partitions::out_of_service(std::size_t most) const {
  shard_.assert_on_shard();
  std::vector<OutOfService> some;
  for (const auto* const of : {&out_of_service_, &unopened_}) {
    for (const auto& [id, reason] : *of) {
      if (some.size() == most) return some;
      some.push_back({id, reason});
    }
  }
  return some;
}

const std::string* Partitions::unopened_reason(const TopicPartition& tp) const {
  shard_.assert_on_shard();
  const auto found = unopened_.find(tp);
  return found == unopened_.end() ? nullptr : &found->second;
}

void Partitions::note_out_of_service(const Partition& partition) {
  shard_.assert_on_shard();
  out_of_service_[partition.id()] = *partition.fence_reason();
}

void Partitions::drop(const storage::Topic& topic, PartitionIndex from, PartitionIndex until) {
  shard_.assert_on_shard();
  std::vector<storage::LogRemoval> unopened;
  for (PartitionIndex index = from; index < until; ++index) {
    const TopicPartition tp{topic.id, index};
    if (!shard_.owns(tp)) continue;
    unopened_.erase(tp);
    out_of_service_.erase(tp);
    const auto found = open_.find(tp);
    if (found == open_.end()) {
      // One that is being opened is removed when it is open.
      if (!opening_.contains(tp)) {
        unopened.emplace_back(*shard_.broker_context().disk, directory_of(topic, index), topic.id);
      }
      continue;
    }
    found->second->retire();
    // Its log goes when nothing of it is on its way any more: completions in the journal and a
    // flush point to the partition.
    retired_.push_back({std::move(found->second), shard_.journal().end_lsn()});
    open_.erase(found);
  }
  removals_.add(shard_.background(), std::move(unopened));
}

void Partitions::remove_retired() {
  shard_.assert_on_shard();
  std::vector<storage::LogRemoval> removals;
  std::erase_if(retired_, [&](Retired& retired) {
    // Completions that point to it come up to here.
    if (shard_.journal().durable_lsn() < retired.appended) return false;
    removals.push_back(retired.partition->removal());
    // After who was just woken, and the other completions of this round.
    boost::asio::post(shard_.executor(), [partition = std::move(retired.partition)] {});
    return true;
  });
  removals_.add(shard_.background(), std::move(removals));
}

Partition* Partitions::retired(const TopicPartition& tp) const {
  shard_.assert_on_shard();
  const auto found =
      std::ranges::find(retired_, tp, [](const auto& other) { return other.partition->id(); });
  return found == retired_.end() ? nullptr : found->partition.get();
}

}  // namespace tarry::broker
