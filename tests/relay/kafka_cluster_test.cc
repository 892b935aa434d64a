#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "relay/kafka_cluster.h"
#include "relay/kafka_handles.h"

namespace tarry::relay {

TEST_CASE("a group waits 30 s for a member that hangs, or for as long as its session") {
  using Properties = std::vector<std::string>;
  CHECK(poll_interval_property({}) == "max.poll.interval.ms=30000");
  CHECK(poll_interval_property(Properties{"session.timeout.ms=6000"}) ==
        "max.poll.interval.ms=30000");
  const Properties longer{"security.protocol=PLAINTEXT", "session.timeout.ms=45000"};
  CHECK(poll_interval_property(longer) == "max.poll.interval.ms=45000");
  // librdkafka makes no client whose interval is less than its session.
  Properties all{poll_interval_property(longer), "group.id=g"};
  all.insert(all.end(), longer.begin(), longer.end());
  CHECK(open_client(RD_KAFKA_CONSUMER, all).has_value());
  all.front() = poll_interval_property({});
  CHECK_FALSE(open_client(RD_KAFKA_CONSUMER, all).has_value());
}

TEST_CASE("a broker that answers nothing in time was away, and one that refuses a topic was not") {
  // librdkafka's error for a connection that stays open without an answer.
  CHECK(is_outage(RD_KAFKA_RESP_ERR__TIMED_OUT));
  CHECK(is_outage(RD_KAFKA_RESP_ERR__TRANSPORT));
  CHECK(is_outage(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN));
  CHECK_FALSE(is_outage(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED));
  CHECK_FALSE(is_outage(RD_KAFKA_RESP_ERR_NO_ERROR));
}

}  // namespace tarry::relay
