#include "broker/shard.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "broker/broker.h"

namespace tarry::broker {
namespace {

using protocol::ErrorCode;
using std::chrono::milliseconds;

// An idle journal notes that its last round was synced; soon, but not after every round of a
// client that sends one record at a time.
constexpr milliseconds idle_note_after{100};

// While the disk is full: how often we look whether it still is.
constexpr milliseconds space_check_every{1000};

// Logs written by one piece of background work: few enough that others get their turn.
constexpr std::size_t logs_per_flush = 64;

// Of dropped topics, freed at each checkpoint.
constexpr std::size_t entries_per_sweep = 20'000;

}  // namespace

Shard::Shard(Broker& broker, ShardSetup setup)
    : broker_(broker),
      index_(setup.index),
      executor_(std::move(setup.executor)),
      background_(*setup.background),
      clock_(broker.clock()),
      epoch_(clock_.mono()),
      purgatory_(wheel_),
      checkpoint_timer_([this] { want_checkpoint(); }),
      idle_note_timer_([this] { journal_->note_idle(); }),
      retention_timer_([this] { check_retention(); }),
      space_timer_([this] { look_at_free_space(); }),
      drain_timer_([this] { drain(); }) {
  purgatory_.set_ready_hook(
      [this] { boost::asio::post(executor_, [this] { purgatory_.run_completions(tick()); }); });
  sink_ = std::make_unique<PartitionSink>(*this);
  delay::Engine::Options options;
  options.near_entries = static_cast<std::size_t>(broker.config().near_entries);
  options.wheel_start = epoch_;
  engine_ = std::make_unique<delay::Engine>(clock_, wheel_, broker.pending(), *sink_, options);
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

// --- The journal ------------------------------------------------------------------------------

Result<> Shard::open_journal(const storage::RecoveredJournal& recovered) {
  const auto& config = broker_.config();
  storage::JournalOptions options;
  options.directory = fmt::format("{}/journal/{}", config.data_directory, index_);
  options.shard = index_;
  options.file_bytes = static_cast<std::uint64_t>(config.journal_file_bytes);
  options.max_bytes = static_cast<std::uint64_t>(config.journal_max_bytes);
  storage::JournalHooks hooks;
  hooks.on_ready = [this] { boost::asio::post(executor_, [this] { journal_->start_round(); }); };
  hooks.on_failure = [this](const Error& error) { journal_failed(error); };
  hooks.on_pressure = [this] {
    checkpoint_->hurry();
    want_checkpoint_soon();
  };
  auto journal = storage::Journal::open(broker_.disk(), background_, broker_.random(), clock_,
                                        options, std::move(hooks), recovered);
  if (!journal) return std::unexpected(journal.error());
  journal_ = std::move(*journal);
  storage::Checkpoint::Policy policy;
  policy.dirty_bytes = options.max_bytes / 4;
  policy.interval = config.checkpoint_interval;
  checkpoint_ = std::make_unique<storage::Checkpoint>(policy, recovered.checkpoint, recovered.end,
                                                      clock_.mono());
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
      checkpoint_->hurry();
      boost::asio::post(executor_, [this] { want_checkpoint(); });
      look_at_free_space();
    }
    return lsn;
  }
  *at = *lsn;
  checkpoint_->appended(*lsn, clock_.mono());
  arm_checkpoint();
  return lsn;
}

void Shard::journal_failed(const Error& error) {
  has_room_ = false;
  broker_.journal_failed(error);
}

void Shard::arm_idle_note() {
  if (!idle_note_timer_.armed() && !stopping_)
    wheel_.schedule(idle_note_timer_, tick_after(idle_note_after));
}

// --- Partitions -------------------------------------------------------------------------------

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
  opening_[tp].waiting.push_back(std::move(take));
  background_.run(
      [loading = std::move(*loading), broker = &broker_] { return load(loading, *broker); },
      [this, tp](Result<std::unique_ptr<Partition>> partition) {
        opened(tp, std::move(partition));
      });
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
    retention_soon();
  } else {
    const auto topic = topics_->find(tp.topic);
    log_error("broker", "partition {}-{} cannot be opened: {}", topic->name, tp.partition,
              loaded.error().message);
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
  co_await ready.wait();
  co_return answer;
}

