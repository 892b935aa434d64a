#include "broker/settings/topic_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/log.h"

namespace tarry::broker {
namespace {

constexpr std::int64_t max_long = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t max_int = std::numeric_limits<std::int32_t>::max();

std::unexpected<Error> not_allowed(std::string_view allowed) {
  return fail(Errc::invalid, std::string(allowed));
}

template <typename Number>
std::optional<Number> parse(std::string_view value) {
  Number parsed{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc{} || end != value.data() + value.size()) return std::nullopt;
  return parsed;
}

Result<std::int64_t> whole_number(std::string_view value, std::int64_t min, std::int64_t max) {
  const auto parsed = parse<std::int64_t>(value);
  if (!parsed || *parsed < min || *parsed > max)
    return not_allowed(min == max ? fmt::format("{}", min)
                                  : fmt::format("a whole number from {} to {}", min, max));
  return *parsed;
}

// A whole number between two bounds goes into the member.
template <auto Member, std::int64_t Least, std::int64_t Most>
Result<std::string> number(TopicConfig& config, std::string_view value) {
  const auto parsed = whole_number(value, Least, Most);
  if (!parsed) return std::unexpected(parsed.error());
  config.*Member = static_cast<std::remove_reference_t<decltype(config.*Member)>>(*parsed);
  return std::to_string(*parsed);
}

// One that is checked and has no effect.
template <std::int64_t Least>
Result<std::string> unused_number(TopicConfig&, std::string_view value) {
  const auto parsed = whole_number(value, Least, max_long);
  if (!parsed) return std::unexpected(parsed.error());
  return std::to_string(*parsed);
}

Result<std::string> unused_ratio(TopicConfig&, std::string_view value) {
  const auto parsed = parse<double>(value);
  // Written so that it refuses NaN too.
  if (!parsed || !(*parsed >= 0 && *parsed <= 1)) return not_allowed("a number from 0 to 1");
  return fmt::format("{}", *parsed);
}

// Like Kafka, does not look at the case: Python writes True.
Result<bool> flag(std::string_view value) {
  if (equals_ignoring_case(value, "true")) return true;
  if (equals_ignoring_case(value, "false")) return false;
  return not_allowed("true or false");
}

Result<std::string> delay_enable(TopicConfig& config, std::string_view value) {
  const auto parsed = flag(value);
  if (!parsed) return std::unexpected(parsed.error());
  config.delay_enable = *parsed;
  return *parsed ? "true" : "false";
}

Result<std::string> unclean_leader_election(TopicConfig&, std::string_view value) {
  const auto parsed = flag(value);
  if (!parsed) return std::unexpected(parsed.error());
  return *parsed ? "true" : "false";
}

Result<std::string> preallocate(TopicConfig&, std::string_view value) {
  const auto parsed = flag(value);
  if (!parsed || *parsed) return not_allowed("false (a segment grows as it is written)");
  return "false";
}

Result<std::string> remote_storage(TopicConfig&, std::string_view value) {
  const auto parsed = flag(value);
  if (!parsed || *parsed) return not_allowed("false (there is no remote storage)");
  return "false";
}

Result<std::string> timestamp_type(TopicConfig& config, std::string_view value) {
  if (value == "CreateTime") {
    config.timestamp_type = TimestampType::create_time;
  } else if (value == "LogAppendTime") {
    config.timestamp_type = TimestampType::log_append_time;
  } else {
    return not_allowed("CreateTime or LogAppendTime");
  }
  return std::string(value);
}

Result<std::string> delivered_timestamp(TopicConfig& config, std::string_view value) {
  if (value == "due") {
    config.delivered_timestamp = DeliveredTimestamp::due;
  } else if (value == "original") {
    config.delivered_timestamp = DeliveredTimestamp::original;
  } else if (value == "delivery") {
    config.delivered_timestamp = DeliveredTimestamp::delivery;
  } else {
    return not_allowed("due, original or delivery");
  }
  return std::string(value);
}

Result<std::string> missed_runs(TopicConfig& config, std::string_view value) {
  const auto runs = delay::parse_missed_runs(value);
  if (!runs) return not_allowed("once, all or skip");
  config.missed_runs = *runs;
  return std::string(value);
}

Result<std::string> delay_invalid(TopicConfig& config, std::string_view value) {
  if (value == "refuse") {
    config.delay_invalid = InvalidRecords::refuse;
  } else if (value == "dead-letter") {
    config.delay_invalid = InvalidRecords::dead_letter;
  } else {
    return not_allowed("refuse or dead-letter");
  }
  return std::string(value);
}

Result<std::string> durability(TopicConfig& config, std::string_view value) {
  if (value == "fsync") {
    config.durability = Durability::fsync;
  } else if (value == "os") {
    config.durability = Durability::os;
  } else {
    return not_allowed("fsync or os");
  }
  return std::string(value);
}

// Compaction is not there, so a topic that asks for it is refused instead of being kept for ever.
Result<std::string> cleanup_policy(TopicConfig&, std::string_view value) {
  if (value != "delete") return not_allowed("delete (compaction is not supported)");
  return std::string(value);
}

Result<std::string> compression_type(TopicConfig& config, std::string_view value) {
  using records::Codec;
  config.codec = std::nullopt;
  if (value == "producer") return std::string(value);
  for (const auto codec : {Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd}) {
    if (value == records::name_of(codec)) config.codec = codec;
  }
  if (value == "uncompressed") config.codec = Codec::none;
  if (!config.codec) return not_allowed("producer, uncompressed, gzip, snappy, lz4 or zstd");
  return std::string(value);
}

constexpr std::string_view no_compaction = "No effect: Tarry does not compact logs yet.";
constexpr std::string_view no_flush =
    "No effect: a record is synced before it is acknowledged. With tarry.durability=os it is not, "
    "and only the default is allowed here.";
constexpr std::string_view never_flush = "9223372036854775807";

// One broker: there is nobody else to be in sync with.
constexpr std::array keys{
    TopicConfigKey{"cleanup.policy", "log.cleanup.policy", "delete", ConfigType::list,
                   "The broker deletes old segments.", cleanup_policy},
    TopicConfigKey{"compression.type", "compression.type", "producer", ConfigType::string,
                   "The codec of stored batches, including delivered records; a batch that arrives "
                   "in another codec is recompressed. producer: batches stay as they were sent.",
                   compression_type},
    TopicConfigKey{"delete.retention.ms", "log.cleaner.delete.retention.ms", "86400000",
                   ConfigType::long_, no_compaction, unused_number<0>},
    TopicConfigKey{
        "file.delete.delay.ms", "log.segment.delete.delay.ms", "60000", ConfigType::long_,
        "No effect: the files of a deleted segment are removed at once.", unused_number<0>},
    TopicConfigKey{"flush.messages", "log.flush.interval.messages", never_flush, ConfigType::long_,
                   no_flush, unused_number<1>},
    TopicConfigKey{"flush.ms", "log.flush.interval.ms", never_flush, ConfigType::long_, no_flush,
                   unused_number<0>},
    TopicConfigKey{"index.interval.bytes", "log.index.interval.bytes", "4096", ConfigType::integer,
                   "The number of log bytes between two entries of the offset index.",
                   number<&TopicConfig::index_interval_bytes, 0, max_int>},
    TopicConfigKey{"max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms",
                   "9223372036854775807", ConfigType::long_, no_compaction, unused_number<1>},
    TopicConfigKey{
        "max.message.bytes", "message.max.bytes", "1048588", ConfigType::integer,
        "The largest batch that the broker accepts, compressed as the producer sends it.",
        number<&TopicConfig::max_message_bytes, 0, max_int>},
    TopicConfigKey{"message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms",
                   "3600000", ConfigType::long_,
                   "How far a record's timestamp may lie in the future.",
                   number<&TopicConfig::timestamp_after_max_ms, 0, max_long>},
    TopicConfigKey{"message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms",
                   "9223372036854775807", ConfigType::long_,
                   "How far a record's timestamp may lie in the past.",
                   number<&TopicConfig::timestamp_before_max_ms, 0, max_long>},
    TopicConfigKey{
        "message.timestamp.type", "log.message.timestamp.type", "CreateTime", ConfigType::string,
        "The timestamp of a record: the one from its producer (CreateTime) or the time of its "
        "append (LogAppendTime).",
        timestamp_type},
    TopicConfigKey{"min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", "0.5",
                   ConfigType::double_, no_compaction, unused_ratio},
    TopicConfigKey{"min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "0",
                   ConfigType::long_, no_compaction, unused_number<0>},
    TopicConfigKey{"min.insync.replicas", "min.insync.replicas", "1", ConfigType::integer,
                   "Always 1: there is one broker, so there is one replica.",
                   number<&TopicConfig::min_insync_replicas, 1, 1>},
    TopicConfigKey{"preallocate", "log.preallocate", "false", ConfigType::boolean,
                   "The broker does not allocate a segment's space in advance; the file grows as "
                   "it is written.",
                   preallocate},
    TopicConfigKey{"remote.storage.enable", "", "false", ConfigType::boolean,
                   "There is no remote storage.", remote_storage},
    TopicConfigKey{"retention.bytes", "log.retention.bytes", "-1", ConfigType::long_,
                   "The number of bytes of a partition that the broker keeps; -1: no limit.",
                   number<&TopicConfig::retention_bytes, -1, max_long>},
    TopicConfigKey{"retention.ms", "log.retention.ms", "604800000", ConfigType::long_,
                   "How long records are kept after their append; -1: for ever.",
                   number<&TopicConfig::retention_ms, -1, max_long>},
    TopicConfigKey{"segment.bytes", "log.segment.bytes", "1073741824", ConfigType::integer,
                   "How large a segment file may grow before the next one begins.",
                   number<&TopicConfig::segment_bytes, 14, max_int>},
    TopicConfigKey{"segment.index.bytes", "log.index.size.max.bytes", "10485760",
                   ConfigType::integer,
                   "How large a segment's offset index may grow before the next segment begins.",
                   number<&TopicConfig::segment_index_bytes, 4, max_int>},
    TopicConfigKey{"segment.jitter.ms", "log.roll.jitter.ms", "0", ConfigType::long_,
                   "No effect: a segment is rolled at exactly segment.ms, without jitter.",
                   unused_number<0>},
    TopicConfigKey{"segment.ms", "log.roll.ms", "604800000", ConfigType::long_,
                   "How old a segment may grow before the next one begins.",
                   number<&TopicConfig::segment_ms, 1, max_long>},
    TopicConfigKey{"tarry.delay.enable", "tarry.delay.enable", "true", ConfigType::boolean,
                   "Whether the broker obeys the headers that schedule a record.", delay_enable},
    TopicConfigKey{"tarry.delay.invalid", "tarry.delay.invalid", "refuse", ConfigType::string,
                   "How a record with invalid scheduling headers is treated. refuse: its whole "
                   "batch is refused; dead-letter: the record goes to the topic NAME.invalid, and "
                   "the rest is accepted.",
                   delay_invalid},
    TopicConfigKey{"tarry.delay.max.ms", "tarry.delay.max.ms", "-1", ConfigType::long_,
                   "The longest delay that the broker accepts; -1: no limit.",
                   number<&TopicConfig::delay_max_ms, -1, max_long>},
    TopicConfigKey{"tarry.delay.max.pending", "tarry.delay.max.pending", "-1", ConfigType::long_,
                   "The number of the topic's pending records above which further delayed records "
                   "are refused, so that their producers try again later; -1: no limit.",
                   number<&TopicConfig::delay_max_pending, -1, max_long>},
    TopicConfigKey{
        "tarry.delay.missed", "tarry.delay.missed", "once", ConfigType::string,
        "Which runs of a recurring record are delivered if they were missed while the broker was "
        "down. once: the latest; all: all of them, up to tarry.delay.missed.max; skip: none.",
        missed_runs},
    TopicConfigKey{"tarry.delay.missed.max", "tarry.delay.missed.max", "100", ConfigType::integer,
                   "With tarry.delay.missed=all: how many of the latest missed runs of a record "
                   "are delivered.",
                   number<&TopicConfig::missed_max, 1, delay::MissedPolicy::max_limit>},
    TopicConfigKey{"tarry.delay.ms", "tarry.delay.ms", "0", ConfigType::long_,
                   "The delay of a record without a header that schedules it.",
                   number<&TopicConfig::delay_ms, 0, max_long>},
    TopicConfigKey{"tarry.delay.timestamp", "tarry.delay.timestamp", "due", ConfigType::string,
                   "The timestamp of a delivered record: its due time, the producer's timestamp, "
                   "or the time of delivery.",
                   delivered_timestamp},
    TopicConfigKey{"tarry.durability", "tarry.durability", "fsync", ConfigType::string,
                   "fsync: an acknowledged record survives a power cut; os: it survives the end of "
                   "the process, but not a power cut.",
                   durability},
    TopicConfigKey{"unclean.leader.election.enable", "unclean.leader.election.enable", "false",
                   ConfigType::boolean, "No effect: there is one broker, so there is no election.",
                   unclean_leader_election},
};

}  // namespace

std::span<const TopicConfigKey> topic_config_keys() {
  return keys;
}

const TopicConfigKey* find_topic_config_key(std::string_view name) {
  for (const auto& key : keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

namespace {

Result<std::string> set_value(TopicConfig& config, std::string_view name, std::string_view value) {
  const auto* key = find_topic_config_key(name);
  if (key == nullptr)
    return fail(Errc::invalid, fmt::format("Unknown topic config name: {}", printable(name)));
  auto set = key->set(config, value);
  if (!set) {
    return fail(Errc::invalid, fmt::format("Invalid value {} for configuration {}: expected {}",
                                           printable(value), name, set.error().message));
  }
  return set;
}

}  // namespace

Result<TopicConfig> make_topic_config(const storage::Configs& defaults,
                                      const storage::Configs& own) {
  TopicConfig config;
  for (const auto* layer : {&defaults, &own}) {
    for (const auto& [name, value] : *layer) {
      if (const auto set = set_value(config, name, value); !set)
        return std::unexpected(set.error());
    }
  }
  return config;
}

Result<storage::Configs> settle_topic_configs(const storage::Configs& defaults,
                                              const storage::Configs& own) {
  auto config = make_topic_config(defaults, {});
  if (!config) return std::unexpected(config.error());
  storage::Configs settled;
  for (const auto& [name, value] : own) {
    if (value.size() > max_topic_config_bytes) {
      return fail(
          Errc::invalid,
          fmt::format("Invalid value {}... for configuration {}: it has {} bytes; the limit is {}",
                      printable(value, 32), printable(name), value.size(), max_topic_config_bytes));
    }
    // Stored in the one form that set_value() gives it, however the client wrote it.
    auto set = set_value(*config, name, value);
    if (!set) return std::unexpected(set.error());
    settled.emplace(name, std::move(*set));
  }
  // When all values are known, because tarry.durability may be one of them.
  for (const char* name : {"flush.messages", "flush.ms"}) {
    const auto found = settled.find(name);
    if (found == settled.end()) continue;
    if (auto why = flush_conflict(config->durability, name, found->second); !why.empty())
      return fail(Errc::invalid, std::move(why));
  }
  return settled;
}

std::string flush_conflict(Durability durability, std::string_view key, std::string_view value) {
  if (durability == Durability::fsync || value == never_flush) return {};
  return fmt::format(
      "Invalid value {} for configuration {}: with tarry.durability=os nothing is synced by number "
      "or age; set tarry.durability=fsync, which syncs before every acknowledgement",
      value, key);
}

}  // namespace tarry::broker
