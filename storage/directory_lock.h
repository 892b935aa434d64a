#pragma once

// DirectoryLock: keeps brokers away from a data directory while a command works on its files, and
// others from a broker's log.dirs (log_directory.h).
//
// It is the lock of DataDirectory, on the same file.  Destroying it releases the lock; the kernel
// does so too when the process dies.

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace tarry::storage {

class DirectoryLock {
 public:
  // reading: several may have it, no file is changed, and where no broker has ever been there is
  // nothing to lock.  writing: one alone; the file is made if necessary, and has our pid.
  enum class For { reading, writing };

  // Errc::in_use names `what` it is, the process that has it, and what to do: `advice`.
  static Result<DirectoryLock> take(const std::string& directory, For use, std::string_view advice,
                                    std::string_view what = "data directory");

  DirectoryLock(DirectoryLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int file) : file_(file) {}

  int file_;  // -1: nothing is locked.
};

}  // namespace tarry::storage