Result<Partition*> Shard::open_now(const TopicPartition& tp) {
  if (auto* open = open_partition(tp)) return open;
  auto loading = loading_of(tp);
  TARRY_ASSERT(loading.has_value(), "recovery asks for partitions of topics that there are");
  auto loaded = load(*loading, broker_);
  if (!loaded) return std::unexpected(loaded.error());
  return partitions_.emplace(tp, std::move(*loaded)).first->second.get();
}

Result<> Shard::flush_now() {
  for (auto& [tp, partition] : partitions_) {
    if (partition->fenced()) continue;
    if (auto flush = partition->log().plan_flush(partition->log().end_offset())) {
      auto done = flush->run(true);
      if (!done) return std::unexpected(done.error());
      partition->log().flushed(std::move(*done));
    }
    const auto rows = partition->producers().changes(std::numeric_limits<Lsn>::max());
    if (auto saved = storage::save_producer_states(broker_.meta(), tp, rows); !saved) return saved;
    partition->noted_dirty = false;
  }
  dirty_.clear();
  dirty_bytes_ = 0;
  return {};
}

void Shard::drop_partition(const storage::Topic& topic, PartitionIndex index) {
  const TopicPartition tp{topic.id, index};
  if (&broker_.shard_of(tp) != this) return;
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
  std::erase(dirty_, tp);
  remove_retired();
}

void Shard::remove_retired() {
  if (checkpointing_) return;  // Asked again when it is done, as after every record.
  std::erase_if(retired_, [this](Retired& retired) {
    if (journal_->durable_lsn() < retired.appended) return false;
    run_removal(retired.partition->log().delete_all());
    // After who was just woken, and the other completions of this round.
    boost::asio::post(executor_, [partition = std::move(retired.partition)] {});
    return true;
  });
}

void Shard::run_removal(storage::LogRemoval removal) {
  background_.run([removal = std::move(removal)]() mutable { return removal.run(); },
                  [](Result<> removed) {
                    if (!removed)
                      log_warn("broker", "a deleted log is still there: {}",
                               removed.error().message);
                  });
}

// --- What is written behind the journal ---------------------------------------------------------

void Shard::note_dirty(Partition& partition, std::size_t bytes) {
  if (partition.retired()) return;
  if (!partition.noted_dirty) {
    partition.noted_dirty = true;
    dirty_.push_back(partition.id());
  }
  dirty_bytes_ += bytes;
  // While recovery replays there is no checkpoint yet; the first append after it asks again.
  if (checkpoint_ && dirty_bytes_ > static_cast<std::size_t>(broker_.config().tail_bytes) / 2) {
    checkpoint_->hurry();
    want_checkpoint_soon();
  }
}

void Shard::arm_checkpoint() {
  if (checkpoint_timer_.armed() || stopping_) return;
  if (const auto at = checkpoint_->wanted_at()) {
    wheel_.schedule(checkpoint_timer_,
                    tick_after(std::chrono::ceil<milliseconds>(*at - clock_.mono())));
  }
}

// Not in this turn: a round's LSN is durable before the last of its records has been applied.
void Shard::want_checkpoint_soon() {
  if (checkpointing_ || std::exchange(checkpoint_posted_, true)) return;
  boost::asio::post(executor_, [this] {
    checkpoint_posted_ = false;
    want_checkpoint();
  });
}

void Shard::want_checkpoint() {
  if (checkpointing_ || !journal_ || journal_->has_failed()) return;
  if (stopping_ && !stopped_) return;  // It was the last one.
  if (!stopping_ && !checkpoint_->wanted(clock_.mono())) return arm_checkpoint();
  start_checkpoint();
}

