#include "cli/segment_dump.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/bytes.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "records/batch_check.h"
#include "records/record_batch.h"
#include "storage/segment.h"

namespace tarry::cli {
namespace {

using records::BatchView;
using records::RecordView;

// The largest size to which a batch may decompress: twice what brokers allow by default
// (tarry.decompressed.max.bytes).
constexpr std::size_t max_unpacked_bytes = std::size_t{256} << 20;

// The name of the field says whose clock it was, as in Kafka's dump.
const char* time_name(const BatchView& batch) {
  return batch.is_log_append_time() ? "LogAppendTime" : "CreateTime";
}

std::string codec_name(const BatchView& batch) {
  const auto codec = batch.codec();
  return codec ? records::name_of(*codec)
               : fmt::format("unknown({})", batch.attributes() & records::codec_mask);
}

std::string delete_horizon(const BatchView& batch) {
  // With this bit the base timestamp is the time from which the batch may go.
  if ((batch.attributes() & records::delete_horizon_bit) == 0) return "OptionalLong.empty";
  return fmt::format("OptionalLong[{}]", to_ms(batch.base_timestamp()));
}

std::int64_t size_of(const std::optional<Bytes>& bytes) {
  // As in Kafka's dump and in the format itself: -1 is null, which is not the same as 0 bytes.
  return bytes ? static_cast<std::int64_t>(bytes->size()) : -1;
}

std::optional<std::string_view> text_of_bytes(const std::optional<Bytes>& bytes) {
  return bytes ? std::optional(as_text(*bytes)) : std::nullopt;
}

std::int32_t sequence_of(const BatchView& batch, const RecordView& record) {
  // A producer without idempotence numbers nothing.
  if (batch.base_sequence() < 0) return -1;
  // Sequences go on with 0 after 2^31 - 1.
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(batch.base_sequence()) +
                                    static_cast<std::uint32_t>(record.offset_delta)) &
                                   0x7fffffffu);
}

std::string record_line(const BatchView& batch, const RecordView& record) {
  std::string keys, headers;
  for (const auto& header : record.headers) {
    keys += fmt::format("{}{}", keys.empty() ? "" : ",", cell(header.name));
    headers += fmt::format("{}{}={}", headers.empty() ? "" : ",", cell(header.name),
                           header.value ? cell(as_text(*header.value)) : "null");
  }
  std::string line =
      fmt::format("| offset: {} {}: {} keySize: {} valueSize: {} sequence: {} headerKeys: [{}]",
                  batch.offset_of(record), time_name(batch), to_ms(batch.timestamp_of(record)),
                  size_of(record.key), size_of(record.value), sequence_of(batch, record), keys);
  if (!headers.empty()) line += fmt::format(" headers: [{}]", headers);
  if (record.key) line += fmt::format(" key: {}", cell(as_text(*record.key)));
  if (record.value) line += fmt::format(" payload: {}", cell(as_text(*record.value)));
  return line;
}

Json record_json(const BatchView& batch, const RecordView& record) {
  Json json;
  json["offset"] = batch.offset_of(record);
  json[time_name(batch)] = to_ms(batch.timestamp_of(record));
  json["keySize"] = size_of(record.key);
  json["valueSize"] = size_of(record.value);
  json["sequence"] = sequence_of(batch, record);
  json["headers"] = Json::array();
  for (const auto& header : record.headers) {
    Json each;
    put_bytes(each, "name", header.name);
    put_bytes(each, "value", text_of_bytes(header.value));
    json["headers"].push_back(std::move(each));
  }
  put_bytes(json, "key", text_of_bytes(record.key));
  put_bytes(json, "payload", text_of_bytes(record.value));
  return json;
}

// Calls visit(record) for each record.  Errors: the batch cannot be read.
template <typename Visit>
Result<> for_each_record_of(const BatchView& batch, Visit visit) {
  const auto codec = batch.codec();
  if (!codec) return fail(Errc::unsupported, "its codec is unknown");
  if (*codec == records::Codec::none)
    return records::for_each_record(batch.records(), batch.record_count(), visit);
  // A damaged batch must not take the whole memory of the machine.
  const auto unpacked = records::decompress(*codec, batch.records(), max_unpacked_bytes);
  if (!unpacked) return std::unexpected(unpacked.error());
  return records::for_each_record(Bytes(*unpacked), batch.record_count(), visit);
}

class Dumper {
 public:
  Dumper(std::string path, const SegmentDump& how, Output& out)
      : path_(std::move(path)), how_(how), out_(out) {}

