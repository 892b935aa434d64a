#include "storage/log_directory.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/log.h"

namespace tarry::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view owner_file_name = "owner.properties";
constexpr std::string_view directory_id_name = "directory.id";
constexpr std::size_t max_owner_bytes = 64 << 10;
constexpr std::string_view advice_to_brokers =
    "stop it, or give another directory with log.dirs; nothing was changed";

struct LogOwner {
  std::string id;    // Empty in a damaged file.
  std::string data;  // Its place at its last start.
};

// Without symbolic links, as far as it is there.
fs::path real_directory(const std::string& path) {
  std::error_code failed;
  const auto absolute = fs::absolute(path, failed).lexically_normal();
  auto real = fs::weakly_canonical(absolute, failed);
  if (failed) real = absolute;
  return real.has_filename() ? real : real.parent_path();
}

std::string owner_line(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with(key) && line.substr(key.size()).starts_with('='))
      return std::string(line.substr(key.size() + 1));
  }
  return {};
}

Result<std::optional<LogOwner>> read_log_owner(Disk& disk, const fs::path& logs) {
  const auto text = read_file(disk, (logs / owner_file_name).string(), max_owner_bytes);
  if (!text && text.error().code == Errc::not_found) return std::nullopt;
  if (!text) return std::unexpected(text.error());
  return LogOwner{owner_line(as_text(*text), "directory.id"),
                  owner_line(as_text(*text), "data.directory")};
}

// Empty: it has none.
Result<std::string> read_directory_id(Disk& disk, const fs::path& data) {
  const auto text = read_file(disk, (data / directory_id_name).string(), max_owner_bytes);
  if (!text && text.error().code == Errc::not_found) return std::string();
  if (!text) return std::unexpected(text.error());
  const auto line = as_text(*text).substr(0, as_text(*text).find('\n'));
  // A damaged one counts as none.
  return TopicId::parse(line) ? std::string(line) : std::string();
}

// The original of a copy is where the segments' owner was at its last start.
bool has_original(Disk& disk, const LogOwner& owner, const fs::path& data) {
  if (owner.data.empty() || real_directory(owner.data) == data) return false;
  std::error_code failed;
  if (fs::equivalent(owner.data, data, failed) && !failed) return false;  // Mounted twice.
  const auto id = read_directory_id(disk, owner.data);
  return id && *id == owner.id;
}

Result<bool> has_partitions(Disk& disk, const fs::path& logs) {
  const auto entries = disk.list(logs.string());
  if (!entries && entries.error().code == Errc::not_found) return false;
  if (!entries) return std::unexpected(entries.error());
  return std::ranges::any_of(*entries, [](const DirectoryEntry& entry) {
    return entry.is_directory && entry.name != "lost+found";
  });
}

Result<> must_belong_to(Disk& disk, const fs::path& data, const fs::path& logs) {
  std::error_code failed;
  // Its lock is that of the data directory around it.
  if (logs.filename() == "logs" && fs::exists(logs.parent_path() / "meta.properties", failed)) {
    return fail(Errc::invalid,
                fmt::format("log.dirs={} has the segments of the data directory {}; give another "
                            "directory; nothing was changed",
                            logs.string(), logs.parent_path().string()));
  }
  const auto owner = read_log_owner(disk, logs);
  if (!owner) return std::unexpected(owner.error());
  if (!*owner) return {};
  const auto id = read_directory_id(disk, data);
  if (!id) return std::unexpected(id.error());
  if (!id->empty() && *id == (*owner)->id && !has_original(disk, **owner, data)) return {};
  const auto full = has_partitions(disk, logs);
  if (!full) return std::unexpected(full.error());
  if (!*full) return {};
  return fail(Errc::invalid,
              fmt::format("log.dirs={} has the segments of another data directory, {}; give "
                          "another directory, or, if these segments belong to {} from now on, "
                          "remove {}; nothing was changed",
                          logs.string(), printable((*owner)->data), data.string(),
                          (logs / owner_file_name).string()));
}

Result<> note_log_owner(Disk& disk, const fs::path& data, const fs::path& logs, Random& random) {
  auto id = read_directory_id(disk, data);
  if (!id) return std::unexpected(id.error());
  if (id->empty()) {
    *id = random.topic_id().text();
    const std::string line = *id + "\n";
    if (auto noted = replace_file(disk, (data / directory_id_name).string(), as_bytes(line));
        !noted)
      return noted;
  }
  const auto owner = read_log_owner(disk, logs);
  if (!owner) return std::unexpected(owner.error());
  if (*owner && (*owner)->id == *id && (*owner)->data == data.string()) return {};
  const std::string text = fmt::format(
      "# The data directory whose segments are here.  Written by Tarry; do not change it.\n"
      "directory.id={}\ndata.directory={}\n",
      *id, data.string());
  return replace_file(disk, (logs / owner_file_name).string(), as_bytes(text));
}

}  // namespace

bool is_within(std::string_view path, std::string_view directory) {
  if (!path.starts_with(directory)) return false;
  return path.size() == directory.size() || directory.ends_with('/') ||
         path[directory.size()] == '/';
}

Result<std::optional<DirectoryLock>> lock_log_directory(Disk& disk, const std::string& data,
                                                        const std::string& logs,
                                                        DirectoryLock::For use,
                                                        std::string_view advice) {
  const auto real_data = real_directory(data), real_logs = real_directory(logs);
  std::error_code failed;
  if (is_within(real_logs.native(), real_data.native()) || !fs::is_directory(real_logs, failed))
    return std::nullopt;
  // The process that has it is named first, and what is refused is left without a lock file.
  if (auto free = DirectoryLock::take(real_logs.string(), DirectoryLock::For::reading, advice,
                                      "log.dirs directory");
      !free)
    return std::unexpected(free.error());
  if (auto ours = must_belong_to(disk, real_data, real_logs); !ours)
    return std::unexpected(ours.error());
  auto lock = DirectoryLock::take(real_logs.string(), use, advice, "log.dirs directory");
  if (!lock) return std::unexpected(lock.error());
  // Another process may have had it until now.
  if (auto ours = must_belong_to(disk, real_data, real_logs); !ours)
    return std::unexpected(ours.error());
  return std::optional<DirectoryLock>(std::move(*lock));
}

Result<> check_log_directory(Disk& disk, const std::string& data, const std::string& logs) {
  const auto lock =
      lock_log_directory(disk, data, logs, DirectoryLock::For::reading, advice_to_brokers);
  if (!lock) return std::unexpected(lock.error());
  return {};
}

Result<std::optional<DirectoryLock>> take_log_directory(Disk& disk, const std::string& data,
                                                        const std::string& logs, Random& random) {
  const auto real_data = real_directory(data), real_logs = real_directory(logs);
  if (is_within(real_logs.native(), real_data.native())) return std::nullopt;
  if (auto made = disk.make_directories(real_logs.string()); !made)
    return std::unexpected(made.error());
  auto lock = lock_log_directory(disk, data, logs, DirectoryLock::For::writing, advice_to_brokers);
  if (!lock) return lock;
  // On a full disk the lock alone has to do, so that what is stored can be read; the next start
  // notes the owner.
  if (auto noted = note_log_owner(disk, real_data, real_logs, random);
      !noted && noted.error().code != Errc::no_space)
    return std::unexpected(noted.error());
  return lock;
}

}  // namespace tarry::storage
