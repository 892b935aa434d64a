#pragma once

// KafkaSource: what the log directories of an Apache Kafka broker hold, topic by topic.
//
//   /kafka/logs-1, /kafka/logs-2  ->  orders: 0 in logs-1, 1 in logs-2 ...
//                                     __consumer_offsets: for the groups
//
// A directory that a Kafka process has locked is refused, and none can lock it until this is
// destroyed.  Changes nothing.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"
#include "storage/kafka_log.h"

namespace tarry::cli {

struct KafkaSourceTopic {
  std::string name;
  std::string id;  // Kafka's; empty where no partition tells it.
  std::vector<std::unique_ptr<storage::KafkaLog>> partitions;
  bool is_compacted = false;  // Kafka's cleaner has been at it.
  std::string problem;        // Why it cannot be imported; empty: it can.
};

struct KafkaSource {
  std::vector<KafkaSourceTopic> topics;                     // By name, without the internal ones.
  std::vector<std::string> internal;                        // Their names.
  std::vector<std::unique_ptr<storage::KafkaLog>> offsets;  // The logs of __consumer_offsets.
  std::string offsets_problem;               // Why they are not all; empty: they are, or are none.
  std::vector<std::shared_ptr<void>> locks;  // They lock the directories.

  // Nothing in the files says how many partitions __consumer_offsets has (Kafka's
  // offsets.topic.num.partitions); empty: as by default, or as many as are there.
  static Result<KafkaSource> open(storage::Disk& disk, const std::vector<std::string>& directories,
                                  std::optional<PartitionIndex> offsets_partitions);
};

}  // namespace tarry::cli
