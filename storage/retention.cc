#include "storage/retention.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/core.h>

namespace tarry::storage {
namespace {

using std::chrono::milliseconds;

// A reason that holds back an old segment passes within this time, or not at all.
constexpr milliseconds ask_again = std::chrono::minutes(1);

// The longest name of a file or directory that file systems take.
constexpr std::size_t max_name_bytes = 255;

constexpr std::string_view delete_suffix = "-delete";

// More than there are threads that write logs, so that those of two directories seldom meet.
constexpr std::size_t held_directories = 256;

// When the youngest record of the segment has outlived `retention`; timestamps are clients' and
// may be anything.
WallTime expiry(const SegmentState& segment, milliseconds retention) {
  const std::int64_t youngest = std::max(segment.max_timestamp, to_ms(segment.last_append));
  std::int64_t at = 0;
  if (__builtin_add_overflow(youngest, retention.count(), &at))
    at = std::numeric_limits<std::int64_t>::max();
  return from_ms(at);
}

Result<> remove_if_there(Disk& disk, const std::string& path) {
  auto removed = disk.remove(path);
  if (!removed && removed.error().code == Errc::not_found) return {};
  return removed;
}

// Somebody else may be at it: a topic's own removal, and whoever finds what it has left of it.
Result<> remove_with_files(Disk& disk, const std::string& directory) {
  const auto entries = disk.list(directory);
  if (!entries && entries.error().code == Errc::not_found) return {};
  if (!entries) return std::unexpected(entries.error());
  for (const auto& entry : *entries) {
    if (auto removed = remove_if_there(disk, directory + "/" + entry.name); !removed)
      return removed;
  }
  auto removed = disk.remove_directory(directory);
  if (!removed && removed.error().code == Errc::not_found) return {};
  return removed;
}

}  // namespace

RetentionDecision decide_retention(std::span<const SegmentState> segments, const LogConfig& config,
                                   WallTime now, Offset start_offset, Offset high_watermark,
                                   std::uint64_t unflushed_bytes) {
  const bool by_time = config.cleanup_delete && config.retention_ms >= milliseconds(0);
  const bool by_bytes = config.cleanup_delete && config.retention_bytes >= 0;
  std::uint64_t total = unflushed_bytes;
  for (const auto& segment : segments) total += segment.bytes;

  const auto too_old = [&](const SegmentState& segment) {
    return by_time && expiry(segment, config.retention_ms) < now;
  };
  const auto too_many = [&](const SegmentState& segment) {
    return by_bytes && total - segment.bytes >= static_cast<std::uint64_t>(config.retention_bytes);
  };

  RetentionDecision decision;
  const std::size_t closed = segments.size() - 1;
  for (; decision.segments < closed; ++decision.segments) {
    const auto& segment = segments[decision.segments];
    const Offset end = segments[decision.segments + 1].base;
    if (end > high_watermark) break;
    if (end > start_offset && !too_old(segment) && !too_many(segment)) break;
    total -= segment.bytes;
  }

  const auto& active = segments.back();
  if (decision.segments == closed && !active.empty() && active.next <= high_watermark) {
    decision.close_active = active.next <= start_offset || too_old(active);
  }

  const auto& first_kept = segments[decision.segments];
  if (by_time && !decision.close_active && !first_kept.empty()) {
    WallTime at = expiry(first_kept, config.retention_ms);
    // too_old() holds only for what is older than the retention, not for what is just as old.
    if (at < WallTime::max()) at += milliseconds(1);
    decision.next = at > now ? at : now + ask_again;
  }
  return decision;
}

SegmentRemoval::SegmentRemoval(Disk& disk, std::string directory, const TopicId& topic,
                               std::vector<Offset> bases, std::optional<Offset> create)
    : disk_(&disk),
      directory_(std::move(directory)),
      topic_(topic),
      bases_(std::move(bases)),
      create_(create) {}

Result<> SegmentRemoval::run() {
  const auto held = hold_log_directory(directory_);
  const auto is_ours = is_log_of(*disk_, directory_, topic_);
  if (!is_ours) return std::unexpected(is_ours.error());
  if (!*is_ours) return {};
  if (create_) {
    auto file = disk_->open(segment_path(directory_, *create_, ".log"),
                            {.write = true, .create = OpenOptions::Create::if_absent});
    if (!file) return std::unexpected(file.error());
    if (auto closed = (*file)->close(); !closed) return closed;
  }
  // The name of the segment that is now the first must outlive any crash: without it the log
  // would begin at 0 again.
  if (auto synced = disk_->sync_directory(directory_); !synced) return synced;

  // From the front, so that what a crash leaves has no hole; and durable before the bytes go.
  for (const Offset base : bases_) {
    // The .log goes first: an index without its .log is known as a leftover when the log is opened.
    for (const char* suffix : {".log", ".index", ".timeindex"}) {
      const auto path = segment_path(directory_, base, suffix);
      const auto renamed = disk_->rename(path, path + ".deleted");
      if (!renamed && renamed.error().code == Errc::not_found) continue;
      if (!renamed) return renamed;
    }
  }
  if (auto synced = disk_->sync_directory(directory_); !synced) return synced;
  for (const Offset base : bases_) {
    for (const char* suffix : {".log.deleted", ".index.deleted", ".timeindex.deleted"}) {
      if (auto removed = remove_if_there(*disk_, segment_path(directory_, base, suffix)); !removed)
        return removed;
    }
  }
  return {};
}

LogRemoval::LogRemoval(Disk& disk, std::string directory, const TopicId& topic)
    : disk_(&disk), directory_(std::move(directory)), topic_(topic) {
  const auto parent = directory_of(directory_);
  const auto slash = directory_.rfind('/');
  std::string name = slash == std::string::npos ? directory_ : directory_.substr(slash + 1);
  const std::string suffix = fmt::format(".{}{}", topic.text(), delete_suffix);
  // Both ends matter: the id keeps names apart, the partition stands at the end of the rest.
  const auto room = max_name_bytes - suffix.size();
  if (name.size() > room) name = name.substr(name.size() - room);
  renamed_ = parent + "/" + name + suffix;
}

Result<std::optional<TopicId>> topic_of_log(Disk& disk, const std::string& directory) {
  constexpr std::string_view key = "topic_id: ";
  const auto path = directory + "/partition.metadata";
  const auto bytes = read_file(disk, path, 4096);
  if (!bytes && bytes.error().code == Errc::not_found) return std::nullopt;
  if (!bytes) return std::unexpected(bytes.error());
  const auto text = as_text(*bytes);
  const auto at = text.find(key);
  const auto value = at == text.npos ? std::string_view{} : text.substr(at + key.size());
  const auto id = TopicId::parse(value.substr(0, value.find_first_of("\r\n")));
  if (!id) return fail(Errc::corrupt, fmt::format("{}: names no topic id", path));
  return id;
}

Result<bool> is_log_of(Disk& disk, const std::string& directory, const TopicId& topic) {
  const auto whose = topic_of_log(disk, directory);
  // A directory that names no topic is not another topic's: the next start reports it.
  if (!whose && whose.error().code == Errc::corrupt) return true;
  if (!whose) return std::unexpected(whose.error());
  return !*whose || **whose == topic;
}

std::unique_lock<std::mutex> hold_log_directory(const std::string& directory) {
  static std::array<std::mutex, held_directories> held;
  return std::unique_lock(held[std::hash<std::string>{}(directory) % held.size()]);
}

Result<> LogRemoval::run() {
  {
    // Looking whose it is and renaming it are one: in between, another thread might put the log of
    // a topic with the same name there.
    const auto held = hold_log_directory(directory_);
    const auto whose = topic_of_log(*disk_, directory_);
    if (!whose) return std::unexpected(whose.error());
    if (*whose && **whose == topic_) {
      if (auto renamed = disk_->rename(directory_, renamed_); !renamed) return renamed;
      // Before a topic of this name may be created again.
      if (auto synced = disk_->sync_directory(directory_of(directory_)); !synced) return synced;
    } else {
      // Never created, or another topic's; or this ran before and was cut short after the rename.
      const auto left = disk_->list(renamed_);
      if (!left && left.error().code == Errc::not_found) return {};
    }
  }
  return remove_with_files(*disk_, renamed_);
}

Result<std::size_t> remove_deleted_logs(Disk& disk, const std::string& logs_directory) {
  const auto entries = disk.list(logs_directory);
  if (!entries && entries.error().code == Errc::not_found) return std::size_t{0};
  if (!entries) return std::unexpected(entries.error());
  std::size_t removed = 0;
  for (const auto& entry : *entries) {
    if (!entry.is_directory || !entry.name.ends_with(delete_suffix)) continue;
    // A topic may be called so: its directories end in -PARTITION, ours have a dot and an id.
    const auto rest =
        std::string_view(entry.name).substr(0, entry.name.size() - delete_suffix.size());
    const auto dot = rest.rfind('.');
    if (dot == std::string_view::npos || !TopicId::parse(rest.substr(dot + 1))) continue;
    if (auto done = remove_with_files(disk, logs_directory + "/" + entry.name); !done)
      return std::unexpected(done.error());
    ++removed;
  }
  return removed;
}

}  // namespace tarry::storage
