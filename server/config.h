#pragma once

// Config: everything that may be set, as the program uses it.
//
//   properties_file --+
//   --set, flags -----+--> config_layers: make_config() --> Config --> Server
//                             |
//                          config_keys: the table, by which values are checked
//
// What always holds: a Config that make_config() has made holds only values that are allowed, also
// together.  It is constant from then on.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/log.h"
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

  // Several keys for the same time, as given; make_config() has put the one that counts into
  // broker.topic_defaults.
  struct Times {
    std::optional<std::int64_t> retention_ms, retention_minutes, retention_hours;
    std::optional<std::int64_t> roll_ms, roll_hours;
  } times;
};

}  // namespace tarry::server
