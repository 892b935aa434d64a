#pragma once

// HostPort: where to listen, or what clients are told.
//
//   localhost:9092   127.0.0.1:0   [::1]:9092   broker-1.example.com:9092   :9092 (any address)
//
// Port 0 means a free one.  An IPv6 address stands in brackets, so that its colons are not taken
// for the port's.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::server {

struct HostPort {
  std::string host;  // Without brackets; empty: any address of the machine.
  std::uint16_t port = 0;

  bool operator==(const HostPort&) const = default;
  std::string text() const;  // With brackets around an IPv6 address.
};

// Errors (invalid) say what is allowed.
Result<HostPort> parse_host_port(std::string_view text);

}  // namespace tarry::server
