#include "storage/recovery.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "records/record_batch.h"
#include "storage/bucket_store.h"
#include "storage/catalog.h"
#include "storage/database.h"
#include "storage/offset_store.h"

namespace tarry::storage {
namespace {

namespace field = records::field;

struct BatchSpan {
  Offset base = 0;
  Offset end = 0;  // After its last offset.
  std::size_t bytes = 0;
};

Result<BatchSpan> first_batch(Bytes batches) {
  if (batches.size() >= records::batch_header_size) {
    const auto length = load_be<std::int32_t>(batches.data() + field::batch_length);
    const auto base = load_be<Offset>(batches.data());
    const auto delta = load_be<std::int32_t>(batches.data() + field::last_offset_delta);
    const auto bytes = static_cast<std::size_t>(std::max(length, 0)) + records::batch_length_end;
    const bool fits = bytes >= records::batch_header_size && bytes <= batches.size() && base >= 0 &&
                      delta >= 0 && base < std::numeric_limits<Offset>::max() - delta - 1;
    if (fits) return BatchSpan{base, base + delta + 1, bytes};
  }
  return fail(
      Errc::corrupt,
      fmt::format("a journal record has {} bytes where a whole batch should be", batches.size()));
}

// The part of `batches` from `end` on; Errc::corrupt when a batch lies across it.
Result<Bytes> behind(Bytes batches, Offset end) {
  while (!batches.empty()) {
    const auto batch = first_batch(batches);
    if (!batch) return std::unexpected(batch.error());
    if (batch->base >= end) return batches;
    if (batch->end > end) {
      return fail(Errc::corrupt, fmt::format("the journal has a batch of offsets {} to {}, but the "
                                             "log ends inside it, at offset {}",
                                             batch->base, batch->end - 1, end));
    }
    batches = batches.subspan(batch->bytes);
  }
  return batches;
}

bool belongs_to_catalog(const Operation& operation) {
  return std::holds_alternative<TopicCreated>(operation) ||
         std::holds_alternative<TopicDeleted>(operation) ||
         std::holds_alternative<PartitionsAdded>(operation) ||
         std::holds_alternative<ConfigsSet>(operation) ||
         std::holds_alternative<ProducerIdsGiven>(operation) ||
         std::holds_alternative<SequencesGiven>(operation) ||
         std::holds_alternative<BrokerConfigsSet>(operation) ||
         std::holds_alternative<SecurityRowSet>(operation) ||
         std::holds_alternative<SecurityRowRemoved>(operation);
}

bool means_partition(const Error& error) {
  return error.code == Errc::corrupt || error.code == Errc::fenced;
}

class Replay {
 public:
  Replay(Catalog& catalog, PendingReplay& pending, OffsetStore& offsets, LogReplay& logs)
      : catalog_(catalog), pending_(pending), offsets_(offsets), logs_(logs) {}

  Result<> take(JournalPlace at, const Operation& operation) {
    if (const auto* appended = std::get_if<LogAppended>(&operation)) return append(*appended);
    if (const auto* pending = std::get_if<PendingAdded>(&operation)) {
      // A deleted topic's count too: a number that was given out is never given out again.
      highest_sequence_ = std::max(highest_sequence_, pending->sequence);
      return exists(pending->partition) ? pending_.added(at, *pending) : Result<>();
    }
    if (const auto* gone = std::get_if<PendingRemoved>(&operation)) {
      highest_sequence_ = std::max(highest_sequence_, gone->sequence);
      return exists(gone->partition) ? pending_.removed(at, *gone) : Result<>();
    }
    if (const auto* answered = std::get_if<ProducerAnswered>(&operation)) {
      // Operations of a topic that was deleted later are skipped: its files and rows are gone.
      if (!exists(answered->partition)) return {};
      return logs_.producer_answered(*answered);
    }
    if (const auto* moved = std::get_if<LogStartMoved>(&operation)) {
      return exists(moved->partition) ? logs_.start_moved(moved->partition, moved->start)
                                      : Result<>();
    }
    // Offsets of a deleted topic are dropped when the groups are loaded.
    return offsets_.apply(operation);
  }

  Sequence highest_sequence() const { return highest_sequence_; }
  std::uint64_t fenced() const { return fenced_; }

 private:
  bool exists(const TopicPartition& partition) const { return catalog_.has_topic(partition.topic); }

  Result<> append(const LogAppended& appended) {
    const TopicPartition& partition = appended.partition;
    if (!exists(partition) || appended.batches.empty()) return {};
    const auto first = first_batch(appended.batches);
    if (!first) return std::unexpected(first.error());

    auto known = ends_.find(partition);
    if (known == ends_.end()) {
      // The log may have flushed batches after the checkpoint, perhaps half of one.  Cutting it
      // where the journal begins brings it to a known state.
      const auto end = logs_.cut(partition, first->base);
      if (!end) return fence(appended, end.error());
      known = ends_.emplace(partition, *end).first;
    }
    // The checkpoint that follows releases these bytes from the journal, so they are kept
    // elsewhere.
    if (!known->second) return logs_.keep(partition, appended.batches);
    Offset& end = *known->second;

    // Retention may have been faster than the checkpoint; such a log takes only what joins its end.
    const auto batches = behind(appended.batches, end);
    if (!batches) return fence(appended, batches.error());
    if (batches->empty()) return {};
    const auto offsets = offsets_of(*batches);
    if (!offsets) return std::unexpected(offsets.error());
    if (offsets->first != end) {
      return fence(appended,
                   {Errc::corrupt, fmt::format("the log ends at offset {}, but the journal "
                                               "continues at {}: the records between are lost",
                                               end, offsets->first)});
    }
    if (auto done = logs_.append(partition, *batches, appended.appended); !done)
      return fence(appended, done.error());
    end = offsets->second;
    return {};
  }

