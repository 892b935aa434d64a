#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <vector>

#include "relay/kafka_producers.h"

namespace tarry::relay {

TEST_CASE("each partition of a transaction has a record among the first, and no record overtakes") {
  std::vector<ProducerRecord> records;
  for (PartitionIndex partition = 0; partition < 3; ++partition)
    for (const char* topic : {"orders", "g-pending-orders.delayed"})
      for (Offset offset = 0; offset < 4; ++offset) {
        auto& record = records.emplace_back();
        record.topic = topic;
        record.source = {"orders.delayed", partition};
        record.offset = offset;
      }
  // Some do not stand behind one of their own kind.
  std::ranges::stable_sort(records.begin() + 8, records.end(), {}, &ProducerRecord::offset);
  const auto order = sending_order(records);
  REQUIRE(order.size() == records.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto is_alike = [&](std::size_t other) {
      return records[other].topic == records[order[i]].topic &&
             records[other].source == records[order[i]].source;
    };
    const auto before =
        std::ranges::subrange(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK(std::ranges::any_of(before, is_alike) == (i >= 6));
    for (const std::size_t other : before)
      if (is_alike(other)) CHECK(other < order[i]);
  }
  CHECK(sending_order({}).empty());
}

TEST_CASE(
    "the outcome of a transaction with an unconfirmed record is unknown, and no record of it "
    "counts as refused") {
  TransactionResult aborted;
  aborted.outcome = Outcome::aborted;
  aborted.refused.emplace_back(3, "too large");
  aborted.silent_targets = {"orders"};
  aborted.silent_sources.insert(Source{"orders.delayed", 3});
  aborted.error = "not all records were confirmed in time";
  const auto done = unconfirmed(aborted);
  CHECK(done.outcome == Outcome::unknown);
  CHECK(done.refused.empty());
  CHECK(done.silent_targets == aborted.silent_targets);
  CHECK(done.silent_sources.size() == 1);
  CHECK(done.error == aborted.error);
}

TEST_CASE("offsets that Kafka has refused are not under way any more, and others may be") {
  CHECK_FALSE(is_unanswered(nullptr));
  for (const auto code : {RD_KAFKA_RESP_ERR__TIMED_OUT, RD_KAFKA_RESP_ERR__TRANSPORT,
                          RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR_NOT_COORDINATOR}) {
    const KafkaError late(rd_kafka_error_new(code, "late"));
    CHECK(is_unanswered(late.get()));
  }
  for (const auto code : {RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
                          RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED}) {
    const KafkaError refused(rd_kafka_error_new(code, "refused"));
    CHECK_FALSE(is_unanswered(refused.get()));
  }
}

TEST_CASE("an error of a topic is told from those of a producer and of its transaction") {
  for (const auto error :
       {RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,
        RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS})
    CHECK(is_of_topic(error));
  for (const auto error :
       {RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        RD_KAFKA_RESP_ERR__STATE, RD_KAFKA_RESP_ERR__PURGE_QUEUE, RD_KAFKA_RESP_ERR__TRANSPORT,
        RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE})
    CHECK_FALSE(is_of_topic(error));
}

}  // namespace tarry::relay
