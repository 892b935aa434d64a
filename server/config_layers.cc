#include "server/config_layers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/edit_distance.h"
#include "base/log.h"
#include "broker/settings/topic_config.h"
#include "server/config_keys.h"

namespace tarry::server {
namespace {

// Canonical values by key.
using Values = std::map<std::string_view, std::string>;

// Only a key this near to what was written can be what was meant.
constexpr std::size_t max_typing_errors = 3;
// A longer word is no key with a typing error, and would take long to compare.
constexpr std::size_t max_compared = 99;

// A setting as it was written: the value is the flag's own word, or follows the key.
std::string setting_text(const Setting& setting) {
  const auto* key = find_setting_key(setting.key);
  // A misspelt key may hold a secret too.
  const bool is_secret =
      key == nullptr ? setting.key.contains("password") || setting.value.contains("-----BEGIN")
                     : key->is_sensitive();
  const std::string value =
      is_secret && !setting.value.empty() ? "[hidden]" : value_text(setting.value);
  if (setting.where == "--set") return fmt::format("--set {}={}", printable(setting.key), value);
  if (setting.where.starts_with("--")) return fmt::format("{} {}", setting.where, value);
  return fmt::format("{}: {}={}", setting.where, printable(setting.key), value);
}

// Empty when no key is similar.
std::string_view nearest_key(std::string_view word) {
  std::string_view nearest;
  if (word.size() > max_compared) return nearest;
  std::size_t nearest_distance = max_typing_errors + 1;
  for (const auto& key : config_keys()) {
    const auto distance = edit_distance(word, key.name);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = key.name;
    }
  }
  return nearest;
}

// Keys of Apache Kafka's server.properties for which a single broker without replicas, tiered
// storage and transactions has no use.  Beginnings end in a dot, and none of our keys begins with
// one.
constexpr std::string_view kafka_beginnings[] = {
    "confluent.",        "controlled.shutdown.",
    "controller.",       "delegation.token.",
    "leader.imbalance.", "metadata.",
    "metrics.",          "offsets.topic.",
    "password.encoder.", "remote.log.",
    "replica.",          "share.coordinator.",
    "transaction.",      "transactional.",
    "zookeeper.",        "group.coordinator.",
};
constexpr std::string_view kafka_keys[] = {
    "auto.leader.rebalance.enable",
    "background.threads",
    "broker.heartbeat.interval.ms",
    "broker.id",
    "broker.id.generation.enable",
    "broker.rack",
    "broker.session.timeout.ms",
    "inter.broker.protocol.version",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.enable",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.message.format.version",
    "metric.reporters",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "num.replica.fetchers",
    "process.roles",
    "queued.max.request.bytes",
    "queued.max.requests",
    "reserved.broker.max.id",
    "sasl.mechanism.inter.broker.protocol",
    "security.inter.broker.protocol",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
};

bool is_of_kafka_alone(std::string_view key) {
  return std::ranges::find(kafka_keys, key) != std::end(kafka_keys) ||
         std::ranges::any_of(kafka_beginnings,
                             [key](std::string_view begin) { return key.starts_with(begin); });
}

std::string unknown_key_text(const Setting& setting) {
  if (is_of_kafka_alone(setting.key)) {
    return fmt::format("{}: a setting of Apache Kafka that Tarry does not need: leave it out",
                       setting_text(setting));
  }
  const auto meant = nearest_key(setting.key);
  return fmt::format("{}: there is no such key{}; `tarry serve --help-config` shows all",
                     setting_text(setting),
                     meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

Error not_allowed(const Setting& setting, const Error& allowed) {
  return {Errc::invalid, fmt::format("{}: expected {}", setting_text(setting), allowed.message)};
}

// Puts one layer into `config` and `values`, over what lower layers have put there.
Result<> apply_layer(const std::vector<Setting>& layer, Config& config, Values& values) {
  std::map<std::string_view, const Setting*> seen;
  for (const auto& setting : layer) {
    const auto* key = find_setting_key(setting.key);
    if (key == nullptr) return fail(Errc::invalid, unknown_key_text(setting));
    const auto split = split_listener_key(setting.key);
    const std::string_view name = split ? std::string_view(setting.key) : key->name;
    const auto [first, is_first] = seen.emplace(name, &setting);
    if (!is_first) {
      return fail(Errc::invalid, fmt::format("{}: the key is given twice, first as {}: keep one",
                                             setting_text(setting), setting_text(*first->second)));
    }
    // The check of a key puts the value where every listener has it.  For one listener only the
    // check counts, and its value is kept below.
    Config scratch;
    if (const auto set = key->apply(split ? scratch : config, setting.value); !set)
      return std::unexpected(not_allowed(setting, set.error()));
    values[name] = key->canonical(setting.value);
    if (split) {
      config.listener_keys.of_listener[in_capitals(split->first)].insert_or_assign(
          std::string(split->second), values[name]);
    }
  }
  return {};
}

// Kafka has several keys for these times; the one with the finest unit counts.
void choose_times(Config& config) {
  const auto& times = config.times;
  constexpr std::int64_t minute = 60'000, hour = 3'600'000;
  const auto in_ms = [](std::int64_t value, std::int64_t unit) {
    // -1 means for ever in each of the units.
    return value < 0 ? std::int64_t{-1} : value * unit;  // Cannot overflow: an int of hours.
  };
  std::int64_t retention = 168 * hour;
  if (times.retention_ms) {
    retention = *times.retention_ms;
  } else if (times.retention_minutes) {
    retention = in_ms(*times.retention_minutes, minute);
  } else if (times.retention_hours) {
    retention = in_ms(*times.retention_hours, hour);
  }
  std::int64_t roll = 168 * hour;
  if (times.roll_ms) {
    roll = *times.roll_ms;
  } else if (times.roll_hours) {
    roll = in_ms(*times.roll_hours, hour);
  }
  config.broker.topic_defaults["retention.ms"] = std::to_string(retention);
  config.broker.topic_defaults["segment.ms"] = std::to_string(roll);
}

// --- Checks of keys that each are allowed, but not together

Result<> check_journal_keys(const Config& config) {
  if (config.broker.journal_max_bytes >= 2 * config.broker.journal_file_bytes) return {};
  return fail(Errc::invalid,
              fmt::format("tarry.journal.max.bytes={} with tarry.journal.file.bytes={}: at least "
                          "two files must fit",
                          config.broker.journal_max_bytes, config.broker.journal_file_bytes));
}

Result<> check_flush_keys(const storage::Configs& topic_defaults) {
  const auto config = broker::make_topic_config(topic_defaults, {});
  if (!config) return std::unexpected(config.error());
  for (const char* name : {"flush.messages", "flush.ms"}) {
    auto conflict =
        broker::flush_conflict(config->durability, broker::find_topic_config_key(name)->broker_name,
                               topic_defaults.at(name));
    if (!conflict.empty()) return fail(Errc::invalid, std::move(conflict));
  }
  return {};
}

// Whether two sockets with the same port on these hosts would get in each other's way.
bool share_an_address(std::string_view a, std::string_view b) {
  const auto covers = [](std::string_view wide, std::string_view other) {
    // [::] takes the port on IPv4 too.
    if (wide.empty() || wide == "::") return true;
    if (wide == "0.0.0.0") return !other.contains(':');
    return wide == "localhost" && (other == "127.0.0.1" || other == "::1");
  };
  return a == b || covers(a, b) || covers(b, a);
}

Result<> check_addresses(const Config& config) {
  if (!config.admin || config.admin->port == 0) return {};
  for (const auto& listener : config.listeners) {
    const auto& listen = listener.listen;
    // The same port on two hosts is fine, unless one of them stands for the other one too.
    if (config.admin->port != listen.port || !share_an_address(config.admin->host, listen.host))
      continue;
    return fail(
        Errc::in_use,
        fmt::format(
            "tarry.admin.listener={}: it uses the port of listeners={}://{}: give another port",
            config.admin->text(), listener.name, listen.text()));
  }
  return {};
}

// --listen is one listener, and listeners are all that there are.
Result<> check_listen_flag(std::span<const std::vector<Setting>> layers) {
  const Setting* flag = nullptr;
  const Setting* key = nullptr;
  for (const auto& layer : layers) {
    for (const auto& setting : layer) {
      if (setting.key != "listeners") continue;
      const auto* row = find_config_key(setting.key);
      // The file that comes with Tarry gives every key its default.
      if (setting.where == "--listen") {
        flag = &setting;
      } else if (row->canonical(setting.value) != row->fallback) {
        key = &setting;
      }
    }
  }
  if (flag == nullptr || key == nullptr) return {};
  return fail(Errc::invalid, fmt::format("{} with {}: --listen is short for one PLAINTEXT "
                                         "listener: keep one of the two",
                                         setting_text(*flag), setting_text(*key)));
}

// Adds the entries of "listener.name.NAME.": given ones, and those that clients may set.
void add_listener_entries(const Config& config, const Values& values,
                          std::vector<broker::ConfigEntry>& entries) {
  const auto add = [&](std::string name, const ConfigKey& key, const std::string* given) {
    entries.push_back({.name = std::move(name),
                       .value = given == nullptr ? std::string() : *given,
                       .fallback = "",
                       .type = key.type,
                       .is_default = given == nullptr,
                       .is_sensitive = key.is_sensitive(),
                       .is_dynamic = key.is_dynamic,
                       .reason = std::string(key.reason)});
  };
  for (const auto& [name, value] : values) {
    if (split_listener_key(name)) add(std::string(name), *find_setting_key(name), &value);
  }
  for (const auto& listener : config.listeners) {
    std::string lower = listener.name;
    // In keys the names of listeners stand in small letters.
    for (char& c : lower) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    for (const auto& key : config_keys()) {
      if (!key.is_per_listener || !key.is_dynamic) continue;
      // On a listener without TLS these have no effect.
      if (key.name.starts_with("ssl.") && !has_tls(listener.protocol)) continue;
      auto name = fmt::format("listener.name.{}.{}", lower, key.name);
      if (!values.contains(name)) add(std::move(name), key, nullptr);
    }
  }
}

// The entries that DescribeConfigs shows.
std::vector<broker::ConfigEntry> make_entries(const Config& config, const Values& values) {
  std::vector<broker::ConfigEntry> entries;
  for (const auto& key : config_keys()) {
    const auto found = values.find(key.name);
    const std::string value = found == values.end() ? std::string(key.fallback) : found->second;
    entries.push_back({.name = std::string(key.name),
                       .value = value,
                       .fallback = std::string(key.fallback),
                       .type = key.type,
                       .is_default = value == key.fallback,
                       .is_sensitive = key.is_sensitive(),
                       .is_dynamic = key.is_dynamic,
                       .reason = std::string(key.reason)});
  }
  add_listener_entries(config, values, entries);
  return entries;
}

}  // namespace

Result<> check_setting(const Setting& setting) {
  const auto* key = find_setting_key(setting.key);
  if (key == nullptr) return fail(Errc::invalid, unknown_key_text(setting));
  Config unused;
  if (const auto set = key->apply(unused, setting.value); !set)
    return std::unexpected(not_allowed(setting, set.error()));
  return {};
}

Result<Config> make_config(std::span<const std::vector<Setting>> layers) {
  Config config;
  // The defaults go through the checks of their keys, so that a wrong row of the table ends every
  // start.
  for (const auto& key : config_keys()) {
    const auto set = key.apply(config, key.fallback);
    TARRY_ASSERT(set.has_value(), "a key's default is allowed");
  }
  Values values;
  for (const auto& layer : layers)
    if (auto applied = apply_layer(layer, config, values); !applied)
      return std::unexpected(applied.error());
  choose_times(config);
  // hardware_concurrency() is 0 where the machine does not say.
  if (config.shards == 0) config.shards = std::max(1u, std::thread::hardware_concurrency());
  if (auto checked = check_journal_keys(config); !checked) return std::unexpected(checked.error());
  if (auto checked = check_flush_keys(config.broker.topic_defaults); !checked)
    return std::unexpected(checked.error());
  if (auto checked = check_listen_flag(layers); !checked) return std::unexpected(checked.error());
  // After all layers: a listener's name and its protocol may come from different ones.
  auto listeners = resolve_listeners(config.listener_keys);
  if (!listeners) return std::unexpected(listeners.error());
  config.listeners = std::move(*listeners);
  if (auto checked = check_addresses(config); !checked) return std::unexpected(checked.error());
  config.broker.given_topic_defaults = config.broker.topic_defaults;
  config.broker.entries = make_entries(config, values);
  config.given.assign(layers.begin(), layers.end());
  return config;
}

}  // namespace tarry::server