  Result<> fence(const LogAppended& appended, const Error& why) {
    // An error of the disk concerns all partitions, so it ends the recovery instead of fencing one.
    if (!means_partition(why)) return std::unexpected(why);
    ends_.insert_or_assign(appended.partition, std::nullopt);
    ++fenced_;
    logs_.fence(appended.partition, why.message);
    return logs_.keep(appended.partition, appended.batches);
  }

  Catalog& catalog_;
  PendingReplay& pending_;
  OffsetStore& offsets_;
  LogReplay& logs_;
  // The end of each log that was cut; empty: the log is fenced.
  std::unordered_map<TopicPartition, std::optional<Offset>> ends_;
  Sequence highest_sequence_ = 0;
  std::uint64_t fenced_ = 0;
};

std::string journal_directory(const std::string& root, std::uint32_t shard) {
  return fmt::format("{}/{}", root, shard);
}

}  // namespace

Result<std::pair<Offset, Offset>> offsets_of(Bytes batches) {
  std::optional<Offset> base;
  Offset end = 0;
  while (!batches.empty() || !base) {
    const auto batch = first_batch(batches);
    if (!batch) return std::unexpected(batch.error());
    if (base && batch->base < end) {
      return fail(Errc::corrupt,
                  fmt::format("a journal record has a batch at offset {} after one that ends at {}",
                              batch->base, end));
    }
    if (!base) base = batch->base;
    end = batch->end;
    batches = batches.subspan(batch->bytes);
  }
  return std::pair(*base, end);
}

bool Recovered::other_shards(std::uint32_t shards) const {
  if (journals.empty()) return false;
  std::uint32_t expected = 0;
  for (const auto& [shard, journal] : journals)
    if (shard != expected++) return true;
  return expected != shards;
}

RecoveredJournal Recovered::journal(std::uint32_t shard) const {
  for (const auto& [number, journal] : journals)
    if (number == shard) return journal;
  return {};
}

Result<Recovered> recover(Disk& disk, const std::string& root, Catalog& catalog,
                          PendingReplay& pending, OffsetStore& offsets, LogReplay& logs) {
  if (const auto removed = remove_retired_journals(disk, root); !removed)
    return std::unexpected(removed.error());
  const auto shards = journal_shards(disk, root);
  if (!shards) return std::unexpected(shards.error());

  Recovered out;
  // Shard 0's journal comes first: it has the catalog, which says whose records are applied.
  Replay replay(catalog, pending, offsets, logs);
  for (const std::uint32_t shard : *shards) {
    const std::string directory = journal_directory(root, shard);
    const auto named = [&](const Error& error) {
      return Error{error.code, fmt::format("journal {}: {}", directory, error.message)};
    };
    // Two passes over shard 0: a topic may be deleted later in the journal than its records stand,
    // and records of a deleted topic must not be applied.
    if (shard == 0) {
      const auto read = recover_journal(disk, directory, [&](Lsn, Bytes record) {
        return for_each_operation(record, [&](const Operation& operation) -> Result<> {
          if (!belongs_to_catalog(operation)) return {};
          if (auto applied = catalog.apply(operation); !applied) return applied;
          const auto* deleted = std::get_if<TopicDeleted>(&operation);
          return deleted ? pending.topic_deleted(deleted->topic) : Result<>();
        });
      });
      if (!read) return std::unexpected(named(read.error()));
    }
    if (const auto begun = pending.begin(shard, shards->back() + 1); !begun)
      return std::unexpected(named(begun.error()));
    const auto read = recover_journal(disk, directory, [&](Lsn lsn, Bytes record) {
      JournalPlace at{lsn};
      return for_each_operation(record, [&](const Operation& operation) {
        auto taken = replay.take(at, operation);
        ++at.operation;
        return taken;
      });
    });
    if (!read) return std::unexpected(named(read.error()));
    if (const auto ended = pending.end(); !ended) return std::unexpected(ended.error());
    out.journals.emplace_back(shard, *read);
    out.records += read->records;
    out.bytes += read->bytes;
  }
  out.fenced = replay.fenced();
  // A crash may have come between what a shard wrote for a topic and its notice of the topic's end.
  const auto topics = pending.topics();
  if (!topics) return std::unexpected(topics.error());
  for (const TopicId& topic : *topics) {
    if (catalog.has_topic(topic)) continue;
    if (auto dropped = pending.topic_deleted(topic); !dropped)
      return std::unexpected(dropped.error());
  }

  // A number that a record carries is given out, whatever the notes of blocks say.
  if (const Sequence seen = replay.highest_sequence(); seen >= catalog.next_sequence()) {
    if (auto noted = catalog.apply(SequencesGiven{seen + 1}); !noted)
      return std::unexpected(noted.error());
  }
  return out;
}

Result<> settle(Disk& disk, const std::string& root, Database& meta, BucketStore& pending,
                std::uint32_t shards, Recovered& recovered) {
  // Both before any note: records before a noted position are never replayed again.
  if (auto flushed = meta.flush(); !flushed) return flushed;
  if (auto flushed = pending.flush(); !flushed) return flushed;
  for (auto& [shard, journal] : recovered.journals) {
    if (auto noted = write_checkpoint(disk, journal_directory(root, shard),
                                      {journal.end, journal.incarnation});
        !noted)
      return noted;
    journal.checkpoint = journal.end;
  }
  // From the last one down, so that a crash in between leaves a number that settles again.
  while (!recovered.journals.empty() && recovered.journals.back().first >= shards) {
    if (auto retired = retire_journal(disk, root, recovered.journals.back().first); !retired)
      return retired;
    recovered.journals.pop_back();
  }
  return {};
}

}  // namespace tarry::storage
