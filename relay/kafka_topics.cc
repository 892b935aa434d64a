#include "relay/kafka_topics.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "base/log.h"
#include "relay/kafka_handles.h"

namespace tarry::relay {
namespace {

// A store that has not read its topic for longest_unread (partition.h) is emptied; a tombstone has
// to last longer.
constexpr std::int64_t least_tombstone_ms = 3'600'000;
// A row has a header of its own, the id and the target besides its record.
constexpr std::int64_t row_overhead = 4'096;
// Kafka's default.  A record may be larger than its batch was in the source, where it was
// compressed with others.
constexpr std::int64_t least_message_bytes = 1'048'588;

using NewTopic = KafkaOwned<rd_kafka_NewTopic_t, rd_kafka_NewTopic_destroy>;
using NewPartitions = KafkaOwned<rd_kafka_NewPartitions_t, rd_kafka_NewPartitions_destroy>;
using ConfigResource = KafkaOwned<rd_kafka_ConfigResource_t, rd_kafka_ConfigResource_destroy>;
using TopicOptions = KafkaOwned<rd_kafka_AdminOptions_t, rd_kafka_AdminOptions_destroy>;

std::int64_t number_in(const std::map<std::string, std::string>& configs, const std::string& name) {
  const auto found = configs.find(name);
  std::int64_t number = -1;
  if (found != configs.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), number);
  return number;
}

// The answer to an admin request; null: none came in time.
struct AdminAnswer {
  AdminAnswer(rd_kafka_t* client, std::chrono::milliseconds timeout)
      : queue(rd_kafka_queue_new(client)),
        options(rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_ANY)),
        wait(timeout) {
    std::array<char, 256> wrong{};
    rd_kafka_AdminOptions_set_request_timeout(options.get(), in_ms(timeout), wrong.data(),
                                              wrong.size());
    rd_kafka_AdminOptions_set_operation_timeout(options.get(), in_ms(timeout), wrong.data(),
                                                wrong.size());
  }
  Result<> take(const std::string& topic) {
    // A little longer than librdkafka waits, because its error says more than ours.
    event.reset(rd_kafka_queue_poll(queue.get(), in_ms(wait) + 1'000));
    if (!event) return fail(Errc::io, fmt::format("{}: Kafka does not answer", topic));
    if (const auto error = rd_kafka_event_error(event.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR)
      return fail(Errc::io, error_text(error, topic));
    return {};
  }

  KafkaQueue queue;
  TopicOptions options;
  const std::chrono::milliseconds wait;
  KafkaEvent event{};
};

// It will be the same the next time, unless somebody changes something.
bool is_final(rd_kafka_resp_err_t error) {
  return error == RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION ||
         error == RD_KAFKA_RESP_ERR_POLICY_VIOLATION ||
         error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
         error == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
}

Result<> result_of(const rd_kafka_topic_result_t** results, std::size_t count,
                   const std::string& topic, rd_kafka_resp_err_t fine) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto error = rd_kafka_topic_result_error(results[i]);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR || error == fine) continue;
    const char* text = rd_kafka_topic_result_error_string(results[i]);
    return fail(is_final(error) ? Errc::invalid : Errc::io,
                fmt::format("{}: {}: {}", topic, rd_kafka_err2name(error),
                            printable(text == nullptr ? "" : text)));
  }
  return {};
}

}  // namespace

Result<std::map<std::string, int>> KafkaTopics::list() const {
  const struct rd_kafka_metadata* raw = nullptr;
  if (const auto error = rd_kafka_metadata(client_, 1, nullptr, &raw, in_ms(timeout_));
      error != RD_KAFKA_RESP_ERR_NO_ERROR)
    return fail(Errc::io, error_text(error, "the list of topics"));
  const KafkaMetadata metadata(raw);
  std::map<std::string, int> topics;
  for (int i = 0; i < metadata->topic_cnt; ++i)
    topics[metadata->topics[i].topic] = metadata->topics[i].partition_cnt;
  return topics;
}

// Asks for all topics, because asking for one by its name may create it.
Result<std::optional<int>> KafkaTopics::partitions_of(const std::string& topic) const {
  const auto topics = list();
  if (!topics) return std::unexpected(topics.error());
  const auto found = topics->find(topic);
  return found == topics->end() ? std::nullopt : std::optional(found->second);
}

Result<int> KafkaTopics::source_partitions(const std::string& source) const {
  const auto partitions = partitions_of(source);
  if (!partitions) return std::unexpected(partitions.error());
  if (!*partitions) return fail(Errc::not_found, fmt::format("{}: there is no such topic", source));
  return **partitions;
}

Result<> KafkaTopics::create(const std::string& topic, int partitions,
                             const TopicSettings& settings) {
  std::array<char, 512> wrong{};
  const NewTopic wanted(
      rd_kafka_NewTopic_new(topic.c_str(), partitions, -1, wrong.data(), wrong.size()));
  if (!wanted) return fail(Errc::invalid, fmt::format("{}: {}", topic, wrong.data()));
  for (const auto& [name, value] : settings)
    rd_kafka_NewTopic_set_config(wanted.get(), name.c_str(), value.c_str());
  AdminAnswer answer(client_, timeout_);
  rd_kafka_NewTopic_t* each = wanted.get();
  rd_kafka_CreateTopics(client_, &each, 1, answer.options.get(), answer.queue.get());
  if (auto came = answer.take(topic); !came) return came;
  std::size_t count = 0;
  const auto* result = rd_kafka_event_CreateTopics_result(answer.event.get());
  const auto results = rd_kafka_CreateTopics_result_topics(result, &count);
  // Another member may have been faster.
  if (auto made = result_of(results, count, topic, RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS); !made)
    return made;
  log_info("relay", "created topic {} with {} partitions", topic, partitions);
  return {};
}

