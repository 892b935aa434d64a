#include "cli/io/host_port.h"

#include <doctest/doctest.h>

namespace tarry::cli {
TEST_SUITE_BEGIN("host and port");

TEST_CASE("an address is a host and a port") {
  CHECK(parse_host_port("127.0.0.1:8080")->port == "8080");
  CHECK(parse_host_port("[::1]:8080")->host == "::1");
  CHECK(parse_host_port("http://localhost:8080/")->host == "localhost");
  CHECK_FALSE(parse_host_port("http://localhost:8080/")->is_https);
  CHECK(parse_host_port("https://localhost:8443/")->is_https);
  CHECK(parse_host_port("https://localhost:8443/")->host == "localhost");
  for (const auto* wrong : {"", "host", "host:", ":80", "host:80a", "host:65536", "::1:80", "[]:80",
                            "host:80/path", "ftp://host:80"})
    CHECK_FALSE(parse_host_port(wrong).has_value());
  CHECK(parse_host_port("127.3.2.1:1")->is_loopback());
  CHECK(parse_host_port("[::1]:1")->is_loopback());
  CHECK(parse_host_port("localhost:1")->is_loopback());
  CHECK_FALSE(parse_host_port("192.0.2.1:1")->is_loopback());
  CHECK_FALSE(parse_host_port("localhost.example:1")->is_loopback());
}

TEST_SUITE_END();
}  // namespace tarry::cli
