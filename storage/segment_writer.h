#pragma once

// SegmentWriter: makes whole segments of a log that no broker has open.
//
//   SegmentWriter writer(disk, directory, config);
//   writer.begin(100);                  // 00000000000000000100.log.tmp
//   writer.append(batch, 100, 109, ...) // and so on, offsets may leave holes
//   writer.finish();                    // the indexes, then 00000000000000000100.log
//
// A segment appears under its name when it is whole and durable, with its indexes; a crash before
// that leaves files that nobody reads, and the next writer of the same segment overwrites them.
//
// Blocks; one thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"
#include "storage/segment.h"

namespace tarry::storage {

class SegmentWriter {
 public:
  SegmentWriter(Disk& disk, std::string directory, const LogConfig& config)
      : disk_(disk), directory_(std::move(directory)), config_(config) {}

  // No segment is open.
  Result<> begin(Offset base);
  bool is_open() const { return file_ != nullptr; }
  // The state of the segment that is open.
  const SegmentState& state() const { return state_; }
  // One batch, whose offsets are behind those before it.
  Result<> append(Bytes batch, Offset first, Offset last, std::int64_t max_timestamp);
  // Covers the offsets up to `until` with batches without records (hole_batch.h).  If the hole
  // reaches further than a segment's index, only its end is covered, in a segment of its own.
  Result<> append_hole(Offset until);
  Result<> finish();
  // Removes what is written of the one that is open, as far as the disk allows it.
  void abandon();

 private:
  Result<> write_out();

  Disk& disk_;
  const std::string directory_;
  const LogConfig config_;
  std::unique_ptr<File> file_;
  SegmentState state_;
  Buffer waiting_;  // The end of the file, not written yet.
  std::uint64_t written_ = 0;
  Buffer index_, time_index_;
};

// Makes both index files of a segment anew from its first `bytes` bytes, which are whole batches.
// An index is replaced at one stroke.
Result<> rebuild_indexes(Disk& disk, std::string_view directory, Offset base, std::uint64_t bytes,
                         const LogConfig& config);

}  // namespace tarry::storage
