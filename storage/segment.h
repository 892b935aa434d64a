#pragma once

// Segments: the files that a partition's batches lie in, in Kafka's own format, so that other tools
// can read them (docs/formats/log.md).
//
//     00000000000000000000.log        batches one after the other, as on the wire
//     00000000000000000000.index      last offset of a batch -> its position   (index.h)
//     00000000000000000000.timeindex  largest timestamp so far -> its batch    (index.h)
//     00000000000000001042.log        the next one; the name is its base offset
//     ...
//
//     .log   | batch | batch | batch | ...     no header, no padding, no batch across segments
//
// Only the last segment, the active one, is written to; those before it are closed.  A SegmentState
// is complete without a look at the disk, so that its owner can hand out reads and writes as pieces
// of work that need nothing else.
//
// Writes of .log go past the page cache in blocks (O_DIRECT): copying into new pages is what
// 85 % of the CPU of buffered writing goes to, and nobody reads those pages, since the newest
// batches are read from memory.  The block that the file ends in is read back and written again
// with the next write, and the file is cut to its true length each time, so that it never has a
// padding.  Reads of .log are direct too, since both kinds do not mix; index files, a thousandth
// of the bytes, go through the page cache, where lookups want them.
//
// All functions here block and may run on any thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"
#include "storage/log_config.h"
#include "storage/segment_scanner.h"

namespace tarry::storage {

// One segment as far as it is written.
struct SegmentState {
  Offset base = 0;          // The first offset it may hold, and its name.
  Offset next = 0;          // The offset after its last batch; the base when it has none.
  std::uint32_t bytes = 0;  // The size of .log.
  std::uint32_t index_entries = 0;
  std::uint32_t time_entries = 0;
  std::uint32_t bytes_since_entry = 0;     // Bytes of .log since the last index entry.
  std::int64_t max_timestamp = -1;         // The largest of its records.
  Offset max_timestamp_offset = 0;         // Last offset of the first batch that holds it.
  std::int64_t last_time_entry = -1;       // Timestamp of the last entry of .timeindex.
  WallTime first_append{}, last_append{};  // By the broker's clock; from files after a restart.

  bool empty() const { return bytes == 0; }
};

// "00000000000000001042" + suffix, in `directory`.
std::string segment_path(std::string_view directory, Offset base, std::string_view suffix);
// The other files of a partition's directory: the id of its topic, and its log start offset.
inline constexpr std::string_view partition_metadata_name = "partition.metadata";
inline constexpr std::string_view start_offset_name = "start-offset";
// The base offset of "00000000000000001042.log"; empty for any other name.
std::optional<Offset> segment_base(std::string_view name);

// Adds a batch that is about to be written to the state and, where they are due, entries to the
// two index files.  The rules are Kafka's (docs/formats/log.md).
void add_batch(SegmentState& state, const BatchPlace& batch, std::int64_t index_interval_bytes,
               Buffer& index, Buffer& time_index);
// The last entry of .timeindex, which a segment gets when it is closed.
void close_segment(SegmentState& state, Buffer& time_index);
// Whether the next segment has to begin with this batch.
bool must_roll(const SegmentState& state, const LogConfig& config, std::uint64_t batch_bytes,
               Offset batch_last, WallTime appended);

// One write to one segment.
struct SegmentWrite {
  SegmentState before;  // The state before the write.
  SegmentState after;   // The state after it.
  std::vector<SharedBytes> batches;
  Buffer index;
  Buffer time_index;
  bool is_new = false;            // Its files are not there yet.
  bool indexes_unsynced = false;  // Their earlier bytes are not synced yet.
};

// Writes after before.bytes; what a failed write left there is cut off first.  Errc::corrupt
// when there is less than `before` says.  `sync`: what of the three files is not synced yet; names
// are the caller's.
Result<> write_segment(Disk& disk, std::string_view directory, const SegmentWrite& write,
                       bool sync);
Result<> sync_segment(Disk& disk, std::string_view directory, Offset base);
// Takes a write that failed half way back, so that it may be tried again.
Result<> undo_write(Disk& disk, std::string_view directory, const SegmentWrite& write);

// The end of the good bytes of a segment whose file is longer.
struct SegmentDamage {
  std::uint64_t position = 0;
  std::string message;  // Names file, position and what is wrong there.

  bool operator==(const SegmentDamage&) const = default;
};
struct LoadedSegment {
  SegmentState state;
  std::optional<SegmentDamage> damage;
};

// Gives the batches whose checksum is right to `take`, from `from` on, where one must begin, until
// it returns false, or the file or what is good of it ends.  Zeros up to the end of the last block
// are no damage.
Result<std::optional<SegmentDamage>> scan_segment(
    const File& file, std::uint64_t from, std::uint64_t end,
    const std::function<bool(const BatchPlace&)>& take);

// A closed segment, by the sizes of its files and its last time entry; no batch is looked at.
// `next` is the base offset of the one after it.
Result<SegmentState> load_closed_segment(Disk& disk, std::string_view directory, Offset base,
                                         Offset next);
// The active segment: batches are checked from the last index entry on.  Index files that do not
// fit are made anew from all batches.
Result<LoadedSegment> load_active_segment(Disk& disk, std::string_view directory, Offset base,
                                          const LogConfig& config);
// Cuts the segment so that `offset` is after its last batch, index files too; nothing is synced.
// Errc::corrupt when no batch ends or begins there; nothing is changed then.
Result<SegmentState> cut_segment(Disk& disk, std::string_view directory, Offset base, Offset offset,
                                 const LogConfig& config);

// The position from which to scan for the batch that contains `offset`, by binary search in .index
// on disk.  0 when there is no index.  The position is not checked.
Result<std::uint64_t> position_before(Disk& disk, std::string_view directory,
                                      const SegmentState& state, Offset offset);
// The same, checked: a batch begins there, and it lies wholly before `offset`.
Result<std::uint64_t> checked_position_before(Disk& disk, std::string_view directory,
                                              const File& log, const SegmentState& state,
                                              Offset offset);

}  // namespace tarry::storage
