#pragma once

// AcceptedBatch: a producer's batch, taken apart: what of it goes to the log at once, what is
// pending from now on, and what it removes.  Owns all bytes that it refers to.
//
// split() is pure and runs on any thread.  From then on the value belongs to its shard's thread:
// Intake resolves the ids that it takes, and UnappliedRecords has it until it is durable.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/scope_exit.h"
#include "delay/batch_ids.h"
#include "delay/batch_schedules.h"
#include "delay/intake_charge.h"
#include "delay/pending_quota.h"
#include "delay/schedule.h"
#include "delay/sequences.h"
#include "delay/sink.h"
#include "records/batch_check.h"
#include "storage/bucket.h"
#include "storage/journal_record.h"
#include "storage/pending.h"

namespace tarry::delay {

using storage::PendingKey;

class AcceptedBatch {
 public:
  AcceptedBatch() = default;
  AcceptedBatch(AcceptedBatch&&) = default;
  AcceptedBatch& operator=(AcceptedBatch&&) = default;
  // A long one ends on the pool, whoever drops it: much memory takes long to go.
  ~AcceptedBatch() {
    if (auto discard = std::exchange(discard_, nullptr)) discard(this);
  }

  // No record in it has a schedule: the batch goes to the log as it came.
  bool untouched() const { return kind_ == Kind::untouched; }
  // All records are delayed, or are cancels: nothing goes to the log.
  bool appends_nothing() const { return kind_ == Kind::nothing; }

  // If neither of these: the batch that goes to the log instead, at once.  It keeps the producer's
  // fields, codec, deltas and last offset delta; a delayed record or a cancel leaves a hole.
  Bytes immediate() const { return immediate_; }
  Buffer take_immediate() { return std::move(immediate_); }

  // The base offset in the answer if nothing goes to the log: -n for n records.
  Offset base_offset() const { return -static_cast<Offset>(records_); }
  std::int32_t records() const { return records_; }  // In the producer's batch.

  std::size_t delayed() const { return added_.size(); }  // How many are.
  bool is_empty() const { return added_.empty() && removals() == 0; }
  // The bytes of its largest recurring record, which each delivery adds again; 0: it has none.
  std::size_t largest_recurring() const { return largest_recurring_; }
  // UnappliedRecords knows it as a whole, and not record by record: a long one, and one without ids
  // that is worth it.
  bool is_known_as_whole() const {
    return is_long_ || (ids_.size() == 0 && added_.size() >= least_known_as_whole);
  }
  std::size_t memory_bytes() const;  // About.

  // A batch of which each shard's turn does but a part: it has many records, or its immediate ones
  // are many bytes to compress.
  static bool is_long(const records::CheckedBatch& batch, const BatchSchedules& schedules,
                      const TopicDelay& topic);
  // Takes a batch apart; the ids that it takes from other records are still to be taken. `is_long`:
  // it is accepted in steps, whatever its size.  Pure: on any thread.
  static AcceptedBatch split(const TopicPartition& partition, const records::CheckedBatch& batch,
                             const BatchSchedules& schedules, const TopicDelay& topic,
                             WallTime arrived, SequenceRun sequences, PrincipalId principal,
                             bool is_long);

 private:
  friend class Intake;
  friend class UnappliedRecords;
  // Each that is not applied yet is looked into for each record that somebody names.
  static constexpr std::size_t least_known_as_whole = 32;
  enum class Kind { untouched, rewritten, nothing };
  // A record that is pending from now on.  By rising sequence numbers.
  struct Added {
    PendingKey key;
    WallTime expires;
    storage::EncodedAdditions::Place place;
  };
  struct Removed {
    PendingKey key;
    WallTime first;  // Its handle's due time.
    storage::RemovalReason how;
    BatchIds::Number id;
    std::int32_t offset_delta = 0;     // The offset of a record that goes to the log at once.
    storage::PendingShare share = {};  // The share of one that was pending.
    std::size_t encoded_end = 0;       // In encoded_arrivals_, of one that is due on arrival.
  };
  // An id that is taken from whatever record has it, outside of this batch.
  struct Take {
    std::size_t number;  // Among those of BatchSchedules::ids_taken().
    bool cancels;
  };
  // The batch's last record that has an id.
  struct LastOfId {
    enum class In : std::uint8_t { none, added, on_arrival };
    In in = In::none;
    std::uint32_t at = 0;  // Its place there.
  };
  // The records that leave because of a long batch until it is appended.  If it is not, they stay.
  struct Held {
    std::vector<PendingKey> taken;
    std::vector<Sequence> arrived;  // Due on arrival: they never were pending.
    bool given_back = false;
  };
  // The changes once it is durable.
  struct Applied {
    std::size_t removed = 0, added = 0, ended = 0;  // So many of each.
  };

