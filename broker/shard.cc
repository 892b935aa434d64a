#include "broker/shard.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/groups.h"

namespace tarry::broker {
namespace {

using protocol::ErrorCode;
using std::chrono::milliseconds;

// An idle journal notes that its last round was synced; soon, but not after every round of a
// client that sends one record at a time.
constexpr milliseconds idle_note_after{100};

// Some ten milliseconds: then the others' turn.
constexpr std::size_t completions_a_turn = 4096;

}  // namespace

Shard::Shard(Broker& broker, ShardSetup setup)
    : broker_(broker),
      index_(setup.index),
      executor_(std::move(setup.executor)),
      background_(*setup.background),
      round_lane_(setup.round_lane),
      clock_(broker.clock()),
      epoch_(clock_.mono()),
      checks_(background_, static_cast<std::size_t>(broker.config().decompressed_max_bytes)),
      purgatory_(wheel_),
      checkpointer_(*this),
      idle_note_timer_([this] { journal_->note_idle(); }) {
  purgatory_.set_ready_hook([this] {
    boost::asio::post(executor_,
                      [this] { purgatory_.run_completions(tick(), completions_a_turn); });
  });
  sink_ = std::make_unique<PartitionSink>(*this);
  delay::Engine::Options options;
  options.near_entries = static_cast<std::size_t>(broker.config().near_entries);
  options.wheel_start = epoch_;
  engine_ = std::make_unique<delay::Engine>(clock_, wheel_, broker.pending(), *sink_, options);
  groups_ = std::make_unique<Groups>(*this);
}

Shard::~Shard() = default;

timing::Tick Shard::tick() const {
  return static_cast<timing::Tick>(
      std::chrono::floor<milliseconds>(clock_.mono() - epoch_).count());
}

timing::Tick Shard::tick_after(milliseconds wait) const {
  return static_cast<timing::Tick>(
      std::chrono::ceil<milliseconds>(clock_.mono() - epoch_ + std::max(wait, milliseconds{0}))
          .count());
}

MonoTime Shard::time_of(timing::Tick tick) const {
  // A tick beyond what the clock can say is never reached.
  constexpr auto farthest =
      static_cast<timing::Tick>(milliseconds{std::chrono::years{100}}.count());
  return epoch_ + milliseconds{static_cast<std::int64_t>(std::min(tick, farthest))};
}

// --- The journal

Result<> Shard::open_journal(const storage::RecoveredJournal& recovered) {
  const auto& config = broker_.config();
  storage::JournalOptions options;
  options.directory = fmt::format("{}/journal/{}", config.data_directory, index_);
  options.shard = index_;
  options.file_bytes = static_cast<std::uint64_t>(config.journal_file_bytes);
  options.max_bytes = static_cast<std::uint64_t>(config.journal_max_bytes);
  options.round_lane = round_lane_;
  storage::JournalHooks hooks;
  hooks.on_ready = [this] { boost::asio::post(executor_, [this] { journal_->start_round(); }); };
  hooks.on_failure = [this](const Error& error) { journal_failed(error); };
  hooks.on_pressure = [this] {
    checkpointer_.hurry();
    checkpointer_.look_at_free_space();  // It looks again until there is some.
  };
  hooks.on_postponed = [this](const Error& error) { checkpointer_.retry_later(error); };
  auto journal = storage::Journal::open(broker_.disk(), background_, broker_.random(), clock_,
                                        options, std::move(hooks), recovered);
  if (!journal) return std::unexpected(journal.error());
  journal_ = std::move(*journal);
  checkpointer_.open(options.max_bytes, recovered);
  return {};
}

Result<Lsn> Shard::append(const storage::RecordBuilder& record, storage::When when,
                          storage::JournalUse use, storage::Journal::Completion completion) {
  const auto pieces = record.pieces();
  // The LSN is known when append() returns, and the completion does not run before that.
  auto at = std::make_shared<Lsn>();
  auto lsn = journal_->append(
      pieces,
      [this, at, when, completion = std::move(completion)](const Result<>& written) mutable {
        completion(written);
        if (written) {
          // Every later record has a larger LSN, so this one's own is behind this number.
          // What is durable is written too; of one round, what waits for less is told first.
          const auto reached = static_cast<purgatory::Threshold>(*at);
          if (*at >= written_through_) {
            written_through_ = *at + 1;
            written_waiters.advance_to(reached);
          }
          if (when == storage::When::durable) {
            durable_through_ = *at + 1;
            durable_waiters.advance_to(reached);
          }
        }
        if (!retired_.empty()) remove_retired();
        arm_idle_note();
      },
      when, use);
  if (!lsn) {
    if (lsn.error().code == Errc::no_space) {
      // A large record is refused long before the journal is half full: a checkpoint makes room.
      checkpointer_.hurry();
      checkpointer_.look_at_free_space();
    }
    return lsn;
  }
  *at = *lsn;
  [&]() noexcept {
    checkpointer_.appended(*lsn);
  }();  // The journal has it: nobody is told otherwise.
  return lsn;
}

void Shard::journal_failed(const Error& error) {
  checkpointer_.no_more_room();
  broker_.journal_failed(error);
}

void Shard::arm_idle_note() {
  if (!idle_note_timer_.armed() && !stopping_)
    wheel_.schedule(idle_note_timer_, tick_after(idle_note_after));
}

// --- Partitions

std::shared_ptr<const TopicConfig> Shard::config_of(const storage::Topic& topic) {
  auto& config = configs_[topic.id];
  if (!config) {
    auto made = make_topic_config(broker_.config().topic_defaults, topic.configs);
    if (!made) {
      // It was accepted by another version, or the defaults have changed: what is not understood is
      // left out.
      log_error("broker", "topic {}: {}; the defaults hold", topic.name, made.error().message);
      made = make_topic_config(broker_.config().topic_defaults, {});
    }
    config = std::make_shared<const TopicConfig>(*made);
  }
  return config;
}

void Shard::set_topics(std::shared_ptr<const storage::TopicsImage> topics) {
  const auto before = std::exchange(topics_, std::move(topics));
  for (const auto& topic : before->by_name()) {
    const auto now = topics_->find(topic->id);
    if (now == topic) continue;
    configs_.erase(topic->id);
    if (!now) {
      engine_->topic_deleted(topic->id);
      groups_->topic_deleted(topic->id);
      for (PartitionIndex p = 0; p < topic->partitions; ++p) drop_partition(*topic, p);
    } else {
      for (PartitionIndex p = 0; p < now->partitions; ++p) {
        if (auto* partition = open_partition({now->id, p})) partition->set_config(config_of(*now));
      }
    }
  }
}

void Shard::refuse_topic(const TopicId& topic, bool refuse) {
  if (refuse) {
    refused_.insert(topic);
  } else {
    refused_.erase(topic);
  }
}

std::string Shard::directory_of(const storage::Topic& topic, PartitionIndex partition) const {
  return fmt::format("{}/{}-{}", broker_.config().log_directory, topic.name, partition);
}

Partition* Shard::open_partition(const TopicPartition& tp) {
  const auto found = partitions_.find(tp);
  return found == partitions_.end() ? nullptr : found->second.get();
}

Result<std::unique_ptr<Partition>> Shard::load(const Loading& loading, Broker& broker) {
  // A topic of the same name may have been deleted, and its log not be gone yet, or a crash have
  // come in between.  Its id is not in the catalog any more, or this one could not have the name.
  const auto whose = storage::topic_of_log(broker.disk(), loading.directory);
  if (!whose) return std::unexpected(whose.error());
  if (*whose && **whose != loading.tp.topic) {
    storage::LogRemoval stale(broker.disk(), loading.directory, **whose);
    if (auto removed = stale.run(); !removed) return std::unexpected(removed.error());
  }
  auto log = storage::Log::open(broker.disk(), loading.directory, loading.tp.topic,
                                Partition::log_config_of(*loading.config));
  if (!log) return std::unexpected(log.error());
  auto rows = storage::load_producer_states(broker.meta(), loading.tp);
  if (!rows) return std::unexpected(rows.error());
  storage::ProducerStates::Limits limits;
  limits.expiration = broker.config().producer_id_expiration;
  storage::ProducerStates producers(limits);
  producers.restore(std::move(*rows));
  auto partition =
      std::make_unique<Partition>(*loading.shard, loading.tp, loading.topic_name, loading.config,
                                  std::move(log->log), std::move(producers));
  if (log->damage) partition->found_damage(log->damage->message);
  return partition;
}

std::optional<Shard::Loading> Shard::loading_of(const TopicPartition& tp) {
  const auto topic = topics_->find(tp.topic);
  if (!topic || tp.partition < 0 || tp.partition >= topic->partitions) return std::nullopt;
  return Loading{this, tp, topic->name, directory_of(*topic, tp.partition), config_of(*topic)};
}

void Shard::with_partition(TopicPartition tp, TakePartition take) {
  // Also while those who waited are being told: who comes then stands behind them.
  if (const auto opening = opening_.find(tp); opening != opening_.end()) {
    opening->second.waiting.push_back(std::move(take));
    return;
  }
  if (auto* partition = open_partition(tp)) return take(partition);
  auto loading = loading_of(tp);
  if (!loading) return take(std::unexpected(ErrorCode::unknown_topic_or_partition));
  try {
    opening_[tp].waiting.push_back(std::move(take));
    background_.run(
        [loading = std::move(*loading), broker = &broker_] { return load(loading, *broker); },
        [this, tp](Result<std::unique_ptr<Partition>> partition) {
          opened(tp, std::move(partition));
        });
  } catch (...) {
    opening_.erase(tp);  // Nobody would open it.
    throw;
  }
}

void Shard::opened(TopicPartition tp, Result<std::unique_ptr<Partition>> loaded) {
  std::expected<Partition*, ErrorCode> answer = std::unexpected(ErrorCode::kafka_storage_error);
  if (!loading_of(tp)) {
    answer = std::unexpected(ErrorCode::unknown_topic_or_partition);  // Deleted meanwhile.
    if (loaded) run_removal((*loaded)->log().delete_all());
  } else if (loaded) {
    answer = partitions_.emplace(tp, std::move(*loaded)).first->second.get();
    (*answer)->set_config(config_of(*topics_->find(tp.topic)));
    (*answer)->fence_if_damaged();
    unopened_.erase(tp);
    checkpointer_.retention_soon();
  } else if (auto& told = unopened_[tp]; told != loaded.error().message) {
    // Every request for it tries again; what it comes to is told when it is something else.
    told = loaded.error().message;
    log_error("broker", "partition {}-{} cannot be opened: {}", topics_->find(tp.topic)->name,
              tp.partition, told);
  }
  // In the order of asking.  Who is told may go on at once and ask again.
  auto& waiting = opening_.at(tp).waiting;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    auto take = std::move(waiting[i]);
    take(answer);
  }
  opening_.erase(tp);
}

