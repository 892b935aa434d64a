#include "cli/kafka_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/ids.h"
#include "cli/io/text.h"

namespace tarry::cli {
namespace {

constexpr std::string_view offsets_topic = "__consumer_offsets";
constexpr std::array<std::string_view, 4> internal_topics{
    offsets_topic, "__transaction_state", "__cluster_metadata", "__share_group_state"};

// More than any list of partitions needs in a message.
constexpr std::size_t max_partitions_told = 10;

constexpr std::size_t max_metadata_bytes = 4096;

// Kafka's offsets.topic.num.partitions, which hardly anybody sets.
constexpr std::int64_t default_offsets_partitions = 50;

struct FoundPartition {
  std::string directory;
  std::optional<Offset> start;
};
struct FoundTopic {
  std::map<PartitionIndex, FoundPartition> partitions;
  std::set<std::string> ids;
  bool is_compacted = false;
  std::string problem;
};

// Kafka locks the file .lock of each directory while it runs, and does not start while we have it.
// Null where no Kafka has ever been.
Result<std::shared_ptr<void>> lock_out_kafka(const std::string& directory) {
  const auto path = directory + "/.lock";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return nullptr;
  // A lock that cannot be looked at may be held.
  if (file < 0) return fail(Errc::io, fmt::format("{}: {}", path, std::strerror(errno)));
  // The descriptor closes with it.
  std::shared_ptr<void> held(nullptr, [file](void*) { ::close(file); });
  struct ::flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file, F_SETLK, &lock) == 0) return held;
  lock.l_type = F_WRLCK;
  const bool known = ::fcntl(file, F_GETLK, &lock) == 0;
  // A file system without locks is no reason not to read.
  if (!known || lock.l_type == F_UNLCK) return held;
  return fail(Errc::in_use,
              fmt::format("{} is in use by the Kafka broker with pid {}: stop it first", directory,
                          lock.l_pid));
}

std::string kafka_id_of(storage::Disk& disk, const std::string& directory) {
  const auto bytes =
      storage::read_file(disk, directory + "/partition.metadata", max_metadata_bytes);
  if (!bytes) return {};
  constexpr std::string_view key = "topic_id: ";
  const auto text = as_text(*bytes);
  const auto at = text.find(key);
  if (at == text.npos) return {};
  const auto rest = text.substr(at + key.size());
  return std::string(rest.substr(0, rest.find_first_of("\r\n")));
}

Result<> look_into(storage::Disk& disk, const std::string& directory,
                   std::map<std::string, FoundTopic>& topics) {
  const auto entries = disk.list(directory);
  if (!entries) return std::unexpected(entries.error());
  const auto starts =
      storage::read_offset_checkpoint(disk, directory + "/log-start-offset-checkpoint");
  if (!starts) return std::unexpected(starts.error());
  const auto cleaned =
      storage::read_offset_checkpoint(disk, directory + "/cleaner-offset-checkpoint");
  if (!cleaned) return std::unexpected(cleaned.error());

  bool any = false;
  for (const auto& entry : *entries) {
    const auto name = storage::parse_partition_directory(entry.name);
    if (!entry.is_directory || !name) continue;
    any = true;
    auto& topic = topics[name->topic];
    const auto path = directory + "/" + entry.name;
    const auto [found, is_new] = topic.partitions.try_emplace(name->partition);
    if (!is_new) {
      topic.problem = fmt::format("partition {} is in {} and in {}: give one of its copies",
                                  name->partition, found->second.directory, path);
    }
    found->second.directory = path;
    for (const auto& start : *starts)
      if (start.topic == name->topic && start.partition == name->partition)
        found->second.start = start.offset;
    if (auto id = kafka_id_of(disk, path); !id.empty()) topic.ids.insert(std::move(id));
  }
  for (const auto& each : *cleaned)
    if (const auto found = topics.find(each.topic); found != topics.end())
      found->second.is_compacted = true;
  if (!any) {
    return fail(Errc::not_found, fmt::format("{} has no partition of a topic: it is not a log "
                                             "directory of Kafka (log.dirs)",
                                             directory));
  }
  return {};
}

std::int64_t count_by_last(const FoundTopic& topic) {
  return std::int64_t{topic.partitions.rbegin()->first} + 1;
}

// Those below `partitions`; empty when all are there.
std::string missing_partitions(const FoundTopic& topic, std::int64_t partitions) {
  std::string missing;
  std::size_t count = 0;
  // A name may give any number, so it does not count all that are missing.
  for (std::int64_t index = 0; index < partitions && count <= max_partitions_told; ++index) {
    if (topic.partitions.contains(static_cast<PartitionIndex>(index))) continue;
    if (++count <= max_partitions_told)
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", index);
  }
  if (count == 0) return {};
  return fmt::format(
      "partitions {}{} are in none of the directories: give the log directories of "
      "all brokers that have them",
      missing, count > max_partitions_told ? " ..." : "");
}

// The problem with the directories of one topic; empty: there is none.
std::string directory_problem_of(const FoundTopic& topic, std::int64_t partitions) {
  if (!topic.problem.empty()) return topic.problem;
  if (topic.ids.size() > 1) {
    return fmt::format("its partitions belong to several topics, with the ids {} and {}",
                       cell(*topic.ids.begin()), cell(*topic.ids.rbegin()));
  }
  return missing_partitions(topic, partitions);
}

// The same for __consumer_offsets, whose last partitions may be missing too.
std::string offsets_problem_of(const FoundTopic& topic, std::optional<PartitionIndex> wanted) {
  const auto there = count_by_last(topic);
  if (wanted && there > *wanted) {
    return fmt::format("there is a partition {}, but --offsets-partitions gives the number as {}",
                       there - 1, *wanted);
  }
  auto problem =
      directory_problem_of(topic, wanted ? *wanted : std::max(there, default_offsets_partitions));
  if (!wanted && there < default_offsets_partitions && directory_problem_of(topic, there).empty()) {
    problem += fmt::format(
        "; if Kafka has only {0} (offsets.topic.num.partitions), give --offsets-partitions {0}",
        there);
  }
  return problem;
}

}  // namespace

Result<KafkaSource> KafkaSource::open(storage::Disk& disk,
                                      const std::vector<std::string>& directories,
                                      std::optional<PartitionIndex> offsets_partitions) {
  std::map<std::string, FoundTopic> topics;
  KafkaSource out;
  for (const auto& directory : directories) {
    auto lock = lock_out_kafka(directory);
    if (!lock) return std::unexpected(lock.error());
    out.locks.push_back(std::move(*lock));
    if (auto looked = look_into(disk, directory, topics); !looked)
      return std::unexpected(looked.error());
  }
  for (auto& [name, found] : topics) {
    std::vector<std::unique_ptr<storage::KafkaLog>> logs;
    for (const auto& [index, partition] : found.partitions)
      logs.push_back(
          std::make_unique<storage::KafkaLog>(disk, partition.directory, partition.start));
    if (std::ranges::find(internal_topics, name) != internal_topics.end()) {
      out.internal.push_back(name);
      if (name == offsets_topic) {
        out.offsets = std::move(logs);
        out.offsets_problem = offsets_problem_of(found, offsets_partitions);
      }
      continue;
    }
    out.topics.push_back({name, found.ids.empty() ? std::string() : *found.ids.begin(),
                          std::move(logs), found.is_compacted,
                          directory_problem_of(found, count_by_last(found))});
  }
  return out;
}

}  // namespace tarry::cli
