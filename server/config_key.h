#pragma once

// ConfigKey: one row of the table of everything that may be set (config_keys.h).
//
// A row is a key's default, unit, type, reason and the way into the Config.  Everything else is
// derived from the table: reading and refusing values (config_layers.h), `tarry serve
// --help-config` with the file etc/tarry.properties (config_help.h), and what DescribeConfigs
// shows.  Names are Kafka's where Kafka has the thing, and tarry.* for ours; a default that a topic
// may override comes from the broker's table of topic configs and keeps its range.
//
// Values in ms or bytes are plain numbers, as in Kafka, or 7d, 1h30m, 1GiB.  An empty value is
// allowed where the default is empty.
//
// Invariant: each name stands once, each default is allowed.  The table is constant, and
// any thread may read it.

#include <string>
#include <string_view>

#include "base/result.h"
#include "broker/settings/topic_config.h"
#include "server/config.h"
#include "server/config_values.h"

namespace tarry::server {

struct ConfigKey {
  std::string_view name;
  std::string_view fallback;  // The built-in default, as text.
  std::string_view unit;      // "ms", "bytes" or empty.
  broker::ConfigType type;
  std::string_view reason;
  SetValue set;                  // Takes a canonical value.
  bool is_dynamic = false;       // Clients can change it while the broker runs (live_config.h).
  bool is_per_listener = false;  // It may stand behind "listener.name.NAME." too.

  // A secret: neither errors nor the log nor DescribeConfigs show its value.
  bool is_sensitive() const { return type == broker::ConfigType::password; }

  std::string allowed() const;
  // The one form of a value that DescribeConfigs shows: "7d", "1GiB" and "007" as plain numbers,
  // "True" as "true", an address with its protocol, as Kafka has them.  A value that is not allowed
  // may come back as it is.
  std::string canonical(std::string_view value) const;
  // Checks `value`, in any form, and puts it into `config`; the error says what is allowed.
  Result<> apply(Config& config, std::string_view value) const;
};

}  // namespace tarry::server
