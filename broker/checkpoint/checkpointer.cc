#include "broker/checkpoint/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/partition.h"
#include "broker/partitions/partitions.h"
#include "storage/producer_states.h"

namespace tarry::broker {
namespace {

using std::chrono::milliseconds;

// While the disk is full: how often we look whether it still is.
constexpr milliseconds space_check_every{1000};

// Logs written by one piece of background work: few enough that others get their turn.
constexpr std::size_t logs_per_flush = 64;

// While descriptors or memory are missing: how often what waits for them is tried again.
constexpr milliseconds retry_every{1000};

// What a flush of RocksDB opens at once: a table for each column family, manifests, the options.
constexpr std::size_t files_of_flush = 16;

// Of dropped topics, freed at each checkpoint.
constexpr std::size_t entries_per_sweep = 20'000;

// A shard that takes records looks at the disk after so many bytes of them: the reserve
// (tarry.disk.reserve.bytes) is many times larger, so it is noticed before it is used up.
constexpr std::uint64_t look_every_bytes = 8 << 20;

// RocksDB's memory is written before it gets larger than this, whatever the journals say.
constexpr std::uint64_t most_unflushed_bytes = 32 << 20;

// What a flush of RocksDB takes beside the rows: indexes, filters, manifests.
constexpr std::uint64_t flush_overhead_bytes = 8 << 20;

// Of logs: what came in since memory was given back, to make another time worth it.
constexpr std::size_t worth_trimming_bytes = 16 << 20;

// A stop on a full disk: how often room is looked for, and how long.
constexpr milliseconds drain_retry_every{100};
constexpr milliseconds drain_patience{10'000};

// Ok when so many files can be open at once.
Result<> files_for_flush(const BrokerContext& broker) {
  const std::string any = broker.config.data_directory + "/meta.properties";
  std::vector<std::unique_ptr<storage::File>> files;
  while (files.size() < files_of_flush) {
    auto file = broker.disk->open(any, {});
    if (!file) return std::unexpected(file.error());
    files.push_back(std::move(*file));
  }
  return {};
}

// RocksDB takes no more writes when a flush of its own finds the disk full, or no descriptor, and
// what is parked or delivered could not be applied any more; so it does not get to try.
Result<> room_for_flush(const BrokerContext& broker) {
  const auto& directory = broker.config.data_directory;
  const auto free = broker.disk->free_space(directory);
  if (!free) return std::unexpected(free.error());
  const auto rows = broker.meta->unflushed_bytes() + broker.pending_database->unflushed_bytes();
  const auto needed = rows + rows / 4 + flush_overhead_bytes;
  if (*free >= needed) return files_for_flush(broker);
  return fail(Errc::no_space, fmt::format("{} has {} bytes free, and {} are to be written",
                                          directory, *free, needed));
}

}  // namespace

Checkpointer::Checkpointer(ShardContext& shard, Partitions& partitions)
    : shard_(shard),
      partitions_(partitions),
      timer_([this] { want(); }),
      retention_timer_([this] { check_retention(); }),
      space_timer_([this] { look_at_free_space(); }),
      drain_timer_([this] { drain(); }),
      retry_timer_([this] { retry(); }) {}

Checkpointer::~Checkpointer() = default;

void Checkpointer::open(std::uint64_t journal_max_bytes,
                        const storage::RecoveredJournal& recovered) {
  storage::Checkpoint::Policy policy;
  policy.dirty_bytes = journal_max_bytes / 4;
  policy.interval = shard_.config().checkpoint_interval;
  checkpoint_ = std::make_unique<storage::Checkpoint>(policy, recovered.checkpoint, recovered.end,
                                                      shard_.clock().mono());
}

void Checkpointer::start() {
  arm();
  retention_soon();
  look_at_free_space();
}

// --- Checkpoints

void Checkpointer::appended(Lsn lsn) {
  const MonoTime now = shard_.clock().mono();
  checkpoint_->appended(lsn, now);
  if (!busy_ && checkpoint_->wanted(now)) {
    want_soon();
  } else {
    arm();
  }
  if (lsn < looked_at_ + look_every_bytes) return;
  looked_at_ = lsn;
  look_at_free_space();
}

void Checkpointer::hurry() {
  checkpoint_->hurry();
  want_soon();
}

void Checkpointer::forget(const TopicPartition& tp) {
  dirty_.erase(tp);
}

void Checkpointer::note_dirty(Partition& partition, std::size_t bytes) {
  if (partition.retired()) return;
  dirty_.insert(partition.id());
  dirty_bytes_ += bytes;
  // While recovery replays there is no checkpoint yet; the first append after it asks again.
  if (checkpoint_ && dirty_bytes_ > static_cast<std::size_t>(shard_.config().tail_bytes) / 2) {
    hurry();
  }
}

void Checkpointer::arm() {
  if (timer_.armed() || shard_.stopping()) return;
  if (const auto at = checkpoint_->wanted_at()) {
    shard_.wheel().schedule(
        timer_, shard_.tick_after(std::chrono::ceil<milliseconds>(*at - shard_.clock().mono())));
  }
}

// Not in this turn: a round's LSN is durable before the last of its records has been applied.
void Checkpointer::want_soon() {
  if (busy_ || std::exchange(posted_, true)) return;
  boost::asio::post(shard_.executor(), [this] {
    posted_ = false;
    want();
  });
}

void Checkpointer::want() {
  if (busy_ || !checkpoint_ || shard_.journal().has_failed()) return;
  if (shard_.stopping() && !stopped_) return;  // It was the last one.
  // After a failure the next try comes with its timer: in the next turn it would fail as well.
  const bool tries_later = retry_timer_.armed() || (owed_ && space_timer_.armed());
  if (tries_later && !shard_.stopping()) return;
  if (!shard_.stopping() && !checkpoint_->wanted(shard_.clock().mono())) return arm();
  begin();
}

void Checkpointer::begin() {
  busy_ = true;
  // Everything durable has been applied by now: a round's completions all run in one turn, which
  // this one is not.
  TARRY_ASSERT(checkpoint_->begin(shard_.journal().durable_lsn(), shard_.clock().mono()) ==
                   storage::Checkpoint::Step::save_states,
               "a checkpoint begins with the producers");
  noting_bytes_ = std::exchange(dirty_bytes_, 0);
  untrimmed_bytes_ += noting_bytes_;
  std::vector<TopicPartition> logs(dirty_.begin(), dirty_.end());
  dirty_.clear();
  Result<> saved;
  // A parked batch leaves its log clean and its producer changed, so all are asked.
  for (auto& [tp, partition] : partitions_.all()) {
    const auto rows = partition->producer_changes(checkpoint_->target());
    if (rows.empty()) continue;
    saved = storage::save_producer_states(*shard_.broker_context().meta, tp, rows);
    if (!saved) {
      partition->producers_not_saved(rows);
      break;
    }
  }
  if (!saved) {
    for (const auto& tp : logs) {
      if (auto* partition = partitions_.find(tp)) note_dirty(*partition, 0);
    }
    return could_not(saved.error());
  }
  checkpoint_->finished({});
  flush_logs(std::move(logs), 0);
}

struct Checkpointer::LogFlush {
  TopicPartition tp;
  storage::Flush flush;
  Result<storage::FlushDone> done = fail(Errc::exhausted, "not run yet");

