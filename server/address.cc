#include "server/address.h"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

namespace tarry::server {
namespace {

// DNS allows 253.
constexpr std::size_t max_host_bytes = 253;

constexpr const char* allowed =
    "HOST:PORT, as in localhost:9092 or [::1]:9092, PORT from 0 to 65535";

bool may_stand_in_host(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}
bool may_stand_in_ipv6(char c) {
  return may_stand_in_host(c) || c == ':' || c == '%';
}

}  // namespace

std::string HostPort::text() const {
  return host.contains(':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto refuse = [] { return fail(Errc::invalid, allowed); };
  // The last one: an IPv6 address has colons of its own.
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);

  HostPort parsed;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
  if (error != std::errc{} || end != port.data() + port.size()) return refuse();

  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return refuse();
    host = host.substr(1, host.size() - 2);
    if (!host.contains(':') || !std::ranges::all_of(host, may_stand_in_ipv6)) {
      return refuse();
    }
  } else if (!std::ranges::all_of(host, may_stand_in_host)) {
    return refuse();
  }
  if (host.size() > max_host_bytes) return refuse();
  parsed.host = host;
  return parsed;
}

}  // namespace tarry::server
