#pragma once

// The two index files of a segment: Kafka's, byte for byte.
//
//   .index      { offset i32, position i32 }*     8 bytes an entry
//       offset    last offset of the batch at `position`, less the segment's base
//       position  where that batch begins in .log
//   .timeindex  { timestamp i64, offset i32 }*   12 bytes an entry
//       timestamp  the largest in the segment so far
//       offset     last offset of the (first) batch that holds it, less the segment's base
//
// Big-endian.  Offsets and positions of .index grow strictly, so do timestamps of .timeindex.  An
// index is sparse: it says where to begin to scan.  Both are searched on disk, nothing of them is
// kept in memory; a search touches one page, or two.  The caller knows how many entries count: the
// rest of the file may be left over from a write that did not finish.
//
// Blocking, any thread.

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"

namespace tarry::storage {

inline constexpr std::size_t index_entry_bytes = 8;
inline constexpr std::size_t time_entry_bytes = 12;

struct IndexEntry {
  Offset offset = 0;
  std::uint32_t position = 0;
  bool operator==(const IndexEntry&) const = default;
};
struct TimeEntry {
  std::int64_t timestamp = 0;
  Offset offset = 0;
  bool operator==(const TimeEntry&) const = default;
};

// `base` is the segment's; the difference to it fits 31 bits.
void append_entry(Buffer& to, Offset base, const IndexEntry& entry);
void append_entry(Buffer& to, Offset base, const TimeEntry& entry);
IndexEntry index_entry_at(const std::uint8_t* bytes, Offset base);
TimeEntry time_entry_at(const std::uint8_t* bytes, Offset base);

// Entry `number`, from 0.
Result<IndexEntry> read_index_entry(const File& file, Offset base, std::uint32_t number);
Result<TimeEntry> read_time_entry(const File& file, Offset base, std::uint32_t number);

// The last of the first `entries` entries whose offset is at most `offset`, or whose timestamp
// is below `timestamp`; empty when there is none.
Result<std::optional<IndexEntry>> find_entry(const File& file, Offset base, std::uint32_t entries,
                                             Offset offset);
Result<std::optional<TimeEntry>> find_time_entry(const File& file, Offset base,
                                                 std::uint32_t entries, std::int64_t timestamp);

}  // namespace tarry::storage
