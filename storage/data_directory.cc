#include "storage/data_directory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "storage/backup.h"

namespace tarry::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view directory_version = "1";
constexpr std::size_t max_properties_bytes = 64 << 10;

std::unexpected<Error> refused(Errc code, const std::string& path, std::string_view why) {
  return fail(code, fmt::format("data directory {} {}", path, why));
}

std::unexpected<Error> not_writable(const std::string& path, int error) {
  const bool full = error == ENOSPC;
  return refused(
      full ? Errc::no_space : Errc::io, path,
      fmt::format("cannot be written: {}; {}", std::strerror(error),
                  full ? "free space on the disk, or give another with --data"
                       : "give another with --data, or let the user that runs Tarry write to it"));
}

// `key=value` lines; what begins with # is a comment.
std::map<std::string, std::string, std::less<>> parse_properties(std::string_view text) {
  std::map<std::string, std::string, std::less<>> out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto equals = line.find('=');
    if (line.starts_with('#') || equals == std::string_view::npos) continue;
    out.insert_or_assign(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
  }
  return out;
}

std::string read_pid(int file) {
  char text[32];
  const auto got = ::pread(file, text, sizeof text, 0);
  std::string pid(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  pid.resize(std::min(pid.size(), pid.find_first_not_of("0123456789")));
  return pid.empty() ? "unknown" : pid;
}

}  // namespace

// Reads the state of a directory; changes nothing.
struct DataDirectory::Seen {
  bool whole = false;     // It has meta.properties.
  bool creating = false;  // It is being filled, or a crash came meanwhile.
  std::string cluster_id;
  std::int32_t node_id = 0;
};

Result<DataDirectory::Seen> DataDirectory::look(Disk& disk, const std::string& path, bool writes) {
  // First whether we may look into it at all: the errors below are about what is in it.
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0 && !writes)
    return refused(Errc::io, path, fmt::format("cannot be read: {}", std::strerror(errno)));
  if (directory < 0) return not_writable(path, errno);
  ::close(directory);
  if (writes && ::access(path.c_str(), W_OK | X_OK) != 0) return not_writable(path, errno);

  if (fs::exists(fs::path(path) / unfinished_backup_name)) {
    return refused(Errc::corrupt, path,
                   "is a backup that was not finished; remove it and give a complete one with "
                   "--data; nothing was changed");
  }
  Seen seen;
  seen.creating = fs::exists(path + "/.creating");
  const auto text = read_file(disk, path + "/meta.properties", max_properties_bytes);
  if (!text && text.error().code != Errc::not_found) return std::unexpected(text.error());
  if (!text) {
    for (const std::string_view part : {"journal", "logs", "db"}) {
      // While .creating is there nothing was ever accepted, so what else is there is no damage.
      if (seen.creating || !fs::exists(fs::path(path) / part)) continue;
      return refused(
          Errc::corrupt, path,
          fmt::format("holds {}/ but no meta.properties; put back a copy of the file, or "
                      "give an empty directory with --data; nothing was changed",
                      part));
    }
    return seen;
  }

  const auto properties = parse_properties(as_text(*text));
  const auto value = [&](std::string_view key) {
    const auto found = properties.find(key);
    return found == properties.end() ? std::string() : found->second;
  };
  const std::string version = value("version");
  if (version.empty()) {
    return refused(Errc::corrupt, path,
                   "has a damaged meta.properties, without a version; put back a copy of it; "
                   "nothing was changed");
  }
  if (version != directory_version) {
    return refused(Errc::unsupported, path,
                   fmt::format("has version '{}' in meta.properties; this Tarry reads version {}; "
                               "start the version of Tarry that wrote it; nothing was changed",
                               printable(version), directory_version));
  }
  seen.whole = true;
  seen.cluster_id = value("cluster.id");
  const std::string node = value("node.id");
  const char* const end = node.data() + node.size();
  const auto parsed = std::from_chars(node.data(), end, seen.node_id);
  if (seen.cluster_id.empty() || parsed.ec != std::errc() || parsed.ptr != end ||
      seen.node_id < 0) {
    return refused(Errc::corrupt, path,
                   fmt::format("has a damaged meta.properties (cluster.id '{}', node.id '{}'); put "
                               "back a copy of it; nothing was changed",
                               printable(seen.cluster_id), printable(node)));
  }
  return seen;
}

Result<> DataDirectory::must_be_whole(Disk& disk, const std::string& path, bool writes) {
  const auto seen = look(disk, path, writes);
  if (!seen) return std::unexpected(seen.error());
  if (seen->whole) return {};
  return refused(Errc::not_found, path, "has no meta.properties: it is no data directory");
}

DataDirectory::DataDirectory(Disk& disk, std::string path, int lock)
    : disk_(disk), path_(std::move(path)), lock_(lock) {}

