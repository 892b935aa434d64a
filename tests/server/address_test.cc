#include "server/address.h"

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

HostPort parsed(std::string_view text) {
  const auto result = parse_host_port(text);
  INFO("text: ", std::string(text));
  REQUIRE(result.has_value());
  return *result;
}

TEST_SUITE("address") {
  TEST_CASE("a host, an IPv4 address, an IPv6 address in brackets and no host are understood") {
    CHECK(parsed("localhost:9092") == HostPort{"localhost", 9092});
    CHECK(parsed("127.0.0.1:0") == HostPort{"127.0.0.1", 0});
    CHECK(parsed("[::1]:9092") == HostPort{"::1", 9092});
    CHECK(parsed("[fe80::1%eth0]:1") == HostPort{"fe80::1%eth0", 1});
    CHECK(parsed("broker-1.example.com:65535") == HostPort{"broker-1.example.com", 65535});
    CHECK(parsed(":9092") == HostPort{"", 9092});
  }

  TEST_CASE("an address is written as it is read") {
    for (const auto* text : {"localhost:9092", "[::1]:9092", ":1"})
      CHECK(parsed(text).text() == text);
  }

  TEST_CASE("an invalid address is refused, and the error shows a valid one") {
    for (const auto* text :
         {"", "localhost", "9092", "localhost:", "localhost:x", "localhost:65536", "localhost:-1",
          "localhost: 9092", "localhost:9092 ", "::1:9092", "[::1]", "[::1:9092", "[]:9092",
          "[localhost]:9092", "a b:9092", "a,b:9092", "http://localhost:9092", "localhost:+1"}) {
      INFO("text: ", text);
      const auto result = parse_host_port(text);
      REQUIRE_FALSE(result.has_value());
      CHECK(result.error().code == Errc::invalid);
      CHECK(result.error().message.find("localhost:9092") != std::string::npos);
    }
    CHECK_FALSE(parse_host_port(std::string(300, 'a') + ":9092").has_value());
  }
}

}  // namespace
}  // namespace tarry::server
