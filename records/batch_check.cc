#include "records/batch_check.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/time_text.h"

namespace tarry::records {
namespace {

std::unexpected<BatchError> refuse(Refusal reason, std::string message) {
  return std::unexpected(BatchError{reason, std::move(message), {}});
}

// The errors of single records, up to the number that the answer may name.
class BadRecords {
 public:
  void add(std::int32_t index, bool is_timestamp, std::string message) {
    ++count_;
    any_timestamp_ = any_timestamp_ || is_timestamp;
    if (told_.size() < max_bad_records_told) told_.push_back({index, std::move(message)});
  }
  bool empty() const { return count_ == 0; }
  BatchError error() && {
    std::string message = fmt::format("{} records of the batch are invalid; record {}: {}", count_,
                                      told_.front().index, told_.front().message);
    return {any_timestamp_ ? Refusal::invalid_timestamp : Refusal::invalid_record,
            std::move(message), std::move(told_)};
  }

 private:
  std::size_t count_ = 0;
  bool any_timestamp_ = false;
  std::vector<BadRecord> told_;
};

// The one batch that `records` has to be, its bytes as they were sent.
std::expected<BatchView, BatchError> only_batch(Bytes records, const CheckLimits& limits) {
  if (records.empty()) return refuse(Refusal::invalid_record, "the record batch is missing");
  const auto size = batch_size(records);
  if (!size)
    return refuse(
        size.error().code == Errc::unsupported ? Refusal::unsupported_format : Refusal::corrupt,
        size.error().message);
  // Before the checksum, which costs time for each byte.
  if (*size > limits.max_message_bytes)
    return refuse(Refusal::message_too_large,
                  fmt::format("the record batch has {} bytes; the limit is {} (max.message.bytes)",
                              *size, limits.max_message_bytes));
  if (*size < records.size())
    return refuse(Refusal::invalid_record,
                  fmt::format("{} bytes follow the record batch; a partition takes exactly one",
                              records.size() - *size));
  const auto batch = BatchView::parse(records);
  if (!batch) return refuse(Refusal::corrupt, batch.error().message);
  // Before anything else in the batch is believed.
  if (!batch->crc_matches())
    return refuse(Refusal::corrupt,
                  fmt::format("the record batch's checksum is {:08x}, but its bytes give {:08x}",
                              batch->crc(), crc32c(records.subspan(field::attributes))));
  return *batch;
}

std::expected<Codec, BatchError> known_codec(const BatchView& batch, const CheckLimits& limits) {
  const auto codec = batch.codec();
  if (!codec)
    return refuse(Refusal::unsupported_compression,
                  fmt::format("codec {} is not known", batch.attributes() & codec_mask));
  if (*codec == Codec::zstd && !limits.zstd_allowed)
    return refuse(Refusal::unsupported_compression,
                  "zstd needs Produce version 7 or later: update the client");
  return *codec;
}

std::expected<void, BatchError> check_header(const BatchView& batch) {
  const auto invalid = [](std::string message) {
    return refuse(Refusal::invalid_record, std::move(message));
  };
  if (batch.record_count() <= 0)
    return invalid(fmt::format("a record batch cannot have {} records", batch.record_count()));
  // A producer's batch has no holes: the log gives out as many offsets as there are records.
  if (batch.last_offset_delta() != batch.record_count() - 1)
    return invalid(fmt::format("a record batch with {} records ends at offset delta {}",
                               batch.record_count(), batch.last_offset_delta()));
  // Consumers take a control batch for the end of a transaction, and show none of its records.
  if (batch.is_control()) return invalid("clients may not write control batches");
  // Without a sequence nobody could tell that a batch was sent twice.
  if (batch.producer_id() >= 0 && batch.base_sequence() < 0)
    return invalid(fmt::format("producer {} gave the sequence number {}", batch.producer_id(),
                               batch.base_sequence()));
  if (batch.is_transactional() && batch.producer_id() < 0)
    return invalid("a transactional batch needs a producer id");
  if (batch.is_log_append_time())
    return refuse(Refusal::invalid_timestamp,
                  "only the broker may set the timestamp type LogAppendTime");
  return {};
}

// The reason why this record may not have this time; empty when it may.
std::string wrong_time(WallTime time, const CheckLimits& limits) {
  if (time == no_timestamp) return {};
  if (limits.earliest && time < *limits.earliest)
    return fmt::format("the timestamp {} is before {}, the earliest that is accepted",
                       format_time(time), format_time(*limits.earliest));
  if (limits.latest && time > *limits.latest)
    return fmt::format("the timestamp {} is after {}, the latest that is accepted",
                       format_time(time), format_time(*limits.latest));
  return {};
}

std::expected<void, BatchError> check_records(CheckedBatch& checked, const CheckLimits& limits) {
  BadRecords bad;
  std::int32_t index = 0;
  checked.max_timestamp = no_timestamp;
  checked.has_headers = false;
  // The walk goes on behind a bad record, so that the client is told of all at once, up to a bound.
  const auto walked = for_each_record(checked.records(), checked.count, [&](const RecordView& r) {
    if (r.offset_delta != index)
      bad.add(index, false, fmt::format("its offset delta is {}", r.offset_delta));
    if (limits.key_required && !r.key)
      bad.add(index, false, "it has no key; a compacted topic requires one");
    const WallTime time = checked.batch.timestamp_of(r);
    if (auto wrong = wrong_time(time, limits); !wrong.empty())
      bad.add(index, true, std::move(wrong));
    checked.max_timestamp = std::max(checked.max_timestamp, time);
    checked.has_headers = checked.has_headers || !r.headers.empty();
    ++index;
  });
  if (!walked) return refuse(Refusal::invalid_record, walked.error().message);
  if (!bad.empty()) return std::unexpected(std::move(bad).error());
  checked.needs_max_timestamp_fix = checked.batch.max_timestamp() != checked.max_timestamp;
  return {};
}

}  // namespace

std::expected<CheckedBatch, BatchError> check_produced(Bytes records, const CheckLimits& limits) {
  const auto batch = only_batch(records, limits);
  if (!batch) return std::unexpected(batch.error());
  const auto codec = known_codec(*batch, limits);
  if (!codec) return std::unexpected(codec.error());
  if (const auto sense = check_header(*batch); !sense) return std::unexpected(sense.error());

  CheckedBatch checked;
  checked.batch = *batch;
  checked.codec = *codec;
  checked.count = batch->record_count();
  if (*codec != Codec::none) {
    if (!limits.open_compressed) {
      // Headers may be in it: nobody has looked.
      checked.opened = false;
      checked.has_headers = true;
      checked.max_timestamp = batch->max_timestamp();
      return checked;
    }
    auto unpacked = decompress(*codec, batch->records(), limits.max_uncompressed_bytes);
    if (!unpacked)
      return refuse(unpacked.error().code == Errc::too_large ? Refusal::message_too_large
                                                             : Refusal::invalid_record,
                    unpacked.error().message);
    checked.unpacked = std::move(*unpacked);
  }
  if (const auto taken = check_records(checked, limits); !taken)
    return std::unexpected(taken.error());
  return checked;
}

}  // namespace tarry::records