boost::asio::awaitable<std::expected<Partition*, ErrorCode>> Shard::partition(TopicPartition tp) {
  if (auto* open = open_partition(tp)) co_return open;
  Wakeup ready;
  std::expected<Partition*, ErrorCode> answer =
      std::unexpected(ErrorCode::unknown_topic_or_partition);
  with_partition(tp, [&](std::expected<Partition*, ErrorCode> found) {
    answer = found;
    ready.fire();
  });
  if (!ready.fired()) co_await ready.wait();
  co_return answer;
}

Result<Partition*> Shard::open_now(const TopicPartition& tp) {
  if (auto* open = open_partition(tp)) return open;
  auto loading = loading_of(tp);
  if (!loading) {
    const auto topic = topics_->find(tp.topic);
    return fail(Errc::corrupt,
                fmt::format("the journal names partition {} of topic {}, which has {} partitions",
                            tp.partition, topic ? topic->name : tp.topic.text(),
                            topic ? topic->partitions : 0));
  }
  auto loaded = load(*loading, broker_);
  if (!loaded) return std::unexpected(loaded.error());
  return partitions_.emplace(tp, std::move(*loaded)).first->second.get();
}

void Shard::drop_partition(const storage::Topic& topic, PartitionIndex index) {
  const TopicPartition tp{topic.id, index};
  if (&broker_.shard_of(tp) != this) return;
  unopened_.erase(tp);
  const auto found = partitions_.find(tp);
  if (found == partitions_.end()) {
    if (!opening_.contains(tp)) {
      run_removal(storage::LogRemoval(broker_.disk(), directory_of(topic, index), topic.id));
    }
    return;  // One that is being opened is removed when it is open.
  }
  found->second->retire();
  // Its log goes when nothing of it is on its way any more: completions in the journal and a flush
  // point to the partition.
  retired_.push_back({std::move(found->second), journal_->end_lsn()});
  partitions_.erase(found);
  checkpointer_.forget(tp);
  remove_retired();
}

