#pragma once

// HostPort: an address as it is given on the command line.

#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::cli {

struct HostPort {
  std::string host;  // Without brackets.
  std::string port;  // A number from 0 to 65535.
  bool is_https = false;

  bool is_loopback() const;
};

// "127.0.0.1:8080", "[::1]:8080"; with http:// or https:// before it, or without.  Errors: invalid.
Result<HostPort> parse_host_port(std::string_view text);

}  // namespace tarry::cli
