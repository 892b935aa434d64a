#include <doctest/doctest.h>

#include <librdkafka/rdkafka_mock.h>

#include "relay/kafka_handles.h"
#include "relay/kafka_producers.h"

namespace tarry::relay {

TEST_CASE(
    "what a transaction did of which a record was not confirmed is unknown, and refuses none") {
  TransactionResult aborted;
  aborted.outcome = Outcome::aborted;
  aborted.refused.emplace_back(3, "too large");
  aborted.silent_targets = {"orders"};
  aborted.error = "not all records were confirmed in time";
  const auto done = unconfirmed(aborted);
  CHECK(done.outcome == Outcome::unknown);
  CHECK(done.refused.empty());
  CHECK(done.silent_targets == aborted.silent_targets);
  CHECK(done.error == aborted.error);
}

TEST_CASE("producers begin although the coordinator of their transactions has yet to begin") {
  constexpr std::int16_t init_producer_id = 22;
  auto client = open_client(RD_KAFKA_PRODUCER, std::vector<std::string>{});
  REQUIRE(client.has_value());
  const KafkaOwned<rd_kafka_mock_cluster_t, rd_kafka_mock_cluster_destroy> cluster(
      rd_kafka_mock_cluster_new(client->get(), 1));
  REQUIRE(cluster != nullptr);
  rd_kafka_mock_push_request_errors(cluster.get(), init_producer_id, 2,
                                    RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
                                    RD_KAFKA_RESP_ERR_NOT_COORDINATOR);
  KafkaOptions options;
  options.brokers = rd_kafka_mock_cluster_bootstraps(cluster.get());
  options.owner = "g-m1";
  KafkaProducers producers(options);
  const auto begun = producers.renew();
  CHECK_MESSAGE(begun.has_value(), (begun ? "" : begun.error().message));
}

}  // namespace tarry::relay
