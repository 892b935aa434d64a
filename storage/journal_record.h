#pragma once

// A journal record: what belongs together, as a list of operations.
//
// The journal writes a record whole or not at all, so operations that must not be separated by a
// crash are in one record: a mixed batch is [LogAppended, PendingAdded...], a delivery is
// [LogAppended, PendingRemoved...], a move is [PendingRemoved, PendingAdded], a delayed batch
// of an idempotent producer is [PendingAdded..., ProducerAnswered].  A record that is due on
// arrival and has an id is delivered at once: [LogAppended, PendingRemoved], delivered_on_arrival.
//
//   record      operation*                     as many as fill the record
//   operation   type u8, length u32, body      big-endian throughout
//
//   1 LogAppended       topic 16, partition i32, appended_ms i64, batches (the rest)
//   2 PendingAdded      topic 16, partition i32, sequence u64, due_ms i64, accepted_ms i64,
//                       expires_ms i64 (max: never), id (u16 length, bytes; 0: none),
//                       record (the rest: key, value and headers as encoded by the delay engine)
//   3 PendingRemoved    topic 16, partition i32, sequence u64, due_ms i64, how u8, at_ms i64,
//                       id (u16 length, bytes; 0: none), then nothing, or detail i64: the
//                       offset of what was delivered, the new due_ms of what was moved
//   4 ProducerAnswered  topic 16, partition i32, producer_id i64, epoch i16, first_sequence i32,
//                       last_sequence i32, base_offset i64, at_ms i64
//   5 TopicCreated      topic 16, partitions i32, name (u16, bytes), configs (u32 count, each
//                       key (u16, bytes), value (u32, bytes))
//   6 TopicDeleted      topic 16
//   7 PartitionsAdded   topic 16, partitions i32 (the new number)
//   8 ConfigsSet        topic 16, configs (all that differ from the defaults)
//   9 ProducerIdsGiven  next i64: every id below is given out
//  10 SequencesGiven    next u64: every sequence number below is given out
//  11 LogStartMoved     topic 16, partition i32, start i64: what is below is deleted
//  12 BrokerConfigsSet  configs (all dynamic ones)
//  13 GroupStored       group (u16, bytes), value (the rest: docs/formats/group.md)
//  14 GroupRemoved      group: it and all its offsets are gone
//  15 OffsetsCommitted  group, count u32, each: topic 16, partition i32, offset i64,
//                       leader_epoch i32, committed_ms i64, expires_ms i64 (max: when
//                       offsets.retention.minutes says), metadata (u16, bytes)
//  16 OffsetsRemoved    group, count u32, each: topic 16, partition i32
//  17 PendingAdded      first_due_ms i64, then as 2: a record whose due time is not its first, with
//                       the sequence number that it had
//  18 PendingRemoved    first_due_ms i64, then as 3: of such a record
//  19 SecurityRowSet    key (u16, bytes), value (the rest): a user or a rule
//  20 SecurityRowRemoved  key (u16, bytes)
//  21 PendingAdded    principal u32, then as 2: a record of which it is known who produced it
//  22 PendingRemoved  principal u32, bytes u32 (of id and record), then as 3: of such a record
//  23, 24             the same two of a record whose due time is not its first: principal u32, or
//                     principal u32 and bytes u32, then as 17 or as 18
//
// Applying an operation twice changes nothing the second time: it states a fact under a name that
// is never reused (topic ids, offsets, sequence numbers).  Replay relies on it.
//
// An unknown type is an error: a directory that a later Tarry wrote is refused, not read in part.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/pending.h"

