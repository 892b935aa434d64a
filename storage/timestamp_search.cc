#include "storage/log.h"

// How a log is searched by time: the piece of work that does it, and how the Log makes it.

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "records/compression.h"
#include "records/record_batch.h"
#include "storage/index.h"

namespace tarry::storage {
namespace {

// The limit of what a batch may unpack to when it is searched by time.
constexpr std::size_t max_unpacked_bytes = std::size_t{64} << 20;
// A batch's maximum timestamp is that of one of its records, so the first batch that has it is the
// answer, but for the one that start_offset() may cut.
constexpr std::size_t search_candidates = 2;

// The record of `batch` within [from, below) that comes first and has a timestamp of at least
// `target`, or with `max` the first of those with the largest.
Result<std::optional<TimestampedOffset>> find_record(Bytes bytes, Offset from, Offset below,
                                                     std::int64_t target, bool max) {
  const auto batch = records::BatchView::parse(bytes);
  if (!batch) return std::unexpected(batch.error());
  const auto codec = batch->codec();
  if (!codec) {
    return fail(Errc::corrupt,
                fmt::format("the batch of offset {} has the unknown codec {}", batch->base_offset(),
                            batch->attributes() & records::codec_mask));
  }
  Buffer unpacked;
  Bytes records = batch->records();
  if (*codec != records::Codec::none) {
    auto opened = records::decompress(*codec, records, max_unpacked_bytes);
    if (!opened) return std::unexpected(opened.error());
    unpacked = std::move(*opened);
    records = unpacked;
  }
  std::optional<TimestampedOffset> found;
  const auto walked = records::for_each_record(
      records, batch->record_count(), [&](const records::RecordView& record) {
        const TimestampedOffset here{batch->offset_of(record), to_ms(batch->timestamp_of(record))};
        if (here.offset < from || here.offset >= below || here.timestamp < target) return true;
        if (!found || here.timestamp > found->timestamp) found = here;
        return max;
      });
  if (!walked) return std::unexpected(walked.error());
  return found;
}

}  // namespace

Result<std::optional<TimestampedOffset>> TimestampSearch::run() {
  return max_ ? run_max() : run_first();
}

// Shows `consider` the bytes of the batches of `segment` that have `begin` or what is after it,
// and whose largest timestamp is worth it, until it says that it has seen enough.
template <typename IsWorth, typename Consider>
Result<> TimestampSearch::search_segment(const SegmentState& segment, Offset begin,
                                         IsWorth is_worth, Consider consider) {
  const auto log = disk_->open(segment_path(directory_, segment.base, ".log"), {.direct = true});
  if (!log) return std::unexpected(log.error());
  // Checked, because the scan relies on a batch beginning there.
  const auto position = checked_position_before(*disk_, directory_, **log, segment, begin);
  if (!position) return std::unexpected(position.error());
  SegmentScanner scanner(**log, *position, segment.bytes, 64 << 10);
  for (;;) {
    const auto place = scanner.next();
    if (!place) return std::unexpected(place.error());
    if (!*place || (*place)->first >= below_) return {};
    if ((*place)->last < begin || !is_worth((*place)->max_timestamp)) continue;
    const auto bytes = scanner.bytes();
    if (!bytes) return std::unexpected(bytes.error());
    const Result<bool> enough = consider(*bytes);
    if (!enough) return std::unexpected(enough.error());
    if (*enough) return {};
  }
}

// The offset of the last index entry whose timestamp is below the target, or from_.
Result<Offset> TimestampSearch::below_target(const SegmentState& segment) const {
  if (segment.time_entries == 0) return from_;
  const auto times = disk_->open(segment_path(directory_, segment.base, ".timeindex"), {});
  if (!times && times.error().code == Errc::not_found) return from_;
  if (!times) return std::unexpected(times.error());
  const auto entry = find_time_entry(**times, segment.base, segment.time_entries, target_);
  if (!entry && entry.error().code != Errc::corrupt) return std::unexpected(entry.error());
  return entry && *entry ? std::max(from_, (*entry)->offset) : from_;
}

Result<std::optional<TimestampedOffset>> TimestampSearch::run_first() {
  std::optional<TimestampedOffset> found;
  const auto look_at = [&](Bytes bytes) -> Result<bool> {
    auto record = find_record(bytes, from_, below_, target_, false);
    if (!record) return std::unexpected(record.error());
    found = *record;
    return found.has_value();
  };
  const auto is_worth = [&](std::int64_t max_timestamp) { return max_timestamp >= target_; };
  for (const auto& segment : segments_) {
    const auto begin = below_target(segment);
    if (!begin) return std::unexpected(begin.error());
    const auto looked = search_segment(segment, *begin, is_worth, look_at);
    if (!looked) return std::unexpected(looked.error());
    if (found) return found;
  }
  for (const auto& batch : batches_) {
    const auto enough = look_at(batch.view());
    if (!enough) return std::unexpected(enough.error());
    if (*enough) return found;
  }
  return std::nullopt;
}

Result<std::optional<TimestampedOffset>> TimestampSearch::run_max() {
  std::optional<TimestampedOffset> best;
  const auto consider = [&](Bytes bytes) -> Result<> {
    const auto found = find_record(bytes, from_, below_, -1, true);
    if (!found) return std::unexpected(found.error());
    if (*found && (!best || (*found)->timestamp > best->timestamp)) best = *found;
    return {};
  };
  const auto is_worth = [&](std::int64_t max_timestamp) {
    return !best || max_timestamp > best->timestamp;
  };
  for (const auto& segment : segments_) {
    // The batch that has it is known, unless it may lie below the start.
    const bool cut = segment.base < from_;
    const auto look_at = [&](Bytes bytes) -> Result<bool> {
      if (auto considered = consider(bytes); !considered)
        return std::unexpected(considered.error());
      return !cut;
    };
    const Offset begin = cut ? from_ : segment.max_timestamp_offset;
    if (auto looked = search_segment(segment, begin, is_worth, look_at); !looked)
      return std::unexpected(looked.error());
  }
  for (const auto& batch : batches_) {
    if (auto considered = consider(batch.view()); !considered)
      return std::unexpected(considered.error());
  }
  return best;
}

TimestampSearch Log::find_timestamp(std::int64_t target, Offset below) const {
  TimestampSearch search;
  search.disk_ = disk_;
  search.directory_ = directory_;
  search.target_ = target;
  search.from_ = start_offset_;
  search.below_ = std::min(below, end_offset_);
  for (const auto& segment : segments_) {
    if (segment.base >= tail_start() || search.segments_.size() == search_candidates) break;
    if (segment.empty() || segment.max_timestamp < target || segment.next <= start_offset_)
      continue;
    search.segments_.push_back(segment);
  }
  for (const auto& batch : tail()) {
    if (search.batches_.size() == search_candidates || batch.first >= search.below_) break;
    if (batch.max_timestamp >= target && batch.last >= start_offset_)
      search.batches_.push_back(batch.bytes);
  }
  return search;
}

TimestampSearch Log::find_max_timestamp(Offset below) const {
  TimestampSearch search;
  search.disk_ = disk_;
  search.directory_ = directory_;
  search.max_ = true;
  search.from_ = start_offset_;
  search.below_ = std::min(below, end_offset_);

  // The first of the largest; what start_offset() cuts is looked at beside it.
  const SegmentState* segment = nullptr;
  for (const auto& each : segments_) {
    if (each.base >= tail_start()) break;
    if (each.empty() || each.next <= start_offset_) continue;
    if (each.base < start_offset_) {
      search.segments_.push_back(each);
    } else if (segment == nullptr || each.max_timestamp > segment->max_timestamp) {
      segment = &each;
    }
  }
  const TailBatch* batch = nullptr;
  for (const auto& each : tail()) {
    if (each.first >= search.below_) break;
    if (each.last < start_offset_) continue;
    if (each.first < start_offset_) {
      search.batches_.push_back(each.bytes);
    } else if (batch == nullptr || each.max_timestamp > batch->max_timestamp) {
      batch = &each;
    }
  }
  if (segment != nullptr) search.segments_.push_back(*segment);
  if (batch != nullptr) search.batches_.push_back(batch->bytes);
  return search;
}

}  // namespace tarry::storage
