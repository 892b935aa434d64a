#include "broker/security/client_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <fmt/core.h>

#include "base/bytes.h"

namespace tarry::broker {
namespace {

constexpr std::size_t bytes_of_network = 8;  // A /64.

std::optional<in6_addr> parse_ipv6(std::string_view text) {
  in6_addr parsed{};
  if (::inet_pton(AF_INET6, std::string(text).c_str(), &parsed) != 1) return std::nullopt;
  return parsed;
}

// The first bytes, two by two: "2001:db8:0:1".
std::string groups_of(const in6_addr& address, std::size_t bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint16_t)) {
    if (at > 0) out += ':';
    out += fmt::format("{:x}", load_be<std::uint16_t>(&address.s6_addr[at]));
  }
  return out;
}

}  // namespace

std::string address_in_full(std::string_view address) {
  // After the % stands the interface of a link-local address.
  const auto end = std::min(address.find('%'), address.size());
  const auto parsed = parse_ipv6(address.substr(0, end));
  if (!parsed) return {};
  return groups_of(*parsed, sizeof parsed->s6_addr).append(address.substr(end));
}

std::string network_of(std::string_view host) {
  auto text = host;
  if (text.starts_with('/')) text.remove_prefix(1);
  if (!text.starts_with('[')) return std::string(host);
  text.remove_prefix(1);
  const auto parsed = parse_ipv6(text.substr(0, text.find_first_of("]%")));
  if (!parsed || IN6_IS_ADDR_V4MAPPED(&*parsed)) return std::string(host);
  return fmt::format("/[{}::/64]", groups_of(*parsed, bytes_of_network));
}

}  // namespace tarry::broker