void Shard::start_checkpoint() {
  checkpointing_ = true;
  // Everything durable has been applied by now: a round's completions all run in one turn, which
  // this one is not.
  TARRY_ASSERT(checkpoint_->begin(journal_->durable_lsn(), clock_.mono()) ==
                   storage::Checkpoint::Step::save_states,
               "a checkpoint begins with the producers");
  dirty_bytes_ = 0;
  auto logs = std::exchange(dirty_, {});
  Result<> saved;
  for (const auto& tp : logs) {
    if (auto* partition = open_partition(tp)) partition->noted_dirty = false;
  }
  // A parked batch leaves its log clean and its producer changed, so all are asked.
  for (auto& [tp, partition] : partitions_) {
    const auto rows = partition->producers().changes(checkpoint_->target());
    if (rows.empty()) continue;
    saved = storage::save_producer_states(broker_.meta(), tp, rows);
    if (!saved) break;
  }
  checkpoint_->finished(saved);
  if (!saved) return checkpoint_failed(saved.error());
  flush_logs(std::move(logs), 0);
}

void Shard::flush_logs(std::vector<TopicPartition> logs, std::size_t from) {
  struct One {
    TopicPartition tp;
    storage::Flush flush;
    Result<storage::FlushDone> done = storage::FlushDone{};
  };
  auto batch = std::make_shared<std::vector<One>>();
  for (; from < logs.size() && batch->size() < logs_per_flush; ++from) {
    auto* partition = open_partition(logs[from]);
    if (partition == nullptr) continue;
    if (auto flush = partition->log().plan_flush(partition->high_watermark())) {
      batch->push_back({logs[from], std::move(*flush)});
    }
  }
  if (batch->empty()) return logs_are_flushed({});
  background_.run(
      [batch] {
        for (auto& one : *batch) one.done = one.flush.run(true);
        return 0;
      },
      [this, batch, logs = std::move(logs), from](int) mutable {
        std::optional<Error> failed;
        for (auto& one : *batch) {
          auto* partition = open_partition(one.tp);
          if (partition == nullptr) {
            // Deleted meanwhile: its files go when the checkpoint is over, whatever came of this.
            const auto retired = std::ranges::find(
                retired_, one.tp, [](const auto& other) { return other.partition->id(); });
            TARRY_ASSERT(retired != retired_.end(), "a log that is being flushed is kept");
            auto& log = retired->partition->log();
            one.done ? log.flushed(std::move(*one.done)) : log.flush_failed(one.done.error());
            continue;
          }
          if (one.done) {
            partition->log().flushed(std::move(*one.done));
            partition->log().trim_tail(tail_share());
          } else {
            partition->log().flush_failed(one.done.error());
            note_dirty(*partition, 0);
            failed = one.done.error();
          }
        }
        if (failed) {
          for (; from < logs.size(); ++from) {  // Not tried: they are the next checkpoint's.
            if (auto* partition = open_partition(logs[from])) note_dirty(*partition, 0);
          }
          return logs_are_flushed(std::unexpected(*failed));
        }
        flush_logs(std::move(logs), from);
      });
}

std::size_t Shard::tail_share() const {
  // Half of the budget is for what is not written yet; the rest is shared by those who read behind.
  const auto share = static_cast<std::size_t>(broker_.config().tail_bytes) / 2 /
                     std::max<std::size_t>(partitions_.size(), 1);
  return std::max<std::size_t>(share, 16 * 1024);
}

void Shard::logs_are_flushed(Result<> flushed) {
  if (!flushed) {
    if (flushed.error().code != Errc::no_space) return checkpoint_failed(flushed.error());
    // Nothing is lost: the journal has it.  The next try comes with the next look at the disk.
    if (has_room_) {
      log_error("broker", "the disk is full, logs are not written: {}", flushed.error().message);
    }
    has_room_ = false;
    abandon_checkpoint();
    if (!stopping_) wheel_.schedule(space_timer_, tick_after(space_check_every));
    return;
  }
  checkpoint_->finished({});  // Written,
  checkpoint_->finished({});  // and synced by the same work.
  background_.run(
      [broker = &broker_, now = clock_.wall()]() -> Result<> {
        if (auto swept = broker->pending().sweep(now, entries_per_sweep); !swept) {
          return std::unexpected(swept.error());
        }
        if (auto meta = broker->meta().flush(); !meta) return meta;
        return broker->pending_database().flush();
      },
      [this](Result<> result) {
        checkpoint_->finished(result);  // Meta,
        if (!result) return checkpoint_failed(result.error());
        checkpoint_->finished(result);  // and what is pending.
        journal_->checkpoint(checkpoint_->target(), [this](const Result<>& noted) {
          checkpoint_->finished(noted);
          if (!noted) return checkpoint_failed(noted.error());
          ++checkpoints_total;
          finish_checkpoint();
        });
      });
}

