#include "cli/kafka/error_text.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cli/kafka/config_lookup.h"

namespace tarry::cli {
namespace {

TEST_SUITE("error text") {
  TEST_CASE("an error has Kafka's name and a reason, without librdkafka's prefixes") {
    CHECK(error_text(RD_KAFKA_RESP_ERR_INVALID_RECORD) ==
          "INVALID_RECORD: Broker failed to validate record");
    CHECK(error_text(RD_KAFKA_RESP_ERR_INVALID_RECORD, "") ==
          "INVALID_RECORD: Broker failed to validate record");
    CHECK(error_text(RD_KAFKA_RESP_ERR_INVALID_RECORD, "Broker: x-delay is negative") ==
          "INVALID_RECORD: x-delay is negative");
    CHECK(error_text(RD_KAFKA_RESP_ERR__TIMED_OUT) == "TIMED_OUT: Timed out");
  }

  TEST_CASE("a connection error is shown without the address before it and the state behind it") {
    CHECK(connection_error_text("127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: "
                                "Connection refused (after 0ms in state CONNECT)") ==
          "Connect to ipv4#127.0.0.1:9092 failed: Connection refused");
    CHECK(connection_error_text("no colon") == "no colon");
    CHECK(connection_error_text("127.0.0.1:8080/bootstrap: Receive failed: Invalid response size "
                                "1213486160 (0..100000000): increase receive.message.max.bytes")
              .starts_with("it speaks HTTP: is it the admin's port?"));
  }

  TEST_CASE("the config that was probably meant is found by a few slips, and no other word is") {
    const std::vector<ConfigEntry> configs{{"log.retention.ms", {}, "default"},
                                           {"tarry.shards", {}, "default"},
                                           {std::string(5000, 'x'), {}, "default"}};
    CHECK(nearest_config(configs, "tarry.shard") == "tarry.shards");
    CHECK(nearest_config(configs, "log.retentoin.ms") == "log.retention.ms");
    CHECK(nearest_config(configs, "max.connections") == "");
    CHECK(nearest_config(configs, std::string(5000, 'x')) == "");
  }

  TEST_CASE("a broker's text cannot make a line of its own") {
    CHECK(broker_text("a\nb").find('\n') == std::string::npos);
    CHECK(name_text("a\nb").find('\n') == std::string::npos);
    CHECK(broker_text(std::string(2000, 'x')).size() == 1000);
  }
}

}  // namespace
}  // namespace tarry::cli
