#include "tests/memory_disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"

namespace tarry::storage {
namespace {

constexpr std::size_t sector_bytes = 512;

std::unexpected<Error> disk_error(Errc code, const std::string& path, const char* call) {
  const char* why = "Input/output error";
  if (code == Errc::no_space) why = "No space left on device";
  if (code == Errc::exhausted) why = "Too many open files";
  if (code == Errc::not_found) why = "No such file or directory";
  if (code == Errc::exists) why = "File exists";
  return fail(code, fmt::format("{}: {}: {}", path, call, why));
}

bool is_root(const std::string& path) {
  return path.empty() || path == "." || path == "/";
}

// The paths below `directory` begin with this.
std::string prefix_of(const std::string& directory) {
  if (directory.empty() || directory == ".") return "";
  return directory.back() == '/' ? directory : directory + "/";
}

}  // namespace

struct MemoryDisk::Inode {
  // A write, or where `resize` is set a new size.
  struct Change {
    std::uint64_t at = 0;
    Buffer bytes;
    std::optional<std::uint64_t> resize;
  };

  bool is_directory = false;
  WallTime modified{};
  Buffer now;                   // As a running process reads it.
  Buffer synced;                // As it is after the worst of power cuts.
  std::vector<Change> changes;  // Since the last sync, in order.

  static void apply(Buffer& to, const Change& change) {
    if (change.resize) {
      to.resize(static_cast<std::size_t>(*change.resize));
      return;
    }
    const auto at = static_cast<std::size_t>(change.at);
    if (to.size() < at + change.bytes.size()) to.resize(at + change.bytes.size());
    std::ranges::copy(change.bytes, to.begin() + static_cast<std::ptrdiff_t>(at));
  }

  // The part of a change that survives by chance: all, nothing, or any of its sectors.
  static std::vector<Change> some_of(const Change& change, MemoryDisk& disk) {
    const auto kind = disk.random_.u64() % 4;
    if (kind == 0 || (change.resize && kind == 2)) return {change};
    if (kind == 1 || change.resize) return {};
    std::vector<Change> some;
    std::size_t done = 0;
    while (done < change.bytes.size()) {
      const auto at = change.at + done;
      const auto part = std::min<std::size_t>(
          change.bytes.size() - done, sector_bytes - static_cast<std::size_t>(at % sector_bytes));
      const auto from = change.bytes.begin() + static_cast<std::ptrdiff_t>(done);
      if (disk.chance())
        some.push_back({at, Buffer(from, from + static_cast<std::ptrdiff_t>(part)), {}});
      done += part;
    }
    return some;
  }

  void change(Change change) {
    apply(now, change);
    changes.push_back(std::move(change));
  }
  void sync_all() {
    for (const auto& change : changes) apply(synced, change);
    changes.clear();
  }
  void sync_some(MemoryDisk& disk) {
    for (const auto& change : changes)
      for (const auto& some : some_of(change, disk)) apply(synced, some);
  }
};

class MemoryDisk::OpenFile final : public File {
 public:
  OpenFile(MemoryDisk& disk, std::string path, std::shared_ptr<Inode> inode, OpenOptions options)
      : disk_(disk),
        path_(std::move(path)),
        inode_(std::move(inode)),
        options_(options),
        life_(disk.life_) {}

  const std::string& path() const override { return path_; }

  Result<> pwrite(std::uint64_t at, Bytes bytes) override {
    if (auto usable = check("pwrite"); !usable) return usable;
    TARRY_ASSERT(options_.write, "the file is open for reading alone");
    check_alignment(bytes.data(), at, bytes.size());
    Inode::Change change{at, Buffer(bytes.begin(), bytes.end()), {}};
    auto counted = disk_.count(path_, "pwrite", [&] {
      for (auto& some : Inode::some_of(change, disk_)) inode_->change(std::move(some));
    });
    if (!counted) return counted;
    const auto end = at + bytes.size();
    const auto grown = end > inode_->now.size() ? end - inode_->now.size() : 0;
    if (auto taken = disk_.take_space(path_, "pwrite", grown); !taken) return taken;
    inode_->change(std::move(change));
    inode_->modified = disk_.time_;
    return {};
  }

  Result<std::size_t> pread(std::uint64_t at, std::span<std::uint8_t> into) const override {
    if (auto usable = check("pread"); !usable) return std::unexpected(usable.error());
    check_alignment(into.data(), at, into.size());
    if (auto counted = disk_.count(path_, "pread", {}); !counted)
      return std::unexpected(counted.error());
    const auto size = inode_->now.size();
    if (at >= size) return 0;
    const auto count = std::min<std::size_t>(into.size(), size - static_cast<std::size_t>(at));
    std::memcpy(into.data(), inode_->now.data() + at, count);
    return count;
  }

  Result<> sync() override {
    if (auto usable = check("fdatasync"); !usable) return usable;
    if (auto counted = disk_.count(path_, "fdatasync",
                                   [&] {
                                     inode_->sync_some(disk_);
                                     // A failed sync forgets what it could not write; a process
                                     // that dies in one does not.
                                     if (!disk_.crashing_) inode_->changes.clear();
                                   });
        !counted)
      return counted;
    ++disk_.syncs_;
    inode_->sync_all();
    return {};
  }

