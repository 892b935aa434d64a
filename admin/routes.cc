#include "admin/routes.h"

#include <algorithm>
#include <array>
#include <exception>
#include <span>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "admin/backup_routes.h"
#include "admin/delayed_control_routes.h"
#include "admin/delayed_routes.h"
#include "admin/event_routes.h"
#include "admin/group_routes.h"
#include "admin/health_routes.h"
#include "admin/metrics_routes.h"
#include "admin/page_routes.h"
#include "admin/purgatory_routes.h"
#include "admin/session_routes.h"
#include "admin/status_routes.h"
#include "admin/topic_routes.h"
#include "admin/wheel_routes.h"
#include "base/log.h"
#include "broker/broker.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

enum class Needs {
  nothing,        // Off loopback neither: health, who we are before a client sends its token, the
                  // page's files and its login.
  right_to_read,  // A token or a session off loopback, nothing on it.
  token,          // It changes something.
};

struct Route {
  std::string_view method;
  std::string_view path;  // A part in capitals stands for any text.
  Needs needs;
  asio::awaitable<Reply> (*handle)(Call& call);
  std::string_view parameters = {};  // Their names, with blanks between them.
  std::string_view example = {};
  bool takes_body = false;
};

constexpr std::string_view delayed_example =
    "/delayed?topic=orders&from=2026-11-21T09:00:00Z&to=2026-11-22T09:00:00Z&id=order-*&limit=100";

constexpr std::array routes{
    Route{"GET", "/", Needs::nothing, get_page},
    Route{"GET", "/page/NAME", Needs::nothing, get_page_file},
    Route{"GET", "/session", Needs::nothing, get_session},
    Route{"POST", "/login", Needs::nothing, log_in, "", "", true},
    Route{"POST", "/logout", Needs::nothing, log_out},
    Route{"GET", "/healthz", Needs::nothing, get_health},
    Route{"GET", "/readyz", Needs::nothing, get_readiness},
    Route{"GET", "/proof", Needs::nothing, get_proof, "nonce", "/proof?nonce=0123...cdef"},
    Route{"GET", "/status", Needs::right_to_read, get_status},
    Route{"GET", "/wheel", Needs::right_to_read, get_wheel},
    Route{"GET", "/purgatory", Needs::right_to_read, get_purgatory},
    Route{"GET", "/metrics", Needs::right_to_read, get_metrics},
    Route{"GET", "/topics", Needs::right_to_read, get_topics},
    Route{"GET", "/topics/NAME", Needs::right_to_read, get_topic},
    Route{"DELETE", "/topics/NAME", Needs::token, delete_topic, "force",
          "/topics/orders?force=true"},
    Route{"GET", "/groups", Needs::right_to_read, get_groups},
    Route{"GET", "/groups/NAME", Needs::right_to_read, get_group},
    Route{"GET", "/delayed", Needs::right_to_read, list_delayed,
          "topic partition from to id key q limit after values", delayed_example},
    Route{"GET", "/events", Needs::right_to_read, get_events},
    Route{"GET", "/delayed/due", Needs::right_to_read, get_due},
    Route{"GET", "/delayed/count", Needs::right_to_read, count_delayed, "topic by from to",
          "/delayed/count?topic=orders&by=hour"},
    Route{"GET", "/delayed/TOPIC/ID", Needs::right_to_read, get_delayed, "partition",
          "/delayed/orders/order-4711?partition=0"},
    Route{"GET", "/delayed/TOPIC/ID/trace", Needs::right_to_read, trace_delayed, "partition",
          "/delayed/orders/order-4711/trace?partition=0"},
    Route{"DELETE", "/delayed/TOPIC/ID", Needs::token, cancel_delayed, "partition",
          "/delayed/orders/order-4711?partition=0"},
    Route{"PATCH", "/delayed/TOPIC/ID", Needs::token, move_delayed, "partition",
          "/delayed/orders/order-4711?partition=0", true},
    Route{"POST", "/delayed/TOPIC/ID/deliver", Needs::token, deliver_delayed, "partition",
          "/delayed/orders/order-4711/deliver?partition=0"},
    Route{"POST", "/delayed/TOPIC/select", Needs::token, select_delayed, "", "", true},
    Route{"POST", "/backup", Needs::token, make_backup, "", "", true},
};

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

