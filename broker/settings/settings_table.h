#pragma once

// SettingsTable: every setting that there is, with the values of file and flags.
//
//   broker --canonical(), config_with()--> SettingsTable <-- server/live_config: all keys
//
// The table of keys is above this folder (server/config_keys.h), so the broker asks for it through
// this interface.  The server implements it, or a test.
//
// On shard 0's thread, or before the shards' threads run.

#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::broker {

struct BrokerConfig;
struct DynamicSettings;

class SettingsTable {
 public:
  // A value in its canonical form; the error says what is allowed.
  virtual Result<std::string> canonical(std::string_view key, std::string_view value) const = 0;
  // The configuration with these over the values of file and flags, without a BrokerIdentity.  The
  // error says which of them do not go together.
  virtual Result<BrokerConfig> config_with(const DynamicSettings& dynamic) const = 0;
  // Whether what these name outside the configuration (files) can be used; asked once, before they
  // are written.
  virtual Result<> check(const DynamicSettings& /*dynamic*/) const { return {}; }
  // These hold from now on: what of the program is not the broker's follows them.
  virtual void changed(const DynamicSettings& dynamic) = 0;

 protected:
  ~SettingsTable() = default;
};

}  // namespace tarry::broker
