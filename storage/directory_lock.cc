#include "storage/directory_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace tarry::storage {

Result<DirectoryLock> DirectoryLock::take(const std::string& directory, For use,
                                          std::string_view advice, std::string_view what) {
  const std::string path = directory + "/.lock";
  const bool writes = use == For::writing;
  const int file = writes ? ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                          : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  // A lock that cannot be looked at may be held.
  if (file < 0 && (writes || errno != ENOENT))
    return fail(Errc::io, fmt::format("{}: {}", path, std::strerror(errno)));
  DirectoryLock lock(file);
  if (file < 0) return lock;
  if (::flock(file, (writes ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
    const std::string pid = fmt::format("{}\n", ::getpid());
    const bool noted =
        !writes || (::ftruncate(file, 0) == 0 && ::pwrite(file, pid.data(), pid.size(), 0) ==
                                                     static_cast<::ssize_t>(pid.size()));
    // On a full disk it is held without a pid.
    if (!noted && errno != ENOSPC)
      return fail(Errc::io, fmt::format("{}: {}", path, std::strerror(errno)));
    return lock;
  }
  if (errno != EWOULDBLOCK) {
    // A file system without locks is no reason not to read.
    if (!writes) return lock;
    return fail(Errc::io, fmt::format("{}: flock: {}", path, std::strerror(errno)));
  }
  unsigned long pid = 0;
  std::ifstream(path) >> pid;
  return fail(Errc::in_use, fmt::format("{} {} is in use by the broker with pid {}: {}", what,
                                        directory, pid, advice));
}

DirectoryLock::~DirectoryLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace tarry::storage
