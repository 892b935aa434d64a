#pragma once

// CrowdedDisk: the machine's disk, with as much room and as many files as a test says.

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/file.h"

namespace tarry::broker::test {

// The machine's disk with as much room as a test says, to those who ask first and to those who try.
class CrowdedDisk final : public storage::Disk {
 public:
  std::uint64_t free = std::uint64_t{1} << 40;
  std::string roomy;     // All is free where paths end so; empty: nowhere.
  std::string full_for;  // Paths that end so cannot be opened for writing; empty: none.

  // No room for another file of the journal, nor for a checkpoint, which would free one.
  void fill() {
    full_for = ".spare";
    free = 1000;
  }
  void make_room() {
    full_for.clear();
    free = std::uint64_t{1} << 40;
  }
  bool without_files = false;      // No file can be opened, but for reading records.
  bool without_lists = false;      // No directory can be read.
  bool without_deletions = false;  // No segment can be deleted.
  int without_memory = 0;          // So many segments are not opened to be written, for lack of it.
  int refused = 0;                 // How often a file could not be opened.
  int asked = 0;                   // How often somebody asked how much is free.

  Result<std::unique_ptr<storage::File>> open(const std::string& path,
                                              storage::OpenOptions options) override {
    if (without_files) {
      ++refused;
      return fail(Errc::exhausted, path + ": open: Too many open files");
    }
    if (options.write && path.ends_with(".log") && without_memory > 0) {
      --without_memory;
      throw std::bad_alloc();
    }
    if (options.write && !full_for.empty() && path.ends_with(full_for))
      return fail(Errc::no_space, path + ": No space left on device");
    return disk_.open(path, options);
  }
  Result<std::vector<storage::DirectoryEntry>> list(const std::string& directory) override {
    if (without_lists) return fail(Errc::exhausted, directory + ": opendir: Too many open files");
    return disk_.list(directory);
  }
  Result<> make_directories(const std::string& directory) override {
    return disk_.make_directories(directory);
  }
  Result<> rename(const std::string& from, const std::string& to) override {
    if (without_deletions && to.ends_with(".deleted"))
      return fail(Errc::exhausted, from + ": rename: Too many open files");
    return disk_.rename(from, to);
  }
  Result<> remove(const std::string& file) override { return disk_.remove(file); }
  Result<> remove_directory(const std::string& directory) override {
    return disk_.remove_directory(directory);
  }
  Result<> sync_directory(const std::string& directory) override {
    return disk_.sync_directory(directory);
  }
  Result<std::uint64_t> free_space(const std::string& directory) override {
    ++asked;
    if (!roomy.empty() && directory.ends_with(roomy)) return std::uint64_t{1} << 40;
    return free;
  }

 private:
  storage::PosixDisk disk_;
};

}  // namespace tarry::broker::test
