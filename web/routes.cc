#include "web/routes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/log.h"

namespace tarry::web {
namespace {

// The first word of `rest`, which then begins behind it.
std::string_view take_word(std::string_view& rest, char separator) {
  const auto end = std::min(rest.find(separator), rest.size());
  const auto word = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end + 1));
  return word;
}

bool matches(const Route& route, const std::vector<std::string>& path) {
  if (route.path == "/") return path.size() == 1 && path.front().empty();
  std::string_view pattern = route.path.substr(1);
  for (const auto& part : path) {
    if (pattern.empty()) return false;
    const auto expected = take_word(pattern, '/');
    const bool any = expected.front() >= 'A' && expected.front() <= 'Z';
    if (any ? part.empty() : part != expected) return false;
  }
  return pattern.empty();
}

Reply unauthorized(Needs needs, bool only_reads = false) {
  Reply reply = refusal(
      401, fmt::format("{}this needs the token in admin.token {}in the data directory, as in "
                       "Authorization: Bearer TOKEN",
                       only_reads ? "this token may only read; " : "",
                       needs == Needs::right_to_read ? "(or admin.read.token) " : ""));
  reply.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"tarry\"");
  return reply;
}

bool is_enough(const Rights& rights, Needs needs) {
  if (needs == Needs::token) return rights.may_change;
  return needs != Needs::right_to_operate || rights.may_operate;
}

// To somebody who may read.
Reply refuse_change(const Rights& rights, Needs needs) {
  if (rights.holder.empty()) return unauthorized(needs, rights.only_reads);
  return refusal(
      403, fmt::format("the role of the token of {} does not allow this; it needs {}",
                       printable(rights.holder), needs == Needs::token ? "all" : "operate or all"));
}

// Why the parameters are not those of the route; empty when they are.
std::string wrong_parameters(const Route& route, const Target& target) {
  for (const auto& [name, value] : target.query) {
    std::string_view rest = route.parameters;
    bool known = false;
    while (!rest.empty()) known |= take_word(rest, ' ') == name;
    if (known) continue;
    if (route.parameters.empty())
      return fmt::format("unknown parameter '{}': {} takes none", printable(name), route.path);
    return fmt::format("unknown parameter '{}': {} takes {}, as in {}", printable(name), route.path,
                       route.parameters, route.example);
  }
  return {};
}

// /delayed/orders/order/4711, whose id is order/4711.
bool may_have_unescaped_slash(const Target& target) {
  return target.path.size() > 3;
}

// An empty object says nothing that could be overlooked, and some clients send one with every POST.
bool says_something(std::string_view body) {
  return !body.empty() && body != "{}";
}

// A browser that followed a name which somebody pointed at us (DNS rebinding).  Off loopback a
// client that has a token was not lured, and health checks tell nothing.
bool is_lured(const Hosts& hosts, const Question& question, bool known) {
  // Browsers always send a Host; only HTTP/1.0 goes without.
  if (!question.host || hosts.accepts(*question.host)) return false;
  return hosts.loopback() || (!known && !is_health_check(question.target));
}

}  // namespace

bool is_health_check(std::string_view target) {
  const auto path = target.substr(0, target.find('?'));
  return path == "/healthz" || path == "/readyz";
}

std::optional<Reply> refuse_stranger(const Hosts& hosts, const Question& question, bool known,
                                     std::string_view remedy) {
  if (is_lured(hosts, question, known)) {
    return refusal(421, fmt::format("the Host '{}' is not this admin's; {}",
                                    printable(*question.host), remedy));
  }
  // Browsers send Origin with requests to another site, and a page's script cannot change it.
  if (question.origin &&
      !hosts.is_own_origin(*question.origin, question.host.value_or(""), question.has_tls)) {
    return refusal(
        403, fmt::format("requests from pages of '{}' are refused", printable(*question.origin)));
  }
  // Sec-Fetch-Site covers requests that come without Origin.  A page of another site may cause
  // reads, whose answers its script cannot see, but no changes.
  const bool reads = question.method == "GET" || question.method == "HEAD";
  if (!reads && (question.fetch_site == "cross-site" || question.fetch_site == "same-site"))
    return refusal(403, "requests from pages of another site are refused");
  return std::nullopt;
}

std::expected<Chosen, Reply> choose(std::span<const Route> routes, std::string_view paths,
                                    const Question& question, const Rights& rights) {
  auto target = parse_target(question.target);
  if (!target) return std::unexpected(refusal(400, target.error().message));
  std::vector<std::string_view> methods;
  const Route* route = nullptr;
  const std::string_view method = question.method == "HEAD" ? "GET" : question.method;
  // Goes through all routes, for a 405 names every method of the path.
  for (const Route& each : routes) {
    if (!matches(each, target->path)) continue;
    methods.push_back(each.method);
    if (each.method == "GET") methods.emplace_back("HEAD");
    if (each.method == method) route = &each;
  }
  // Rights come before 404 and 405: without a token nobody learns which paths there are.
  const bool open = route != nullptr && route->needs == Needs::nothing;
  if (!rights.may_read && !open)
    return std::unexpected(unauthorized(route == nullptr ? Needs::right_to_read : route->needs));
  if (methods.empty()) {
    const std::string_view hint =
        may_have_unescaped_slash(*target) ? "write a / in a name or an id as %2F; " : "";
    return std::unexpected(refusal(404, fmt::format("there is no path '{}'; {}the paths are {}",
                                                    printable(question.target), hint, paths)));
  }
  if (route == nullptr) {
    Reply reply = refusal(405, fmt::format("the method {} is not allowed here; use {}",
                                           printable(question.method), fmt::join(methods, ", ")));
    reply.headers.emplace_back("Allow", fmt::format("{}", fmt::join(methods, ", ")));
    return std::unexpected(std::move(reply));
  }
  if (!is_enough(rights, route->needs)) return std::unexpected(refuse_change(rights, route->needs));
  if (!route->takes_body && says_something(question.body))
    return std::unexpected(
        refusal(400, fmt::format("{} {} takes no body", route->method, route->path)));
  if (question.body.size() > route->max_body) {
    return std::unexpected(refusal(
        413, fmt::format("the body has {} bytes; the limit for {} {} is {}", question.body.size(),
                         route->method, route->path, route->max_body)));
  }
  if (auto why = wrong_parameters(*route, *target); !why.empty())
    return std::unexpected(refusal(400, why));
  return Chosen{static_cast<std::size_t>(route - routes.data()), std::move(*target)};
}

}  // namespace tarry::web
