#pragma once

// TopicConfig: the configs of a topic, under Kafka's names and ours.
//
// One table has each key's default, range, type and reason; everything else is derived from it: the
// check of a client's values, the answer of DescribeConfigs, the output of `topic describe`.  An
// unknown key or value is refused, never kept and ignored.  Keys of Kafka's that have no effect
// here (compaction, replicas) are accepted, and their reason says so; a value that asks for a
// missing feature is refused, and the error names the feature.
//
// A value is kept in its normal form, not as it was written: "007" as "7".
//
// A topic's value, if it has one, wins over the broker's default for it (Kafka's `log.*` names,
// given by the server as `defaults`), which wins over the built-in one.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "delay/sink.h"
#include "records/compression.h"
#include "storage/durability.h"
#include "storage/journal_record.h"

namespace tarry::broker {

enum class TimestampType { create_time, log_append_time };
using delay::DeliveredTimestamp;
// How a record with invalid scheduling headers is treated.
enum class InvalidRecords { refuse, dead_letter };
using storage::Durability;

struct TopicConfig {
  std::int32_t max_message_bytes = 1'048'588;
  std::int64_t retention_ms = 604'800'000;  // -1: for ever.
  std::int64_t retention_bytes = -1;        // Per partition; -1: without bound.
  std::int32_t segment_bytes = 1'073'741'824;
  std::int64_t segment_ms = 604'800'000;
  std::int32_t segment_index_bytes = 10'485'760;
  std::int32_t index_interval_bytes = 4096;
  TimestampType timestamp_type = TimestampType::create_time;
  std::int64_t timestamp_before_max_ms = 9'223'372'036'854'775'807;
  std::int64_t timestamp_after_max_ms = 3'600'000;
  std::int32_t min_insync_replicas = 1;

  bool delay_enable = true;             // False: headers are not looked at.
  std::int64_t delay_ms = 0;            // The delay of a record that asks for none.
  std::int64_t delay_max_ms = -1;       // -1: none.
  std::int64_t delay_max_pending = -1;  // Records; -1: no limit.
  InvalidRecords delay_invalid = InvalidRecords::refuse;
  DeliveredTimestamp delivered_timestamp = DeliveredTimestamp::due;
  delay::MissedRuns missed_runs = delay::MissedRuns::once;
  std::int32_t missed_max = 100;
  Durability durability = Durability::fsync;
  // The codec of all batches; empty: the producer's.
  std::optional<records::Codec> codec = std::nullopt;
};

// Kafka's numbers for a config's type in DescribeConfigs.
enum class ConfigType : std::int8_t {
  boolean = 1,
  string = 2,
  integer = 3,
  long_ = 5,
  double_ = 6,
  list = 7,
  class_ = 8,
  password = 9
};

struct TopicConfigKey {
  std::string_view name;
  std::string_view broker_name;  // The key of the broker's default for it; empty: there is none.
  std::string_view fallback;     // The built-in default, as text.
  ConfigType type;
  std::string_view reason;
  // Checks `value`, puts it into `config` and returns what it means, as text; the error says what
  // is allowed.
  Result<std::string> (*set)(TopicConfig& config, std::string_view value);
};

std::span<const TopicConfigKey> topic_config_keys();
const TopicConfigKey* find_topic_config_key(std::string_view name);

// `defaults` are the broker's, under the topic's names; `own` the topic's.  Errors name key and
// value and say what is allowed.
Result<TopicConfig> make_topic_config(const storage::Configs& defaults,
                                      const storage::Configs& own);

// `own` as it is to be stored, when a client may set it so: each value as what it means, none
// longer than max_topic_config_bytes, and no two that contradict each other.
Result<storage::Configs> settle_topic_configs(const storage::Configs& defaults,
                                              const storage::Configs& own);

// Far more than any value needs, and no burden on a journal or an answer.
inline constexpr std::size_t max_topic_config_bytes = 256;

// The error if these two contradict each other, else nothing: a record is acknowledged before it is
// synced (tarry.durability=os), but flush.messages or flush.ms asks for syncs.
std::string flush_conflict(Durability durability, std::string_view key, std::string_view value);

}  // namespace tarry::broker
