#pragma once

// MemoryDisk: the faulty disk of tests.  It keeps what was synced apart from what was only
// written, so that a test can take away what a crash may take away:
//
//   kill()       a process dies: everything written stays.
//   cut_power()  the machine dies: what no sync covered survives in part.  In each unsynced
//                write every 512-byte sector is kept or lost by chance, a grown size is kept or
//                lost, and so is each unsynced create, rename and remove (a rename wholly).
//
// After either the disk stands as a new process finds it; Files opened before only fail.
//
// fail_call(n) makes the n-th call from now fail (reads, writes, syncs, names: every call of
// Disk and File but size() and close() counts one), once or with all that follow.  A write that
// fails may have written any of its sectors; a sync that fails loses, by chance, what it should
// have kept, and the next one says OK, as disks do.  crash_call(n) throws PowerCut there instead.
//
// Chance is an argument: the same Random and calls give the same disk.  One thread.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "storage/file.h"

namespace tarry::storage {

class MemoryDisk final : public Disk {
 public:
  // Thrown out of the call that crash_call() picked, when only a part of it has happened.
  struct PowerCut {};

  explicit MemoryDisk(Random& random) : random_(random) {}

  void kill();
  void cut_power();

  // Counted from 1; how many calls there have been so far is calls().
  void fail_call(std::uint64_t nth, Errc code, bool for_ever = false);
  void crash_call(std::uint64_t nth);
  void heal();  // No call fails from here on.
  std::uint64_t calls() const { return calls_; }
  std::uint64_t syncs() const { return syncs_; }

  // Only calls whose name ("pwrite", "fdatasync", "rename" ...) is this one count for fail_call()
  // and crash_call(); empty: all.
  void count_only(std::string call) { counted_call_ = std::move(call); }

  // The space that preallocate() and growing writes may take; no_space beyond it.
  void set_space(std::uint64_t bytes) { space_ = bytes; }
  std::uint64_t used() const;

  // The File::modified() of files that are changed from here on.
  void set_time(WallTime now) { time_ = now; }

  // A file's bytes as they would be read, for tests that look or do damage behind our back:
  // what poke() changes counts as synced.
  Buffer contents(const std::string& path) const;
  void poke(const std::string& path, std::uint64_t at, Bytes bytes);

  Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& directory) override;
  Result<> make_directories(const std::string& directory) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Result<> remove(const std::string& file) override;
  Result<> remove_directory(const std::string& directory) override;
  Result<> sync_directory(const std::string& directory) override;
  Result<std::uint64_t> free_space(const std::string& directory) override;

 private:
  class OpenFile;
  struct Inode;
  using Names = std::map<std::string, std::shared_ptr<Inode>>;  // Directories have an Inode too.

  // A change of names that no sync_directory() covers yet.
  struct NameChange {
    std::string path;              // Created, removed or renamed to.
    std::string renamed_from;      // Empty: not renamed.
    std::shared_ptr<Inode> inode;  // Null: removed.
  };

  // Counts the call.  When it is the one that was picked: does `half`, and fails or throws.
  Result<> count(const std::string& path, const char* call, const std::function<void()>& half);
  bool chance() { return (random_.u64() & 1) != 0; }
  Result<> take_space(const std::string& path, const char* call, std::uint64_t grown) const;
  static void apply(Names& names, const NameChange& change);
  void change_names(NameChange change);
  Result<std::shared_ptr<Inode>> find(const std::string& path, const char* call) const;

  Random& random_;
  Names names_;                      // As a running process sees them.
  Names synced_names_;               // As they are after the worst of power cuts.
  std::vector<NameChange> changes_;  // From synced_names_ to names_, in order.
  std::uint64_t life_ = 0;           // Files opened in an earlier one only fail.

  std::uint64_t calls_ = 0, syncs_ = 0;
  std::uint64_t counted_calls_ = 0;
  std::string counted_call_;
  std::uint64_t fail_at_ = 0;  // In counted_calls_; 0: never.
  bool fail_for_ever_ = false;
  Errc fail_code_ = Errc::io;
  std::uint64_t crash_at_ = 0;  // In counted_calls_; 0: never.
  bool crashing_ = false;       // In the call that throws PowerCut.
  std::optional<std::uint64_t> space_;
  WallTime time_{};
};

}  // namespace tarry::storage
