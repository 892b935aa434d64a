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
// settings_table.h has the keys and their allowed values.

#include <functional>
#include <string>
#include <string_view>

#include "storage/journal_record.h"

namespace tarry::broker {

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

}  // namespace tarry::broker
