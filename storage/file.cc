#include "storage/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/log.h"

namespace tarry::storage {
namespace {

constexpr std::size_t small_buffer = 64 << 10;
constexpr std::size_t grown_buffer = 1 << 20;

std::unexpected<Error> system_error(const std::string& path, const char* call, int number) {
  Errc code = Errc::io;
  if (number == ENOSPC || number == EDQUOT) code = Errc::no_space;
  if (number == ENOENT) code = Errc::not_found;
  if (number == EEXIST) code = Errc::exists;
  try {
    return fail(code, fmt::format("{}: {}: {}", path, call,
                                  std::error_code(number, std::generic_category()).message()));
  } catch (const std::bad_alloc&) {
    // Not instead of the error: what lacks memory may be tried again, and a failed sync may not.
    return fail(code, "call failed");  // Short enough to need no allocation.
  }
}

// For calls that do nothing when they fail.  A write or sync that finds no memory is no such call.
std::unexpected<Error> not_done(const std::string& path, const char* call, int number) {
  auto error = system_error(path, call, number);
  if (number == EMFILE || number == ENFILE || number == ENOMEM)
    error.error().code = Errc::exhausted;
  return error;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

class PosixFile final : public File {
 public:
  PosixFile(std::string path, Descriptor descriptor, bool direct)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), direct_(direct) {}

  const std::string& path() const override { return path_; }

  Result<> pwrite(std::uint64_t at, Bytes bytes) override {
    while (!bytes.empty()) {
      const auto done =
          ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return system_error(path_, "pwrite", errno);
      // POSIX allows 0; without this check the loop would not end.
      if (done == 0) return system_error(path_, "pwrite", EIO);
      at += static_cast<std::uint64_t>(done);
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
    return {};
  }

  Result<std::size_t> pread(std::uint64_t at, std::span<std::uint8_t> into) const override {
    std::size_t got = 0;
    while (got < into.size()) {
      const auto done = ::pread(descriptor_.get(), into.data() + got, into.size() - got,
                                static_cast<off_t>(at + got));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return system_error(path_, "pread", errno);
      got += static_cast<std::size_t>(done);
      // A direct read that ends between two blocks has met the end of the file.
      if (done == 0 || (direct_ && got % block_bytes != 0)) break;
    }
    return got;
  }

  Result<> sync() override {
    // Not tried again after an error: the second call would say OK although the bytes are gone.
    if (::fdatasync(descriptor_.get()) != 0) return system_error(path_, "fdatasync", errno);
    return {};
  }

  Result<std::uint64_t> size() const override {
    struct stat status;
    if (::fstat(descriptor_.get(), &status) != 0) return system_error(path_, "fstat", errno);
    return static_cast<std::uint64_t>(status.st_size);
  }

  Result<WallTime> modified() const override {
    struct stat status;
    if (::fstat(descriptor_.get(), &status) != 0) return system_error(path_, "fstat", errno);
    return from_ms(std::int64_t{status.st_mtim.tv_sec} * 1000 + status.st_mtim.tv_nsec / 1'000'000);
  }

  Result<> truncate(std::uint64_t size) override {
    if (::ftruncate(descriptor_.get(), static_cast<off_t>(size)) != 0)
      return system_error(path_, "ftruncate", errno);
    return {};
  }

  Result<> preallocate(std::uint64_t size) override {
    int failed;
    do {
      failed = ::posix_fallocate(descriptor_.get(), 0, static_cast<off_t>(size));
    } while (failed == EINTR);
    // posix_fallocate() returns the error instead of setting errno.
    if (failed != 0) return not_done(path_, "fallocate", failed);
    return {};
  }

  Result<> close() override {
    // Released first: the destructor must not close a number that may be another file's by then.
    if (::close(descriptor_.release()) != 0) return system_error(path_, "close", errno);
    return {};
  }

 private:
  const std::string path_;
  Descriptor descriptor_;
  const bool direct_;  // It was asked for; whether it was granted makes no difference here.
};

}  // namespace

void AlignedBuffer::swap(AlignedBuffer& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
}

void AlignedBuffer::reserve(std::size_t bytes) {
  if (bytes <= capacity()) return;
  std::size_t wanted = std::max(bytes, 2 * capacity());
  // A buffer that grows gets a large block at once: it is copied less often, and memory that is not
  // written costs nothing.
  if (capacity() > 0 && wanted > small_buffer) wanted = std::max(wanted, grown_buffer);
  Block larger(static_cast<std::size_t>(round_up_to_block(wanted)));
  if (size_ > 0) std::memcpy(larger.data(), data(), size_);
  memory_ = std::move(larger);
}

void AlignedBuffer::resize(std::size_t bytes) {
  reserve(bytes);
  if (bytes > size_) std::memset(data() + size_, 0, bytes - size_);
  size_ = bytes;
}

void AlignedBuffer::append(Bytes bytes) {
  if (bytes.empty()) return;
  reserve(size_ + bytes.size());
  std::memcpy(data() + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
}

void AlignedBuffer::append_be32(std::uint32_t value) {
  reserve(size_ + sizeof value);
  store_be(data() + size_, value);
  size_ += sizeof value;
}

Result<std::unique_ptr<File>> PosixDisk::open(const std::string& path, OpenOptions options) {
  int flags = (options.write ? O_RDWR : O_RDONLY) | O_CLOEXEC;
  if (options.create != OpenOptions::Create::never) flags |= O_CREAT;
  if (options.create == OpenOptions::Create::must) flags |= O_EXCL;
  const auto open_with = [&](int with) {
    int number;
    do {
      number = ::open(path.c_str(), with, 0600);
    } while (number < 0 && errno == EINTR);
    return number;
  };

  int number = open_with(flags | (options.direct ? O_DIRECT : 0));
  if (number < 0 && options.direct && errno == EINVAL) {
    static std::atomic<bool> told = false;
    if (!told.exchange(true))
      log_warn("storage",
               "{}: the file system does not support O_DIRECT; writes go through the page cache",
               path);
    // Some file systems create the file before they refuse.
    number = open_with(flags & ~O_EXCL);
  }
  if (number < 0) return not_done(path, "open", errno);
  return std::make_unique<PosixFile>(path, Descriptor(number), options.direct);
}

Result<std::vector<DirectoryEntry>> PosixDisk::list(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(directory.c_str()), ::closedir);
  if (!opened) return not_done(directory, "opendir", errno);
  std::vector<DirectoryEntry> entries;
  for (;;) {
    // readdir() returns null both at the end and on an error; only errno tells them apart.
    errno = 0;
    const dirent* found = ::readdir(opened.get());
    if (found == nullptr) break;
    const std::string name = found->d_name;
    if (name == "." || name == "..") continue;
    bool is_directory = found->d_type == DT_DIR;
    // Some file systems do not give the type, and a link may lead to a directory.
    if (found->d_type == DT_UNKNOWN || found->d_type == DT_LNK) {
      struct stat status;
      const auto path = directory + "/" + name;
      if (::stat(path.c_str(), &status) != 0) {
        if (errno == ENOENT) continue;
        return not_done(path, "stat", errno);
      }
      is_directory = S_ISDIR(status.st_mode);
    }
    entries.push_back({name, is_directory});
  }
  if (errno != 0) return system_error(directory, "readdir", errno);
  std::ranges::sort(entries, {}, &DirectoryEntry::name);
  return entries;
}

Result<> PosixDisk::make_directories(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) == 0) return sync_directory(directory_of(directory));
  if (errno == EEXIST) {
    struct stat status;
    if (::stat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return {};
    return not_done(directory, "mkdir", ENOTDIR);
  }
  if (errno != ENOENT || directory_of(directory) == directory)
    return not_done(directory, "mkdir", errno);
  if (auto made = make_directories(directory_of(directory)); !made) return made;
  // EEXIST: another thread may have made it meanwhile.
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return not_done(directory, "mkdir", errno);
  return sync_directory(directory_of(directory));
}

Result<> PosixDisk::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return not_done(from, fmt::format("rename to {}", to).c_str(), errno);
  return {};
}

