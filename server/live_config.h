#pragma once

// LiveConfig: the table of settings as the broker asks it, for settings that clients change while
// it runs.
//
//   file, --set, flags (Config::given) --+
//   cluster default, broker (dynamic) ---+--> make_config() --> BrokerConfig --> every shard
//                                                    '--> on_change --> log level, sessions
//
// Invariant: a dynamic setting is checked as one of the file is, alone and together with
// the others.
//
// On the threads of broker::SettingsTable.

#include <functional>
#include <string>
#include <string_view>

#include "broker/settings/dynamic_settings.h"
#include "broker/settings/settings_table.h"
#include "server/config.h"

namespace tarry::server {

class LiveConfig final : public broker::SettingsTable {
 public:
  // `on_change` is given each Config that holds from then on, the one of the start too.  `check`
  // is asked before a client's settings of TLS hold: whether what they name can be used.
  LiveConfig(Config at_start, std::function<void(const Config&)> on_change,
             std::function<Result<>(const Config&)> check = {});

  Result<std::string> canonical(std::string_view key, std::string_view value) const override;
  Result<broker::BrokerConfig> config_with(const broker::DynamicSettings& dynamic) const override;
  Result<> check(const broker::DynamicSettings& dynamic) const override;
  void changed(const broker::DynamicSettings& dynamic) override;

 private:
  Result<Config> merged(const broker::DynamicSettings& dynamic) const;

  const Config at_start_;
  const std::function<void(const Config&)> on_change_;
  const std::function<Result<>(const Config&)> check_;
};

}  // namespace tarry::server
