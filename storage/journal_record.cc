#include "storage/journal_record.h"

#include <fmt/core.h>

#include <cstring>

#include "base/assert.h"
#include "storage/fields.h"

namespace tarry::storage {
namespace {

// These numbers are on disk: none is changed or given out again (journal_record.h has the bodies).
enum Type : std::uint8_t {
  log_appended = 1,
  pending_added = 2,
  pending_removed = 3,
  producer_answered = 4,
  topic_created = 5,
  topic_deleted = 6,
  partitions_added = 7,
  configs_set = 8,
  producer_ids_given = 9,
  sequences_given = 10,
  log_start_moved = 11,
  broker_configs_set = 12,
  group_stored = 13,
  group_removed = 14,
  offsets_committed = 15,
  offsets_removed = 16,
  pending_added_again = 17,
  pending_removed_again = 18,
  security_row_set = 19,
  security_row_removed = 20,
  pending_added_by = 21,
  pending_removed_by = 22,
  pending_added_again_by = 23,
  pending_removed_again_by = 24,
};

// The length lets a reader skip to the next operation, and find out that fields are missing.
constexpr std::size_t operation_header = 1 + 4;

void put_settings(Buffer& out, const Configs& configs) {
  append_be(out, static_cast<std::uint32_t>(configs.size()));
  for (const auto& [key, value] : configs) {
    put_short(out, key);
    append_be(out, static_cast<std::uint32_t>(value.size()));
    append_bytes(out, as_bytes(value));
  }
}

Configs take_configs(Fields& body) {
  Configs out;
  for (auto count = body.number<std::uint32_t>(); count > 0 && body.whole(); --count) {
    std::string key{body.short_text()};
    out.insert_or_assign(std::move(key),
                         std::string{as_text(body.take(body.number<std::uint32_t>()))});
  }
  return out;
}
// Nothing is reserved for `count`: a corrupt count could claim gigabytes.
std::vector<CommittedOffset> take_offsets(Fields& body) {
  std::vector<CommittedOffset> out;
  for (auto count = body.number<std::uint32_t>(); count > 0 && body.whole(); --count) {
    out.push_back({body.partition(), body.number<std::int64_t>(), body.number<std::int32_t>(),
                   body.time(), body.time(), body.short_text()});
  }
  return out;
}
PendingAdded take_added(Fields& body) {
  return {body.partition(), body.number<std::uint64_t>(),
          body.time(),      body.time(),
          body.time(),      body.short_text(),
          body.rest()};
}
PendingAdded take_added_again(Fields& body) {
  const WallTime first_due = body.time();
  auto added = take_added(body);
  added.first_due = first_due;
  return added;
}
PendingRemoved take_removed(Fields& body) {
  PendingRemoved out{body.partition(), body.number<std::uint64_t>(),
                     body.time(),      static_cast<RemovalReason>(body.number<std::uint8_t>()),
                     body.time(),      body.short_text()};
  // One number may follow: an offset, or the due time of a moved record.
  if (body.at_end()) return out;
  if (out.how == RemovalReason::moved) {
    out.moved_to = body.time();
  } else {
    out.offset = body.number<Offset>();
  }
  return out;
}
PendingRemoved take_removed_again(Fields& body) {
  const WallTime first_due = body.time();
  auto removed = take_removed(body);
  removed.first_due = first_due;
  return removed;
}
// The principal stands in front of the fields of the older types, which `take` reads.
PendingAdded take_added_by(Fields& body, PendingAdded (*take)(Fields&)) {
  const auto principal = body.number<PrincipalId>();
  auto added = take(body);
  added.principal = principal;
  return added;
}
PendingRemoved take_removed_by(Fields& body, PendingRemoved (*take)(Fields&)) {
  const PendingShare share{body.number<PrincipalId>(), body.number<std::uint32_t>()};
  auto removed = take(body);
  removed.share = share;
  return removed;
}
Type type_of(const PendingAdded& op) {
  if (op.principal == unknown_principal) return op.first_due ? pending_added_again : pending_added;
  return op.first_due ? pending_added_again_by : pending_added_by;
}
Type type_of(const PendingRemoved& op) {
  if (op.share.principal == unknown_principal)
    return op.first_due ? pending_removed_again : pending_removed;
  return op.first_due ? pending_removed_again_by : pending_removed_by;
}
// Puts fields where there is room for them: of operations that come by the million the buffer grows
// once for each, or for many.
class Putter {
 public:
  Putter(Buffer& out, std::size_t size) {
    const std::size_t at = out.size();
    out.resize(at + size);
    to_ = out.data() + at;
    end_ = to_ + size;
  }
  ~Putter() { TARRY_ASSERT(to_ == end_, "the fields have the size that was said"); }
  Putter(const Putter&) = delete;
  Putter& operator=(const Putter&) = delete;