Result<> PosixDisk::remove(const std::string& file) {
  if (::unlink(file.c_str()) != 0) return not_done(file, "unlink", errno);
  return {};
}

Result<> PosixDisk::remove_directory(const std::string& directory) {
  if (::rmdir(directory.c_str()) != 0) return not_done(directory, "rmdir", errno);
  return {};
}

Result<> PosixDisk::sync_directory(const std::string& directory) {
  const Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return not_done(directory, "open", errno);
  if (::fsync(opened.get()) != 0) return system_error(directory, "fsync", errno);
  return {};
}

Result<std::uint64_t> PosixDisk::free_space(const std::string& directory) {
  struct statvfs status;
  if (::statvfs(directory.c_str(), &status) != 0) return not_done(directory, "statvfs", errno);
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

Result<Buffer> read_file(Disk& disk, const std::string& path, std::size_t limit) {
  auto file = disk.open(path, {});
  if (!file) return std::unexpected(file.error());
  const auto size = (*file)->size();
  if (!size) return std::unexpected(size.error());
  // Before memory is taken: what lies under the name may be anything.
  if (*size > limit)
    return fail(Errc::too_large,
                fmt::format("{}: has {} bytes; the limit is {}", path, *size, limit));
  Buffer bytes(static_cast<std::size_t>(*size));
  const auto got = (*file)->pread(0, bytes);
  if (!got) return std::unexpected(got.error());
  bytes.resize(*got);
  return bytes;
}

Result<> replace_file(Disk& disk, const std::string& path, Bytes bytes) {
  const auto beside = path + ".tmp";
  auto file = disk.open(beside, {.write = true, .create = OpenOptions::Create::if_absent});
  if (!file) return std::unexpected(file.error());
  // A crash may have left an older, longer .tmp file.
  if (auto cut = (*file)->truncate(0); !cut) return cut;
  if (auto written = (*file)->pwrite(0, bytes); !written) return written;
  // Before the rename: else a power cut could leave the new name without the bytes.
  if (auto synced = (*file)->sync(); !synced) return synced;
  if (auto closed = (*file)->close(); !closed) return closed;
  if (auto renamed = disk.rename(beside, path); !renamed) return renamed;
  // Until the directory is synced, a power cut may bring the old file back.
  return disk.sync_directory(directory_of(path));
}

std::string directory_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace tarry::storage
