#pragma once

// KafkaProducers: what a member writes to Kafka, over librdkafka.
//
//   transactional  two with a transactional.id each, which alternate: a producer that begins again
//                  at once waits for the markers of its last transaction
//   sender         for --delivery at-least-once: idempotent, without transactions.  send() waits
//                  for the records that it sends; those of begin_send() are under way until
//                  end_send()
//
//   begin --> offsets --> records --> commit --> committed
//                '-----------'-----------'-----> abort --> aborted
//                                        '----------'----> unknown: renew()
//
// The ids are new in each incarnation, so that a member that is started again does not fence
// itself. They are written into the metadata of each offset that is committed, so that another
// member can end what a dead one has left open.
//
// Invariants
//   - Each call ends by a deadline.  If librdkafka has not finished it by then, or cannot any more,
//     its outcome is unknown: the producers are given up, and renew() creates others with the same
//     ids, which settles it.
//   - If a record or the offsets of a transaction were not confirmed in time, its outcome is
//     unknown, too, even if it was aborted.
//   - The offsets are sent before the records: a transaction that the group refuses leaves nothing
//     in the logs.
//
// Belongs to the KafkaCluster; on its thread.  librdkafka has threads of its own, which run none of
// our code.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/result.h"
#include "relay/closer.h"
#include "relay/cluster.h"
#include "relay/kafka_handles.h"
#include "relay/kafka_options.h"
#include "relay/refusal_search.h"

namespace tarry::relay {

// The metadata of an offset: this, and the owner (KafkaOptions).
inline constexpr std::string_view owner_mark = "tarry-relay/1 ";

// Whether Kafka, or librdkafka, refuses a record for a reason of its topic or partition, which may
// pass, and which no other topic has.
bool is_of_topic(rd_kafka_resp_err_t error);

// Whether Kafka has not answered in time: some request may still be on its way.
bool is_unanswered(const rd_kafka_error_t* error);

// The outcome of a transaction that was aborted because some part was not confirmed in time.  The
// request may still be under way and arrive after the end of its transaction: only a new epoch of
// the producer keeps Kafka from taking it for a part of another transaction.
TransactionResult unconfirmed(TransactionResult aborted);

// The order in which the records of one transaction are handed to librdkafka, by their index: the
// first ones of each topic and source, and then the others as they are.  It asks the coordinator
// for the partitions that it knows a millisecond after the first record, and for those that come
// later in another request behind that one.  Records of one source for one topic keep their order.
std::vector<std::size_t> sending_order(std::span<const ProducerRecord> records);

class KafkaProducers {
 public:
  // There are none before the first renew().  `options` outlives them.
  explicit KafkaProducers(const KafkaOptions& options);
  ~KafkaProducers();

  // Takes the reports that have come.
  void poll();
  // `group`: the member and its generation.
  TransactionResult transact(const Transaction& transaction,
                             const rd_kafka_consumer_group_metadata_t* group);
  // Not while others are under way.
  TransactionResult send(std::span<const ProducerRecord> records);
  void begin_send(std::vector<ProducerRecord> records);
  Sending sending();
  SendResult end_send();
  // Nothing is under way any more: it is confirmed, or given up, which sending() says.
  void drain(std::chrono::milliseconds limit);
  Result<> settle(const std::string& owner);
  Result<> renew(std::chrono::milliseconds limit);

 private:
  struct Reports;   // The outcome of each record of one transaction.
  struct UnderWay;  // The records between begin_send() and end_send().
  class Deadline;

  Result<KafkaClient> open_producer(const std::string& transactional_id);
  void give_up(KafkaClient client);
  void on_report(const rd_kafka_message_t& message);
  void learn_topics(rd_kafka_t* producer, std::span<const ProducerRecord> records,
                    Deadline deadline);
  bool produce(rd_kafka_t* producer, std::span<const ProducerRecord> records, Reports& reports,
               Deadline deadline, bool is_careful);
  rd_kafka_resp_err_t hand_over(rd_kafka_t* producer, const ProducerRecord& record,
                                std::uintptr_t tag, Deadline deadline);
  TransactionResult end_sending(Reports& reports, bool is_produced, Deadline deadline);
  rd_kafka_resp_err_t produce_one(rd_kafka_t* producer, const ProducerRecord& record,
                                  std::uintptr_t tag);
  TransactionResult abort(rd_kafka_t* producer, TransactionResult done, Deadline deadline);
  TransactionResult commit(rd_kafka_t* producer, Reports& reports, Deadline deadline);
  void find_unreadable(rd_kafka_t* producer, const Transaction& transaction,
                       const rd_kafka_consumer_group_metadata_t* group, TransactionResult& done);
  void find_forbidden(rd_kafka_t* producer, const Transaction& transaction,
                      const rd_kafka_consumer_group_metadata_t* group, TransactionResult& done);
  Result<std::string> try_record(rd_kafka_t* producer, const ProducerRecord& record,
                                 const Transaction& transaction,
                                 const rd_kafka_consumer_group_metadata_t* group,
                                 Deadline deadline);
  KafkaPartitions offsets_of(const Transaction& transaction) const;

  const KafkaOptions& options_;
  Closer closer_;  // Ends producers that were given up.
  std::array<KafkaClient, 2> producers_;
  KafkaClient sender_;
  // The topics whose leaders a producer knows.
  std::map<rd_kafka_t*, std::map<std::string, KafkaTopic>> known_topics_;
  std::size_t turn_ = 0;        // The producer of the next transaction.
  Reports* reports_ = nullptr;  // The reports of the round that is waited for.
  std::unique_ptr<UnderWay> under_way_;
  std::uintptr_t round_ = 0;
  RefusalSearch search_;
};

}  // namespace tarry::relay
