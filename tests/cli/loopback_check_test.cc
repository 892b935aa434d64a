#include "cli/kafka/loopback_check.h"

#include <unistd.h>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/cli/bound_socket.h"

namespace tarry::cli {
namespace {

TEST_SUITE("loopback check") {
  TEST_CASE("all brokers of a list refuse when nobody listens at any of them") {
    std::uint16_t free = 0, taken = 0;
    ::close(bound_socket(free));
    const int listening = bound_socket(taken);
    REQUIRE(::listen(listening, 1) == 0);
    const auto nobody = fmt::format("127.0.0.1:{}", free);
    const auto somebody = fmt::format("127.0.0.1:{}", taken);
    CHECK(all_refused_on_loopback(nobody));
    CHECK(all_refused_on_loopback(nobody + ", PLAINTEXT://" + nobody));
    CHECK(all_refused_on_loopback(fmt::format("localhost:{}", free)));
    CHECK(all_refused_on_loopback(nobody + ","));
    CHECK_FALSE(all_refused_on_loopback(somebody));
    CHECK_FALSE(all_refused_on_loopback(nobody + "," + somebody));
    CHECK_FALSE(all_refused_on_loopback(nobody + ",192.0.2.1:9092"));
    CHECK_FALSE(all_refused_on_loopback(""));
    ::close(listening);
  }
}

}  // namespace
}  // namespace tarry::cli
