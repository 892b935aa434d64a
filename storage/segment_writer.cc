#include "storage/segment_writer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "storage/hole_batch.h"

namespace tarry::storage {
namespace {

// Large enough that the number of calls does not matter.
constexpr std::size_t piece_bytes = 1 << 20;

Result<> replace_indexes(Disk& disk, std::string_view directory, Offset base, Bytes index,
                         Bytes time_index) {
  if (auto done = replace_file(disk, segment_path(directory, base, ".index"), index); !done)
    return done;
  return replace_file(disk, segment_path(directory, base, ".timeindex"), time_index);
}

}  // namespace

Result<> SegmentWriter::begin(Offset base) {
  auto file = disk_.open(segment_path(directory_, base, ".log.tmp"),
                         {.write = true, .create = OpenOptions::Create::if_absent});
  if (!file) return std::unexpected(file.error());
  // A writer that was killed may have left its own.
  if (auto cut = (*file)->truncate(0); !cut) return cut;
  file_ = std::move(*file);
  state_ = {};
  state_.base = state_.next = base;
  waiting_.clear();
  index_.clear();
  time_index_.clear();
  written_ = 0;
  return {};
}

Result<> SegmentWriter::append(Bytes batch, Offset first, Offset last, std::int64_t max_timestamp) {
  BatchPlace place;
  place.position = state_.bytes;
  place.bytes = static_cast<std::uint32_t>(batch.size());
  place.first = first;
  place.last = last;
  place.max_timestamp = max_timestamp;
  add_batch(state_, place, config_.index_interval_bytes, index_, time_index_);
  append_bytes(waiting_, batch);
  return waiting_.size() < piece_bytes ? Result<>() : write_out();
}

// The indexes have offsets less the segment's base, in 32 bits: a hole that is longer ends in a
// segment of its own.
Result<> SegmentWriter::append_hole(Offset until) {
  if (until > state_.next && until - 1 - state_.base > std::numeric_limits<std::int32_t>::max()) {
    // The segment may be the first, whose base is the log's start, and is never left empty.
    if (state_.empty()) {
      if (auto added = append_hole(state_.base + 1); !added) return added;
    }
    const Offset base = std::max(state_.next, until - max_hole_offsets);
    if (auto finished = finish(); !finished) return finished;
    if (auto begun = begin(base); !begun) return begun;
  }
  while (state_.next < until) {
    const Offset first = state_.next;
    const Offset end = std::min(until, first + max_hole_offsets);
    if (auto added = append(hole_batch(first, end), first, end - 1, -1); !added) return added;
  }
  return {};
}

Result<> SegmentWriter::write_out() {
  if (auto written = file_->pwrite(written_, waiting_); !written) return written;
  written_ += waiting_.size();
  waiting_.clear();
  return {};
}

Result<> SegmentWriter::finish() {
  if (auto written = write_out(); !written) return written;
  if (auto synced = file_->sync(); !synced) return synced;
  if (auto closed = file_->close(); !closed) return closed;
  close_segment(state_, time_index_);
  // Before the segment has its name: from then on the indexes are read.
  if (auto done = replace_indexes(disk_, directory_, state_.base, index_, time_index_); !done)
    return done;
  const auto path = segment_path(directory_, state_.base, ".log");
  if (auto renamed = disk_.rename(path + ".tmp", path); !renamed) return renamed;
  file_.reset();
  return disk_.sync_directory(directory_);
}

void SegmentWriter::abandon() {
  if (!file_) return;
  file_.reset();
  static_cast<void>(disk_.remove(segment_path(directory_, state_.base, ".log.tmp")));
}

Result<> rebuild_indexes(Disk& disk, std::string_view directory, Offset base, std::uint64_t bytes,
                         const LogConfig& config) {
  const auto log = disk.open(segment_path(directory, base, ".log"), {});
  if (!log) return std::unexpected(log.error());
  SegmentState state;
  state.base = state.next = base;
  Buffer index, time_index;
  const auto damage = scan_segment(**log, 0, bytes, [&](const BatchPlace& batch) {
    add_batch(state, batch, config.index_interval_bytes, index, time_index);
    return true;
  });
  if (!damage) return std::unexpected(damage.error());
  if (*damage) return fail(Errc::corrupt, (*damage)->message);
  close_segment(state, time_index);
  return replace_indexes(disk, directory, base, index, time_index);
}

}  // namespace tarry::storage
