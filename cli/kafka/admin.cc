#include "cli/kafka/admin.h"

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/core.h>

#include "cli/kafka/admin_request.h"
#include "cli/kafka/config_lookup.h"
#include "cli/kafka/error_text.h"
#include "cli/kafka/group_lookup.h"
#include "cli/kafka/handles.h"
#include "cli/kafka/topic_lookup.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// The error in the answer to a request about one topic.
// Requests here name one topic each, so that an error is about that one.
Result<> topic_result(KafkaConnection& connection, const std::string& topic,
                      const rd_kafka_topic_result_t** results, std::size_t count) {
  if (count != 1) return fail(Errc::io, topic + ": the broker's answer does not name it");
  const auto error = rd_kafka_topic_result_error(results[0]);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return {};
  return connection.error_of(name_text(topic), error,
                             rd_kafka_topic_result_error_string(results[0]));
}

// The partitions in the answer to a request about one group; null when it has none.
Result<const rd_kafka_topic_partition_list_t*> group_result(KafkaConnection& connection,
                                                            const std::string& group,
                                                            const rd_kafka_group_result_t** results,
                                                            std::size_t count) {
  if (count != 1) return fail(Errc::io, group + ": the broker's answer does not name it");
  if (const auto* error = rd_kafka_group_result_error(results[0])) {
    return connection.error_of(name_text(group), rd_kafka_error_code(error),
                               rd_kafka_error_string(error));
  }
  // The group may be fine, and a single partition of it refused.
  const auto* partitions = rd_kafka_group_result_partitions(results[0]);
  for (int i = 0; partitions != nullptr && i < partitions->cnt; ++i) {
    const auto& one = partitions->elems[i];
    if (one.err == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    return connection.error_of(
        fmt::format("{}: {} partition {}", name_text(group), name_text(one.topic), one.partition),
        one.err);
  }
  return partitions;
}

// The error with the config that was probably meant, if it is about one that is not there.
Error with_meant(Error error, const std::vector<ConfigEntry>& current, const ConfigList& set) {
  for (const auto& [key, value] : set) {
    // The words in which Tarry and Kafka refuse a name.
    if (!error.message.contains(" config name: " + key)) continue;
    if (const auto meant = nearest_config(current, key); !meant.empty())
      error.message += fmt::format("; did you mean {}?", name_text(meant));
    break;
  }
  return error;
}

// Left out of what is written, they could not be refused by the broker.
Result<> check_unset(const std::vector<ConfigEntry>& current,
                     const std::vector<std::string>& unset) {
  for (const auto& name : unset) {
    const auto entry = std::ranges::find(current, name, &ConfigEntry::name);
    // The broker tells only those keys of a listener that are set.
    if (entry == current.end() && name.starts_with("listener.name.")) continue;
    if (entry == current.end()) {
      const auto meant = nearest_config(current, name);
      return fail(Errc::not_found,
                  fmt::format("{}: there is no such config{}", name_text(name),
                              meant.empty() ? std::string()
                                            : fmt::format("; did you mean {}?", name_text(meant))));
    }
    if (entry->is_read_only) {
      return fail(Errc::invalid, fmt::format("{} cannot be changed while the broker runs: it needs "
                                             "a restart",
                                             name_text(name)));
    }
  }
  return {};
}

// These configs are all that is set then.
Result<> write_configs(KafkaConnection& connection, rd_kafka_ResourceType_t type,
                       const std::string& name, const ConfigList& configs) {
  const ConfigResource resource(rd_kafka_ConfigResource_new(type, name.c_str()));
  for (const auto& [key, value] : configs)
    rd_kafka_ConfigResource_set_config(resource.get(), key.c_str(), value.c_str());
  const auto event =
      ask_admin(connection, RD_KAFKA_ADMIN_OP_ALTERCONFIGS, [&](auto* options, auto* queue) {
        auto* one = resource.get();
        rd_kafka_AlterConfigs(connection.client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_AlterConfigs_result_resources(
      rd_kafka_event_AlterConfigs_result(event->get()), &count);
  const auto whose = type == RD_KAFKA_RESOURCE_BROKER ? broker_name(name) : name;
  return config_result(connection, whose, results, count);
}

}  // namespace

Result<KafkaAdmin> KafkaAdmin::open(const KafkaSettings& settings) {
  // A producer's metadata requests may create topics; a consumer's do not.
  auto connection =
      KafkaConnection::open(RD_KAFKA_CONSUMER, settings, {"allow.auto.create.topics=false"});
  if (!connection) return std::unexpected(connection.error());
  return KafkaAdmin(std::move(*connection));
}

Result<std::string> KafkaAdmin::cluster_id() {
  const auto until = steady_clock::now() + connection_->timeout();
  char* text = rd_kafka_clusterid(connection_->client(), in_ms(connection_->timeout()));
  if (text == nullptr) {
    // librdkafka gives no reason; only a broker that does not answer takes all of the time.
    if (steady_clock::now() >= until) return connection_->timeout_error();
    return fail(Errc::invalid, "the broker gives no cluster id");
  }
  std::string id = text;
  rd_kafka_mem_free(connection_->client(), text);
  return id;
}

Result<std::string> KafkaAdmin::start_id(std::int32_t broker) {
  const auto configs = broker_configs(broker);
  if (!configs) {
    return fail(configs.error().code,
                "its tarry.start.id cannot be read: " + configs.error().message);
  }
  // The id is a read-only setting, because librdkafka has no other request that could carry it.
  const auto found = std::ranges::find(*configs, "tarry.start.id", &ConfigEntry::name);
  return found == configs->end() ? std::string() : found->value.value_or("");
}

Result<std::vector<TopicInfo>> KafkaAdmin::topics() {
  const auto metadata = fetch_metadata(*connection_, nullptr, connection_->timeout());
  if (!metadata) return std::unexpected(metadata.error());
  std::vector<TopicInfo> topics;
  for (int i = 0; i < (*metadata)->topic_cnt; ++i)
    topics.push_back(topic_info((*metadata)->topics[i]));
  // The order of an answer is the broker's own.
  std::ranges::sort(topics, {}, &TopicInfo::name);
  return topics;
}

Result<TopicInfo> KafkaAdmin::topic(const std::string& name) {
  const KafkaTopic topic(rd_kafka_topic_new(connection_->client(), name.c_str(), nullptr));
  if (!topic) return connection_->error_of(name_text(name), rd_kafka_last_error());
  // Asked once, because nothing creates the topic meanwhile.
  return find_topic(*connection_, name, topic.get(), 0ms);
}

Result<std::vector<ConfigEntry>> KafkaAdmin::configs(const std::string& topic) {
  return find_configs(*connection_, topic);
}

Result<> KafkaAdmin::create(const std::string& topic, std::optional<std::int32_t> partitions,
                            const ConfigList& configs, std::optional<std::int32_t> replicas) {
  std::array<char, 512> wrong{};
  // -1: the broker's default.
  const NewTopic wanted(rd_kafka_NewTopic_new(topic.c_str(), partitions.value_or(-1),
                                              replicas.value_or(-1), wrong.data(), wrong.size()));
  if (!wanted) return fail(Errc::invalid, fmt::format("{}: {}", name_text(topic), wrong.data()));
  for (const auto& [key, value] : configs)
    rd_kafka_NewTopic_set_config(wanted.get(), key.c_str(), value.c_str());
  const auto event =
      ask_admin(*connection_, RD_KAFKA_ADMIN_OP_CREATETOPICS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_CreateTopics(connection_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event->get()), &count);
  return topic_result(*connection_, topic, results, count);
}

Result<> KafkaAdmin::alter(const std::string& topic, const ConfigList& set,
                           const std::vector<std::string>& unset) {
  const auto current = configs(topic);
  if (!current) return std::unexpected(current.error());
  if (auto checked = check_unset(*current, unset); !checked) return checked;
  ConfigList all;
  // librdkafka 2.0.2 can only replace all configs of a topic, so those that were set before are
  // sent again.
  for (const auto& entry : *current)
    // A value that comes from the broker would become the topic's own.
    if (entry.source == "topic" && entry.value && std::ranges::count(unset, entry.name) == 0)
      all.emplace_back(entry.name, *entry.value);
  // Behind the old values, because the last value of a key holds.
  all.insert(all.end(), set.begin(), set.end());
  auto written = write_configs(*connection_, RD_KAFKA_RESOURCE_TOPIC, topic, all);
  if (!written) return std::unexpected(with_meant(std::move(written.error()), *current, set));
  return written;
}

Result<> KafkaAdmin::add_partitions(const std::string& topic, std::int32_t total) {
  std::array<char, 512> wrong{};
  const NewPartitions wanted(rd_kafka_NewPartitions_new(
      topic.c_str(), static_cast<std::size_t>(total), wrong.data(), wrong.size()));
  if (!wanted) return fail(Errc::invalid, fmt::format("{}: {}", name_text(topic), wrong.data()));
  const auto event =
      ask_admin(*connection_, RD_KAFKA_ADMIN_OP_CREATEPARTITIONS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_CreatePartitions(connection_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_CreatePartitions_result_topics(
      rd_kafka_event_CreatePartitions_result(event->get()), &count);
  return topic_result(*connection_, topic, results, count);
}

Result<std::vector<std::int32_t>> KafkaAdmin::brokers() {
  const auto metadata = fetch_metadata(*connection_, nullptr, connection_->timeout());
  if (!metadata) return std::unexpected(metadata.error());
  std::vector<std::int32_t> ids;
  for (int i = 0; i < (*metadata)->broker_cnt; ++i) ids.push_back((*metadata)->brokers[i].id);
  std::ranges::sort(ids);
  return ids;
}

Result<std::vector<ConfigEntry>> KafkaAdmin::broker_configs(std::int32_t broker) {
  return find_broker_configs(*connection_, broker);
}

Result<> KafkaAdmin::alter_broker(std::int32_t broker, const ConfigList& set,
                                  const std::vector<std::string>& unset) {
  const auto current = broker_configs(broker);
  if (!current) return std::unexpected(current.error());
  if (auto checked = check_unset(*current, unset); !checked) return checked;
  ConfigList all;
  for (const auto& entry : *current) {
    if (entry.source != "broker" || std::ranges::count(unset, entry.name) > 0) continue;
    // A password that is set is not told, so it could not be kept.
    if (!entry.value && std::ranges::count(set, entry.name, &ConfigList::value_type::first) == 0) {
      return fail(
          Errc::invalid,
          fmt::format("{} is set and its value is secret, so this change would lose it; set "
                      "it as well",
                      name_text(entry.name)));
    }
    if (entry.value) all.emplace_back(entry.name, *entry.value);
  }
  all.insert(all.end(), set.begin(), set.end());
  auto written = write_configs(*connection_, RD_KAFKA_RESOURCE_BROKER, std::to_string(broker), all);
  if (!written) return std::unexpected(with_meant(std::move(written.error()), *current, set));
  return written;
}

Result<> KafkaAdmin::remove(const std::string& topic) {
  const DeleteTopic wanted(rd_kafka_DeleteTopic_new(topic.c_str()));
  const auto event =
      ask_admin(*connection_, RD_KAFKA_ADMIN_OP_DELETETOPICS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_DeleteTopics(connection_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results =
      rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event->get()), &count);
  return topic_result(*connection_, topic, results, count);
}

Result<PartitionOffsets> KafkaAdmin::offsets(const std::string& topic,
                                             const std::vector<PartitionIndex>& partitions,
                                             std::int64_t when) {
  auto offsets = find_offsets(*connection_, topic, partitions, when);
  // Only a time may lie behind the last record.
  if (!offsets || when < 0) return offsets;
  std::vector<PartitionIndex> without;
  // -1: the partition has no record that late, and its end is taken.
  for (const auto& [partition, offset] : *offsets)
    if (offset < 0) without.push_back(partition);
  if (without.empty()) return offsets;
  const auto ends = find_offsets(*connection_, topic, without, log_end);
  if (!ends) return ends;
  for (const auto& [partition, end] : *ends) {
    const auto place = std::ranges::find(*offsets, partition, &PartitionOffsets::value_type::first);
    if (place != offsets->end()) place->second = end;
  }
  return offsets;
}

Result<std::vector<GroupListing>> KafkaAdmin::groups() {
  const auto event = ask_admin(*connection_, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS,
                               [&](auto* options, auto* queue) {
                                 rd_kafka_ListConsumerGroups(connection_->client(), options, queue);
                               });
  if (!event) return std::unexpected(event.error());
  const auto* result = rd_kafka_event_ListConsumerGroups_result(event->get());
  std::size_t count = 0;
  // Each broker lists the groups that it coordinates: without one of them the list would have a
  // gap.
  if (const auto** errors = rd_kafka_ListConsumerGroups_result_errors(result, &count); count > 0) {
    return connection_->error_of("the broker", rd_kafka_error_code(errors[0]),
                                 rd_kafka_error_string(errors[0]));
  }
  std::vector<GroupListing> groups;
  const auto** listed = rd_kafka_ListConsumerGroups_result_valid(result, &count);
  for (std::size_t i = 0; i < count; ++i) {
    groups.push_back(
        {rd_kafka_ConsumerGroupListing_group_id(listed[i]),
         rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupListing_state(listed[i]))});
  }
  std::ranges::sort(groups, {}, &GroupListing::name);
  return groups;
}

Result<GroupInfo> KafkaAdmin::group(const std::string& name) {
  return find_group(*connection_, name);
}

Result<std::vector<CommittedOffset>> KafkaAdmin::committed(const std::string& group) {
  // Null: all partitions for which the group has committed an offset.
  const ListGroupOffsets wanted(rd_kafka_ListConsumerGroupOffsets_new(group.c_str(), nullptr));
  const auto event = ask_admin(
      *connection_, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_ListConsumerGroupOffsets(connection_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_ListConsumerGroupOffsets_result_groups(
      rd_kafka_event_ListConsumerGroupOffsets_result(event->get()), &count);
  const auto partitions = group_result(*connection_, group, results, count);
  if (!partitions) return std::unexpected(partitions.error());
  std::vector<CommittedOffset> offsets;
  for (int i = 0; *partitions != nullptr && i < (*partitions)->cnt; ++i) {
    const auto& one = (*partitions)->elems[i];
    // An offset of -1 stands for "nothing is committed".
    if (one.offset >= 0) offsets.push_back({one.topic, one.partition, one.offset});
  }
  std::ranges::sort(offsets, {},
                    [](const auto& one) { return std::pair(one.topic, one.partition); });
  return offsets;
}

Result<> KafkaAdmin::commit(const std::string& group, const std::string& topic,
                            const PartitionOffsets& offsets) {
  const KafkaPartitions list(rd_kafka_topic_partition_list_new(static_cast<int>(offsets.size())));
  for (const auto& [partition, offset] : offsets)
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = offset;
  const AlterGroupOffsets wanted(rd_kafka_AlterConsumerGroupOffsets_new(group.c_str(), list.get()));
  const auto event = ask_admin(
      *connection_, RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_AlterConsumerGroupOffsets(connection_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_AlterConsumerGroupOffsets_result_groups(
      rd_kafka_event_AlterConsumerGroupOffsets_result(event->get()), &count);
  const auto answer = group_result(*connection_, group, results, count);
  return answer ? Result<>{} : std::unexpected(answer.error());
}

Result<> KafkaAdmin::remove_group(const std::string& name) {
  const DeleteGroup wanted(rd_kafka_DeleteGroup_new(name.c_str()));
  const auto event =
      ask_admin(*connection_, RD_KAFKA_ADMIN_OP_DELETEGROUPS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_DeleteGroups(connection_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results =
      rd_kafka_DeleteGroups_result_groups(rd_kafka_event_DeleteGroups_result(event->get()), &count);
  const auto answer = group_result(*connection_, name, results, count);
  return answer ? Result<>{} : std::unexpected(answer.error());
}

}  // namespace tarry::cli
