#include "broker/shard.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "broker/settings/memory_bounds.h"
#include "storage/recovery.h"

namespace tarry::broker {

namespace asio = boost::asio;

namespace {

// The limit of partitions that a change of settings visits in one turn.
constexpr std::size_t partitions_a_turn = 1024;
constexpr std::size_t groups_a_turn = 256;

// Their logs are one piece of work for the pool, so that other work has its turn there too.
constexpr PartitionIndex dropped_a_turn = 64;

delay::Engine::Options engine_options(const BrokerContext& broker, MonoTime wheel_start) {
  delay::Engine::Options options;
  options.memory_bytes =
      delay_memory_of_shard(broker.config.delay_memory_bytes, broker.shard_count);
  options.remember = broker.config.delay_remember;
  options.unwritten_bytes = unwritten_deliveries(broker.config.tail_bytes);
  options.wheel_start = wheel_start;
  return options;
}

delay::Engine::Storage engine_storage(const BrokerContext& broker, std::size_t index,
                                      Background& background) {
  const auto shards = static_cast<std::uint16_t>(broker.shard_count);
  return {*broker.pending,
          background,
          {static_cast<std::uint16_t>(index), shards},
          [shards](const TopicPartition& tp) {
            return static_cast<std::uint16_t>(BrokerContext::shard_index_of(tp, shards));
          },
          *broker.pending_counts,
          [&broker] { return flush_pending_store(broker); }};
}

}  // namespace

Shard::Shard(const BrokerContext& broker, ShardSetup setup,
             std::move_only_function<void(Shard&)> request_sequences,
             WriteDeadLetters write_dead_letters)
    : ShardContext(broker, std::move(setup)),
      write_dead_letters_(std::move(write_dead_letters)),
      notes_(*broker.slips_logged),
      checks_(background(), static_cast<std::size_t>(config().decompressed_max_bytes)),
      partitions_(*this, *this),
      sink_(*this, partitions_,
            [this, want = std::move(request_sequences)]() mutable { want(*this); }),
      engine_(clock(), wheel(), engine_storage(broker, index(), background()), sink_,
              engine_options(broker, time_of(0))),
      groups_(*this),
      shortage_(*this, [this] { checkpointer_.retry(); }),
      free_space_(*this, [this] { checkpointer_.run_now(); }),
      checkpointer_(*this, partitions_, engine_, free_space_, shortage_,
                    [this] { stop_drain_.checkpoint_ended(); }),
      retention_(*this, partitions_, checkpointer_, free_space_),
      stop_drain_(*this, checkpointer_, shortage_) {}

Shard::~Shard() = default;

Result<> Shard::open_journal(const storage::RecoveredJournal& recovered) {
  if (auto opened = ShardContext::open_journal(recovered); !opened) return opened;
  checkpointer_.open(static_cast<std::uint64_t>(config().journal_max_bytes), recovered);
  return {};
}

void Shard::record_completed() {
  if (partitions_.any_retired()) remove_retired_partitions();
}

void Shard::on_journal_pressure() {
  checkpointer_.hurry();
  free_space_.look();  // It looks again until there is some.
}

// --- Settings

void Shard::refresh_config(const TopicPartition& tp) {
  auto* const partition = partitions_.find(tp);
  const auto topic = topics().find(tp.topic);
  if (partition != nullptr && topic) partition->set_config(config_of(*topic));
}

void Shard::set_config(const BrokerConfig& config) {
  if (!exchange_config(config)) return;
  for (const auto& [tp, partition] : partitions_.all()) refresh_config(tp);
}

asio::awaitable<void> Shard::change_config(std::shared_ptr<const BrokerConfig> config) {
  const bool other_retention = this->config().offsets_retention != config->offsets_retention;
  const bool other_defaults = exchange_config(*config);
  free_space_.look();
  retention_.restart_timer();
  if (other_defaults) {
    Partitions::Walk walk;
    const auto refresh = [this](Partition& partition) {
      refresh_config(partition.id());
      return std::size_t{0};
    };
    while (partitions_.walk(walk, partitions_a_turn, refresh))
      co_await asio::post(executor(), asio::use_awaitable);
    retention_.settings_changed();
  }
  if (!other_retention) co_return;
  std::string after;
  while (groups_.retention_changed(after, groups_a_turn))
    co_await asio::post(executor(), asio::use_awaitable);
}

// --- Topics

void Shard::set_topics(std::shared_ptr<const storage::TopicsImage> image) {
  for (const auto& topic : exchange_and_find_deleted(std::move(image))) {
    std::string after;
    while (groups_.topic_deleted(topic->id, after, groups_a_turn)) {
    }
    drop_partitions(*topic, 0, topic->partitions);
  }
}

asio::awaitable<void> Shard::change_topics(std::shared_ptr<const storage::TopicsImage> image) {
  const auto deleted = exchange_and_find_deleted(std::move(image));
  PartitionIndex in_this_turn = 0;
  for (const auto& topic : deleted) {
    std::string after;
    while (groups_.topic_deleted(topic->id, after, groups_a_turn))
      co_await asio::post(executor(), asio::use_awaitable);
    for (PartitionIndex from = 0; from < topic->partitions;) {
      if (in_this_turn == dropped_a_turn) {
        co_await asio::post(executor(), asio::use_awaitable);
        in_this_turn = 0;
      }
      const auto until = std::min(topic->partitions, from + dropped_a_turn - in_this_turn);
      drop_partitions(*topic, from, until);
      in_this_turn += until - from;
      from = until;
    }
  }
}

// Takes over what has changed; the partitions of the topics that it returns are still there.
std::vector<storage::TopicsImage::TopicPtr> Shard::exchange_and_find_deleted(
    std::shared_ptr<const storage::TopicsImage> image) {
  using TopicPtr = storage::TopicsImage::TopicPtr;
  const auto before = exchange_topics(std::move(image));
  std::vector<TopicPtr> deleted;
  const auto take = [&](const TopicPtr& topic, const TopicPtr& now) {
    // config_of() makes it anew, from the topic as it is now.
    forget_config(topic->id);
    if (!now) {
      engine_.topic_deleted(topic->id);
      notes_.forget(topic->id);
      sink_.lags().forget(topic->id);
      deleted.push_back(topic);
      return;
    }
    retention_.settings_changed(now->id);
    for (PartitionIndex p = 0; p < now->partitions; ++p) {
      auto* const partition = partitions_.find({now->id, p});
      if (partition != nullptr) partition->set_config(config_of(*now));
    }
  };
  storage::TopicsImage::changes_between(*before, topics(), take);
  return deleted;
}

void Shard::drop_partitions(const storage::Topic& topic, PartitionIndex from,
                            PartitionIndex until) {
  partitions_.drop(topic, from, until);
  for (PartitionIndex p = from; p < until; ++p) {
    checkpointer_.forget({topic.id, p});
    retention_.forget({topic.id, p});
  }
  remove_retired_partitions();
}

void Shard::remove_retired_partitions() {
  // A checkpoint points to the logs that it flushes; it asks again when it is done.
  if (!checkpointer_.busy()) partitions_.remove_retired();
}

// --- Start and stop

void Shard::start() {
  bind_to_this_thread();
  engine_.start();
  checkpointer_.start();
  retention_.look_later();
  free_space_.look();
  // The directory is that of all shards.
  if (index() != 0) return;
  background().run(
      [disk = broker_context().disk, logs = config().log_directory] {
        return storage::remove_deleted_logs(*disk, logs);
      },
      [](Result<std::size_t> removed) {
        if (!removed)
          log_warn("broker", "the files of deleted logs could not be removed: {}",
                   removed.error().message);
      });
}

void Shard::stop(std::move_only_function<void()> then) {
  // New work is refused first, then requests that wait are let go, and at last everything gathered
  // is written.
  begin_to_stop();
  groups_.stop();
  engine_.stop_waiting();
  purgatory().cancel_all();
  free_space_.stop();
  retention_.stop();
  checkpointer_.stop();
  stop_drain_.start(std::move(then));
}

}  // namespace tarry::broker
