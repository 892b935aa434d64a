#pragma once

// KafkaGroups: what consumer groups have committed, by the logs of __consumer_offsets.
//
// The topic is compacted, and a group's records stand in one partition: the last one of a key
// counts, and one without a value removes it.  Members, generations and assignments are not read: a
// group joins anew.
//
// Blocks; one thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/kafka_log.h"

namespace tarry::storage {

class KafkaGroups {
 public:
  struct Committed {
    std::string group, topic;
    PartitionIndex partition = 0;
    Offset offset = 0;
    std::string metadata;
  };

  // Adds the records of one partition, after the log's survey.
  Result<> read(KafkaLog& log);
  // One record; false: it tells of an offset in a form that is not known.
  bool take(Bytes key, std::optional<Bytes> value);

  std::vector<Committed> of_topic(const std::string& topic) const;
  std::uint64_t unknown() const { return unknown_; }  // For which take() was false.
  // Records of the newer kinds of groups (consumer, share, streams), but for their offsets.
  std::uint64_t skipped() const { return skipped_; }

 private:
  struct Value {
    Offset offset = 0;
    std::string metadata;
  };
  using Key = std::tuple<std::string, PartitionIndex, std::string>;  // Topic, partition, group.

  std::map<Key, Value> committed_;
  std::uint64_t unknown_ = 0, skipped_ = 0;
};

}  // namespace tarry::storage
