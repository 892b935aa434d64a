#pragma once

// LossyFiles: the disk of RocksDB in tests, from which a power cut takes what was not synced.
//
//   cut_power()   of what a file got since its last sync a part stays; of the files that were
//                 made, renamed and removed in a directory since that was synced, the first ones
//   die_after(n)  after n more changes everything that would change something fails: the moment of
//                 a crash.  Then the database is closed, perhaps the power cut, and it is opened
//                 again.
//
// The files are on the machine's disk.  Any thread.

#include <rocksdb/file_system.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "storage/patient_env.h"
#include "tests/given.h"

namespace tarry::storage {

class LossyFiles final : public rocksdb::FileSystemWrapper {
 public:
  using IOStatus = rocksdb::IOStatus;

  // What is removed and may come back is in `directory`.
  explicit LossyFiles(std::string directory)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), kept_in_(std::move(directory)) {
    std::filesystem::create_directories(kept_in_);
  }
  const char* Name() const override { return "lossy"; }

  void die_after(std::int64_t changes) { left_ = changes; }
  void live() { left_ = std::numeric_limits<std::int64_t>::max(); }
  // The databases are closed.
  void cut_power(SeededRandom& random) {
    const std::lock_guard lock(mutex_);
    for (auto& [directory, changes] : names_) {
      const auto kept = random.below(changes.size() + 1);
      for (; changes.size() > kept; changes.pop_back()) undo(changes.back());
      changes.clear();
    }
    for (auto& [path, file] : files_) {
      std::error_code none;
      if (file.synced >= file.size || !std::filesystem::exists(path, none)) continue;
      file.size = file.synced + random.below(file.size - file.synced + 1);
      file.synced = file.size;
      std::filesystem::resize_file(path, file.size, none);
      ++cut_;
    }
  }
  std::size_t cut() const { return cut_; }  // Files that lost something.
  // A negative control: a sync does nothing.
  bool forgets_syncs = false;

  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           rocksdb::IODebugContext* context) override {
    // RocksDB's own log, which nobody needs after a crash.
    if (path.ends_with("/LOG")) return target()->NewWritableFile(path, options, file, context);
    if (!may_change()) return dead(path);
    std::unique_ptr<rocksdb::FSWritableFile> below;
    const bool is_new = !std::filesystem::exists(path);
    auto status = target()->NewWritableFile(path, options, &below, context);
    if (!status.ok()) return status;
    const std::lock_guard lock(mutex_);
    files_[path] = {};
    if (is_new) names_[parent(path)].push_back({path, {}, {}, true});
    *file = std::make_unique<File>(*this, path, std::move(below));
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to,
                      const rocksdb::IOOptions& options,
                      rocksdb::IODebugContext* context) override {
    if (!may_change()) return dead(from);
    const std::lock_guard lock(mutex_);
    const std::string kept = keep(to);
    auto status = target()->RenameFile(from, to, options, context);
    if (!status.ok()) return status;
    names_[parent(to)].push_back({to, from, kept, false});
    if (const auto known = files_.find(from); known != files_.end()) {
      files_[to] = known->second;
      files_.erase(from);
    }
    return status;
  }
  IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                      rocksdb::IODebugContext* context) override {
    if (!may_change()) return dead(path);
    const std::lock_guard lock(mutex_);
    const std::string kept = keep(path);
    auto status = target()->DeleteFile(path, options, context);
    if (status.ok()) names_[parent(path)].push_back({path, {}, kept, false});
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* directory,
                        rocksdb::IODebugContext* context) override {
    std::unique_ptr<rocksdb::FSDirectory> below;
    auto status = target()->NewDirectory(path, options, &below, context);
    if (status.ok()) *directory = std::make_unique<Directory>(*this, path, std::move(below));
    return status;
  }

 private:
  struct Written {
    std::uint64_t size = 0, synced = 0;
  };
  // A name that was made, renamed (from `from`) or removed; what it stood for before is in `kept`.
  struct NameChange {
    std::string path, from, kept;
    bool is_new;
  };

  class File final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(LossyFiles& files, std::string path, std::unique_ptr<rocksdb::FSWritableFile> below)
        : FSWritableFileOwnerWrapper(std::move(below)), files_(files), path_(std::move(path)) {}

    IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                    rocksdb::IODebugContext* context) override {
      if (!files_.may_change()) return dead(path_);
      auto status = FSWritableFileOwnerWrapper::Append(data, options, context);
      if (status.ok()) files_.appended(path_, data.size());
      return status;
    }
    IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                    const rocksdb::DataVerificationInfo&,
                    rocksdb::IODebugContext* context) override {
      return Append(data, options, context);
    }
    IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* context) override {
      if (!files_.may_change()) return dead(path_);
      auto status = FSWritableFileOwnerWrapper::Flush(options, context);
      if (status.ok()) files_.synced(path_);
      return status;
    }
    IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* context) override {
      return Sync(options, context);
    }

   private:
    LossyFiles& files_;
    const std::string path_;
  };

  class Directory final : public rocksdb::FSDirectoryWrapper {
   public:
    Directory(LossyFiles& files, std::string path, std::unique_ptr<rocksdb::FSDirectory> below)
        : FSDirectoryWrapper(std::move(below)), files_(files), path_(std::move(path)) {}
    IOStatus Fsync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
      if (!files_.may_change()) return dead(path_);
      files_.directory_synced(path_);
      return IOStatus::OK();
    }
    IOStatus FsyncWithDirOptions(const rocksdb::IOOptions& options,
                                 rocksdb::IODebugContext* context,
                                 const rocksdb::DirFsyncOptions&) override {
      return Fsync(options, context);
    }

   private:
    LossyFiles& files_;
    const std::string path_;
  };

  static IOStatus dead(const std::string& path) {
    return IOStatus::IOError(path, "the machine is dead");
  }
  static std::string parent(const std::string& path) {
    return std::filesystem::path(path).parent_path().lexically_normal().string();
  }
  bool may_change() { return left_.fetch_sub(1) > 0; }

  void appended(const std::string& path, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    files_[path].size += bytes;
  }
  void synced(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (!forgets_syncs) files_[path].synced = files_[path].size;
  }
  void directory_synced(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (forgets_syncs) return;
    auto& changes = names_[std::filesystem::path(path).lexically_normal().string()];
    std::error_code none;
    for (const auto& change : changes)
      if (!change.kept.empty()) std::filesystem::remove(change.kept, none);
    changes.clear();
  }
  // Another name for what stands under `path`; empty: nothing does.
  std::string keep(const std::string& path) {
    std::error_code none;
    if (!std::filesystem::exists(path, none)) return {};
    std::string kept = kept_in_ + "/" + std::to_string(next_++);
    std::filesystem::create_hard_link(path, kept, none);
    return kept;
  }
  void undo(const NameChange& change) {
    std::error_code none;
    if (change.is_new) {
      std::filesystem::remove(change.path, none);
      files_.erase(change.path);
    } else if (!change.from.empty()) {
      std::filesystem::rename(change.path, change.from, none);
      if (const auto known = files_.find(change.path); known != files_.end()) {
        files_[change.from] = known->second;
        files_.erase(change.path);
      }
    }
    if (!change.kept.empty()) std::filesystem::rename(change.kept, change.path, none);
  }

  const std::string kept_in_;
  std::atomic<std::int64_t> left_{std::numeric_limits<std::int64_t>::max()};
  std::mutex mutex_;
  std::map<std::string, Written> files_;
  std::map<std::string, std::vector<NameChange>> names_;  // By directory, since that was synced.
  std::uint64_t next_ = 0;
  std::size_t cut_ = 0;
};

// While there is one, databases are opened on these files.
class OnLossyFiles {
 public:
  explicit OnLossyFiles(std::shared_ptr<LossyFiles> files) { set_rocks_files(std::move(files)); }
  ~OnLossyFiles() { set_rocks_files(nullptr); }
  OnLossyFiles(const OnLossyFiles&) = delete;
  OnLossyFiles& operator=(const OnLossyFiles&) = delete;
};

}  // namespace tarry::storage
