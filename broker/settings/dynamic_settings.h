#pragma once

// DynamicSettings: the settings that clients have changed while the broker ran.
//
//   built-in default  <  file  <  --set, flags  <  cluster default  <  this broker
//                                                  '------- dynamic -------'
//
// As in Kafka: AlterConfigs of the broker "1" sets those of this broker, of the broker "" those of
// the whole cluster, which is this broker too.  They win over the file and survive a restart: shard
// 0's journal and db/meta have them.
//
// The table of all keys is above this folder (server/config_keys.h); the broker asks it through
// SettingsTable.

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "storage/journal_record.h"

namespace tarry::broker {

struct BrokerConfig;

// Canonical values under their keys.
struct DynamicSettings {
  storage::Configs of_broker;
  storage::Configs of_cluster;

  bool empty() const { return of_broker.empty() && of_cluster.empty(); }
  bool operator==(const DynamicSettings&) const = default;

  // The one that holds; null: none.
  const std::string* find(std::string_view key) const;

  // In the form in which they are stored: those of the cluster as "default:KEY".
  storage::Configs stored() const;
  static DynamicSettings of_stored(const storage::Configs& stored);
};

// Every setting that there is, with the values of file and flags.  On shard 0's thread, or before
// the shards' threads run.
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
