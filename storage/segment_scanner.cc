#include "storage/segment_scanner.h"

#include <algorithm>

#include <fmt/core.h>

#include "records/record_batch.h"

namespace tarry::storage {

SegmentScanner::SegmentScanner(const File& file, std::uint64_t position, std::uint64_t end,
                               std::size_t piece)
    : file_(file), position_(position), end_(end), piece_(piece) {
  last_.last = -1;
}

Result<Bytes> SegmentScanner::view(std::uint64_t at, std::size_t count) {
  if (at < buffer_at_ || at + count > buffer_at_ + buffer_.size()) {
    // Whole blocks, because the file may be open for direct reads; and a large piece, because a
    // read for each batch would cost more than the scan.
    const std::uint64_t start = at / block_bytes * block_bytes;
    const auto wanted = std::max<std::uint64_t>(piece_, at + count - start);
    const auto left = round_up_to_block(end_ - start);
    buffer_.clear();
    buffer_.resize(static_cast<std::size_t>(std::min(round_up_to_block(wanted), left)));
    buffer_at_ = start;
    const auto got = file_.pread(start, buffer_.span());
    if (!got) {
      // Nobody knows what a failed read has left in it.
      buffer_.clear();
      return std::unexpected(got.error());
    }
    buffer_.resize(*got);
    if (at + count > start + *got) {
      return fail(Errc::corrupt, fmt::format("{}: ends at {}; expected {} bytes from {} on",
                                             file_.path(), start + *got, count, at));
    }
  }
  return buffer_.view().subspan(static_cast<std::size_t>(at - buffer_at_), count);
}

Result<std::optional<BatchPlace>> SegmentScanner::next() {
  if (position_ >= end_) return std::nullopt;
  const std::uint64_t left = end_ - position_;
  if (left < records::batch_header_size) {
    return fail(Errc::corrupt, fmt::format("{}: {} bytes at position {} are not a batch",
                                           file_.path(), left, position_));
  }
  const auto header = view(position_, records::batch_header_size);
  if (!header) return std::unexpected(header.error());
  const auto size = records::batch_size(*header);
  if (!size) {
    return fail(Errc::corrupt, fmt::format("{}: no batch at position {}: {}", file_.path(),
                                           position_, size.error().message));
  }
  BatchPlace place;
  place.position = position_;
  place.first = load_be<std::int64_t>(header->data() + records::field::base_offset);
  const auto delta = load_be<std::int32_t>(header->data() + records::field::last_offset_delta);
  place.max_timestamp = load_be<std::int64_t>(header->data() + records::field::max_timestamp);
  // Offsets only go up in a log, so anything else is no batch of it.
  if (place.first <= last_.last || delta < 0 ||
      __builtin_add_overflow(place.first, Offset{delta}, &place.last)) {
    return fail(Errc::corrupt,
                fmt::format("{}: the batch at position {} has offset {} and last offset delta {}, "
                            "after a batch that ends at {}",
                            file_.path(), position_, place.first, delta, last_.last));
  }
  // A crash in mid-write leaves such a batch, or a size that is damaged.
  if (*size > left) {
    return fail(
        Errc::corrupt,
        fmt::format(
            "{}: the batch of offset {} at position {} has {} bytes, but the segment ends after {}",
            file_.path(), place.first, position_, *size, left));
  }
  place.bytes = static_cast<std::uint32_t>(*size);
  last_ = place;
  position_ += *size;
  return place;
}

Result<Bytes> SegmentScanner::bytes() {
  return view(last_.position, last_.bytes);
}

}  // namespace tarry::storage