void Shard::remove_retired() {
  if (checkpointer_.busy()) return;  // Asked again when it is done, as after every record.
  std::erase_if(retired_, [this](Retired& retired) {
    if (journal_->durable_lsn() < retired.appended) return false;
    run_removal(retired.partition->log().delete_all());
    // After who was just woken, and the other completions of this round.
    boost::asio::post(executor_, [partition = std::move(retired.partition)] {});
    return true;
  });
}

Partition* Shard::retired_partition(const TopicPartition& tp) {
  const auto found =
      std::ranges::find(retired_, tp, [](const auto& other) { return other.partition->id(); });
  return found == retired_.end() ? nullptr : found->partition.get();
}

void Shard::run_removal(storage::LogRemoval removal) {
  background_.run([removal = std::move(removal)]() mutable { return removal.run(); },
                  [](Result<> removed) {
                    if (!removed)
                      log_warn("broker", "a deleted log is still there: {}",
                               removed.error().message);
                  });
}

// --- Start and stop

void Shard::start() {
  engine_->start();
  checkpointer_.start();
  if (index_ == 0) {
    background_.run(
        [disk = &broker_.disk(), logs = broker_.config().log_directory] {
          return storage::remove_deleted_logs(*disk, logs);
        },
        [](Result<std::size_t> removed) {
          if (!removed)
            log_warn("broker", "deleted logs are still there: {}", removed.error().message);
        });
  }
}

void Shard::stop(std::move_only_function<void()> then) {
  stopping_ = true;
  idle_note_timer_.cancel();
  groups_->stop();
  purgatory_.cancel_all();
  checkpointer_.stop(std::move(then));
}

}  // namespace tarry::broker
