#pragma once

// Config: everything that may be set, in one table.
//
//   built-in default  <  --config FILE  <  --set key=value  <  a flag of its own (--data ...)
//
// One row a key: its default, unit, type, reason and how it is put into the Config.  Everything
// else is derived from the table: reading, refusing, `tarry serve --help-config`, the file
// etc/tarry.properties (which is that output), and what DescribeConfigs shows.  Kafka's names where
// Kafka has the thing, tarry.* for what is ours; a default that a topic may override comes from
// the broker's table of topic configs and keeps its range.
//
// FILE is in the syntax of Java's properties, as Kafka's are:
//
//   # a comment, ! too
//   num.partitions = 3          '=', ':' or blanks between key and value
//   log.dirs /srv/\             a line that ends in \ goes on in the next one
//            tarry-logs         whose blanks at its beginning do not count
//   listeners=\u006cocalhost:9092    escapes: \t \n \r \f \\ \uXXXX, any other is itself
//
// Bytes above ASCII are taken as they are (UTF-8); blanks at a value's end do not count.
//
// Values in ms or bytes are plain numbers, as in Kafka, or 7d, 1h30m, 1GiB.  A value that is empty
// is allowed where the default is.
//
// What always holds: what is not understood is refused, in one line that names where it stands,
// key, value and what is allowed; nothing is clamped or ignored.  A key stands once in a file and
// once among the --set.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "broker/settings/broker_config.h"
#include "server/address.h"
#include "server/session_limits.h"

namespace tarry::server {

struct Config {
  broker::BrokerConfig broker;
  SessionLimits sessions;

  HostPort listen{"localhost", 9092};  // listeners
  std::optional<HostPort> advertise;   // advertised.listeners; port 0: the listener's.
  std::optional<HostPort> admin{{"127.0.0.1", 8080}};  // tarry.admin.listener; empty: off.
  std::size_t max_connections = 0;                     // max.connections
  std::uint32_t shards = 1;             // tarry.shards, with 0 replaced by the cores.
  LogLevel log_level = LogLevel::info;  // tarry.log.level
  std::chrono::milliseconds shutdown_timeout{30'000};  // tarry.shutdown.timeout.ms

  // As given, until all keys are read; make_config() has then put them where they belong.
  struct Times {
    std::optional<std::int64_t> retention_ms, retention_minutes, retention_hours;
    std::optional<std::int64_t> roll_ms, roll_hours;
  } times;
};

// One row of the table.
struct ConfigKey {
  std::string_view name;
  std::string_view fallback;  // The built-in default, as text.
  std::string_view unit;      // "ms", "bytes" or empty.
  broker::ConfigType type;
  std::string_view reason;
  // Checks `value` and puts it into `config`; the error says what is allowed, and only that.
  std::function<Result<>(Config& config, std::string_view value)> set;

  std::string allowed() const;
};

// In the order of their names, Kafka's first.
std::span<const ConfigKey> config_keys();
const ConfigKey* find_config_key(std::string_view name);

// A key and a value, and where they stand: "tarry.properties:12", "--set", "--shards".
struct Setting {
  std::string where;
  std::string key;
  std::string value;
};

// `name` is the file's, for errors.
Result<std::vector<Setting>> parse_properties(std::string_view text, std::string_view name);
Result<std::vector<Setting>> read_properties(const std::string& path);

// Whether the value is allowed; the error says what is.
Result<> check_setting(std::string_view key, std::string_view value);

// From lowest to highest: a later layer wins.  Values that are overridden are checked too.
Result<Config> make_config(std::span<const std::vector<Setting>> layers);

// Every key with default, unit, range and reason, as a properties file with the defaults.
std::string config_help();

}  // namespace tarry::server
