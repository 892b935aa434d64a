#pragma once

// SortedRows: rows of bytes under keys of bytes, in the order of the keys.  It is for copies of
// something that is safe elsewhere: what was written last may be missing after a crash, but never
// the middle of it.
//
// Invariant: a write is there whole or not at all, also after a crash, and with it all writes
// before it.
//
// Threads: any may read; one writes.  A cursor ends before the next write.

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

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
inline std::string behind_all_of(std::string prefix) {
  // This byte has no next one, so the one before it is counted up.
  while (prefix.back() == '\xff') prefix.pop_back();
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

}  // namespace tarry::storage