DataDirectory::DataDirectory(DataDirectory&& other) noexcept
    : disk_(other.disk_),
      path_(other.path_),
      lock_(std::exchange(other.lock_, -1)),
      is_new_(other.is_new_),
      cluster_id_(std::move(other.cluster_id_)),
      node_id_(other.node_id_),
      identity_(std::exchange(other.identity_, -1)) {}

DataDirectory::~DataDirectory() {
  if (identity_ >= 0) ::close(identity_);
  if (lock_ >= 0) ::close(lock_);
}

Result<DataDirectory> DataDirectory::open(Disk& disk, const std::string& path, Random& random) {
  std::error_code failed;
  const std::string absolute = fs::absolute(path, failed).lexically_normal().string();
  const std::string directory = absolute.size() > 1 && absolute.ends_with('/')
                                    ? absolute.substr(0, absolute.size() - 1)
                                    : absolute;

  if (!fs::exists(directory, failed)) {
    const fs::path parent = fs::path(directory).parent_path();
    fs::create_directories(parent, failed);
    if (failed) return not_writable(directory, failed.value());
    // Another process may have made it meanwhile; the lock decides whose it is.
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
      return not_writable(directory, errno);
    if (const auto synced = disk.sync_directory(parent.string()); !synced)
      return std::unexpected(synced.error());
  }

  // Twice: what is refused is left without so much as a lock file, and what was being made by
  // somebody else until now is looked at again.
  if (const auto seen = look(disk, directory, true); !seen) return std::unexpected(seen.error());
  const int lock = ::open((directory + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return not_writable(directory, errno);
  DataDirectory out(disk, directory, lock);
  // The kernel releases the lock when the process dies, so a lock file that stays is no obstacle.
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return not_writable(directory, errno);
    return refused(Errc::in_use, directory,
                   fmt::format("is in use by the broker with pid {}; stop it, or give another "
                               "directory with --data",
                               read_pid(lock)));
  }
  const auto seen = look(disk, directory, true);
  if (!seen) return std::unexpected(seen.error());
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock, 0) != 0 ||
      ::pwrite(lock, pid.data(), pid.size(), 0) != static_cast<::ssize_t>(pid.size()))
    return not_writable(directory, errno);

  if (const auto entered = out.enter(*seen, random); !entered)
    return std::unexpected(entered.error());
  return out;
}

Result<> DataDirectory::enter(const Seen& seen, Random& random) {
  if (seen.whole) {
    cluster_id_ = seen.cluster_id;
    node_id_ = seen.node_id;
    if (auto held = hold_identity(); !held) return held;
    // A crash came between meta.properties and the end of created().
    return seen.creating ? disk_.remove(path_ + "/.creating") : Result<>();
  }
  // Before anything else is made: without it what a crash leaves would look like damage.
  if (!seen.creating) {
    if (auto marked = replace_file(disk_, path_ + "/.creating", {}); !marked) return marked;
  }
  is_new_ = true;
  cluster_id_ = random.topic_id().text();
  node_id_ = 1;
  return {};
}

Result<> DataDirectory::created() {
  const std::string text = fmt::format(
      "# The identity of this data directory.  Written by Tarry; do not change it.\n"
      "version={}\ncluster.id={}\nnode.id={}\n",
      directory_version, cluster_id_, node_id_);
  // In this order: a crash in between leaves both files, and enter() takes that for a whole
  // directory.
  if (auto written = replace_file(disk_, path_ + "/meta.properties", as_bytes(text)); !written)
    return written;
  is_new_ = false;
  if (auto held = hold_identity(); !held) return held;
  return disk_.remove(path_ + "/.creating");
}

Result<> DataDirectory::hold_identity() {
  identity_ = ::open((path_ + "/meta.properties").c_str(), O_RDONLY | O_CLOEXEC);
  if (identity_ >= 0) return {};
  return refused(
      Errc::io, path_,
      fmt::format("has a meta.properties that cannot be read: {}", std::strerror(errno)));
}

// By both files: `rm -r DIR/*` leaves .lock, and a copy that was put there has a .lock only if it
// is that of another directory.
Result<> DataDirectory::check_in_place() const {
  for (const auto& [name, held] : {std::pair{".lock", lock_}, {"meta.properties", identity_}}) {
    struct stat ours {
    }, found{};
    if (held < 0 || ::fstat(held, &ours) != 0) continue;
    if (::stat(fmt::format("{}/{}", path_, name).c_str(), &found) != 0) {
      // Any other error says nothing about whose directory it is.
      if (errno != ENOENT && errno != ENOTDIR) continue;
      return refused(Errc::not_found, path_, fmt::format("was removed: {} is not there", name));
    }
    if (ours.st_dev != found.st_dev || ours.st_ino != found.st_ino) {
      return refused(Errc::not_found, path_,
                     fmt::format("was replaced: {} is another file now", name));
    }
  }
  return {};
}

}  // namespace tarry::storage
