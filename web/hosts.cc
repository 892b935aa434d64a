#include "web/hosts.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/ip/address.hpp>

#include "base/ascii_case.h"

namespace tarry::web {
namespace {

// "[::1]:8080" --> "[::1]"
std::string_view without_port(std::string_view host) {
  const auto colon = host.rfind(':');
  const auto bracket = host.rfind(']');
  if (colon == host.npos || (bracket != host.npos && bracket > colon)) return host;
  return host.substr(0, colon);
}

bool is_address(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error;
}

}  // namespace

Hosts::Hosts(Options options)
    : loopback_(options.loopback),
      open_reads_(options.open_reads),
      loopback_reads_(options.loopback_reads),
      allowed_(std::move(options.allowed)) {
  const auto add = [&](std::string_view name) {
    names_.push_back(fmt::format("{}:{}", name, options.port));
    if (options.port == 80) names_.emplace_back(name);  // Clients leave out the port of http.
  };
  add("localhost");
  add("127.0.0.1");
  add("[::1]");
  if (!options.host.empty())
    add(options.host.contains(':') ? "[" + options.host + "]" : options.host);
}

bool Hosts::accepts(std::string_view header) const {
  // Then reading needs a token, which a browser that was lured does not have.
  if (!loopback_ && !reads_are_open()) return true;
  // Nobody can point an address at another machine, as a name can be.
  if (!loopback_ && is_address(without_port(header))) return true;
  if (is_allowed(header)) return true;
  return std::ranges::any_of(
      names_, [&](const std::string& name) { return equals_ignoring_case(name, header); });
}

bool Hosts::is_allowed(std::string_view header) const {
  return std::ranges::any_of(allowed_, [&](const std::string& name) {
    return name == "*" || equals_ignoring_case(name, header) ||
           equals_ignoring_case(name, without_port(header));
  });
}

bool Hosts::is_own_origin(std::string_view origin, std::string_view host, bool has_tls) const {
  const auto is = [&](std::string_view scheme) {
    return origin.starts_with(scheme) && equals_ignoring_case(origin.substr(scheme.size()), host);
  };
  if (host.empty()) return false;
  return has_tls ? is("https://") : is("http://") || (is("https://") && is_allowed(host));
}

}  // namespace tarry::web