  bool is_to_run() const { return !done && done.error().code == Errc::exhausted; }
};

void Checkpointer::flush_logs(std::vector<TopicPartition> logs, std::size_t from) {
  auto batch = std::make_shared<std::vector<LogFlush>>();
  for (; from < logs.size() && batch->size() < logs_per_flush; ++from) {
    auto* partition = partitions_.find(logs[from]);
    if (partition == nullptr) continue;
    if (auto flush = partition->plan_flush()) {
      batch->push_back({logs[from], std::move(*flush)});
    }
    // Noted already, and not to be written yet.
    if (partition->has_more_to_flush()) note_dirty(*partition, 0);
  }
  if (batch->empty()) return logs_are_flushed({});
  run_flushes(std::move(batch), std::move(logs), from);
}

void Checkpointer::run_flushes(std::shared_ptr<std::vector<LogFlush>> batch,
                               std::vector<TopicPartition> logs, std::size_t from) {
  shard_.background().run(
      [batch] {
        for (auto& one : *batch) {
          if (one.is_to_run()) one.done = Background::caught([&] { return one.flush.run(true); });
        }
        return 0;
      },
      [this, batch, logs = std::move(logs), from](int) mutable {
        const auto postponed = std::ranges::find_if(*batch, &LogFlush::is_to_run);
        if (postponed == batch->end() || !may_wait())
          return flushes_ran(*batch, std::move(logs), from);
        flush_again_ = [this, batch, logs = std::move(logs), from]() mutable {
          run_flushes(std::move(batch), std::move(logs), from);
        };
        retry_later(postponed->done.error());
      });
}

void Checkpointer::flushes_ran(std::vector<LogFlush>& batch, std::vector<TopicPartition> logs,
                               std::size_t from) {
  std::optional<Error> failed;
  for (auto& one : batch) {
    auto* partition = partitions_.find(one.tp);
    if (partition == nullptr) {
      // Deleted meanwhile: its files go when the checkpoint is over, whatever came of this.
      partition = partitions_.retired(one.tp);
      TARRY_ASSERT(partition != nullptr, "a log that is being flushed is kept");
      one.done ? partition->flushed(std::move(*one.done))
               : partition->flush_failed(one.done.error());
      continue;
    }
    if (one.done) {
      partition->flushed(std::move(*one.done));
      partition->trim_tail(tail_share());
    } else {
      partition->flush_failed(one.done.error());
      note_dirty(*partition, 0);
      failed = one.done.error();
    }
  }
  if (failed) {
    for (; from < logs.size(); ++from) {  // Not tried: they are the next checkpoint's.
      if (auto* partition = partitions_.find(logs[from])) note_dirty(*partition, 0);
    }
    return logs_are_flushed(std::unexpected(*failed));
  }
  flush_logs(std::move(logs), from);
}

std::size_t Checkpointer::tail_share() const {
  // Half of the budget is for what is not written yet; the rest is shared by those who read behind.
  const auto share = static_cast<std::size_t>(shard_.config().tail_bytes) / 2 /
                     std::max<std::size_t>(partitions_.all().size(), 1);
  return std::max<std::size_t>(share, 16 * 1024);
}

void Checkpointer::logs_are_flushed(Result<> flushed) {
  if (!flushed) return could_not(flushed.error());
  checkpoint_->finished({});  // Written,
  checkpoint_->finished({});  // and synced by the same work.
  shard_.background().run(
      [broker = &shard_.broker_context(), now = shard_.clock().wall()]() -> Result<> {
        if (auto room = room_for_flush(*broker); !room) return room;
        if (auto swept = broker->pending->sweep(now, entries_per_sweep); !swept) {
          return std::unexpected(swept.error());
        }
        if (auto meta = broker->meta->flush(); !meta) return meta;
        return broker->pending_database->flush();
      },
      [this](Result<> result) {
        if (!result) return could_not(result.error());
        checkpoint_->finished({});  // Meta,
        checkpoint_->finished({});  // and what is pending.
        shard_.journal().checkpoint(checkpoint_->target(), [this](const Result<>& noted) {
          if (!noted) return could_not(noted.error());
          checkpoint_->finished({});
          ++checkpoints_total_;
          if (std::exchange(owed_, false)) look_at_free_space();
          if (std::exchange(short_since_, std::nullopt))
            log_info("broker", "shard {} makes checkpoints again", shard_.index());
          give_back_memory_if_idle();
          finish();
        });
      });
}

// A step has failed.  On a full disk nothing is lost, for the journal has it: the next try comes
// with the next look at the disk.
void Checkpointer::could_not(const Error& error) {
  if (error.code == Errc::exhausted) {
    checkpoint_->abandon(shard_.clock().mono());
    retry_later(error);
    return finish();
  }
  if (error.code != Errc::no_space) {
    checkpoint_->finished(std::unexpected(error));
    shard_.journal_failed(error);
    busy_ = false;
    return tell_stopped();
  }
  if (shard_.has_room()) {
    log_error("broker",
              "disk full, no space for a checkpoint: shard {} takes no records until there is: {}",
              shard_.index(), error.message);
  }
  shard_.set_has_room(false);
  owed_ = true;
  checkpoint_->abandon(shard_.clock().mono());
  finish();
  if (!shard_.stopping()) {
    shard_.wheel().schedule(space_timer_, shard_.tick_after(space_check_every));
  }
}

void Checkpointer::retry_later(const Error& error) {
  if (!short_since_) {
    short_since_ = shard_.clock().mono();
    log_error("broker",
              "shard {} cannot open a file for its checkpoint or its journal and tries again every "
              "second: {}; raise the limit (`ulimit -n`, LimitNOFILE=), or close connections",
              shard_.index(), error.message);
  }
  if (retry_timer_.armed()) return;
  const auto after = shard_.stopping() ? drain_retry_every : retry_every;
  shard_.wheel().schedule(retry_timer_, shard_.tick_after(after));
}

void Checkpointer::retry() {
  shard_.journal().retry_space();
  if (auto again = std::exchange(flush_again_, nullptr)) return again();
  if (!busy_ && !shard_.stopping()) hurry();
}

// Before a stop for as long as it takes.
bool Checkpointer::may_wait() {
  if (!shard_.stopping()) return true;
  if (!drain_until_) drain_until_ = shard_.clock().mono() + drain_patience;
  return shard_.clock().mono() < *drain_until_;
}

// After a load: what its tails and buffers took is free, and glibc would keep it.
void Checkpointer::give_back_memory_if_idle() {
  const bool idle = noting_bytes_ < worth_trimming_bytes / 4 || !checkpoint_->wanted_at();
  if (untrimmed_bytes_ < worth_trimming_bytes || !idle) return;
  untrimmed_bytes_ = 0;
  shard_.background().run([] { return give_back_memory(), 0; }, [](int) {});
}

void Checkpointer::finish() {
  busy_ = false;
  partitions_.remove_retired();
  if (!shard_.stopping()) return want_soon();
  // Else it was begun before all was in the journal, and drain() looks again.
  if (!drain_timer_.armed()) tell_stopped();
}

// --- Room on the disk

void Checkpointer::look_at_free_space() {
  if (looking_at_space_ || shard_.stopping()) return;
  looking_at_space_ = true;
  struct Found {
    Result<std::uint64_t> free;
    std::uint64_t unflushed;
  };
  shard_.background().run(
      [broker = &shard_.broker_context()] {
        const auto free = [&] { return broker->disk->free_space(broker->config.data_directory); };
        return Found{Background::caught(free), broker->pending_database->unflushed_bytes()};
      },
      [this](Found found) {
        looking_at_space_ = false;
        if (shard_.stopping()) return;
        shard_.journal().retry_space();
        const auto& config = shard_.config();
        const auto free = found.free.value_or(0);
        const bool room = free >= static_cast<std::uint64_t>(config.disk_reserve_bytes) &&
                          !shard_.journal().disk_is_full() && !owed_;
        if (room != shard_.has_room()) {
          if (room) {
            log_info("broker", "there is space on the disk again: shard {} takes records",
                     shard_.index());
          } else {
            log_error("broker",
                      "disk full, no space in {}: {} bytes are free, tarry.disk.reserve.bytes is "
                      "{}; shard {} takes no records until there is more",
                      config.data_directory, free, config.disk_reserve_bytes, shard_.index());
          }
          shard_.set_has_room(room);
        }
        // The look is over: a checkpoint that waited for it is tried now, and else a second later.
        if (!shard_.has_room() || found.unflushed > most_unflushed_bytes) {
          checkpoint_->hurry();
          want();
        }
        if (!shard_.has_room()) {
          shard_.wheel().schedule(space_timer_, shard_.tick_after(space_check_every));
        }
      });
}

// --- Retention

void Checkpointer::retention_soon() {
  if (!retention_timer_.armed() && !shard_.stopping()) {
    shard_.wheel().schedule(retention_timer_, shard_.tick_after(shard_.config().retention_check));
  }
}

void Checkpointer::check_retention() {
  bool any = false;
  const WallTime now = shard_.clock().wall();
  for (auto& [tp, partition] : partitions_.all()) {
    if (partition->fenced()) continue;
    partition->expire_producers(now);
    const auto next = remove_old_segments(*partition);
    any = any || next.has_value() || partition->may_expire();
    if (partition->is_dirty()) note_dirty(*partition, 0);  // A segment is to be closed first.
  }
  look_at_free_space();
  if (any) retention_soon();
}

std::optional<WallTime> Checkpointer::remove_old_segments(Partition& partition) {
  auto plan = partition.plan_retention(shard_.clock().wall());
  if (plan.removal) {
    shard_.background().run(
        [removal = std::move(*plan.removal)]() mutable { return removal.run(); },
        [name = partition.topic_name(), index = partition.id().partition](Result<> removed) {
          if (!removed) {
            log_warn("broker", "old segments of {}-{} are still there: {}", name, index,
                     removed.error().message);
          }
        });
  }
  return plan.next;
}

// --- In recovery

Result<> Checkpointer::flush_now() {
  for (auto& [tp, partition] : partitions_.all()) {
    if (partition->fenced()) continue;
    if (auto flush = partition->plan_flush_of_all()) {
      auto done = flush->run(true);
      if (!done) return std::unexpected(done.error());
      partition->flushed(std::move(*done));
    }
    const auto rows = partition->producer_changes(std::numeric_limits<Lsn>::max());
    if (auto saved = storage::save_producer_states(*shard_.broker_context().meta, tp, rows); !saved)
      return saved;
  }
  dirty_.clear();
  dirty_bytes_ = 0;
  return {};
}

// --- Stop

void Checkpointer::stop(std::move_only_function<void()> then) {
  timer_.cancel();
  retention_timer_.cancel();
  space_timer_.cancel();
  stopped_ = std::move(then);
  drain();
}

void Checkpointer::tell_stopped() {
  if (!stopped_) return;
  drain_timer_.cancel();
  std::exchange(stopped_, nullptr)();
}

void Checkpointer::drain() {
  auto& journal = shard_.journal();
  if (journal.has_failed() || checkpoint_->step() == storage::Checkpoint::Step::failed)
    return tell_stopped();
  if (!journal.is_idle()) {
    // Nothing new is appended any more; the round that is on its way ends by itself.
    journal.start_round();
    const bool waits = journal.disk_is_full() || journal.is_postponed();
    const auto again = waits ? drain_retry_every : milliseconds{1};
    if (waits && !wait_for_room()) return tell_stopped();
    return shard_.wheel().schedule(drain_timer_, shard_.tick_after(again));
  }
  if (busy_)
    return;  // The one that is under way calls `stopped_`; what came since is in the journal.
  if (checkpoint_->noted() >= journal.end_lsn()) return tell_stopped();
  want();
}

// What is gathered was never answered, so a stop may leave without it; but not at once.
bool Checkpointer::wait_for_room() {
  const MonoTime now = shard_.clock().mono();
  if (!drain_until_) {
    drain_until_ = now + drain_patience;
    log_warn("broker",
             "shard {} has records that the disk does not take now; the stop waits up to {} ms",
             shard_.index(), drain_patience.count());
  }
  if (now >= *drain_until_) {
    log_error("broker",
              "shard {} stops without the records that the disk did not take; none of them "
              "was acknowledged",
              shard_.index());
    return false;
  }
  shard_.journal().retry_space();
  return true;
}

}  // namespace tarry::broker