  void begin() {
    if (how_.json) return;
    out_.line("Dumping " + cell(path_));
    const auto slash = path_.rfind('/');
    const std::string name = slash == path_.npos ? path_ : path_.substr(slash + 1);
    // A copy under another name is dumped too; the name is the only place that has the base offset.
    if (const auto base = storage::segment_base(name))
      out_.line(fmt::format("Log starting offset: {}", *base));
  }

  void batch(const BatchView& batch, std::uint64_t position) {
    ++findings_.batches;
    const bool is_valid = batch.crc_matches();
    // Printed all the same: its header may say what happened.
    if (!is_valid) wrong(position, "the checksum of this batch does not match");
    how_.json ? print_json(batch, position, is_valid) : print_text(batch, position, is_valid);
  }

  void wrong(std::uint64_t position, std::string_view what) {
    if (findings_.wrong++ == 0)
      findings_.first = fmt::format("{}: position {}: {}", cell(path_), position, what);
  }

  SegmentFindings take() { return std::move(findings_); }

 private:
  void print_text(const BatchView& batch, std::uint64_t position, bool is_valid) {
    out_.line(fmt::format(
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} "
        "producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} "
        "deleteHorizonMs: {} position: {} {}: {} size: {} magic: {} compresscodec: {} crc: {} "
        "isvalid: {}",
        batch.base_offset(), batch.last_offset(), batch.record_count(), batch.base_sequence(),
        batch.last_sequence(), batch.producer_id(), batch.producer_epoch(), batch.leader_epoch(),
        batch.is_transactional(), batch.is_control(), delete_horizon(batch), position,
        time_name(batch), to_ms(batch.max_timestamp()), batch.size(), batch.magic(),
        codec_name(batch), batch.crc(), is_valid));
    if (!how_.records) return;
    const auto read = for_each_record_of(
        batch, [&](const RecordView& record) { out_.line(record_line(batch, record)); });
    if (!read) {
      out_.line("| " + cell(read.error().message));
      wrong(position, read.error().message);
    }
  }

  void print_json(const BatchView& batch, std::uint64_t position, bool is_valid) {
    Json json;
    json["file"] = path_;
    json["baseOffset"] = batch.base_offset();
    json["lastOffset"] = batch.last_offset();
    json["count"] = batch.record_count();
    json["baseSequence"] = batch.base_sequence();
    json["lastSequence"] = batch.last_sequence();
    json["producerId"] = batch.producer_id();
    json["producerEpoch"] = batch.producer_epoch();
    json["partitionLeaderEpoch"] = batch.leader_epoch();
    json["isTransactional"] = batch.is_transactional();
    json["isControl"] = batch.is_control();
    json["position"] = position;
    json[time_name(batch)] = to_ms(batch.max_timestamp());
    json["size"] = batch.size();
    json["magic"] = batch.magic();
    json["compresscodec"] = codec_name(batch);
    json["crc"] = batch.crc();
    json["isvalid"] = is_valid;
    if (how_.records) {
      json["records"] = Json::array();
      const auto read = for_each_record_of(batch, [&](const RecordView& record) {
        json["records"].push_back(record_json(batch, record));
      });
      if (!read) {
        json["error"] = read.error().message;
        wrong(position, read.error().message);
      }
    }
    out_.line(text_of(json));
  }

  const std::string path_;
  const SegmentDump how_;
  Output& out_;
  SegmentFindings findings_;
};

}  // namespace

Result<SegmentFindings> dump_segment(storage::Disk& disk, const std::string& path,
                                     const SegmentDump& how, Output& out,
                                     const std::function<void(std::uint64_t)>& step) {
  const auto file = disk.open(path, {});
  if (!file) return std::unexpected(file.error());
  const auto size = (*file)->size();
  if (!size) return std::unexpected(size.error());

  Dumper dumper(path, how, out);
  dumper.begin();
  storage::SegmentScanner scanner(**file, 0, *size);
  std::uint64_t count = 0;
  while (!out.is_over()) {
    const auto place = scanner.next();
    if (!place) {
      // Damage is a finding; only a file that cannot be read is an error.
      if (place.error().code != Errc::corrupt) return std::unexpected(place.error());
      dumper.wrong(scanner.position(), place.error().message);
      break;
    }
    if (!*place) break;
    const auto bytes = scanner.bytes();
    if (!bytes) return std::unexpected(bytes.error());
    const auto batch = BatchView::parse(*bytes);
    if (!batch) {
      // Nothing behind it is looked at, because the size of a batch says where the next one begins.
      dumper.wrong((*place)->position, batch.error().message);
      break;
    }
    dumper.batch(*batch, (*place)->position);
    if (step) step(++count);
  }
  return dumper.take();
}

}  // namespace tarry::cli
