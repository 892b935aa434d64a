#pragma once

// KafkaTopics: creates or checks the topics that the relay needs.
//
//   GROUP-pending-SOURCE   created compacted, with the source's number of partitions and with small
//                          segments, because an active segment is never compacted.  If it exists,
//                          it is checked: compacted and nothing else, not fewer partitions (they
//                          are added), tombstones kept for an hour
//   SOURCE.invalid         created with the source's number of partitions
//   the target             created with the source's number of partitions; never changed
//
// One thread.  Nothing waits longer than `timeout` for an answer.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/result.h"

namespace tarry::relay {

using TopicSettings = std::vector<std::pair<std::string, std::string>>;

class KafkaTopics {
 public:
  // `client` outlives it.
  KafkaTopics(rd_kafka_t* client, std::chrono::milliseconds timeout)
      : client_(client), timeout_(timeout) {}

  // Topic -> its number of partitions.
  Result<std::map<std::string, int>> list() const;
  // Empty: there is no such topic.
  Result<std::optional<int>> partitions_of(const std::string& topic) const;

  Result<> ensure_state(const std::string& topic, const std::string& source);
  // It has at least as many partitions as the source, or gets them with `grow`.
  Result<> ensure(const std::string& topic, const std::string& source, bool grow);

 private:
  Result<int> source_partitions(const std::string& source) const;
  Result<> create(const std::string& topic, int partitions, const TopicSettings& settings);
  Result<> add_partitions(const std::string& topic, int partitions);
  Result<std::map<std::string, std::string>> configs_of(const std::string& topic);

  rd_kafka_t* const client_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace tarry::relay