  std::string_view id_of(const Removed& gone) const { return ids_[gone.id]; }
  std::string_view id_of(const Added& added) const {
    return as_text(additions_.bytes().subspan(added.place.id, added.place.id_size));
  }
  // The removals of removed_, and then those of on_arrival_.
  std::size_t removals() const { return removed_.size() + on_arrival_.size(); }
  const Removed& removal(std::size_t at) const {
    return at < removed_.size() ? removed_[at] : on_arrival_[at - removed_.size()];
  }
  // Keeps a record that leaves, and its encoding.
  void add_removed(const Removed& gone);
  void add_on_arrival(const Removed& gone);
  // The offset of its first record that goes to the log at once.
  void set_base_offset(Offset base);
  storage::PendingShare share_of(const Added& added) const {
    return storage::PendingShare::of(principal_, added.place.id_size, added.place.record_size);
  }
  // The principal's pending records afterwards, less those before.
  storage::PendingUse difference() const;
  storage::PendingAdded added_operation(const Added& added) const;
  storage::PendingRemoved removed_operation(const Removed& gone) const;
  // Finds the ids that it takes, and the records that it drops because a later one of the batch
  // cancels or replaces them.  Returns the number of each id that a record takes, in their order.
  std::vector<BatchIds::Number> take_ids(const BatchSchedules& schedules,
                                         std::vector<bool>& is_dropped);
  // Looks for records that are added and not applied.
  const Added* find(Sequence sequence) const;
  std::optional<std::pair<PendingKey, storage::PendingShare>> find_id(BatchIds::Hash hash,
                                                                      std::string_view id) const;

  Kind kind_ = Kind::untouched;
  TopicPartition partition_;
  PrincipalId principal_ = unknown_principal;
  WallTime arrived_{};
  Offset base_offset_ = 0;  // For records that go to the log at once, when it is known.
  std::int32_t records_ = 0;
  Buffer immediate_;
  BatchIds ids_;                         // All that its records take.
  storage::EncodedAdditions additions_;  // The encoding of added_.
  std::vector<Added> added_;
  // They precede the pending records, in the journal too; those that are due on arrival last.
  std::vector<Removed> removed_, on_arrival_;
  storage::EncodedRemovals encoded_removals_, encoded_arrivals_;
  std::vector<Take> takes_;  // One for each of ids_.
  bool is_long_ = false;
  std::size_t largest_recurring_ = 0;
  std::vector<LastOfId> last_of_ids_;  // For each of ids_, of one that is known as a whole.
  Applied applied_;
  IntakeCharge charge_;  // From its acceptance on.
  std::shared_ptr<Held> held_;
  ScopeExit give_back_;
  std::move_only_function<void(AcceptedBatch*)> discard_;  // For a long batch.
  Reservation reservation_;                                // For a principal with a quota.
  storage::JournalPlace place_;                            // The place of the first operation.
  std::uint32_t unknown_cancels_ = 0;
  std::uint32_t late_cancels_ = 0;
  std::uint32_t expired_ = 0;           // On arrival.
  std::uint32_t cancelled_within_ = 0;  // Records that were added and cancelled in this batch.
  std::uint32_t replaced_within_ = 0;
};

}  // namespace tarry::delay
