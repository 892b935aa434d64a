#include "cli/io/host_port.h"

#include <fmt/core.h>
#include <boost/asio/ip/address.hpp>

#include "base/log.h"

namespace tarry::cli {

Result<HostPort> parse_host_port(std::string_view text) {
  std::string_view rest = text;
  // People paste the address of the page.
  const bool is_https = rest.starts_with("https://");
  if (is_https) rest.remove_prefix(8);
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const auto colon = rest.rfind(':');
  const auto wrong = [&] {
    return fail(Errc::invalid,
                fmt::format("{}: give it as HOST:PORT, as in 127.0.0.1:8080", printable(text)));
  };
  if (colon == rest.npos || colon == 0) return wrong();
  HostPort at{std::string(rest.substr(0, colon)), std::string(rest.substr(colon + 1)), is_https};
  if (at.host.starts_with('[') && at.host.ends_with(']')) {
    at.host = at.host.substr(1, at.host.size() - 2);
    // Without brackets it is not clear where the port of an IPv6 address begins.
  } else if (at.host.find_first_of(":/[]") != at.host.npos) {
    return wrong();
  }
  const bool is_number = at.port.find_first_not_of("0123456789") == at.port.npos;
  if (at.host.empty() || at.port.empty() || at.port.size() > 5 || !is_number ||
      std::stoi(at.port) > 65535) {
    return wrong();
  }
  return at;
}

bool HostPort::is_loopback() const {
  if (host == "localhost") return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

}  // namespace tarry::cli
