#pragma once

// Disk and File: the interface to the disk.  Storage writes, syncs and names all its files
// (journal, segments, indexes) through them; only RocksDB has its own way to the disk
// (patient_env.h).
//
//   PosixDisk    the machine's
//   MemoryDisk   in tests (tests/memory_disk.h): keeps synced and unsynced bytes apart, so
//                that a test can cut the power, and
//                fails any call that a test picks
//
// A sync promises this, and the callers rely on no more:
//   File::sync            the file's bytes and size.  Not its name.
//   Disk::sync_directory  the names in it: what was created, renamed, removed.
//
// Errors name the path, the call and the reason: "journal/0/0.journal: fdatasync: Input/output
// error".  ENOSPC and EDQUOT are Errc::no_space, ENOENT is not_found, EEXIST is exists, the rest
// Errc::io.  A failed write or sync is never tried again: the second call would say OK while
// the bytes are gone.  A call that opens or names something and finds no descriptor or no memory
// (EMFILE, ENFILE, ENOMEM) is Errc::exhausted: it has done nothing and may be made again.
//
// All calls block: they belong on a Background.  A File may be used by several threads, as far
// as they keep to different bytes; a Disk by any.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/block.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace tarry::storage {

// The unit of direct reads and writes: address, position and length are multiples of it.
inline constexpr std::size_t block_bytes = 4096;

inline std::uint64_t round_up_to_block(std::uint64_t bytes) {
  return (bytes + block_bytes - 1) / block_bytes * block_bytes;
}

// Owned bytes at an address that direct I/O takes.  Grows as a vector does, is never copied, and
// what is added by resize() is zero.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes) { resize(bytes); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }

  std::uint8_t* data() { return memory_.data(); }
  const std::uint8_t* data() const { return memory_.data(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return memory_.capacity(); }
  bool empty() const { return size_ == 0; }
  Bytes view() const { return {data(), size_}; }
  std::span<std::uint8_t> span() { return {data(), size_}; }

  void clear() { size_ = 0; }  // Keeps the memory.
  void reserve(std::size_t bytes);
  void resize(std::size_t bytes);
  // Does not zero the added bytes: the caller fills them.
  void resize_for_overwrite(std::size_t bytes) {
    reserve(bytes);
    size_ = bytes;
  }
  void append(Bytes bytes);
  void append_be32(std::uint32_t value);
  void pad_to_block() { resize(static_cast<std::size_t>(round_up_to_block(size_))); }

 private:
  void swap(AlignedBuffer& other) noexcept;

  Block memory_;          // Its capacity is a multiple of block_bytes.
  std::size_t size_ = 0;  // At most that.
};

// One open file; destroying it closes it without reporting an error; a caller that needs the error
// calls close().
class File {
 public:
  virtual ~File() = default;

  virtual const std::string& path() const = 0;

  // Writes all of `bytes` at `at`, or fails and may have written some of them.
  virtual Result<> pwrite(std::uint64_t at, Bytes bytes) = 0;

  // Reads into all of `into`; fewer bytes only where the file ends.
  virtual Result<std::size_t> pread(std::uint64_t at, std::span<std::uint8_t> into) const = 0;

  // fdatasync: when it returns, bytes and size survive a power cut.
  virtual Result<> sync() = 0;

  virtual Result<std::uint64_t> size() const = 0;
  // When its bytes last changed, by the file system's clock; the epoch where that is not known.
  virtual Result<WallTime> modified() const { return WallTime{}; }
  virtual Result<> truncate(std::uint64_t size) = 0;

  // Takes the space for `size` bytes, or says no_space; the file is then at least so large and
  // reads as zeros where nothing was written.
  virtual Result<> preallocate(std::uint64_t size) = 0;

  virtual Result<> close() = 0;  // Once; no other call after it.
};

struct OpenOptions {
  enum class Create {
    never,  // not_found when it is not there.
    if_absent,
    must,  // exists when it is there.
  };

  bool write = false;
  Create create = Create::never;

  // Past the page cache (O_DIRECT): buffers, places and lengths are then multiples of
  // block_bytes.  If the file system refuses it, the file is opened without, and one line in
  // the log says so.
  bool direct = false;
};

struct DirectoryEntry {
  std::string name;  // Without the directory.
  bool is_directory = false;
};

class Disk {
 public:
  virtual ~Disk() = default;

  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options) = 0;

  // In the order of their names; not_found when there is no such directory.
  virtual Result<std::vector<DirectoryEntry>> list(const std::string& directory) = 0;

  // Makes the directory and those above it that are missing, and syncs the names it made.
  virtual Result<> make_directories(const std::string& directory) = 0;

  virtual Result<> rename(const std::string& from, const std::string& to) = 0;  // Replaces `to`.
  virtual Result<> remove(const std::string& file) = 0;
  virtual Result<> remove_directory(const std::string& directory) = 0;  // An empty one.
  virtual Result<> sync_directory(const std::string& directory) = 0;
  virtual Result<std::uint64_t> free_space(const std::string& directory) = 0;  // In bytes.
};

// The machine's disk.
class PosixDisk final : public Disk {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& directory) override;
  Result<> make_directories(const std::string& directory) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Result<> remove(const std::string& file) override;
  Result<> remove_directory(const std::string& directory) override;
  Result<> sync_directory(const std::string& directory) override;
  Result<std::uint64_t> free_space(const std::string& directory) override;
};

// The whole of a small file.  Errc::too_large when it has more than `limit` bytes.
Result<Buffer> read_file(Disk& disk, const std::string& path, std::size_t limit);

// Replaces a small file, so that after any crash it holds all of the old bytes or all of the new
// ones: a file beside it (`path`.tmp), synced, renamed over it, the directory synced.
Result<> replace_file(Disk& disk, const std::string& path, Bytes bytes);

// "a/b/c" -> "a/b"; "c" -> ".".
std::string directory_of(const std::string& path);

}  // namespace tarry::storage
