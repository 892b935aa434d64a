#pragma once

// DiskRows: SortedRows in a RocksDB of a directory, in memory that is bounded whatever their
// number.
//
// Invariant: a directory that cannot be read, or that another version made, is emptied; its owner
// reads the rows anew from where they are safe.
//
// Threads: as SortedRows says.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "storage/sorted_rows.h"

namespace tarry::storage {

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
