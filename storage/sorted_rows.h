#pragma once

// SortedRows: rows of bytes under keys of bytes, in the order of the keys.  It is for copies of
// something that is safe elsewhere: what was written last may be missing after a crash, but never
// the middle of it.
//
// DiskRows has them in a RocksDB of a directory, in memory that is bounded whatever their number.
//
// Invariants
//   - A write is there whole or not at all, also after a crash, and with it all writes before it.
//   - A directory that cannot be read, or that another version made, is emptied: its owner reads
//     the rows anew from where they are safe.
//
// Threads: any may read; one writes.  A cursor ends before the next write.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tarry::storage {

// The disk is full or broken.  Nobody can go on without the rows.
class RowsFailed : public std::runtime_error {
 public:
  enum class Kind : std::uint8_t { passing, damaged };

  explicit RowsFailed(const std::string& why, Kind kind = Kind::passing)
      : std::runtime_error(why), kind_(kind) {}

  // The directory's content cannot be read, now or later: DiskRows::condemn().
  bool is_damage() const { return kind_ == Kind::damaged; }

 private:
  Kind kind_;
};

class SortedRows {
 public:
  struct Changes {
    // [first, second); they go before the puts.
    std::vector<std::pair<std::string, std::string>> removed_ranges;
    std::unordered_map<std::string, std::optional<std::string>> rows;  // Empty: removed.

    bool empty() const { return removed_ranges.empty() && rows.empty(); }
  };

  class Cursor {
   public:
    virtual ~Cursor() = default;
    virtual bool valid() const = 0;
    virtual std::string_view key() const = 0;
    virtual std::string_view value() const = 0;
    virtual void next() = 0;
  };

  virtual ~SortedRows() = default;

  virtual std::optional<std::string> get(const std::string& key) const = 0;
  // Walks over the rows of [from, until).
  virtual std::unique_ptr<Cursor> walk(const std::string& from, const std::string& until) const = 0;
  virtual void write(const Changes& changes) = 0;
  // Brings what is written to the disk, so that a crash later keeps it: soon, or before it returns
  // if it `waits`.
  virtual void flush(bool waits = false) = 0;
  // The disk has room for more.
  virtual bool has_room() const = 0;
};

// The end of the range of all keys that begin with `prefix`, which has a byte that is not 255.
std::string behind_all_of(std::string prefix);

struct Rocks;

class DiskRows final : public SortedRows {
 public:
  // `memory` is for its cache and for what is not written out yet.  `version` is the version of the
  // owner's rows.
  static Result<std::unique_ptr<DiskRows>> open(const std::string& directory,
                                                const std::string& version, std::size_t memory);
  // The next open() empties the directory: damage deep in it is not seen when it is opened.
  static void condemn(const std::string& directory);
  // Writes out what is in memory.
  ~DiskRows() override;

  std::optional<std::string> get(const std::string& key) const override;
  std::unique_ptr<Cursor> walk(const std::string& from, const std::string& until) const override;
  void write(const Changes& changes) override;
  void flush(bool waits = false) override;
  bool has_room() const override;

 private:
  explicit DiskRows(std::unique_ptr<Rocks> rocks);

  const std::unique_ptr<Rocks> rocks_;
  mutable std::chrono::steady_clock::time_point room_asked_{};  // The writer's alone.
  mutable bool has_room_ = true;
};

}  // namespace tarry::storage