namespace tarry::storage {

using Configs = std::map<std::string, std::string, std::less<>>;

// The reasons why a record is no longer pending.
enum class RemovalReason : std::uint8_t {
  delivered = 1,
  cancelled = 2,
  replaced = 3,
  expired = 4,
  moved = 5,  // It is pending with another due time: a PendingAdded follows.
  // It has an id and was due when it came: it was never pending, and its id is remembered.
  delivered_on_arrival = 6,
};

constexpr WallTime never_expires{
    std::chrono::milliseconds{std::numeric_limits<std::int64_t>::max()}};

// The views in these point into the decoded record, or into the caller's memory.
struct LogAppended {
  TopicPartition partition;
  WallTime appended;
  Bytes batches;  // Whole batches, offsets filled in, as they stand in the log.
};
struct PendingAdded {
  TopicPartition partition;
  Sequence sequence = 0;
  WallTime due;
  WallTime accepted;
  WallTime expires = never_expires;
  std::string_view id;
  Bytes record;
  // The due time that it had first, which its handle names for ever; empty: `due`.
  std::optional<WallTime> first_due = std::nullopt;
  PrincipalId principal = unknown_principal;  // The producer of the record.

  void set_first_due(WallTime first) {
    if (first != due) first_due = first;
  }
  PendingShare share() const { return PendingShare::of(principal, id.size(), record.size()); }
};
struct PendingRemoved {
  TopicPartition partition;
  Sequence sequence = 0;
  WallTime due;
  RemovalReason how = RemovalReason::delivered;
  WallTime at;
  std::string_view id;
  Offset offset = -1;  // The offset of a delivered record; -1: not known.
  std::optional<WallTime> moved_to = std::nullopt;   // The new due time of a moved record.
  std::optional<WallTime> first_due = std::nullopt;  // As of PendingAdded.
  PendingShare share = {};  // As its PendingAdded had it: nobody looks that up for a removal.

  void set_first_due(WallTime first) {
    if (first != due) first_due = first;
  }
};
// A PendingRemoved for each, with the offset that it got: the first this one, and the others those
// behind it.  What they say of their offsets is not looked at.
struct DeliveredRecords {
  std::span<const PendingRemoved> records;
  Offset first_offset = 0;
};
struct ProducerAnswered {
  TopicPartition partition;
  ProducerId producer_id = -1;
  std::int16_t epoch = -1;
  std::int32_t first_sequence = -1;
  std::int32_t last_sequence = -1;
  Offset base_offset = -1;  // As answered: -n when all n records are delayed.
  WallTime at;
};
struct TopicCreated {
  TopicId topic;
  std::int32_t partitions = 0;
  std::string_view name;
  Configs configs;
};
struct TopicDeleted {
  TopicId topic;
};
struct PartitionsAdded {
  TopicId topic;
  std::int32_t partitions = 0;
};
struct ConfigsSet {
  TopicId topic;
  Configs configs;
};
struct ProducerIdsGiven {
  ProducerId next = 0;
};
struct SequencesGiven {
  Sequence next = 0;
};
struct LogStartMoved {
  TopicPartition partition;
  Offset start = 0;
};
struct BrokerConfigsSet {
  Configs configs;
};

// A user or a rule of who may do what, under its key (broker/security/security_image.h).
struct SecurityRowSet {
  std::string_view key;
  std::string_view value;
};
struct SecurityRowRemoved {
  std::string_view key;
};

// A consumer group's record stands in the journal of the shard that the group hashes to.
struct GroupStored {
  std::string_view group;
  Bytes value;
};
struct GroupRemoved {
  std::string_view group;
};
struct CommittedOffset {
  TopicPartition partition;
  Offset offset = -1;
  std::int32_t leader_epoch = -1;  // -1: the client gave none.
  WallTime committed;
  WallTime expires = never_expires;  // A time that the client asked for; else retention decides.
  std::string_view metadata;
};
struct OffsetsCommitted {
  std::string_view group;
  std::vector<CommittedOffset> offsets;
};
struct OffsetsRemoved {
  std::string_view group;
  std::vector<TopicPartition> partitions;
};

using Operation =
    std::variant<LogAppended, PendingAdded, PendingRemoved, ProducerAnswered, TopicCreated,
                 TopicDeleted, PartitionsAdded, ConfigsSet, ProducerIdsGiven, SequencesGiven,
                 LogStartMoved, BrokerConfigsSet, GroupStored, GroupRemoved, OffsetsCommitted,
                 OffsetsRemoved, SecurityRowSet, SecurityRowRemoved>;

// Operations of one kind, encoded in one piece: where that is done before the record is built, on
// another thread or in several turns.
class EncodedOperations {
 public:
  Bytes bytes() const { return bytes_; }
  std::uint32_t operations() const { return operations_; }
  std::size_t memory_bytes() const { return bytes_.capacity(); }

