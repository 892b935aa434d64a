#pragma once

// LiveSettings: changes the broker's settings while it runs, in the order of the requests.
//
//   change --> checked --> journal of shard 0 --> Catalog --> every shard's BrokerConfig
//                                                               '--> answered
//
// Invariants
//   - A change that is answered is durable, and every shard works by it.
//   - A setting that is not understood, not dynamic, out of its range, or in conflict with another
//     is refused, and nothing of its request is changed.
//
// On shard 0's thread.

#include <functional>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "broker/settings/dynamic_settings.h"
#include "broker/settings/settings_table.h"
#include "broker/topics/topics.h"
#include "storage/catalog.h"

namespace tarry::broker {

class ShardContext;

// Hands the settings to every shard; the Broker implements it.  Called on shard 0's thread, comes
// back there.
class SettingsHost {
 public:
  virtual boost::asio::awaitable<void> publish_settings(DynamicSettings dynamic) = 0;

 protected:
  ~SettingsHost() = default;
};

class LiveSettings {
 public:
  // `shard` is shard 0.  Without a table nothing can be changed.
  LiveSettings(ShardContext& shard, SettingsHost& host, storage::Catalog& catalog,
               const SettingsTable* table);

  // Refuses a setting that cannot be changed, whatever its value.
  TopicResult<void> check_key(std::string_view key) const;

  // Replaces the dynamic settings of the broker or of the cluster by the result of `change`; the
  // log says that `who` did it.
  enum class Scope { broker, cluster };
  using Change = std::move_only_function<TopicResult<storage::Configs>(storage::Configs)>;
  boost::asio::awaitable<TopicResult<void>> change(Scope scope, Change change, std::string who,
                                                   bool only_check);

 private:
  // All of them in canonical form, or why not.
  TopicResult<storage::Configs> settle(const storage::Configs& wanted) const;

  ShardContext& shard_;
  SettingsHost& host_;
  storage::Catalog& catalog_;
  const SettingsTable* const table_;
  DynamicSettings latest_;  // With what is in the journal and not durable yet.
};

}  // namespace tarry::broker
