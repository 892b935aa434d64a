#pragma once

// Config: everything that may be set, as the program uses it.
//
//   properties_file --+
//   --set, flags -----+--> config_layers: make_config() --> Config --> Server
//                             |
//                          config_keys: the table, by which values are checked
//
// Invariant: a Config that make_config() has made holds only values that are allowed, also
// together.  It is constant from then on.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/log_format.h"
#include "broker/settings/broker_config.h"
#include "delay/header_aliases.h"
#include "server/address.h"
#include "server/listener_config.h"
#include "server/session_limits.h"
#include "server/setting.h"

namespace tarry::server {

struct Config {
  broker::BrokerConfig broker;
  SessionLimits sessions;

  std::vector<ListenerConfig> listeners;  // The first is the one that `tarry ready` calls kafka.
  std::optional<HostPort> admin{{"127.0.0.1", 8080}};  // tarry.admin.listener; empty: off.
  std::vector<std::string> admin_allowed_hosts;        // tarry.admin.allowed.hosts
  bool admin_open_reads = false;                       // tarry.admin.open.reads
  bool admin_loopback_reads = true;                    // tarry.admin.loopback.reads
  ListenerConfig admin_tls;                // tarry.admin.tls.*; without settings: plain HTTP.
  std::size_t max_connections = 0;         // max.connections
  std::size_t max_connections_per_ip = 0;  // max.connections.per.ip
  std::uint32_t shards = 1;                // tarry.shards, with 0 replaced by the cores.
  LogLevel log_level = LogLevel::info;     // tarry.log.level
  delay::HeaderAliases header_aliases;     // tarry.delay.header.aliases
  LogFormat log_format = LogFormat::text;  // tarry.log.format
  std::chrono::milliseconds shutdown_timeout{30'000};  // tarry.shutdown.timeout.ms

  // Several keys for the same time, as given; make_config() has put the one that counts into
  // broker.topic_defaults.
  struct Times {
    std::optional<std::int64_t> retention_ms, retention_minutes, retention_hours;
    std::optional<std::int64_t> roll_ms, roll_hours;
  } times;

  ListenerKeys listener_keys;  // As given; make_config() has made `listeners` of them.

  std::vector<std::vector<Setting>> given;  // The layers of which it was made.
};

}  // namespace tarry::server
