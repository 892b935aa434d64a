#include "cli/commands/config.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/command_tree.h"
#include "cli/commands/quotas.h"
#include "cli/config_words.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/kafka/admin.h"
#include "cli/options.h"

namespace tarry::cli {
namespace {

struct ConfigOptions {
  BrokerOptions broker;
  std::vector<std::string> words;  // KEY, or KEY=VALUE.
  std::vector<std::string> unset;
  std::optional<std::string> topic;
  std::optional<std::int32_t> id;  // The broker's.
  bool changed = false;
  QuotaOwner quotas;
};

// The broker whose configs are meant.
Result<std::int32_t> broker_of(const ConfigOptions& options, KafkaAdmin& admin) {
  if (options.id) return *options.id;
  const auto ids = admin.brokers();
  if (!ids) return std::unexpected(ids.error());
  // Taking the first of several would be a guess: brokers differ in what this command shows.
  if (ids->size() == 1) return ids->front();
  std::string all;
  for (const auto id : *ids) all += (all.empty() ? "" : ", ") + std::to_string(id);
  return fail(Errc::invalid,
              fmt::format("there are several brokers, {}: choose one with --broker", all));
}

int get(const ConfigOptions& options) {
  if (options.quotas.is_given()) return get_quotas(options.broker, options.quotas, options.words);
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  Result<std::vector<ConfigEntry>> configs;
  if (options.topic) {
    configs = admin->configs(*options.topic);
  } else {
    const auto id = broker_of(options, *admin);
    if (!id) return failure(id.error().message);
    configs = admin->broker_configs(*id);
  }
  if (!configs) return failure(configs.error().message);
  // Before the first line is printed, so that a slip gives an error and no half of a table.
  for (const auto& word : options.words)
    if (std::ranges::find(*configs, word, &ConfigEntry::name) == configs->end())
      return failure(fmt::format("{}: there is no such config", cell(word)));

  Output out;
  Table table({{"CONFIG"}, {"VALUE", false, true}, {"FROM"}, {"CHANGES"}});
  for (const auto& config : *configs) {
    if (!options.words.empty() &&
        std::ranges::find(options.words, config.name) == options.words.end())
      continue;
    if (options.changed && config.source == "default") continue;
    const char* changes = config.is_read_only ? "restart" : "live";
    if (options.broker.json) {
      // No value means a secret one, which brokers do not give away.
      out.line(text_of(Json{{"config", config.name},
                            {"value", config.value ? Json(*config.value) : Json(nullptr)},
                            {"source", config.source},
                            {"changes", changes}}));
    } else {
      table.row(
          {cell(config.name), config.value ? cell(*config.value) : "-", config.source, changes},
          config.source == "default" ? Style::plain : Style::bold);
    }
  }
  table.print(out);
  return out.end(done);
}

int set(const ConfigOptions& options) {
  if (options.words.empty() && options.unset.empty())
    return usage_error("config set: give KEY=VALUE, or --unset KEY");
  // Before anything is changed: a key cannot be set and unset at once.
  for (const auto& word : options.words)
    if (const auto key = word.substr(0, word.find('=')); std::ranges::count(options.unset, key) > 0)
      return usage_error(
          fmt::format("--unset {}: the same key is also set; give one of the two", printable(key)));
  if (options.quotas.is_given())
    return set_quotas(options.broker, options.quotas, options.words, options.unset);
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  // Names and values are checked by the broker, which may be newer than this program.
  const auto changes = config_list(options.words);
  // The owner stands in each line of JSON, so that a line can be understood alone.
  Json of;
  if (options.topic) {
    of["topic"] = *options.topic;
    const auto altered = admin->alter(*options.topic, changes, options.unset);
    if (!altered) return failure(with_example(altered.error().message, options.words));
  } else {
    const auto id = broker_of(options, *admin);
    if (!id) return failure(id.error().message);
    of["broker"] = *id;
    const auto altered = admin->alter_broker(*id, changes, options.unset);
    if (!altered) return failure(altered.error().message);
  }
  Output out;
  // The broker's answer does not repeat the values: the lines are what was asked for and has been
  // confirmed.
  const auto say = [&](const std::string& key, const std::string* value) {
    if (!options.broker.json)
      return out.line(value != nullptr ? fmt::format("{}={}", cell(key), cell(*value))
                                       : fmt::format("{} unset", cell(key)));
    Json json = of;
    json["config"] = key;
    json["value"] = value != nullptr ? Json(*value) : Json(nullptr);
    json["result"] = value != nullptr ? "set" : "unset";
    out.line(text_of(json));
  };
  for (const auto& [key, value] : changes) say(key, &value);
  for (const auto& key : options.unset) say(key, nullptr);
  return out.end(done);
}

}  // namespace

void add_config_commands(CLI::App& program, Chosen& chosen) {
  auto* group =
      add_group(program, chosen, "config",
                "Shows and changes the settings of a running broker and of topics, and quotas");
  const auto add = [&](const char* name, const char* help, int (*run)(const ConfigOptions&)) {
    const auto added = add_broker_command<ConfigOptions>(*group, chosen, name, help, run);
    auto* topic = added.first
                      ->add_option("--topic", added.second->topic,
                                   "The configs of this topic (default: those of the broker)")
                      ->option_text("TOPIC")
                      ->check(is_topic)
                      ->take_last();
    auto* id = added.first
                   ->add_option("--broker", added.second->id,
                                "The broker's id (default: that of the only broker)")
                   ->option_text("ID")
                   ->check(is_partition)
                   ->take_last()
                   ->excludes(topic);
    // Quotas are another request of the protocol, but to an operator they are settings like the
    // others.
    add_quota_owner(*added.first, added.second->quotas, {topic, id});
    return added;
  };
  {
    const auto [command, options] =
        add("get", "Shows settings, and whether a change needs a restart", get);
    command->add_option("KEY", options->words, "Only these keys (default: all)")
        ->expected(0, CLI::detail::expected_max_vector_size);
    command->add_flag("--changed", options->changed,
                      "Only settings that differ from their default");
    add_examples(*command, {"tarry config get log.retention.ms", "tarry config get --changed",
                            "tarry config get --user alice"});
  }
  {
    const auto [command, options] =
        add("set", "Changes settings at once; the changes survive a restart", set);
    command->add_option("KEY=VALUE", options->words, "The settings")
        ->option_text("KEY=VALUE")
        ->expected(0, CLI::detail::expected_max_vector_size)
        ->check(is_key_value);
    add_repeated(*command, "--unset", options->unset,
                 "Removes the value that was set, so that the file's value or the default applies "
                 "again; may be repeated")
        ->option_text("KEY");
    add_examples(*command, {"tarry config set log.retention.ms=7d tarry.log.level=debug",
                            "tarry config set --topic orders tarry.delay.max.ms=30d",
                            "tarry config set --user alice producer_byte_rate=1MiB",
                            "tarry config set --user alice pending_records=100000"});
  }
  add_examples(*group, {"tarry config get --changed", "tarry config set tarry.log.level=debug"});
}

}  // namespace tarry::cli