void Shard::abandon_checkpoint() {
  checkpoint_->abandon(clock_.mono());
  finish_checkpoint();
}

void Shard::finish_checkpoint() {
  checkpointing_ = false;
  remove_retired();
  if (!stopping_) return want_checkpoint_soon();
  // Else it was begun before all was in the journal, and drain() looks again.
  if (!drain_timer_.armed()) tell_stopped();
}

void Shard::checkpoint_failed(const Error& error) {
  journal_failed(error);
  checkpointing_ = false;
  tell_stopped();
}

void Shard::look_at_free_space() {
  if (looking_at_space_ || stopping_) return;
  looking_at_space_ = true;
  background_.run(
      [disk = &broker_.disk(), directory = broker_.config().data_directory] {
        return disk->free_space(directory);
      },
      [this](Result<std::uint64_t> free) {
        looking_at_space_ = false;
        journal_->retry_space();
        const bool room =
            free && *free >= static_cast<std::uint64_t>(broker_.config().disk_reserve_bytes) &&
            journal_->has_room(1, storage::JournalUse::work);
        if (room != has_room_) {
          if (room) {
            log_info("broker", "there is room on the disk again: records are taken");
          } else {
            log_error("broker",
                      "{} has {} bytes free, tarry.disk.reserve.bytes is {}: no records are taken "
                      "until there is more",
                      broker_.config().data_directory, free.value_or(0),
                      broker_.config().disk_reserve_bytes);
          }
          has_room_ = room;
        }
        if (!has_room_) {
          checkpoint_->hurry();
          want_checkpoint();
          wheel_.schedule(space_timer_, tick_after(space_check_every));
        }
      });
}

// --- Retention --------------------------------------------------------------------------------

void Shard::retention_soon() {
  if (!retention_timer_.armed() && !stopping_) {
    wheel_.schedule(retention_timer_, tick_after(broker_.config().retention_check));
  }
}

void Shard::check_retention() {
  bool any = false;
  const WallTime now = clock_.wall();
  for (auto& [tp, partition] : partitions_) {
    if (partition->fenced()) continue;
    partition->producers().expire(now);
    auto plan = partition->log().plan_retention(now, partition->high_watermark());
    any = any || plan.next.has_value() || partition->log().size_bytes() > 0 ||
          partition->producers().size() > 0;
    if (partition->log().dirty()) note_dirty(*partition, 0);  // A segment is to be closed first.
    if (!plan.removal) continue;
    background_.run([removal = std::move(*plan.removal)]() mutable { return removal.run(); },
                    [name = partition->topic_name(), index = tp.partition](Result<> removed) {
                      if (!removed) {
                        log_warn("broker", "old segments of {}-{} are still there: {}", name, index,
                                 removed.error().message);
                      }
                    });
  }
  look_at_free_space();
  if (any) retention_soon();
}

// --- Start and stop ---------------------------------------------------------------------------

void Shard::start() {
  engine_->start();
  arm_checkpoint();
  retention_soon();
  look_at_free_space();
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
  checkpoint_timer_.cancel();
  retention_timer_.cancel();
  space_timer_.cancel();
  purgatory_.cancel_all();
  stopped_ = std::move(then);
  drain();
}

void Shard::tell_stopped() {
  if (!stopped_) return;
  drain_timer_.cancel();
  idle_note_timer_.cancel();
  std::exchange(stopped_, nullptr)();
}

void Shard::drain() {
  if (journal_->has_failed() || checkpoint_->step() == storage::Checkpoint::Step::failed)
    return tell_stopped();
  if (!journal_->is_idle()) {
    // Nothing new is appended any more; the round that is on its way ends by itself.
    journal_->start_round();
    return wheel_.schedule(drain_timer_, tick_after(milliseconds{1}));
  }
  if (checkpointing_)
    return;  // The one that is under way calls `stopped_`; what came since is in the journal.
  idle_note_timer_.cancel();
  if (checkpoint_->noted() >= journal_->end_lsn()) return tell_stopped();
  want_checkpoint();
}

}  // namespace tarry::broker