 protected:
  void begin(std::uint8_t type);
  void end();

  Buffer bytes_;

 private:
  std::size_t started_ = 0;
  std::uint32_t operations_ = 0;
};

// Many PendingAdded; the same bytes are used afterwards.
class EncodedAdditions : public EncodedOperations {
 public:
  // About so many bytes of operations follow.
  void reserve(std::size_t bytes) { bytes_.reserve(bytes_.size() + bytes); }
  // The positions in bytes() of an operation's parts that are not numbers.
  struct Place {
    std::size_t id = 0, id_size = 0;
    std::size_t record = 0, record_size = 0;
  };
  // `write` appends the record to the buffer that it is given; `op.record` is not looked at.
  template <typename Write>
  Place add(const PendingAdded& op, const Write& write) {
    Place place = begin_addition(op);
    write(bytes_);
    end_addition(place);
    return place;
  }

 private:
  Place begin_addition(const PendingAdded& op);
  void end_addition(Place& place);
};

// Many PendingRemoved.
class EncodedRemovals : public EncodedOperations {
 public:
  // Returns the end of the operation in bytes().
  std::size_t add(const PendingRemoved& op);
  // Changes the offset of one that has an offset and ends at `end`.
  void set_offset(std::size_t end, Offset offset);
};

// Builds a record as a list of pieces, so that a batch is copied once: into the journal's buffer.
// The memory that LogAppended::batches, PendingAdded::record and GroupStored::value view must live
// until the record is appended.
class RecordBuilder {
 public:
  void add(const LogAppended&);
  void add(const PendingAdded&);
  void add(const PendingRemoved&);
  void add(const DeliveredRecords&);
  void add(const ProducerAnswered&);
  void add(const TopicCreated&);
  void add(const TopicDeleted&);
  void add(const PartitionsAdded&);
  void add(const ConfigsSet&);
  void add(const ProducerIdsGiven&);
  void add(const SequencesGiven&);
  void add(const LogStartMoved&);
  void add(const BrokerConfigsSet&);
  void add(const GroupStored&);
  void add(const GroupRemoved&);
  void add(const OffsetsCommitted&);
  void add(const OffsetsRemoved&);
  void add(const SecurityRowSet&);
  void add(const SecurityRowRemoved&);
  // Their bytes live until the record is appended.
  void add(const EncodedOperations&);

  bool empty() const { return parts_.empty(); }
  std::uint32_t operations() const { return operations_; }
  std::size_t size() const { return size_; }  // Bytes of the whole record.

  // Valid until the next add().
  std::vector<Bytes> pieces() const;

 private:
  struct Part {  // A stretch of own_, then a view of the caller's (may be empty).
    std::size_t own_end;
    Bytes foreign;
  };
  std::size_t begin(std::uint8_t type);
  void end(std::size_t started, Bytes foreign);
  void end_stretch(Bytes foreign);

  Buffer own_;
  std::vector<Part> parts_;
  std::uint32_t operations_ = 0;
  std::size_t size_ = 0;
};

// Calls `take` for each operation of the record in order; an error that `take` returns ends it.
Result<> for_each_operation(Bytes record, const std::function<Result<>(const Operation&)>& take);

}  // namespace tarry::storage
