#include "storage/kafka_groups.h"

#include <optional>
#include <string_view>
#include <utility>

#include "records/compression.h"
#include "records/record_batch.h"
#include "storage/fields.h"

namespace tarry::storage {
namespace {

// More than any batch of committed offsets unpacks to.
constexpr std::size_t max_unpacked_offsets_bytes = std::size_t{64} << 20;

// Kafka's versions of keys and values.  Every kind of record has a version of the key of its own: 0
// and 1 are offsets, 2 a group's members, 3 to 23 the newer kinds of groups.
constexpr std::int16_t last_offset_key = 1, group_key_version = 2;
constexpr std::int16_t first_value_with_epoch = 3, first_compact_value = 4, last_value = 4;

// Text whose length is a varint, one more than its bytes; 0: none.
std::string_view compact_text(Fields& fields) {
  std::uint32_t length = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    const auto byte = fields.number<std::uint8_t>();
    length |= static_cast<std::uint32_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) break;
  }
  return length == 0 ? std::string_view() : as_text(fields.take(length - 1));
}

}  // namespace

bool KafkaGroups::take(Bytes key, std::optional<Bytes> value) {
  Fields names(key);
  const auto version = names.number<std::int16_t>();
  if (version > last_offset_key) {
    if (version > group_key_version) ++skipped_;
    return true;
  }
  if (version < 0) return false;
  std::string group(names.short_text());
  std::string topic(names.short_text());
  const auto partition = names.number<PartitionIndex>();
  if (!names.good()) return false;
  Key place{std::move(topic), partition, std::move(group)};
  const auto remove = [&] {
    committed_.erase(place);
    return true;
  };
  if (!value) return remove();
  Fields fields(*value);
  const auto format = fields.number<std::int16_t>();
  if (format < 0 || format > last_value) return false;
  Value committed;
  committed.offset = fields.number<Offset>();
  if (format >= first_value_with_epoch) fields.number<std::int32_t>();
  committed.metadata = format >= first_compact_value ? compact_text(fields) : fields.short_text();
  // Times follow, which count from the import instead.
  if (!fields.whole()) return false;
  if (committed.offset < 0) return remove();  // To a consumer this is none.
  committed_.insert_or_assign(std::move(place), std::move(committed));
  return true;
}

Result<> KafkaGroups::read(KafkaLog& log) {
  return log.for_each_kept([&](std::size_t, const records::BatchView& batch) -> Result<> {
    const auto codec = batch.codec();
    if (!codec) return fail(Errc::unsupported, log.directory() + ": a batch has an unknown codec");
    const auto visit = [&](const records::RecordView& record) {
      if (record.key && !take(*record.key, record.value)) ++unknown_;
    };
    if (*codec == records::Codec::none)
      return records::for_each_record(batch.records(), batch.record_count(), visit);
    const auto unpacked = records::decompress(*codec, batch.records(), max_unpacked_offsets_bytes);
    if (!unpacked) return std::unexpected(unpacked.error());
    return records::for_each_record(Bytes(*unpacked), batch.record_count(), visit);
  });
}

std::vector<KafkaGroups::Committed> KafkaGroups::of_topic(const std::string& topic) const {
  std::vector<Committed> out;
  const auto first = committed_.lower_bound(Key{topic, 0, {}});
  for (auto at = first; at != committed_.end() && std::get<0>(at->first) == topic; ++at) {
    out.push_back({std::get<2>(at->first), topic, std::get<1>(at->first), at->second.offset,
                   at->second.metadata});
  }
  return out;
}

}  // namespace tarry::storage
