#pragma once

// KafkaOptions: how a member reaches Kafka, and how long it waits for an answer.
//
// All limits together bound the time between two polls of the group's consumer (member.h), for
// which the whole group may wait in a rebalance.

#include <chrono>
#include <string>
#include <vector>

#include "relay/partition.h"

namespace tarry::relay {

struct KafkaOptions {
  std::string brokers;
  std::string source;  // The glob of source topics.
  Rules rules;
  std::string owner;                    // The front of the transactional ids of this incarnation.
  std::string client_id;                // As brokers and their tools show it.
  std::string member_id;                // The same of the group's member (relay/directory.h).
  std::vector<std::string> properties;  // -X
  bool has_sender = false;
  std::chrono::milliseconds start_limit{
      10'000};  // Limits each question before the member has begun.
  // Limits each later question about topics and offsets.
  std::chrono::milliseconds question_limit{4'000};
  // A transaction is committed or aborted within it, or its producers are given up.
  std::chrono::milliseconds transaction_limit{8'000};
  std::chrono::milliseconds abort_limit{3'000};  // After it.
  std::chrono::milliseconds renewal_limit{5'000};
  // For the first producers: a new cluster makes the coordinator of transactions when one asks for
  // it, and says NOT_COORDINATOR meanwhile.
  std::chrono::milliseconds first_limit{30'000};
  // For producers to end with the process.
  std::chrono::milliseconds closing_limit{5'000};
};

}  // namespace tarry::relay