  template <typename T>
  void number(T value) {
    store_be(to_, value);
    to_ += sizeof value;
  }
  void time(WallTime time) { number(to_ms(time)); }
  void partition(const TopicPartition& partition) {
    bytes(partition.topic.bytes);
    number(partition.partition);
  }
  void short_text(std::string_view text) {
    TARRY_ASSERT(text.size() <= 0xffff, "names are checked before they are kept");
    number(static_cast<std::uint16_t>(text.size()));
    bytes(as_bytes(text));
  }

 private:
  // The library's copy goes byte by byte.
  void bytes(Bytes bytes) {
    if (!bytes.empty()) std::memcpy(to_, bytes.data(), bytes.size());
    to_ += bytes.size();
  }

  std::uint8_t* to_;
  std::uint8_t* end_;
};

constexpr std::size_t partition_field_bytes = sizeof(TopicId::bytes) + sizeof(PartitionIndex);

// All of it but the record.
void put_fields(Buffer& out, const PendingAdded& op) {
  const bool is_known = op.principal != unknown_principal;
  Putter to(out, (is_known ? 4 : 0) + (op.first_due ? 8 : 0) + partition_field_bytes + 4 * 8 + 2 +
                     op.id.size());
  if (is_known) to.number(op.principal);
  if (op.first_due) to.time(*op.first_due);
  to.partition(op.partition);
  to.number(op.sequence);
  to.time(op.due);
  to.time(op.accepted);
  to.time(op.expires);
  to.short_text(op.id);
}
std::size_t field_bytes(const PendingRemoved& op, Offset offset) {
  const std::size_t numbers = (op.share.principal != unknown_principal ? 1 : 0) +
                              (op.first_due ? 1 : 0) + (op.moved_to ? 1 : 0) +
                              (offset >= 0 ? 1 : 0);
  return partition_field_bytes + (3 + numbers) * 8 + 1 + 2 + op.id.size();
}
// `offset` is the operation's.
void put_fields(Putter& to, const PendingRemoved& op, Offset offset) {
  if (op.share.principal != unknown_principal) {
    to.number(op.share.principal);
    to.number(op.share.bytes);
  }
  if (op.first_due) to.time(*op.first_due);
  to.partition(op.partition);
  to.number(op.sequence);
  to.time(op.due);
  to.number(static_cast<std::uint8_t>(op.how));
  to.time(op.at);
  to.short_text(op.id);
  // The last field, so that set_offset() finds it when the append has given the offset out.
  if (offset >= 0) to.number(offset);
  if (op.moved_to) to.time(*op.moved_to);
}
void put_fields(Buffer& out, const PendingRemoved& op) {
  Putter to(out, field_bytes(op, op.offset));
  put_fields(to, op, op.offset);
}
std::vector<TopicPartition> take_partitions(Fields& body) {
  std::vector<TopicPartition> out;
  for (auto count = body.number<std::uint32_t>(); count > 0 && body.whole(); --count)
    out.push_back(body.partition());
  return out;
}

}  // namespace

std::size_t RecordBuilder::begin(std::uint8_t type) {
  const std::size_t started = own_.size();
  own_.push_back(type);
  // end() fills the length in, when it is known.
  append_be(own_, std::uint32_t{0});
  return started;
}

void RecordBuilder::end(std::size_t started, Bytes foreign) {
  const std::size_t length = own_.size() - started - operation_header + foreign.size();
  TARRY_ASSERT(length <= std::numeric_limits<std::uint32_t>::max(), "a frame is smaller than this");
  store_be(own_.data() + started + 1, static_cast<std::uint32_t>(length));
  end_stretch(foreign);
  ++operations_;
  size_ += operation_header + length;
}

void RecordBuilder::end_stretch(Bytes foreign) {
  // Batches and records are not copied: the journal writes the pieces in one call.
  // A delivery has hundreds of operations that are all ours: one stretch.
  if (foreign.empty() && !parts_.empty() && parts_.back().foreign.empty()) {
    parts_.back().own_end = own_.size();
  } else {
    parts_.push_back({own_.size(), foreign});
  }
}

void RecordBuilder::add(const LogAppended& op) {
  const auto at = begin(log_appended);
  put(own_, op.partition);
  put(own_, op.appended);
  end(at, op.batches);
}
void RecordBuilder::add(const PendingAdded& op) {
  const auto at = begin(type_of(op));
  put_fields(own_, op);
  end(at, op.record);
}
void RecordBuilder::add(const EncodedOperations& encoded) {
  if (encoded.operations() == 0) return;
  // Not copied: a delivery encodes thousands of operations, elsewhere.
  parts_.push_back({own_.size(), encoded.bytes()});
  operations_ += encoded.operations();
  size_ += encoded.bytes().size();
}

void EncodedOperations::begin(std::uint8_t type) {
  started_ = bytes_.size();
  bytes_.push_back(type);
  append_be(bytes_, std::uint32_t{0});
}

void EncodedOperations::end() {
  const std::size_t length = bytes_.size() - started_ - operation_header;
  TARRY_ASSERT(length <= std::numeric_limits<std::uint32_t>::max(), "a frame is smaller than this");
  store_be(bytes_.data() + started_ + 1, static_cast<std::uint32_t>(length));
  ++operations_;
}

EncodedAdditions::Place EncodedAdditions::begin_addition(const PendingAdded& op) {
  begin(type_of(op));
  put_fields(bytes_, op);
  return {bytes_.size() - op.id.size(), op.id.size(), bytes_.size(), 0};
}

void EncodedAdditions::end_addition(Place& place) {
  place.record_size = bytes_.size() - place.record;
  end();
}

std::size_t EncodedRemovals::add(const PendingRemoved& op) {
  begin(type_of(op));
  put_fields(bytes_, op);
  end();
  return bytes_.size();
}

void EncodedRemovals::set_offset(std::size_t end, Offset offset) {
  // The offset is the last field.
  store_be(bytes_.data() + end - sizeof offset, offset);
}

void RecordBuilder::add(const PendingRemoved& op) {
  const auto at = begin(type_of(op));
  put_fields(own_, op);
  end(at, {});
}
void RecordBuilder::add(const DeliveredRecords& op) {
  if (op.records.empty()) return;
  std::size_t size = 0;
  Offset offset = op.first_offset;
  for (const auto& one : op.records) size += operation_header + field_bytes(one, offset);
  Putter to(own_, size);
  for (const auto& one : op.records) {
    to.number(static_cast<std::uint8_t>(type_of(one)));
    to.number(static_cast<std::uint32_t>(field_bytes(one, offset)));
    put_fields(to, one, offset++);
  }
  end_stretch({});
  operations_ += static_cast<std::uint32_t>(op.records.size());
  size_ += size;
}
void RecordBuilder::add(const ProducerAnswered& op) {
  const auto at = begin(producer_answered);
  put(own_, op.partition);
  append_be(own_, op.producer_id);
  append_be(own_, op.epoch);
  append_be(own_, op.first_sequence);
  append_be(own_, op.last_sequence);
  append_be(own_, op.base_offset);
  put(own_, op.at);
  end(at, {});
}
void RecordBuilder::add(const TopicCreated& op) {
  const auto at = begin(topic_created);
  put(own_, op.topic);
  append_be(own_, op.partitions);
  put_short(own_, op.name);
  put_settings(own_, op.configs);
  end(at, {});
}
void RecordBuilder::add(const TopicDeleted& op) {
  const auto at = begin(topic_deleted);
  put(own_, op.topic);
  end(at, {});
}
void RecordBuilder::add(const PartitionsAdded& op) {
  const auto at = begin(partitions_added);
  put(own_, op.topic);
  append_be(own_, op.partitions);
  end(at, {});
}
void RecordBuilder::add(const ConfigsSet& op) {
  const auto at = begin(configs_set);
  put(own_, op.topic);
  put_settings(own_, op.configs);
  end(at, {});
}
void RecordBuilder::add(const ProducerIdsGiven& op) {
  const auto at = begin(producer_ids_given);
  append_be(own_, op.next);
  end(at, {});
}
void RecordBuilder::add(const SequencesGiven& op) {
  const auto at = begin(sequences_given);
  append_be(own_, op.next);
  end(at, {});
}
void RecordBuilder::add(const LogStartMoved& op) {
  const auto at = begin(log_start_moved);
  put(own_, op.partition);
  append_be(own_, op.start);
  end(at, {});
}
void RecordBuilder::add(const BrokerConfigsSet& op) {
  const auto at = begin(broker_configs_set);
  put_settings(own_, op.configs);
  end(at, {});
}
void RecordBuilder::add(const GroupStored& op) {
  const auto at = begin(group_stored);
  put_short(own_, op.group);
  end(at, op.value);
}
void RecordBuilder::add(const GroupRemoved& op) {
  const auto at = begin(group_removed);
  put_short(own_, op.group);
  end(at, {});
}
void RecordBuilder::add(const OffsetsCommitted& op) {
  const auto at = begin(offsets_committed);
  put_short(own_, op.group);
  append_be(own_, static_cast<std::uint32_t>(op.offsets.size()));
  for (const auto& offset : op.offsets) {
    put(own_, offset.partition);
    append_be(own_, offset.offset);
    append_be(own_, offset.leader_epoch);
    put(own_, offset.committed);
    put(own_, offset.expires);
    put_short(own_, offset.metadata);
  }
  end(at, {});
}
void RecordBuilder::add(const OffsetsRemoved& op) {
  const auto at = begin(offsets_removed);
  put_short(own_, op.group);
  append_be(own_, static_cast<std::uint32_t>(op.partitions.size()));
  for (const auto& partition : op.partitions) put(own_, partition);
  end(at, {});
}

void RecordBuilder::add(const SecurityRowSet& op) {
  const auto at = begin(security_row_set);
  put_short(own_, op.key);
  append_bytes(own_, as_bytes(op.value));
  end(at, {});
}
void RecordBuilder::add(const SecurityRowRemoved& op) {
  const auto at = begin(security_row_removed);
  put_short(own_, op.key);
  end(at, {});
}

std::vector<Bytes> RecordBuilder::pieces() const {
  std::vector<Bytes> out;
  std::size_t from = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    // Stretches of our own that nothing foreign stands between are one piece.
    if (parts_[i].foreign.empty() && i + 1 < parts_.size()) continue;
    out.push_back(Bytes{own_}.subspan(from, parts_[i].own_end - from));
    if (!parts_[i].foreign.empty()) out.push_back(parts_[i].foreign);
    from = parts_[i].own_end;
  }
  return out;
}

