#pragma once

// RefusalReasons: why a broker does not take a producer's records.
//
// librdkafka 2.0.2 tells an error code and no more, so the leader of the partition is asked again
// about the record, by a dry run (dry_run.h), over a connection with the producer's properties.
//
// Invariant: a producer asks about a limited number of records, one round trip each, and
// about no more once a broker could not be asked.
//
// It belongs to the producer, whose connection outlives it, and runs in the producer's thread.

#include <chrono>
#include <optional>
#include <string>

#include <librdkafka/rdkafka.h>

#include "cli/kafka/connection.h"
#include "cli/kafka/consumed_record.h"
#include "cli/kafka/dry_run.h"
#include "cli/kafka/wire_client.h"

namespace tarry::cli {

class RefusalReasons {
 public:
  explicit RefusalReasons(KafkaConnection& connection) : connection_(connection) {}

  // The reason of a refusal: Kafka's name of the error and what the broker says about it.
  std::string reason_of(const rd_kafka_message_t& message);

  // The reason why a broker that answers takes no record of `topic` for now; librdkafka then sends
  // the records again and again and does not say why.  Nullopt: the partitions that were asked take
  // records, or do not answer.
  std::optional<std::string> topic_refusal(rd_kafka_topic_t* topic);

 private:
  std::optional<Refusal> ask_leader(rd_kafka_topic_t* topic, const ConsumedRecord& record);
  std::optional<Refusal> ask_at(const std::string& address, const std::string& topic,
                                const ConsumedRecord& record);
  // The command has spent its own timeout already; a broker that is there answers at once.
  std::chrono::milliseconds patience() const;

  KafkaConnection& connection_;
  unsigned asked_ = 0;
  std::optional<WireClient> leader_;  // The leader that was asked last.
  std::string leader_address_;
};

}  // namespace tarry::cli
