#include "cli/commands/topic.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "base/log_thread.h"
#include "base/percent_encoding.h"
#include "cli/admin_choice.h"
#include "cli/admin_client.h"
#include "cli/command_tree.h"
#include "cli/config_words.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/json_path.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/kafka/admin.h"
#include "cli/local_time.h"
#include "cli/options.h"
#include "cli/pending_note.h"
#include "cli/time_word.h"

namespace tarry::cli {
namespace {

struct TopicOptions {
  BrokerOptions broker;
  std::string name;
  std::optional<std::int32_t> partitions, replicas;
  std::vector<std::string> configs;  // key=value, checked.
  bool force = false;
};

std::string list_of(const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text.empty() ? "-" : text;
}

// "orders created", or {"topic":"orders","result":"created"}.
int print_result(const TopicOptions& options, const char* result) {
  Output out;
  if (options.broker.json) {
    out.line(text_of(Json{{"topic", options.name}, {"result", result}}));
  } else {
    out.line(fmt::format("{} {}", cell(options.name), result));
  }
  return out.end(done);
}

int create(const TopicOptions& options) {
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  const auto created = admin->create(options.name, options.partitions, config_list(options.configs),
                                     options.replicas);
  if (!created) return failure(with_example(created.error().message, options.configs));
  return print_result(options, "created");
}

Json json_of(const TopicInfo& topic) {
  Json json;
  json["topic"] = topic.name;
  json["partitions"] = Json::array();
  for (const auto& partition : topic.partitions) {
    json["partitions"].push_back(Json{{"partition", partition.partition},
                                      {"leader", partition.leader},
                                      {"replicas", partition.replicas},
                                      {"isr", partition.in_sync}});
  }
  return json;
}

int list(const TopicOptions& options) {
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  const auto topics = admin->topics();
  if (!topics) return failure(topics.error().message);
  Output out;
  Table table({{"TOPIC"}, {"PARTITIONS", true}, {"REPLICAS", true}});
  for (const auto& topic : *topics) {
    // The first partition stands for all: they were created with the same number.
    const auto replicas = topic.partitions.empty() ? 0 : topic.partitions[0].replicas.size();
    if (options.broker.json) {
      out.line(text_of(Json{
          {"topic", topic.name}, {"partitions", topic.partitions.size()}, {"replicas", replicas}}));
    } else {
      table.row(
          {cell(topic.name), std::to_string(topic.partitions.size()), std::to_string(replicas)});
    }
  }
  table.print(out);
  return out.end(done);
}

// The topic as the admin's /topics/NAME has it; null when the admin does not answer.
Json topic_at_admin(const TopicOptions& options, KafkaAdmin& kafka,
                    std::chrono::milliseconds timeout) {
  auto settings = admin_settings(options.broker);
  settings.timeout = timeout;
  AdminClient admin(settings);
  const auto of_admin = run_of(admin);
  if (!of_admin) return {};
  const auto of_kafka = run_of(kafka, *of_admin);
  // The admin of another broker would tell of another topic of this name.
  if (!of_kafka || *of_kafka != *of_admin) return {};
  const auto body = admin.get("/topics/" + percent_encoded(options.name));
  return body ? parse_json(*body) : Json();
}

// The note about refused batches, whose reason most clients do not show; empty: there are none.
std::string refusal_note(const std::string& name, const Json& topic) {
  const auto at = time_at(topic, "/refused_batches/last/at_ms");
  if (!at) return {};
  return fmt::format(
      "{}: {} refused since the broker started, the last one {}: {}", cell(name),
      counted(number_at(topic, "/refused_batches/total"), "batch was", "batches were"),
      rough_distance(*at - wall_now()),
      escape_control_characters(text_at(topic, "/refused_batches/last/message")));
}

int describe(const TopicOptions& options) {
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  const auto topic = admin->topic(options.name);
  if (!topic) return failure(topic.error().message);
  const auto configs = admin->configs(options.name);
  if (!configs) return failure(configs.error().message);
  // Kafka's protocol does not have it, and other brokers have no admin: nobody waits long for it.
  const Json at_admin =
      topic_at_admin(options, *admin, std::min(options.broker.timeout, PendingNote::max_wait));

  Output out;
  if (options.broker.json) {
    Json json = json_of(*topic);
    if (const Json* refused = find_at(at_admin, "/refused_batches"))
      json["refused_batches"] = *refused;
    json["configs"] = Json::object();
    for (const auto& config : *configs) {
      json["configs"][config.name] = Json{
          {"value", config.value ? Json(*config.value) : Json(nullptr)}, {"source", config.source}};
    }
    out.line(text_of(json));
    return out.end(done);
  }
  Table partitions({{"TOPIC"}, {"PARTITION", true}, {"LEADER", true}, {"REPLICAS"}, {"ISR"}});
  for (const auto& partition : topic->partitions) {
    partitions.row({cell(topic->name), std::to_string(partition.partition),
                    partition.leader < 0 ? "-" : std::to_string(partition.leader),
                    list_of(partition.replicas), list_of(partition.in_sync)});
  }
  partitions.print(out);
  out.line("");
  // The configs that were set for this topic come first.
  Table table({{"CONFIG"}, {"VALUE"}, {"FROM"}});
  for (const bool own : {true, false}) {
    for (const auto& config : *configs) {
      if ((config.source == "topic") != own) continue;
      table.row({cell(config.name), config.value ? cell(*config.value) : "-", config.source});
    }
  }
  table.print(out);
  const int status = out.end(done);
  // On stderr, because programs read the columns.
  if (const auto note = refusal_note(options.name, at_admin); !note.empty()) complain(note);
  return status;
}

int alter(const TopicOptions& options) {
  if (options.configs.empty() && !options.partitions) {
    return usage_error(fmt::format(
        "{}: nothing to alter; give --config KEY=VALUE or --partitions N", cell(options.name)));
  }
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  // More partitions come first: a refusal changes nothing then.
  if (options.partitions) {
    const auto added = admin->add_partitions(options.name, *options.partitions);
    if (!added) return failure(added.error().message);
  }
  if (!options.configs.empty()) {
    const auto altered = admin->alter(options.name, config_list(options.configs));
    if (!altered) return failure(with_example(altered.error().message, options.configs));
  }
  return print_result(options, "altered");
}

// How many pending records keep a topic from being deleted; nullopt when the admin does not say.
// The admin is asked because librdkafka uses a version of DeleteTopics whose answers have no text.
std::optional<std::uint64_t> pending_of(const TopicOptions& options, KafkaAdmin& kafka) {
  const Json topic = topic_at_admin(options, kafka, options.broker.timeout);
  // An answer of another form gives no number, which is better than a wrong one.
  if (!topic.is_object() || !topic.contains("pending")) return std::nullopt;
  const Json& pending = topic["pending"];
  if (!pending.is_number_unsigned() || pending == 0) return std::nullopt;
  return pending.get<std::uint64_t>();
}

int remove(const TopicOptions& options) {
  // Kafka's protocol has no request that deletes a topic with pending records, so that goes over
  // the admin.
  if (options.force) {
    // -b's default counts as given here, so that the topic that `topic describe` shows is deleted.
    BrokerOptions broker = options.broker;
    broker.brokers_given = broker.brokers_given || !broker.admin_given;
    auto admin = choose_admin(broker, AdminUse::changes);
    if (!admin) return admin.error().report();
    const auto removed =
        admin->remove(fmt::format("/topics/{}?force=true", percent_encoded(options.name)));
    if (!removed)
      return failure(fmt::format("{}: {}", cell(options.name), removed.error().message));
    return print_result(options, "deleted");
  }
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  const auto removed = admin->remove(options.name);
  if (removed) return print_result(options, "deleted");
  // in_use: pending records keep the topic.
  if (removed.error().code != Errc::in_use) return failure(removed.error().message);
  // The number is worth a second question: it says what --force would destroy.
  const auto pending = pending_of(options, *admin);
  if (!pending) {
    return failure(removed.error().message +
                   "; --force also deletes its pending records, and needs --admin of this broker");
  }
  return failure(
      fmt::format("{}: not deleted (POLICY_VIOLATION): {} pending in it; --force also "
                  "deletes them",
                  cell(options.name), counted(*pending, "record is", "records are")));
}

}  // namespace

void add_topic(CLI::App& program, Chosen& chosen) {
  auto* group = add_group(program, chosen, "topic", "Creates, shows, changes and deletes topics");
  const auto add = [&](const char* name, const char* help, int (*run)(const TopicOptions&)) {
    return add_broker_command<TopicOptions>(*group, chosen, name, help, run);
  };
  const auto add_name = [](CLI::App& command, TopicOptions& options) {
    command.add_option("NAME", options.name, "The topic")->required()->check(is_topic);
  };
  const auto add_configs = [](CLI::App& command, TopicOptions& options) {
    add_repeated(command, "--config", options.configs, "Sets a config; may be repeated")
        ->option_text("KEY=VALUE")
        ->check(is_key_value);
  };

  {
    const auto [command, options] = add("create", "Creates a topic", create);
    add_name(*command, *options);
    command
        ->add_option("--partitions", options->partitions,
                     "Number of partitions (default: the broker's)")
        ->option_text("N")
        ->check(is_count)
        ->take_last();
    command
        ->add_option("--replication-factor", options->replicas,
                     "Replicas of each partition (default: the broker's); Tarry supports only 1")
        ->option_text("N")
        ->check(is_count)
        ->take_last();
    add_configs(*command, *options);
    add_examples(*command, {"tarry topic create orders --partitions 3",
                            "tarry topic create orders --config retention.ms=7d"});
  }
  add_examples(*add("list", "Lists all topics", list).first,
               {"tarry topic list", "tarry topic list --json"});
  {
    const auto [command, options] = add("describe", "Shows partitions and configs", describe);
    add_name(*command, *options);
    add_examples(*command, {"tarry topic describe orders", "tarry topic describe orders --json"});
  }
  {
    const auto [command, options] =
        add("alter", "Sets configs and keeps the others; adds partitions", alter);
    add_name(*command, *options);
    add_configs(*command, *options);
    command
        ->add_option("--partitions", options->partitions,
                     "Adds partitions, so that the topic has this many")
        ->option_text("N")
        ->check(is_count)
        ->take_last();
    add_examples(*command, {"tarry topic alter orders --config tarry.delay.ms=5s",
                            "tarry topic alter orders --partitions 6"});
  }
  {
    const auto [command, options] = add("delete", "Deletes a topic", remove);
    add_name(*command, *options);
    add_data_option(*command, options->broker);
    command->add_flag("--force", options->force,
                      "Deletes the topic together with its pending records (over admin HTTP)");
    add_examples(*command, {"tarry topic delete orders", "tarry topic delete orders --force"});
  }
  add_examples(*group, {"tarry topic create orders --partitions 3", "tarry topic list"});
}

}  // namespace tarry::cli
