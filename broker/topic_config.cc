#include "broker/topic_config.h"

#include <array>
#include <charconv>
#include <limits>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::broker {
namespace {

constexpr std::int64_t max_long = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t max_int = std::numeric_limits<std::int32_t>::max();

Result<> refuse(std::string_view allowed) {
  return fail(Errc::invalid, std::string(allowed));
}

// A whole number between two bounds goes into the member.
template <auto Member, std::int64_t Least, std::int64_t Most>
Result<> number(TopicConfig& config, std::string_view value) {
  std::int64_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc{} || end != value.data() + value.size() || parsed < Least ||
      parsed > Most) {
    return fail(Errc::invalid, fmt::format("a whole number from {} to {}", Least, Most));
  }
  config.*Member = static_cast<std::remove_reference_t<decltype(config.*Member)>>(parsed);
  return {};
}

Result<> delay_enable(TopicConfig& config, std::string_view value) {
  if (value != "true" && value != "false") return refuse("true or false");
  config.delay_enable = value == "true";
  return {};
}

Result<> timestamp_type(TopicConfig& config, std::string_view value) {
  if (value == "CreateTime") {
    config.timestamp_type = TimestampType::create_time;
  } else if (value == "LogAppendTime") {
    config.timestamp_type = TimestampType::log_append_time;
  } else {
    return refuse("CreateTime or LogAppendTime");
  }
  return {};
}

Result<> delivered_timestamp(TopicConfig& config, std::string_view value) {
  if (value == "due") {
    config.delivered_timestamp = DeliveredTimestamp::due;
  } else if (value == "original") {
    config.delivered_timestamp = DeliveredTimestamp::original;
  } else if (value == "delivery") {
    config.delivered_timestamp = DeliveredTimestamp::delivery;
  } else {
    return refuse("due, original or delivery");
  }
  return {};
}

Result<> durability(TopicConfig& config, std::string_view value) {
  if (value == "fsync") {
    config.durability = Durability::fsync;
  } else if (value == "os") {
    config.durability = Durability::os;
  } else {
    return refuse("fsync or os");
  }
  return {};
}

// Compaction is not there, so a topic that asks for it is refused instead of being kept for ever.
Result<> cleanup_policy(TopicConfig&, std::string_view value) {
  return value == "delete" ? Result<>{} : refuse("delete (compaction is not supported)");
}

// The producer's bytes are kept as they came.
Result<> compression_type(TopicConfig&, std::string_view value) {
  return value == "producer" ? Result<>{} : refuse("producer (batches are kept as they came)");
}

// One broker: there is nobody else to be in sync with.
constexpr std::array keys{
    TopicConfigKey{"cleanup.policy", "log.cleanup.policy", "delete", ConfigType::list,
                   "What becomes of old segments: they are deleted.", cleanup_policy},
    TopicConfigKey{"compression.type", "compression.type", "producer", ConfigType::string,
                   "Batches are kept in the codec they came in.", compression_type},
    TopicConfigKey{"index.interval.bytes", "log.index.interval.bytes", "4096", ConfigType::integer,
                   "How many bytes of log stand between two entries of the offset index.",
                   number<&TopicConfig::index_interval_bytes, 0, max_int>},
    TopicConfigKey{"max.message.bytes", "message.max.bytes", "1048588", ConfigType::integer,
                   "The largest batch that is accepted, as it comes (compressed).",
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
        "Whether a record's timestamp is its producer's or that of the append.", timestamp_type},
    TopicConfigKey{"min.insync.replicas", "min.insync.replicas", "1", ConfigType::integer,
                   "There is one broker, so one copy.",
                   number<&TopicConfig::min_insync_replicas, 1, 1>},
    TopicConfigKey{"retention.bytes", "log.retention.bytes", "-1", ConfigType::long_,
                   "How much of a partition is kept; -1: no bound.",
                   number<&TopicConfig::retention_bytes, -1, max_long>},
    TopicConfigKey{"retention.ms", "log.retention.ms", "604800000", ConfigType::long_,
                   "How long records are kept after their append; -1: for ever.",
                   number<&TopicConfig::retention_ms, -1, max_long>},
    TopicConfigKey{"segment.bytes", "log.segment.bytes", "1073741824", ConfigType::integer,
                   "How large a segment file grows before the next is begun.",
                   number<&TopicConfig::segment_bytes, 14, max_int>},
    TopicConfigKey{"segment.index.bytes", "log.index.size.max.bytes", "10485760",
                   ConfigType::integer,
                   "How large a segment's offset index may grow before the next segment is begun.",
                   number<&TopicConfig::segment_index_bytes, 4, max_int>},
    TopicConfigKey{"segment.ms", "log.roll.ms", "604800000", ConfigType::long_,
                   "How old a segment may grow before the next is begun.",
                   number<&TopicConfig::segment_ms, 1, max_long>},
    TopicConfigKey{"tarry.delay.enable", "tarry.delay.enable", "true", ConfigType::boolean,
                   "Whether the headers that schedule a record are looked for.", delay_enable},
    TopicConfigKey{"tarry.delay.max.ms", "tarry.delay.max.ms", "-1", ConfigType::long_,
                   "The longest delay that is accepted; -1: no bound.",
                   number<&TopicConfig::delay_max_ms, -1, max_long>},
    TopicConfigKey{"tarry.delay.ms", "tarry.delay.ms", "0", ConfigType::long_,
                   "The delay of a record that asks for none itself.",
                   number<&TopicConfig::delay_ms, 0, max_long>},
    TopicConfigKey{"tarry.delay.timestamp", "tarry.delay.timestamp", "due", ConfigType::string,
                   "A delivered record's timestamp: when it was due, its producer's, or when it "
                   "was delivered.",
                   delivered_timestamp},
    TopicConfigKey{
        "tarry.durability", "tarry.durability", "fsync", ConfigType::string,
        "What an acknowledged record has survived: fsync, power loss; os, the end of the process.",
        durability},
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

Result<TopicConfig> make_topic_config(const storage::Configs& defaults,
                                      const storage::Configs& own) {
  TopicConfig config;
  for (const auto* layer : {&defaults, &own}) {
    for (const auto& [name, value] : *layer) {
      const auto* key = find_topic_config_key(name);
      if (key == nullptr) {
        return fail(Errc::invalid, fmt::format("Unknown topic config name: {}", printable(name)));
      }
      if (const auto set = key->set(config, value); !set) {
        return fail(Errc::invalid,
                    fmt::format("Invalid value {} for configuration {}: allowed is {}",
                                printable(value), name, set.error().message));
      }
    }
  }
  return config;
}

}  // namespace tarry::broker
