#pragma once

// ProducerStates: the idempotent producers of one partition and their last batches, so that a batch
// that is sent twice is answered twice and stored once.
//
// It keeps the last five batches of each producer, newest last, whether they went to the log or are
// delayed (base offset -n): a producer has at most five in flight.
//
//   check(pid, epoch, first, count)
//     equals one of the five, same epoch      duplicate: the same base offset again, when the
//                                             original is durable (its lsn says when that is)
//     epoch below the current one             invalid_epoch         (47)
//     epoch above it                          append if first == 0, else out_of_order  (45)
//     same epoch                              append if first follows the last sequence (2^31-1
//                                             is followed by 0), else out_of_order
//     no state for this producer              append, whatever the sequence: state expires, and
//                                             a refusal here would break idle producers for good
//
// After `append` comes add(), in the same turn of the shard, with the lsn of the journal record
// that carries the batch.  A batch that is not durable yet is known here, because its successors
// may come before it is durable; it is never persisted:
//
//   checkpoint at lsn L:  changes(L) --> save_producer_states() --> flush of db/meta --> note L
//   partition opens:      load_producer_states() --> restore() --> replay() of the journal from L
//
// Rows may be ahead of the journal's checkpoint, so replay() of a batch that is known already, or
// that an epoch or sequence shows to be older than what is known, changes nothing.
//
// Bounds: `max_producers` a partition; a time after a producer's last append by wall clock
// (not by the records' timestamps, which clients make up).
//
// A client that takes new producer ids all the time must not push out the others:
//
//   first batch --> newcomers --second batch--> established      (at most 7/8 of max_producers)
//                   the least recently used     gives way to a newcomer's second batch when it has
//                   goes when all is full       not sent for established_for; until then the
//                                               newcomer stays one
//
// A client repeats a batch for delivery.timeout.ms (two minutes by default), so one that was idle
// for longer than established_for has nothing to repeat, and loses nothing with its state.
//
// Threads: the partition's shard; no locks.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace tarry::storage {

class Database;

// base + delta in the space of sequences: 0 follows 2147483647.
std::int32_t sequence_after(std::int32_t base, std::int32_t delta);

class ProducerStates {
 public:
  struct Append {};
  struct Duplicate {
    Offset base_offset;  // The answer to the original.
    Lsn lsn;             // Answer when this is durable; 0: it is.
  };
  struct InvalidEpoch {
    std::int16_t current;
  };
  struct OutOfOrder {
    std::int32_t expected;
  };
  using Verdict = std::variant<Append, Duplicate, InvalidEpoch, OutOfOrder>;

  // One batch and what it was answered.
  struct Answered {
    std::int16_t epoch;
    std::int32_t first_sequence;
    std::int32_t last_sequence;
    Offset base_offset;  // -n: all n records are delayed.
    WallTime at;
  };

  // A producer's row in db/meta: its durable answers, newest last; none: the row goes.
  struct Row {
    ProducerId producer;
    std::vector<Answered> answers;
  };

  static constexpr std::chrono::minutes established_for{15};

  struct Limits {
    std::size_t max_producers = 10'000;
  };

  ProducerStates();
  explicit ProducerStates(const Limits& limits);

  // Records `count` >= 1 of a batch that begins with sequence `first`.
  Verdict check(ProducerId id, std::int16_t epoch, std::int32_t first, std::int32_t count) const;

  // After check() said `append`.
  void add(ProducerId id, const Answered& answered, Lsn lsn);

  // From the journal: what is durable and perhaps known.
  void replay(ProducerId id, const Answered& answered);

  // The producer fields of every batch in `batches` (LogAppended::batches); batches without a
  // producer are passed over.  Errc::corrupt when they are no batches.
  Result<> replay_batches(Bytes batches, WallTime appended);

  // Rows of an earlier incarnation, before any replay().
  void restore(std::vector<Row> rows);

  // Forgets producers that have not appended since `now` - `expiration`; returns how many.
  std::size_t expire(WallTime now, std::chrono::milliseconds expiration);

  // The rows that differ from the last call; they have only answers that are durable at `durable`.
  std::vector<Row> changes(Lsn durable);
  // The rows of the last changes() could not be written: the next call gives them again.
  void restore_unsaved(const std::vector<Row>& rows);
  // Whether there may be any.
  bool changed() const { return changed_; }

  std::size_t size() const { return producers_.size(); }

 private:
  // Five to answer from, and five more that are kept because those may not be durable yet.
  static constexpr std::size_t answered_from = 5;
  static constexpr std::size_t remembered = 10;

  struct Entry {
    Answered answered;
    Lsn lsn;  // 0: from a row or from replay, so durable.
  };
  struct Producer {
    ProducerId id;
    std::vector<Entry> entries;  // Oldest first, 1 to `remembered`.
    bool changed = false;        // Since its row was written.
    bool is_established = false;
  };
  using ByUse = std::list<Producer>;

  Producer& touch(ProducerId id, WallTime now);
  void establish(ByUse::iterator producer, WallTime now);
  void push(Producer& producer, const Entry& entry);
  void forget(ByUse::iterator producer);

  const Limits limits_;
  ByUse newcomers_, established_;                              // Least recently used first.
  std::unordered_map<ProducerId, ByUse::iterator> producers_;  // One for each of both.
  std::unordered_set<ProducerId> forgotten_;                   // Their rows are to be deleted.
  bool changed_ = false;  // Something is forgotten, or a producer says so.
};

// Rows of one partition in db/meta.  Blocking reads; writes go to RocksDB's memory.
Result<> save_producer_states(Database& meta, const TopicPartition& partition,
                              std::span<const ProducerStates::Row> rows);
Result<std::vector<ProducerStates::Row>> load_producer_states(Database& meta,
                                                              const TopicPartition& partition);
// All rows of a deleted topic.
Result<> drop_producer_states(Database& meta, const TopicId& topic);

}  // namespace tarry::storage
