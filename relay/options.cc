#include "relay/options.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "relay/kafka_cluster.h"
#include "relay/partition.h"

namespace tarry::relay {

Result<> check(const RelayOptions& options) {
  // Topics have it in their names.
  if (!is_topic_name(options.group) || options.group.size() > 100) {
    return fail(Errc::invalid,
                fmt::format("--group {}: a group has 1 to 100 of the characters A-Z a-z 0-9 . _ -",
                            printable(options.group)));
  }
  if (options.source.empty()) return fail(Errc::invalid, "--source: the pattern is empty");
  // Brackets would be taken literally, and no topic could have such a name.
  for (const char c : options.source) {
    if (c == '*' || c == '?' || is_topic_name(std::string("a") + c)) continue;
    return fail(Errc::invalid,
                fmt::format("--source {}: a pattern may have only *, ? and the characters of topic "
                            "names (A-Z a-z 0-9 . _ -), not {}",
                            printable(options.source), printable(std::string(1, c))));
  }
  if (!options.instance.empty() &&
      (!is_topic_name(options.instance) || options.instance.size() > 60)) {
    return fail(Errc::invalid,
                fmt::format("--instance {}: an id has 1 to 60 of the characters A-Z a-z 0-9 . _ -",
                            printable(options.instance)));
  }
  for (const auto& property : options.properties) {
    // A member that is closed would keep its partitions until its session ends.
    if (property.starts_with("group.instance.id="))
      return fail(Errc::invalid,
                  fmt::format("-X {}: the relay cannot be a static member of its group; give "
                              "--instance for a name",
                              printable(property)));
  }
  return {};
}

Result<> check_time_zones(const delay::TimeZones& zones) {
  if (!zones.empty()) return {};
  return fail(Errc::not_found,
              fmt::format("{} has no time zones, so this member would send recurring records with "
                          "x-cron-tz to NAME.invalid; install tzdata",
                          zones.directory()));
}

Result<DataDirectory> DataDirectory::open(const std::string& path, std::uint64_t random) {
  std::error_code wrong;
  // The name in the log and in /status has to hold wherever it is read.
  const auto absolute = std::filesystem::absolute(path, wrong).lexically_normal();
  std::filesystem::create_directories(absolute, wrong);
  if (wrong) return fail(Errc::io, fmt::format("--data {}: {}", printable(path), wrong.message()));
  const auto lock_path = absolute / "lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0)
    return fail(Errc::io, fmt::format("{}: {}", lock_path.string(), std::strerror(errno)));
  // Two members with one store would each take the rows of the other for its own.
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return fail(Errc::in_use,
                fmt::format("--data {}: another member uses it; give each member a directory",
                            absolute.string()));
  }
  DataDirectory directory(absolute.string(), {}, lock);
  const auto file = absolute / "instance";
  std::ifstream(file) >> directory.instance_;
  // An empty or torn file, as a crash may leave it, counts as none.
  if (!is_topic_name(directory.instance_)) {
    directory.instance_ = fmt::format("m{:08x}", random & 0xffff'ffff);
    std::ofstream out(file);
    out << directory.instance_ << '\n';
    if (!out.flush()) return fail(Errc::io, fmt::format("{}: cannot be written", file.string()));
  }
  return directory;
}

DataDirectory::DataDirectory(DataDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      instance_(std::move(other.instance_)),
      lock_(std::exchange(other.lock_, -1)) {}

DataDirectory::~DataDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace tarry::relay
