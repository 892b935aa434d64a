#include "cli/kafka/advertised_check.h"

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/cli/bound_socket.h"

namespace tarry::cli {
namespace {

// What librdkafka gives for brokers on these ports of 127.0.0.1, after an answer of `answered`.
struct Advertised {
  Advertised(std::string from, const std::vector<std::uint16_t>& ports)
      : answered(std::move(from)) {
    for (const auto port : ports)
      brokers.push_back({static_cast<std::int32_t>(brokers.size()), host.data(), port});
  }

  std::optional<UnreachableBroker> find() {
    rd_kafka_metadata_t metadata{};
    metadata.broker_cnt = static_cast<int>(brokers.size());
    metadata.brokers = brokers.data();
    metadata.orig_broker_name = answered.data();
    return find_unreachable(metadata);
  }

  std::string answered;
  std::string host = "127.0.0.1";
  std::vector<rd_kafka_metadata_broker_t> brokers;
};

TEST_SUITE("advertised check") {
  TEST_CASE("a broker at whose advertised address nobody listens is told with its reason") {
    std::uint16_t nobody = 0, taken = 0;
    const int bound = bound_socket(nobody);
    const int listening = bound_socket(taken);
    REQUIRE(::listen(listening, 8) == 0);
    const auto found = Advertised("ssl://192.0.2.1:9092/bootstrap", {taken, nobody}).find();
    REQUIRE(found);
    CHECK(found->answered == "192.0.2.1:9092");
    CHECK(found->advertised == fmt::format("127.0.0.1:{}", nobody));
    CHECK(found->reason == "Connection refused");
    const auto text = unreachable_text(*found);
    for (const auto& word : {found->answered, found->advertised, found->reason,
                             std::string("advertised.listeners"), std::string("--advertise")})
      CHECK_MESSAGE(text.contains(word), text);
    ::close(listening);
    ::close(bound);
  }

  TEST_CASE("brokers that take connections, and the one that has answered, are no problem") {
    std::uint16_t nobody = 0, taken = 0;
    const int bound = bound_socket(nobody);
    const int listening = bound_socket(taken);
    REQUIRE(::listen(listening, 8) == 0);
    CHECK_FALSE(Advertised("192.0.2.1:9092/bootstrap", {taken}).find());
    CHECK_FALSE(Advertised(fmt::format("127.0.0.1:{}/7", nobody), {nobody}).find());
    CHECK_FALSE(Advertised("192.0.2.1:9092/bootstrap", {}).find());
    ::close(listening);
    ::close(bound);
  }
}

}  // namespace
}  // namespace tarry::cli
