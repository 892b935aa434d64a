#pragma once

// SegmentScanner: the batches of a segment's .log, one after the other, by their headers
// (segment.h).
//
// Invariants
//   - Offsets rise from batch to batch, and no batch goes on after the end that the scanner was
//     given; bytes that break this are damage, and the scanner stays before them.
//   - A checksum is not looked at: that is up to the caller, who may have another reason to scan.
//
// It blocks, and any thread may run it; one thread has it.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"

namespace tarry::storage {

// A batch's place in its segment, by its header.
struct BatchPlace {
  std::uint64_t position = 0;
  std::uint32_t bytes = 0;
  Offset first = 0, last = 0;
  std::int64_t max_timestamp = -1;

  bool operator==(const BatchPlace&) const = default;
};

// Walks over the batches of a .log in large reads.
//
//   SegmentScanner scanner(file, position, end);
//   while (true) {
//     const auto place = scanner.next();
//     if (!place) ...   // Bytes that are no batch, or a read that failed.
//     if (!*place) ...  // The end.
//   }
class SegmentScanner {
 public:
  // From `position`, where a batch must begin, up to `end`.  The file must outlive the scanner.
  SegmentScanner(const File& file, std::uint64_t position, std::uint64_t end,
                 std::size_t piece = 256 << 10);

  // The next batch; empty at the end.  Errc::corrupt for bytes that are no batch, or a batch that
  // goes on after the end; the position then stays.
  Result<std::optional<BatchPlace>> next();

  // All bytes of the batch that next() returned last; valid until the following call.
  Result<Bytes> bytes();

  std::uint64_t position() const { return position_; }  // The end of what next() returned.

 private:
  // `count` bytes at `at`, read when they are not there yet.
  Result<Bytes> view(std::uint64_t at, std::size_t count);

  const File& file_;
  std::uint64_t position_;
  const std::uint64_t end_;
  const std::size_t piece_;
  AlignedBuffer buffer_;
  std::uint64_t buffer_at_ = 0;  // The position of buffer_ in the file.
  BatchPlace last_;
};

}  // namespace tarry::storage