namespace {

// Empty: a type that this version does not know.
std::optional<Operation> read_operation(std::uint8_t type, Fields& body) {
  // Braced lists are evaluated in order, which is the order of the fields.
  switch (type) {
    case log_appended:
      return LogAppended{body.partition(), body.time(), body.rest()};
    case pending_added:
      return take_added(body);
    case pending_added_again:
      return take_added_again(body);
    case pending_added_by:
      return take_added_by(body, take_added);
    case pending_added_again_by:
      return take_added_by(body, take_added_again);
    case pending_removed:
      return take_removed(body);
    case pending_removed_again:
      return take_removed_again(body);
    case pending_removed_by:
      return take_removed_by(body, take_removed);
    case pending_removed_again_by:
      return take_removed_by(body, take_removed_again);
    case producer_answered:
      return ProducerAnswered{body.partition(),
                              body.number<std::int64_t>(),
                              body.number<std::int16_t>(),
                              body.number<std::int32_t>(),
                              body.number<std::int32_t>(),
                              body.number<std::int64_t>(),
                              body.time()};
    case topic_created:
      return TopicCreated{body.topic(), body.number<std::int32_t>(), body.short_text(),
                          take_configs(body)};
    case topic_deleted:
      return TopicDeleted{body.topic()};
    case partitions_added:
      return PartitionsAdded{body.topic(), body.number<std::int32_t>()};
    case configs_set:
      return ConfigsSet{body.topic(), take_configs(body)};
    case producer_ids_given:
      return ProducerIdsGiven{body.number<std::int64_t>()};
    case sequences_given:
      return SequencesGiven{body.number<std::uint64_t>()};
    case log_start_moved:
      return LogStartMoved{body.partition(), body.number<std::int64_t>()};
    case broker_configs_set:
      return BrokerConfigsSet{take_configs(body)};
    case group_stored:
      return GroupStored{body.short_text(), body.rest()};
    case group_removed:
      return GroupRemoved{body.short_text()};
    case offsets_committed:
      return OffsetsCommitted{body.short_text(), take_offsets(body)};
    case offsets_removed:
      return OffsetsRemoved{body.short_text(), take_partitions(body)};
    case security_row_set:
      return SecurityRowSet{body.short_text(), as_text(body.rest())};
    case security_row_removed:
      return SecurityRowRemoved{body.short_text()};
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<> for_each_operation(Bytes record, const std::function<Result<>(const Operation&)>& take) {
  while (!record.empty()) {
    if (record.size() < operation_header)
      return fail(Errc::corrupt, "a journal record ends inside an operation");
    const std::uint8_t type = record[0];
    const auto length = load_be<std::uint32_t>(record.data() + 1);
    if (length > record.size() - operation_header) {
      return fail(
          Errc::corrupt,
          fmt::format(
              "an operation of type {} claims {} bytes, but its journal record has only {} left",
              type, length, record.size() - operation_header));
    }
    Fields body(record.subspan(operation_header, length));
    record = record.subspan(operation_header + length);

    auto op = read_operation(type, body);
    // Not passed over: what comes after it may depend on it.
    if (!op) {
      return fail(
          Errc::unsupported,
          fmt::format(
              "a journal record holds an operation of type {}, which this version does not know; "
              "start the version of Tarry that wrote it",
              type));
    }
    if (!body.good())
      return fail(Errc::corrupt, fmt::format("an operation of type {} has a malformed body", type));
    if (const auto taken = take(*op); !taken) return taken;
  }
  return {};
}

}  // namespace tarry::storage