  Result<std::uint64_t> size() const override {
    if (auto usable = check("fstat"); !usable) return std::unexpected(usable.error());
    return inode_->now.size();
  }

  Result<WallTime> modified() const override { return inode_->modified; }

  Result<> truncate(std::uint64_t size) override { return resize("ftruncate", size); }

  Result<> preallocate(std::uint64_t size) override {
    if (auto usable = check("fallocate"); !usable) return usable;
    return resize("fallocate", std::max<std::uint64_t>(size, inode_->now.size()));
  }

  Result<> close() override {
    if (auto usable = check("close"); !usable) return usable;
    closed_ = true;
    return {};
  }

 private:
  Result<> check(const char* call) const {
    TARRY_ASSERT(!closed_, "the file is closed");
    if (life_ != disk_.life_) return disk_error(Errc::io, path_, call);
    return {};
  }

  void check_alignment(const std::uint8_t* address, std::uint64_t at, std::size_t size) const {
    if (!options_.direct) return;
    TARRY_ASSERT(reinterpret_cast<std::uintptr_t>(address) % block_bytes == 0 &&
                     at % block_bytes == 0 && size % block_bytes == 0,
                 "direct reads and writes are of whole blocks");
  }

  Result<> resize(const char* call, std::uint64_t size) {
    if (auto usable = check(call); !usable) return usable;
    const Inode::Change change{0, {}, size};
    if (auto counted = disk_.count(path_, call, [&] { inode_->change(change); }); !counted)
      return counted;
    const auto grown = size > inode_->now.size() ? size - inode_->now.size() : 0;
    if (auto taken = disk_.take_space(path_, call, grown); !taken) return taken;
    inode_->change(change);
    inode_->modified = disk_.time_;
    return {};
  }

