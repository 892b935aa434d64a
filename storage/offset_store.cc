#include "storage/offset_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "storage/database.h"
#include "storage/fields.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

// The key prefix in both families: the rows of one group stand together, in the same order.
Buffer group_key(std::string_view group) {
  TARRY_ASSERT(group.size() <= 0x7fff, "a group's id is checked before it is kept");
  Buffer key;
  put_short(key, group);
  return key;
}

Buffer offset_key(const Buffer& group, const TopicPartition& partition) {
  Buffer key = group;
  put(key, partition);
  return key;
}

Buffer encode(const CommittedOffset& offset) {
  Buffer out;
  append_be(out, offset.offset);
  append_be(out, offset.leader_epoch);
  put(out, offset.committed);
  put(out, offset.expires);
  append_bytes(out, as_bytes(offset.metadata));
  return out;
}

struct Row {
  Bytes group;  // Its key.
  CommittedOffset offset;
  bool good = false;
};

Row decode(Bytes key, Bytes value) {
  Row row;
  Fields fields(key);
  const std::string_view id = fields.short_text();
  row.offset.partition = fields.partition();
  row.good = fields.good();
  if (!row.good) return row;
  row.group = key.first(sizeof(std::uint16_t) + id.size());
  Fields what(value);
  row.offset.offset = what.number<Offset>();
  row.offset.leader_epoch = what.number<std::int32_t>();
  row.offset.committed = what.time();
  row.offset.expires = what.time();
  row.offset.metadata = as_text(what.rest());
  row.good = what.good();
  return row;
}

std::string_view id_of(Bytes group) {
  return as_text(group.subspan(sizeof(std::uint16_t)));
}

}  // namespace

struct PreparedGroup::Row {
  explicit Row(std::size_t bytes) : batch(bytes) {}

  rocksdb::WriteBatch batch;
  std::size_t value_bytes = 0;
};

PreparedGroup::PreparedGroup(std::unique_ptr<Row> row) : row_(std::move(row)) {}
PreparedGroup::~PreparedGroup() = default;

Bytes PreparedGroup::value() const {
  // Its row is the only one, and a row ends with its value.
  return as_bytes(row_->batch.Data()).last(row_->value_bytes);
}

std::shared_ptr<PreparedGroup> OffsetStore::prepare(const GroupStored& stored) const {
  // The batch has some bytes of its own, and so has the row beside its key and its value.
  constexpr std::size_t overhead = 64;
  const Buffer key = group_key(stored.group);
  auto row = std::make_unique<PreparedGroup::Row>(key.size() + stored.value.size() + overhead);
  row->batch.Put(meta_.rocks().family(meta_family::groups), slice(key), slice(stored.value));
  row->value_bytes = stored.value.size();
  return std::shared_ptr<PreparedGroup>(new PreparedGroup(std::move(row)));
}

Result<> OffsetStore::apply(PreparedGroup& prepared) {
  return meta_.rocks().write(prepared.row_->batch);
}

Result<> OffsetStore::apply(const Operation& operation) {
  Rocks& rocks = meta_.rocks();
  Family* const groups = rocks.family(meta_family::groups);
  Family* const offsets = rocks.family(meta_family::offsets);
  rocksdb::WriteBatch batch;
  if (const auto* stored = std::get_if<GroupStored>(&operation)) {
    batch.Put(groups, slice(group_key(stored->group)), slice(stored->value));
  } else if (const auto* removed = std::get_if<GroupRemoved>(&operation)) {
    const Buffer key = group_key(removed->group);
    batch.Delete(groups, slice(key));
    // The rows of all its offsets begin with the group's key.
    batch.DeleteRange(offsets, slice(key), slice(behind_prefix(key)));
  } else if (const auto* committed = std::get_if<OffsetsCommitted>(&operation)) {
    const Buffer group = group_key(committed->group);
    for (const auto& offset : committed->offsets)
      batch.Put(offsets, slice(offset_key(group, offset.partition)), slice(encode(offset)));
  } else if (const auto* gone = std::get_if<OffsetsRemoved>(&operation)) {
    const Buffer group = group_key(gone->group);
    for (const auto& partition : gone->partitions)
      batch.Delete(offsets, slice(offset_key(group, partition)));
  }
  return rocks.write(batch);
}

Result<> OffsetStore::load(const std::function<bool(const TopicId&)>& exists,
                           const TakeGroup& take) {
  Rocks& rocks = meta_.rocks();
  const auto bad_row = [&](std::string_view what) {
    return fail(
        Errc::corrupt,
        fmt::format("database {}: a row of {} is malformed; restore the whole data directory "
                    "from a copy",
                    rocks.directory, what));
  };
  // A length that begins so is no group's.
  const Buffer behind_all(32, 0xff);
  BoundedIterator groups(rocks, meta_family::groups, {}, behind_all);
  BoundedIterator offsets(rocks, meta_family::offsets, {}, behind_all);
  groups.seek_to_first();
  offsets.seek_to_first();

  rocksdb::WriteBatch nobodys;
  // Views into the iterators' blocks end when they move, so that a group is put together in here.
  Buffer key, value;
  std::vector<std::string> metadata;
  // Both families have a group's rows under the same prefix in the same order, so this is a merge
  // of two sorted lists.
  while (groups.valid() || offsets.valid()) {
    StoredGroup group;
    Row row;
    if (offsets.valid()) {
      row = decode(offsets.key(), offsets.value());
      if (!row.good) return bad_row("committed offsets");
    }
    const auto less = [](Bytes a, Bytes b) {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    };
    const bool has_value = groups.valid() && (!offsets.valid() || !less(row.group, groups.key()));
    const Bytes first = has_value ? groups.key() : row.group;
    key.assign(first.begin(), first.end());
    if (has_value) {
      Fields fields{Bytes(key)};
      fields.take(fields.number<std::uint16_t>());
      if (!fields.good()) return bad_row("groups");
      const Bytes bytes = groups.value();
      value.assign(bytes.begin(), bytes.end());
      group.value = Bytes(value);
      groups.next();
    }
    metadata.clear();
    while (offsets.valid()) {
      row = decode(offsets.key(), offsets.value());
      if (!row.good) return bad_row("committed offsets");
      if (less(key, row.group)) break;
      if (exists(row.offset.partition.topic)) {
        metadata.emplace_back(row.offset.metadata);
        group.offsets.push_back(row.offset);
      } else {
        nobodys.Delete(rocks.family(meta_family::offsets), slice(offsets.key()));
      }
      offsets.next();
    }
    // Only when all are there: a vector that grows moves short texts away from under their views.
    for (std::size_t i = 0; i < metadata.size(); ++i) group.offsets[i].metadata = metadata[i];
    group.id = id_of(key);
    if (!group.value && group.offsets.empty()) continue;  // All were of deleted topics.
    if (auto taken = take(group); !taken) return taken;
  }
  if (auto status = groups.status(); !status) return status;
  if (auto status = offsets.status(); !status) return status;
  return rocks.write(nobodys);
}

}  // namespace tarry::storage
