#pragma once

// ReadAhead: pieces of segments in memory, read before a consumer asks for them.
//
//   consumer of old data:   fetch     fetch     fetch     fetch
//   pieces of its log:    [ piece   |    piece ][   piece   |  ...
//                           \_ served at once     \_ being read on the pool meanwhile
//
// When a read continues where an earlier one ended, the next piece is read ahead; while that is
// served, the one after it is read.  Random reads cause no read-ahead.
//
// Invariants
//   - A piece is whole batches, one behind the other, as the segment has them.
//   - All pieces of the process take at most max_bytes.  A new piece replaces one that was served
//     to its end, the oldest first, else one that no reader came for while many others were
//     planned; if there is none, nothing is read ahead.
//   - Bytes of a piece keep its memory alive after the piece is dropped.
//
// One for the process; any thread.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "storage/file.h"

namespace tarry::storage {

// Batches that stand one behind the other in a segment.
struct SegmentPiece {
  struct Batch {
    Offset first, last;
    std::size_t at, size;  // In the buffer.
  };
  Offset segment = 0;                           // Its base.
  std::shared_ptr<const AlignedBuffer> buffer;  // Holds them.
  std::vector<Batch> batches;                   // Not empty.
  std::uint64_t end_position = 0;               // In the segment, behind the last.

  Offset begin() const { return batches.front().first; }
  Offset end() const { return batches.back().last + 1; }
};

class ReadAhead {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{2} << 20;
  static constexpr std::size_t max_bytes = std::size_t{64} << 20;

  static ReadAhead& instance();

  // Returns an id for a log; never the same twice.
  std::uint64_t new_log();
  void forget(std::uint64_t log);

  // The piece that has `from`, if it is there.
  std::shared_ptr<const SegmentPiece> find(std::uint64_t log, Offset from);
  // The same, but waits for a piece that is being read.  A piece that is only planned is dropped:
  // the caller reads it itself.  It blocks, so a shard's thread must not call it.
  std::shared_ptr<const SegmentPiece> find_or_wait(std::uint64_t log, Offset from);
  // Says that the piece was served to its end.
  void used_up(std::uint64_t log, Offset begin);

  // Plans to read the piece that begins with `from`.  Returns false when it is there or planned
  // already, or when there is no room.
  bool plan(std::uint64_t log, Offset from);
  // The read begins.  Returns false when the piece is not wanted any more.
  bool begin(std::uint64_t log, Offset from);
  // The read has ended; null: the piece could not be read.
  void done(std::uint64_t log, Offset from, std::shared_ptr<const SegmentPiece> piece);

 private:
  struct Entry {
    std::uint64_t log;
    Offset from;
    enum class State { planned, reading, there } state;
    bool used_up = false;
    std::uint64_t asked_at = 0;  // The value of plans_ at that time.
    std::shared_ptr<const SegmentPiece> piece = nullptr;
  };

  Entry* entry_of(std::uint64_t log, Offset from);  // The entry that begins there.
  Entry* entry_with(std::uint64_t log, Offset offset);
  bool make_room();
  void erase(const Entry* entry);

  std::mutex mutex_;
  std::condition_variable read_;
  std::list<Entry> entries_;  // At most max_bytes / piece_bytes.
  std::uint64_t plans_ = 0;
  std::uint64_t logs_ = 0;
};

}  // namespace tarry::storage