  MemoryDisk& disk_;
  const std::string path_;
  const std::shared_ptr<Inode> inode_;
  const OpenOptions options_;
  const std::uint64_t life_;
  bool closed_ = false;
};

void MemoryDisk::kill() {
  ++life_;
}

void MemoryDisk::cut_power() {
  ++life_;
  for (const auto& change : changes_)
    if (chance()) apply(synced_names_, change);
  changes_.clear();
  names_ = synced_names_;
  for (const auto& [path, inode] : names_) {
    inode->sync_some(*this);
    inode->changes.clear();
    inode->now = inode->synced;
  }
}

void MemoryDisk::fail_call(std::uint64_t nth, Errc code, bool for_ever) {
  TARRY_ASSERT(nth > 0, "calls are counted from 1");
  fail_at_ = counted_calls_ + nth;
  fail_code_ = code;
  fail_for_ever_ = for_ever;
}

void MemoryDisk::crash_call(std::uint64_t nth) {
  TARRY_ASSERT(nth > 0, "calls are counted from 1");
  crash_at_ = counted_calls_ + nth;
}

void MemoryDisk::heal() {
  fail_at_ = crash_at_ = 0;
}

std::uint64_t MemoryDisk::used() const {
  std::uint64_t sum = 0;
  for (const auto& [path, inode] : names_) sum += inode->now.size();
  return sum;
}

Buffer MemoryDisk::contents(const std::string& path) const {
  const auto found = names_.find(path);
  TARRY_ASSERT(found != names_.end(), "a test looks at a file that is there");
  return found->second->now;
}

void MemoryDisk::poke(const std::string& path, std::uint64_t at, Bytes bytes) {
  const auto found = names_.find(path);
  TARRY_ASSERT(found != names_.end(), "a test changes a file that is there");
  const Inode::Change change{at, Buffer(bytes.begin(), bytes.end()), {}};
  Inode::apply(found->second->now, change);
  Inode::apply(found->second->synced, change);
}

Result<> MemoryDisk::count(const std::string& path, const char* call,
                           const std::function<void()>& half) {
  ++calls_;
  if (!counted_call_.empty() && counted_call_ != call) return {};
  ++counted_calls_;
  if (crash_at_ != 0 && counted_calls_ >= crash_at_) {
    crash_at_ = 0;
    crashing_ = true;
    if (half && chance()) half();
    crashing_ = false;
    throw PowerCut{};
  }
  if (fail_at_ == 0 || counted_calls_ < fail_at_) return {};
  if (!fail_for_ever_) fail_at_ = 0;
  if (half && fail_code_ != Errc::no_space && fail_code_ != Errc::exhausted) half();
  return disk_error(fail_code_, path, call);
}

Result<> MemoryDisk::take_space(const std::string& path, const char* call,
                                std::uint64_t grown) const {
  if (grown > 0 && space_ && used() + grown > *space_)
    return disk_error(Errc::no_space, path, call);
  return {};
}

void MemoryDisk::apply(Names& names, const NameChange& change) {
  if (!change.inode) {
    names.erase(change.path);
    return;
  }
  // A file has one name, also when only the last of several renames is kept.
  std::erase_if(names, [&](const auto& name) { return name.second == change.inode; });
  if (!change.renamed_from.empty()) {
    const auto from = change.renamed_from + "/";  // A directory takes along what is in it.
    std::vector<std::string> inside;
    for (auto at = names.lower_bound(from); at != names.end() && at->first.starts_with(from); ++at)
      inside.push_back(at->first);
    for (const auto& path : inside) {
      auto moved = names.extract(path);
      moved.key() = change.path + "/" + path.substr(from.size());
      names.insert(std::move(moved));
    }
  }
  names[change.path] = change.inode;
}

void MemoryDisk::change_names(NameChange change) {
  apply(names_, change);
  changes_.push_back(std::move(change));
}

Result<std::shared_ptr<MemoryDisk::Inode>> MemoryDisk::find(const std::string& path,
                                                            const char* call) const {
  const auto found = names_.find(path);
  if (found == names_.end()) return disk_error(Errc::not_found, path, call);
  return found->second;
}

Result<std::unique_ptr<File>> MemoryDisk::open(const std::string& path, OpenOptions options) {
  if (auto counted = count(path, "open", {}); !counted) return std::unexpected(counted.error());
  auto found = find(path, "open");
  if (found && options.create == OpenOptions::Create::must)
    return disk_error(Errc::exists, path, "open");
  if (found && (*found)->is_directory) return disk_error(Errc::io, path, "open");
  if (!found) {
    if (options.create == OpenOptions::Create::never) return std::unexpected(found.error());
    const auto directory = directory_of(path);
    if (!is_root(directory) && !names_.contains(directory))
      return disk_error(Errc::not_found, path, "open");
    found = std::make_shared<Inode>();
    change_names({path, {}, *found});
  }
  return std::make_unique<OpenFile>(*this, path, *found, options);
}

Result<std::vector<DirectoryEntry>> MemoryDisk::list(const std::string& directory) {
  if (auto counted = count(directory, "opendir", {}); !counted)
    return std::unexpected(counted.error());
  if (!is_root(directory)) {
    if (auto found = find(directory, "opendir"); !found) return std::unexpected(found.error());
  }
  const auto prefix = prefix_of(directory);
  std::vector<DirectoryEntry> entries;
  for (auto at = names_.lower_bound(prefix); at != names_.end() && at->first.starts_with(prefix);
       ++at) {
    const auto name = at->first.substr(prefix.size());
    if (!name.empty() && !name.contains('/')) entries.push_back({name, at->second->is_directory});
  }
  std::ranges::sort(entries, {}, &DirectoryEntry::name);
  return entries;
}

Result<> MemoryDisk::make_directories(const std::string& directory) {
  if (is_root(directory) || names_.contains(directory)) return {};
  if (auto made = make_directories(directory_of(directory)); !made) return made;
  if (auto counted = count(directory, "mkdir", {}); !counted) return counted;
  const auto inode = std::make_shared<Inode>();
  inode->is_directory = true;
  names_[directory] = inode;
  synced_names_[directory] = inode;
  return {};
}

Result<> MemoryDisk::rename(const std::string& from, const std::string& to) {
  const auto found = find(from, "rename");
  if (!found) return std::unexpected(found.error());
  const auto change = [&] { change_names({to, from, *found}); };
  if (auto counted = count(from, "rename", change); !counted) return counted;
  change();
  return {};
}

Result<> MemoryDisk::remove(const std::string& file) {
  const auto found = find(file, "unlink");
  if (!found) return std::unexpected(found.error());
  const auto change = [&] { change_names({file, {}, nullptr}); };
  if (auto counted = count(file, "unlink", change); !counted) return counted;
  change();
  return {};
}

Result<> MemoryDisk::remove_directory(const std::string& directory) {
  const auto entries = list(directory);
  if (!entries) return std::unexpected(entries.error());
  if (!entries->empty()) return fail(Errc::io, directory + ": rmdir: Directory not empty");
  const auto change = [&] { change_names({directory, {}, nullptr}); };
  if (auto counted = count(directory, "rmdir", change); !counted) return counted;
  change();
  return {};
}

Result<> MemoryDisk::sync_directory(const std::string& directory) {
  // All that concerns the directory; when the call fails, the first of it by chance: what comes
  // later never gets ahead.
  const auto sync = [&](bool all) {
    std::vector<NameChange> rest;
    bool goes_on = true;
    for (auto& change : changes_) {
      const bool concerned =
          directory_of(change.path) == directory ||
          (!change.renamed_from.empty() && directory_of(change.renamed_from) == directory);
      if (concerned && !all) goes_on = goes_on && chance();
      if (concerned && goes_on)
        apply(synced_names_, change);
      else
        rest.push_back(std::move(change));
    }
    changes_ = std::move(rest);
  };
  if (auto counted = count(directory, "fsync", [&] { sync(false); }); !counted) return counted;
  ++syncs_;
  sync(true);
  return {};
}

Result<std::uint64_t> MemoryDisk::free_space(const std::string& directory) {
  if (auto counted = count(directory, "statvfs", {}); !counted)
    return std::unexpected(counted.error());
  if (!space_) return std::uint64_t{1} << 50;
  return *space_ - std::min(*space_, used());
}

}  // namespace tarry::storage
