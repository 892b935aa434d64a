#pragma once

// KafkaCluster: the real Cluster, which is Kafka through librdkafka.
//
//   group      a consumer in the group: source records, read committed, and the assignment
//   reader     a consumer without assignment by the group: rows, stable offsets, stable ends
//   looker     the same, read uncommitted: ends that include uncommitted records, offsets that are
//              not stable
//   producers  transactions, and records without one (kafka_producers.h)
//
// Invariants
//   - Each call ends within a known time; poll() within its wait.
//   - A transaction is committed with the generation of the last poll(), and not at all if that is
//     not a generation of the group (-1).
//   - After max.poll.interval.ms without a poll no partition is kept, whatever librdkafka says.
//
// One thread; another one only notices whether the process has stood still.  librdkafka has threads
// of its own, which run none of our code.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/result.h"
#include "relay/cluster.h"
#include "relay/kafka_handles.h"
#include "relay/kafka_options.h"
#include "relay/kafka_producers.h"
#include "relay/kafka_topics.h"
#include "relay/patience.h"
#include "relay/queue_marks.h"
#include "relay/standstill.h"

namespace tarry::relay {

// Whether a topic of this name may be a source: not the relay's own topics, nor Kafka's.
bool may_be_source(const std::string& glob, const std::string& topic);

// The property that says how long the group waits for a member whose thread does not poll, in a
// rebalance and otherwise.  With librdkafka's default of 300 s one member that hangs would keep all
// others from their partitions for as long, because its heartbeats go on.  It may not be less than
// a session.timeout.ms among `properties`.
std::string poll_interval_property(std::span<const std::string> properties);

// The sizes of fetches.  librdkafka counts the time of a request until the whole answer is there,
// so it has to come within max_silence on a slow link too: 4 MiB need 5.6 Mbit/s.  A fetch may not
// be smaller than a message.max.bytes among `properties`, and a fetch.max.bytes there counts.
std::vector<std::string> fetch_properties(std::span<const std::string> properties);

// Whether this error of a client means that a broker was away: records of its partitions may have
// been acknowledged that were not fetched.  A connection that stays open without an answer counts
// too, and librdkafka has a word of its own for it.
bool is_outage(rd_kafka_resp_err_t error);

// How long librdkafka may take to fetch again from a partition behind a pause, or behind a queue
// that was full.
std::chrono::milliseconds longest_first_fetch(std::span<const std::string> properties);

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

  PollResult poll(std::chrono::milliseconds wait, const std::set<Source>& paused) override;
  void wake() override;
  Result<> prepare(std::span<const Source> sources) override;
  Result<> prepare_target(const std::string& topic, const Source& source) override;
  Result<std::vector<CommittedOffset>> committed(std::span<const Source> sources) override;
  Result<Offset> source_end(const Source& source) override;
  Result<Offset> state_end(const Source& source) override;
  Result<Offset> stable_source_end(const Source& source) override;
  Result<std::vector<Offset>> source_ends(std::span<const Source> sources) override;
  Result<> start_rows(const Source& source, Offset from) override;
  void stop_rows(const Source& source) override;
  TransactionResult transact(const Transaction& transaction) override;
  TransactionResult send(std::span<const ProducerRecord> records) override;
  Result<> begin_send(std::vector<ProducerRecord> records) override;
  Sending sending() override { return producers_.sending(); }
  SendResult end_send() override { return producers_.end_send(); }
  Result<> settle(const std::string& owner) override { return producers_.settle(owner); }
  const std::string& owner() const override { return options_.owner; }
  Result<> renew() override { return producers_.renew(options_.renewal_limit); }

 private:
  explicit KafkaCluster(KafkaOptions options);
  Result<> connect();
  Result<KafkaClient> open_consumer(const std::string& isolation);
  void on_rebalance(rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* partitions);
  void take_message(const rd_kafka_message_t& message);
  std::size_t number_of(const char* property) const;
  bool take_messages(std::chrono::milliseconds wait, std::size_t most);
  void take_rows();
  void pause(const std::set<Source>& paused);
  rd_kafka_resp_err_t subscribe();
  void join_anew();
  void note_generation();
  bool read_committed(rd_kafka_t* client, std::span<const Source> sources,
                      std::chrono::milliseconds timeout, std::span<CommittedOffset> to);
  Result<Offset> end_of(rd_kafka_t* client, const std::string& topic, PartitionIndex partition);
  void note_end_answer(rd_kafka_resp_err_t error, std::chrono::steady_clock::time_point begun);
  TransactionResult not_in_group() const;

  const KafkaOptions options_;
  KafkaClient group_, reader_, looker_;
  KafkaProducers producers_;

  KafkaQueue rows_;
  KafkaQueue polled_queue_;  // The queue of the group's consumer.
  std::map<Source, KafkaTopic> reading_rows_;
  KafkaGroupMetadata metadata_;
  std::int32_t generation_ = -1;
  PollResult polled_;  // While poll() runs.
  QueueMarks marks_{{}, {}};
  std::set<Source> paused_;
  bool was_assigned_ = false;  // By the group, anything.
  std::set<Source> assigned_;  // The partitions that librdkafka has, as far as it has said so.
  std::chrono::milliseconds poll_interval_{};
  std::chrono::steady_clock::time_point polled_at_{};
  bool was_expelled_ = false;  // Perhaps; nothing is committed before the group is joined anew.
  std::string last_error_;     // Logged already.
  Patience for_stable_{std::chrono::milliseconds{300}, std::chrono::milliseconds{4'000}};
  // For the end of a partition, whose leader may be away.
  Patience for_end_{std::chrono::milliseconds{800}, std::chrono::milliseconds{4'000}};
  Standstill standstill_{std::chrono::steady_clock::now()};
  std::jthread ticking_;
};

}  // namespace tarry::relay
