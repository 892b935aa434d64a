#include "broker/checkpoint/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "base/background.h"
#include "base/log.h"
#include "broker/checkpoint/free_space.h"
#include "broker/checkpoint/shortage_retry.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/partition.h"
#include "broker/partitions/partitions.h"
#include "delay/engine.h"
#include "storage/producer_states.h"
#include "storage/store_generation.h"

namespace tarry::broker {
namespace {

using std::chrono::milliseconds;

// A flush of RocksDB opens so many at once: a table for each column family, manifests, the options.
constexpr std::size_t files_of_flush = 16;

// A flush of RocksDB takes so much beside the rows: indexes, filters, manifests.
constexpr std::uint64_t flush_overhead_bytes = 8 << 20;

// Space of pending records that are gone is freed at most so often, and rewritten for it when so
// much is dead: it is work for the disk, and only space waits for it.
constexpr std::chrono::minutes reclaim_every{10};
constexpr double garbage_share = 0.5;

// A partition that is asked for its producers, or a row that it gives, takes less than a
// microsecond.
constexpr std::size_t producers_a_turn = 1000;

// Ok when so many files can be open at once.
Result<> files_for_flush(const BrokerContext& broker) {
  // A file that is certainly there: the question is only how many can be open.
  const std::string any = broker.config.data_directory + "/meta.properties";
  std::vector<std::unique_ptr<storage::File>> files;
  while (files.size() < files_of_flush) {
    auto file = broker.disk->open(any, {});
    if (!file) return std::unexpected(file.error());
    files.push_back(std::move(*file));
  }
  return {};
}

// For a flush of so many bytes.
std::uint64_t room_for_rows(std::uint64_t bytes) {
  return bytes + bytes / 4 + flush_overhead_bytes;
}

// RocksDB takes no more writes when a flush of its own finds the disk full, or no descriptor, and
// nothing that was accepted or delivered could be applied any more; so it does not get to try.
Result<> room_for_flush(const BrokerContext& broker) {
  const auto& directory = broker.config.data_directory;
  const auto free = broker.disk->free_space(directory);
  if (!free) return std::unexpected(free.error());
  const auto needed =
      room_for_rows(broker.meta->unflushed_bytes() + broker.pending->unflushed_bytes());
  if (*free >= needed) return files_for_flush(broker);
  return fail(Errc::no_space,
              fmt::format("{} has {} bytes free, but the flush of the databases needs {}",
                          directory, *free, needed));
}

}  // namespace

Result<> flush_pending_store(const BrokerContext& broker) {
  if (auto room = room_for_flush(broker); !room) return room;
  return broker.pending->flush();
}

namespace {

Result<> flush_databases(const BrokerContext& broker) {
  if (auto room = room_for_flush(broker); !room) return room;
  // In this order, so that db/pending is never older than db/meta says.
  if (auto pending = broker.pending->flush(); !pending) return pending;
  if (auto noted = storage::note_generation(*broker.meta, broker.pending->generation()); !noted)
    return noted;
  return broker.meta->flush();
}

// A compaction that finds the disk full stops RocksDB's writes, as a flush does; and it begins with
// one, of what shards have written since the last checkpoint.
Result<> room_to_free(const BrokerContext& broker, std::uint64_t for_tables_and_blobs) {
  const auto& directory = broker.config.data_directory;
  const auto free = broker.disk->free_space(directory);
  if (!free) return std::unexpected(free.error());
  const auto needed = for_tables_and_blobs + room_for_rows(broker.pending->unflushed_bytes());
  if (*free >= needed) return {};
  return fail(Errc::no_space, fmt::format("{} has {} bytes free, but freeing the space may need {}",
                                          directory, *free, needed));
}

Result<> reclaim(const BrokerContext& broker, WallTime now) {
  // Into the reserve: on a full disk somebody waits for the files of which nothing is left, and
  // what is dead is not known before.
  const auto tables = broker.pending->sizes().table_bytes;
  if (auto room = room_to_free(broker, tables); !room) return room;
  return broker.pending->reclaim(
      garbage_share, now, [&broker](const storage::BucketStore::Sizes& sizes) {
        return room_to_free(
            broker, room_for_rewriting(
                        sizes, static_cast<std::uint64_t>(broker.config.disk_reserve_bytes)));
      });
}

}  // namespace

std::uint64_t room_for_rewriting(const storage::BucketStore::Sizes& sizes,
                                 std::uint64_t reserve_bytes) {
  const auto alive = sizes.blob_bytes - std::min(sizes.blob_bytes, sizes.garbage_bytes);
  return alive + std::min(alive, reserve_bytes) + sizes.table_bytes;
}

// The changes of a partition's producers, on their way to db/meta.
struct Checkpointer::ProducerRows {
  TopicPartition partition;
  std::vector<storage::ProducerStates::Row> rows;
};

Checkpointer::Checkpointer(ShardContext& shard, Partitions& partitions, delay::Engine& engine,
                           FreeSpace& free_space, ShortageRetry& shortage,
                           std::move_only_function<void()> run_ended)
    : shard_(shard),
      partitions_(partitions),
      engine_(engine),
      free_space_(free_space),
      shortage_(shortage),
      run_ended_(std::move(run_ended)),
      heap_trimmer_(shard),
      dirty_logs_(shard, partitions, shortage),
      timer_([this] { begin_if_wanted(); }) {}

void Checkpointer::open(std::uint64_t journal_max_bytes,
                        const storage::RecoveredJournal& recovered) {
  storage::Checkpoint::Policy policy;
  policy.dirty_bytes = journal_max_bytes / 4;
  policy.interval = shard_.config().checkpoint_interval;
  checkpoint_ = std::make_unique<storage::Checkpoint>(policy, recovered.checkpoint, recovered.end,
                                                      shard_.clock().mono());
}

void Checkpointer::start() {
  reclaim_from_ = shard_.clock().mono() + reclaim_every;
  arm();
}

// --- When

void Checkpointer::appended(Lsn lsn) {
  const MonoTime now = shard_.clock().mono();
  checkpoint_->appended(lsn, now);
  if (!busy_ && checkpoint_->wanted(now)) {
    begin_soon();
  } else {
    arm();
  }
}

void Checkpointer::hurry() {
  checkpoint_->hurry();
  begin_soon();
}

void Checkpointer::run_now() {
  checkpoint_->hurry();
  begin_if_wanted();
}

void Checkpointer::retry() {
  // A run that waits for descriptors goes on where it stopped, and no other is begun.
  if (dirty_logs_.resume()) return;
  if (!busy_ && !shard_.stopping()) hurry();
}

void Checkpointer::note_dirty(Partition& partition, std::size_t bytes) {
  dirty_logs_.note(partition, bytes);
  // While recovery replays there is no checkpoint yet; the first append after it asks again.
  if (checkpoint_ &&
      dirty_logs_.bytes() > static_cast<std::size_t>(shard_.config().tail_bytes) / 2) {
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
void Checkpointer::begin_soon() {
  if (busy_ || std::exchange(posted_, true)) return;
  boost::asio::post(shard_.executor(), [this] {
    posted_ = false;
    begin_if_wanted();
  });
}

void Checkpointer::begin_if_wanted() {
  if (busy_ || closed_ || !checkpoint_ || shard_.journal().has_failed()) return;
  waits_for_applied_ = shard_.is_applying();
  if (waits_for_applied_) return;
  // A stop makes one whatever has gathered, and tries what failed by its own timer.
  if (shard_.stopping()) return begin();
  // It would fail, and end the broker; FreeSpace asks for it when the directory is there again.
  if (shard_.lost_directory()) return;
  // After a failure the next try comes with its timer: in the next turn it would fail as well.
  if (shortage_.is_waiting() || free_space_.will_retry_checkpoint()) return;
  if (!checkpoint_->wanted(shard_.clock().mono())) {
    // On a full disk, that of records that were cancelled: with no producer there may be nothing to
    // write for long.
    if (!shard_.has_room()) reclaim_sometimes();
    return arm();
  }
  begin();
}

void Checkpointer::all_applied() {
  if (!std::exchange(waits_for_applied_, false)) return;
  if (!shard_.failed()) return begin_if_wanted();
  if (shard_.stopping()) run_ended_();
}

// --- The run

void Checkpointer::begin() {
  busy_ = true;
  // Everything durable has been applied by now: a round's completions all run in one turn, which
  // this one is not, and nothing is on its way to a database.
  const auto step = checkpoint_->begin(shard_.journal().durable_lsn(), shard_.clock().mono());
  TARRY_ASSERT(step == storage::Checkpoint::Step::save_states,
               "a checkpoint begins with the producers");
  producers_walk_ = {};
  save_some_producers();
}

// A batch of delayed records leaves its log clean and its producer changed, so all partitions are
// asked: in steps, and the database gets the rows on the pool.  Changes that come meanwhile are not
// before the target, and are left to the next checkpoint.
void Checkpointer::save_some_producers() {
  auto taken = std::make_shared<std::vector<ProducerRows>>();
  const bool more = partitions_.walk(producers_walk_, producers_a_turn, [&](Partition& partition) {
    auto rows = partition.producer_changes(checkpoint_->target());
    const std::size_t count = rows.size();
    if (count > 0) taken->push_back({partition.id(), std::move(rows)});
    return count;
  });
  if (!taken->empty()) {
    shard_.background().run(
        [meta = shard_.broker_context().meta, taken]() -> Result<> {
          for (const auto& [partition, rows] : *taken) {
            if (auto saved = storage::save_producer_states(*meta, partition, rows); !saved)
              return saved;
          }
          return {};
        },
        [this, taken, more](const Result<>& saved) { producers_saved(*taken, more, saved); });
  } else if (more) {
    boost::asio::post(shard_.executor(), [this] { save_some_producers(); });
  } else {
    write_logs();
  }
}

void Checkpointer::producers_saved(const std::vector<ProducerRows>& taken, bool more,
                                   const Result<>& saved) {
  std::set<TopicId> deleted;
  for (const auto& [id, rows] : taken) {
    auto* const partition = partitions_.find(id);
    // Their changes were taken from the partition; without this the next checkpoint would lack
    // them.
    if (!saved && partition != nullptr) partition->producers_not_saved(rows);
    if (!shard_.topics().find(id.topic)) deleted.insert(id.topic);
  }
  // The deletion may have dropped the topic's rows before these came.
  for (const TopicId& topic : deleted) {
    auto dropped = storage::drop_producer_states(*shard_.broker_context().meta, topic);
    if (!dropped) return give_up(dropped.error());
  }
  if (!saved) return give_up(saved.error());
  if (more) return save_some_producers();
  write_logs();
}

void Checkpointer::write_logs() {
  checkpoint_->finished({});  // The producers' states.
  flushing_bytes_ = dirty_logs_.bytes();
  engine_.log_write_begins();
  dirty_logs_.flush([this](Result<> flushed) {
    engine_.log_write_ended(flushed.has_value());
    if (!flushed) return give_up(flushed.error());
    checkpoint_->finished({});  // Written,
    checkpoint_->finished({});  // and synced by the same work.
    // Changes before the target are in the engine's tails by now.
    engine_.write_all([this] { flush_stores(); });
  });
}

void Checkpointer::flush_stores() {
  shard_.background().run([broker = &shard_.broker_context()] { return flush_databases(*broker); },
                          [this](Result<> flushed) {
                            if (!flushed) return give_up(flushed.error());
                            checkpoint_->finished({});  // Pending records,
                            checkpoint_->finished({});  // and meta.
                            note_position();
                          });
}

void Checkpointer::note_position() {
  shard_.note_checkpoint(checkpoint_->target(), [this](const Result<>& noted) {
    if (!noted) return give_up(noted.error());
    checkpoint_->finished({});
    ++checkpoints_total_;
    engine_.noted(checkpoint_->noted());
    reclaim_sometimes();
    free_space_.checkpoint_made();
    shortage_.over();
    heap_trimmer_.checkpoint_made(flushing_bytes_, checkpoint_->wanted_at().has_value());
    finish();
  });
}

// Not a part of the run, and no later one waits for it: it rewrites files.
void Checkpointer::reclaim_sometimes() {
  const MonoTime now = shard_.clock().mono();
  if (shard_.index() != 0 || shard_.stopping() || reclaiming_ || now < reclaim_from_) return;
  reclaiming_ = true;
  shard_.background().run([broker = &shard_.broker_context(),
                           wall = shard_.clock().wall()] { return reclaim(*broker, wall); },
                          [this](const Result<>& reclaimed) {
                            reclaiming_ = false;
                            reclaim_from_ = shard_.clock().mono() + reclaim_every;
                            if (!reclaimed) {
                              log_warn("broker",
                                       "the disk space of removed pending records cannot be freed; "
                                       "the next attempt is in {} minutes: {}",
                                       reclaim_every.count(), reclaimed.error().message);
                            }
                          });
}

// A step has failed.  For want of space or descriptors nothing is lost, for the journal has it.
void Checkpointer::give_up(const Error& error) {
  if (error.code == Errc::no_space || error.code == Errc::exhausted) {
    checkpoint_->abandon(shard_.clock().mono());
    if (error.code == Errc::no_space) {
      free_space_.checkpoint_refused(error);
    } else {
      shortage_.later(error);
    }
    return finish();
  }
  checkpoint_->finished(std::unexpected(error));
  shard_.journal_failed(error);
  busy_ = false;
  if (shard_.stopping()) run_ended_();
}

void Checkpointer::finish() {
  busy_ = false;
  // While the run pointed to logs, those of deleted topics had to stay.
  partitions_.remove_retired();
  if (shard_.stopping()) return run_ended_();
  begin_soon();
}

// --- In recovery

Result<> Checkpointer::flush_now() {
  for (auto& [tp, partition] : partitions_.all()) {
    // The files of a partition that is out of service are the operator's.
    if (partition->fenced()) continue;
    if (auto flush = partition->plan_flush_of_all()) {
      auto done = flush->run(true);
      if (!done) return std::unexpected(done.error());
      partition->flushed(std::move(*done));
    }
    // In recovery nothing is on its way, so all changes are durable.
    const auto rows = partition->producer_changes(std::numeric_limits<Lsn>::max());
    if (auto saved = storage::save_producer_states(*shard_.broker_context().meta, tp, rows); !saved)
      return saved;
  }
  dirty_logs_.clear();
  return {};
}

}  // namespace tarry::broker