Result<> KafkaTopics::add_partitions(const std::string& topic, int partitions) {
  std::array<char, 512> wrong{};
  const NewPartitions wanted(rd_kafka_NewPartitions_new(
      topic.c_str(), static_cast<std::size_t>(partitions), wrong.data(), wrong.size()));
  if (!wanted) return fail(Errc::invalid, fmt::format("{}: {}", topic, wrong.data()));
  AdminAnswer answer(client_, timeout_);
  rd_kafka_NewPartitions_t* each = wanted.get();
  rd_kafka_CreatePartitions(client_, &each, 1, answer.options.get(), answer.queue.get());
  if (auto came = answer.take(topic); !came) return came;
  std::size_t count = 0;
  const auto* result = rd_kafka_event_CreatePartitions_result(answer.event.get());
  const auto results = rd_kafka_CreatePartitions_result_topics(result, &count);
  // INVALID_PARTITIONS: another member has added them.
  return result_of(results, count, topic, RD_KAFKA_RESP_ERR_INVALID_PARTITIONS);
}

Result<std::map<std::string, std::string>> KafkaTopics::configs_of(const std::string& topic) {
  const ConfigResource wanted(rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str()));
  AdminAnswer answer(client_, timeout_);
  rd_kafka_ConfigResource_t* each = wanted.get();
  rd_kafka_DescribeConfigs(client_, &each, 1, answer.options.get(), answer.queue.get());
  if (const auto came = answer.take(topic); !came) return std::unexpected(came.error());
  std::size_t count = 0;
  const auto* result = rd_kafka_event_DescribeConfigs_result(answer.event.get());
  const auto results = rd_kafka_DescribeConfigs_result_resources(result, &count);
  std::map<std::string, std::string> configs;
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto error = rd_kafka_ConfigResource_error(results[i]);
        error != RD_KAFKA_RESP_ERR_NO_ERROR)
      return fail(Errc::io, error_text(error, topic));
    std::size_t entries = 0;
    const auto** list = rd_kafka_ConfigResource_configs(results[i], &entries);
    for (std::size_t j = 0; j < entries; ++j) {
      const char* value = rd_kafka_ConfigEntry_value(list[j]);
      configs[rd_kafka_ConfigEntry_name(list[j])] = value == nullptr ? "" : value;
    }
  }
  return configs;
}

Result<> KafkaTopics::ensure_state(const std::string& topic, const std::string& source) {
  const auto wanted = source_partitions(source);
  if (!wanted) return std::unexpected(wanted.error());
  const auto source_configs = configs_of(source);
  if (!source_configs) return std::unexpected(source_configs.error());
  const std::int64_t row_bytes = number_in(*source_configs, "max.message.bytes") + row_overhead;
  const auto partitions = partitions_of(topic);
  if (!partitions) return std::unexpected(partitions.error());
  if (!*partitions) {
    const auto made =
        create(topic, *wanted,
               // Kafka does not compact the active segment, so small and young segments keep a
               // take-over short.
               {{"cleanup.policy", "compact"},
                {"segment.bytes", "16777216"},
                {"segment.ms", "600000"},
                {"min.cleanable.dirty.ratio", "0.2"},
                {"delete.retention.ms", "86400000"},
                {"message.timestamp.type", "LogAppendTime"},
                {"max.message.bytes", std::to_string(std::max(row_bytes, least_message_bytes))}});
    if (!made) return made;
    // A row goes to the partition that has the number of its source's.
  } else if (**partitions < *wanted) {
    if (const auto added = add_partitions(topic, *wanted); !added) return added;
  }
  const auto configs = configs_of(topic);
  if (!configs) return std::unexpected(configs.error());
  const auto refuse = [&](const std::string& name, std::string_view must) {
    const auto found = configs->find(name);
    return fail(
        Errc::invalid,
        fmt::format("{}: {} is {}, and {}", topic, name,
                    found == configs->end() ? "not known" : printable(found->second), must));
  };
  // The topic may be somebody else's, or changed since: these settings could lose pending records.
  const auto policy = configs->find("cleanup.policy");
  if (policy == configs->end() || policy->second != "compact")
    return refuse("cleanup.policy",
                  "it must be compact, because the topic holds the relay's state");
  if (number_in(*configs, "delete.retention.ms") < least_tombstone_ms)
    return refuse("delete.retention.ms", "it must be 3600000 or more");
  if (number_in(*configs, "max.message.bytes") < row_bytes)
    return refuse("max.message.bytes",
                  fmt::format("it must be {} or more for the records of {}", row_bytes, source));
  return {};
}

Result<> KafkaTopics::ensure(const std::string& topic, const std::string& source, bool grow) {
  const auto wanted = source_partitions(source);
  if (!wanted) return std::unexpected(wanted.error());
  const auto partitions = partitions_of(topic);
  if (!partitions) return std::unexpected(partitions.error());
  if (!*partitions) {
    // Every record of the source has to fit, with the headers that are added.
    const auto configs = configs_of(source);
    if (!configs) return std::unexpected(configs.error());
    return create(topic, *wanted,
                  {{"max.message.bytes",
                    std::to_string(std::max(number_in(*configs, "max.message.bytes") + row_overhead,
                                            least_message_bytes))}});
  }
  // A topic of users is left as it is, unless a record has to keep its partition's number there.
  if (grow && **partitions < *wanted) return add_partitions(topic, *wanted);
  return {};
}

}  // namespace tarry::relay