Reply unauthorized(Needs needs) {
  Reply reply =
      refusal(401, fmt::format("this needs the token in admin.token {}in the data directory, as in "
                               "Authorization: Bearer TOKEN",
                               needs == Needs::token ? "" : "(or admin.read.token) "));
  reply.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"tarry\"");
  return reply;
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

// A browser that followed a name which somebody pointed at us (DNS rebinding).  Off loopback a
// client that has a token was not lured, and health checks tell nothing.
bool is_lured(const Hosts& hosts, const Question& question, bool known) {
  if (!question.host || hosts.accepts(*question.host)) return false;
  return hosts.loopback() || (!known && !is_health_check(question.target));
}

}  // namespace

bool is_health_check(std::string_view target) {
  const auto path = target.substr(0, target.find('?'));
  return path == "/healthz" || path == "/readyz";
}

asio::awaitable<Reply> answer(Context& context, Question question) {
  const bool may_change = context.token.authorizes(question.authorization);
  const auto session = cookie_in(question.cookie, context.cookie_name);
  const bool known =
      may_change || context.read_token.authorizes(question.authorization) ||
      (!session.empty() && context.sessions.knows(session, context.broker.clock().mono()));
  if (is_lured(context.hosts, question, known)) {
    co_return refusal(421, fmt::format("the Host '{}' is not this admin's; use {}, or allow the "
                                       "name with tarry.admin.allowed.hosts",
                                       printable(*question.host), context.facts.admin_address));
  }
  const bool reads = question.method == "GET" || question.method == "HEAD";
  if (question.origin && !context.hosts.is_own_origin(*question.origin, question.host.value_or(""),
                                                      question.has_tls)) {
    co_return refusal(
        403, fmt::format("requests from pages of '{}' are refused", printable(*question.origin)));
  }
  if (!reads && (question.fetch_site == "cross-site" || question.fetch_site == "same-site"))
    co_return refusal(403, "requests from pages of another site are refused");

  auto target = parse_target(question.target);
  if (!target) co_return refusal(400, target.error().message);
  std::vector<std::string_view> methods;
  const Route* route = nullptr;
  const std::string_view method = question.method == "HEAD" ? "GET" : question.method;
  for (const Route& each : routes) {
    if (!matches(each, target->path)) continue;
    methods.push_back(each.method);
    if (each.method == "GET") methods.emplace_back("HEAD");
    if (each.method == method) route = &each;
  }
  const bool may_read = known || context.hosts.reads_are_open();
  const bool open = route != nullptr && route->needs == Needs::nothing;
  if (!may_read && !open)
    co_return unauthorized(route == nullptr ? Needs::right_to_read : route->needs);
  if (methods.empty()) {
    co_return refusal(
        404,
        fmt::format("there is no path '{}'; the paths are /, /status, /topics, "
                    "/groups, /delayed, /events, /wheel, /purgatory, /metrics, /healthz, /readyz",
                    printable(question.target)));
  }
  if (route == nullptr) {
    Reply reply = refusal(405, fmt::format("the method {} is not allowed here; use {}",
                                           printable(question.method), fmt::join(methods, ", ")));
    reply.headers.emplace_back("Allow", fmt::format("{}", fmt::join(methods, ", ")));
    co_return reply;
  }
  if (route->needs == Needs::token && !may_change) co_return unauthorized(route->needs);
  if (!route->takes_body && !question.body.empty())
    co_return refusal(400, fmt::format("{} {} takes no body", route->method, route->path));
  if (auto why = wrong_parameters(*route, *target); !why.empty()) co_return refusal(400, why);

  Call call{context,
            std::move(*target),
            std::string(question.local),
            std::string(question.body),
            std::string(session),
            std::string(question.accept_encoding),
            std::string(question.if_none_match),
            may_read,
            question.has_tls || (question.origin && question.origin->starts_with("https://")),
            std::string(question.accept)};
  try {
    co_return co_await route->handle(call);
  } catch (const Refused& refused) {
    co_return refusal(refused.status, refused.why);
  } catch (const std::exception& failure) {
    log_error("admin", "{} {}: {}", question.method, printable(question.target), failure.what());
  }
  co_return refusal(500, "the request failed; the broker's log says why");
}

}  // namespace tarry::admin
