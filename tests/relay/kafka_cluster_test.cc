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

TEST_CASE("an answer with records is 4 MiB, or as large as the largest message that is allowed") {
  using Properties = std::vector<std::string>;
  CHECK(fetch_properties({}) ==
        Properties{"fetch.max.bytes=4194304", "max.partition.fetch.bytes=524288"});
  for (const char* given : {"message.max.bytes=1000000", "message.max.bytes=20000000",
                            "message.max.bytes=300000000", "fetch.max.bytes=1000000"}) {
    const Properties of_operator{given};
    Properties all = fetch_properties(of_operator);
    if (of_operator[0] == "message.max.bytes=20000000") CHECK(all[0] == "fetch.max.bytes=20000000");
    all.emplace_back("group.id=g");
    all.insert(all.end(), of_operator.begin(), of_operator.end());
    CHECK(open_client(RD_KAFKA_CONSUMER, all).has_value());
  }
}

TEST_CASE("after a pause the first fetch may wait for librdkafka's sleep and for another fetch") {
  using Properties = std::vector<std::string>;
  using std::chrono::milliseconds;
  CHECK(longest_first_fetch({}) == milliseconds(1'225));
  CHECK(longest_first_fetch(Properties{"fetch.wait.max.ms=500"}) == milliseconds(1'700));
  CHECK(longest_first_fetch(Properties{"fetch.queue.backoff.ms=3000"}) == milliseconds(3'225));
}

TEST_CASE(
    "a broker that does not answer in time counts as unavailable, and one that refuses a topic "
    "does not") {
  // librdkafka's error for a connection that stays open without an answer.
  CHECK(is_outage(RD_KAFKA_RESP_ERR__TIMED_OUT));
  CHECK(is_outage(RD_KAFKA_RESP_ERR__TRANSPORT));
  CHECK(is_outage(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN));
  CHECK_FALSE(is_outage(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED));
  CHECK_FALSE(is_outage(RD_KAFKA_RESP_ERR_NO_ERROR));
}

}  // namespace tarry::relay
