#pragma once

// KafkaCluster: the Cluster that is Kafka, over librdkafka.
//
//   group      a consumer in the group: source records, read committed, and the assignment
//   reader     a consumer without assignment by the group: rows, stable offsets, ends of sources
//   looker     the same, read uncommitted: ends of state partitions, offsets that are not stable
//   producers  two with a transactional.id each, which alternate: a producer that begins again at
//              once waits for the markers of its last transaction
//   sender     for --delivery at-least-once: idempotent, without transactions
//
// The ids of the producers are new in each incarnation, so that a member that is started again does
// not fence itself.  They are written into the metadata of each offset that is committed.
//
// Invariants
//   - Each call ends after a time that is known; poll() after its wait.  A call that librdkafka has
//     not done by then, or cannot do any more, has an unknown outcome: the producers are given up.
//   - A transaction is committed with the generation of the last poll(), and not at all if that is
//     not a generation of the group (-1).
//
// One thread.  librdkafka has threads of its own, which run none of our code.

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/result.h"
#include "relay/cluster.h"
#include "relay/kafka_handles.h"
#include "relay/kafka_topics.h"
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
  std::chrono::milliseconds timeout{10'000};
  // A transaction is committed or aborted within it, or its producers are given up.
  std::chrono::milliseconds transaction_limit{8'000};
  std::chrono::milliseconds abort_limit{3'000};  // After it.
  std::chrono::milliseconds renewal_limit{5'000};
};

// Whether a topic of this name may be a source: not the relay's own topics, nor Kafka's.
bool may_be_source(const std::string& glob, const std::string& topic);

class KafkaCluster final : public Cluster {
 public:
  // Connects, and joins the group.  The error names what Kafka does not allow.
  static Result<std::unique_ptr<KafkaCluster>> open(const KafkaOptions& options);
  ~KafkaCluster() override;

  // The topics that are sources now, with their partitions.
  Result<std::map<std::string, int>> sources();
  std::string cluster_id();
  // Leaves the group, in order.
  void leave();

  Polled poll(std::chrono::milliseconds wait, bool take_records) override;
  void wake() override;
  Result<> prepare(std::span<const Source> sources) override;
  Result<> prepare_target(const std::string& topic, const Source& source) override;
  Result<std::vector<Committed>> committed(std::span<const Source> sources) override;
  Result<Offset> source_end(const Source& source) override;
  Result<Offset> state_end(const Source& source) override;
  Result<std::vector<Offset>> source_ends(std::span<const Source> sources) override;
  Result<> start_rows(const Source& source, Offset from) override;
  void stop_rows(const Source& source) override;
  Transacted transact(const Transaction& transaction) override;
  Transacted send(std::span<const Outgoing> records) override;
  Result<> settle(const std::string& owner) override;
  const std::string& owner() const override { return options_.owner; }
  Result<> renew() override;

 private:
  struct Reports;  // The outcome of each record of one transaction.
  class Deadline;

  explicit KafkaCluster(KafkaOptions options);
  Result<> connect();
  Result<KafkaClient> open_consumer(const std::string& isolation);
  Result<KafkaClient> open_producer(const std::string& transactional_id);
  void on_rebalance(rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* partitions);
  void on_report(const rd_kafka_message_t& message);
  void take_message(const rd_kafka_message_t& message);
  void take_rows();
  void pause(bool is_paused);
  void note_generation();
  bool read_committed(rd_kafka_t* client, std::span<const Source> sources,
                      std::chrono::milliseconds timeout, std::span<Committed> to);
  Result<Offset> end_of(rd_kafka_t* client, const std::string& topic, PartitionIndex partition);
  void learn_topics(rd_kafka_t* producer, std::span<const Outgoing> records, Deadline deadline);
  bool produce(rd_kafka_t* producer, std::span<const Outgoing> records, Reports& reports,
               Deadline deadline);
  rd_kafka_resp_err_t produce_one(rd_kafka_t* producer, const Outgoing& record, std::uintptr_t tag);
  Transacted not_in_group() const;
  Transacted abort(rd_kafka_t* producer, Transacted done, Deadline deadline);
  Transacted commit(rd_kafka_t* producer, Reports& reports, Deadline deadline);
  KafkaPartitions offsets_of(const Transaction& transaction) const;

  const KafkaOptions options_;
  KafkaClient group_, reader_, looker_;
  std::array<KafkaClient, 2> producers_;
  KafkaClient sender_;
  // The topics whose leaders a producer knows.
  std::map<rd_kafka_t*, std::map<std::string, KafkaTopic>> known_topics_;
  std::size_t turn_ = 0;        // The producer of the next transaction.
  Reports* reports_ = nullptr;  // The reports of the round that is under way.
  std::uintptr_t round_ = 0;
  bool is_careful_ = false;  // Each record in a batch of its own, to see which one is refused.

  KafkaQueue rows_;
  KafkaQueue polled_queue_;  // The queue of the group's consumer.
  std::map<Source, KafkaTopic> reading_rows_;
  KafkaGroupMetadata metadata_;
  std::int32_t generation_ = -1;
  Polled polled_;  // While poll() runs.
  bool is_paused_ = false;
  bool was_assigned_ = false;  // By the group, anything.
  std::string last_error_;     // Logged already.
};

}  // namespace tarry::relay
