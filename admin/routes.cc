#include "admin/routes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "admin/backup_routes.h"
#include "admin/client_routes.h"
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
#include "web/routes.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

using web::Needs;

struct HandledRoute {
  web::Route route;
  asio::awaitable<Reply> (*handle)(Call& call);
};

// Each route has an example, because the answer to a misspelt parameter shows one that works.
constexpr std::string_view delayed_example =
    "/delayed?topic=orders&from=2026-11-21T09:00:00Z&to=2026-11-22T09:00:00Z&id=order-*&limit=100";

constexpr std::array handled_routes{
    HandledRoute{{"GET", "/", Needs::nothing}, get_page},
    HandledRoute{{"GET", "/page/NAME", Needs::nothing}, get_page_file},
    HandledRoute{{"GET", "/session", Needs::nothing}, get_session},
    HandledRoute{{"POST", "/login", Needs::nothing, "", "", true}, log_in},
    HandledRoute{{"POST", "/logout", Needs::nothing}, log_out},
    HandledRoute{{"GET", "/healthz", Needs::nothing}, get_health},
    HandledRoute{{"GET", "/readyz", Needs::nothing}, get_readiness},
    HandledRoute{{"GET", "/proof", Needs::nothing, "nonce", "/proof?nonce=0123...cdef"}, get_proof},
    HandledRoute{{"GET", "/status", Needs::right_to_read}, get_status},
    HandledRoute{{"GET", "/wheel", Needs::right_to_read}, get_wheel},
    HandledRoute{{"GET", "/purgatory", Needs::right_to_read}, get_purgatory},
    HandledRoute{{"GET", "/metrics", Needs::right_to_read}, get_metrics},
    HandledRoute{{"GET", "/topics", Needs::right_to_read}, get_topics},
    HandledRoute{{"GET", "/topics/NAME", Needs::right_to_read}, get_topic},
    HandledRoute{{"DELETE", "/topics/NAME", Needs::token, "force", "/topics/orders?force=true"},
                 delete_topic},
    HandledRoute{{"GET", "/groups", Needs::right_to_read}, get_groups},
    HandledRoute{{"GET", "/groups/NAME", Needs::right_to_read}, get_group},
    HandledRoute{{"GET", "/clients", Needs::right_to_read, "limit", "/clients?limit=1000"},
                 get_clients},
    HandledRoute{{"GET", "/delayed", Needs::right_to_read,
                  "topic partition from to id key q recurring limit after values", delayed_example},
                 list_delayed},
    HandledRoute{{"GET", "/events", Needs::right_to_read}, get_events},
    HandledRoute{{"GET", "/delayed/due", Needs::right_to_read}, get_due},
    HandledRoute{{"GET", "/delayed/count", Needs::right_to_read, "topic by from to",
                  "/delayed/count?topic=orders&by=hour"},
                 count_delayed},
    HandledRoute{
        {"GET", "/delayed/trace", Needs::right_to_read, "id", "/delayed/trace?id=order-4711"},
        trace_in_all_topics},
    HandledRoute{{"GET", "/delayed/select", Needs::right_to_read,
                  "topic partition from to id key show", "/delayed/select?topic=orders&id=order-*"},
                 preview_selection},
    HandledRoute{{"GET", "/delayed/TOPIC/ID", Needs::right_to_read, "partition",
                  "/delayed/orders/order-4711?partition=0"},
                 get_delayed},
    HandledRoute{{"GET", "/delayed/TOPIC/ID/trace", Needs::right_to_read, "partition",
                  "/delayed/orders/order-4711/trace?partition=0"},
                 trace_delayed},
    HandledRoute{{"DELETE", "/delayed/TOPIC/ID", Needs::right_to_operate, "partition",
                  "/delayed/orders/order-4711?partition=0"},
                 cancel_delayed},
    HandledRoute{{"PATCH", "/delayed/TOPIC/ID", Needs::right_to_operate, "partition",
                  "/delayed/orders/order-4711?partition=0", true},
                 move_delayed},
    HandledRoute{{"POST", "/delayed/TOPIC/ID/deliver", Needs::right_to_operate, "partition",
                  "/delayed/orders/order-4711/deliver?partition=0"},
                 deliver_delayed},
    HandledRoute{{"POST", "/delayed/TOPIC/select", Needs::right_to_operate, "", "", true},
                 select_delayed},
    HandledRoute{{"POST", "/backup", Needs::token, "", "", true}, make_backup},
};

// web/ chooses among routes and knows no handlers, so it gets its part of each; the places are the
// same in both.
constexpr auto routes = [] {
  std::array<web::Route, handled_routes.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = handled_routes[i].route;
  return all;
}();

// The answer to an unknown path names those that a person can type: all that are whole.  A part
// that stands for a name is in capital letters.
std::string whole_paths() {
  std::string paths;
  for (const web::Route& route : routes) {
    if (std::ranges::any_of(route.path, [](char each) { return each >= 'A' && each <= 'Z'; }))
      continue;
    if (!paths.empty()) paths += ", ";
    paths += route.path;
  }
  return paths;
}

bool is_change(const HandledRoute& route) {
  return route.route.needs == Needs::token || route.route.needs == Needs::right_to_operate;
}

asio::awaitable<Reply> handle(const HandledRoute& route, Call& call, const Question& question) {
  try {
    co_return co_await route.handle(call);
  } catch (const Refused& refused) {
    co_return refusal(refused.status, refused.why);
    // The text may name files and settings, so it goes to the log and not to the client.
  } catch (const std::exception& failure) {
    log_error("admin", "{} {}: {}", question.method, printable(question.target), failure.what());
  }
  co_return refusal(500, "the request failed; the broker's log says why");
}

struct Asked {
  const AccessTokens::Holder* holder = nullptr;   // The token's that came; null: none came.
  const AccessTokens::Holder* session = nullptr;  // The token's that began the browser's session.
  bool changes = false;                           // Set when its route is known.
};

// "127.0.0.1" of "127.0.0.1:4711", "::1" of "[::1]:4711".
std::string_view host_of(std::string_view peer) {
  auto host = peer.substr(0, peer.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

broker::PendingReader reader_of(const Asked& asked, const Question& question) {
  const auto* const holder = asked.holder != nullptr ? asked.holder : asked.session;
  // Whoever can read the token's file can read the records' files as well.
  if (holder != nullptr && !holder->is_listed) return broker::PendingReader::machine_operator();
  return {holder != nullptr ? std::string_view(holder->name) : std::string_view(),
          host_of(question.peer)};
}

std::string name_of(const Asked& asked, const Question& question) {
  if (asked.holder == nullptr && question.authorization.empty() && asked.session != nullptr)
    return fmt::format("a browser's session of {}", printable(asked.session->name));
  return Audit::name_of(asked.holder, question);
}

asio::awaitable<Reply> answer_as(Context& context, const Question& question, Asked& asked) {
  const auto session = cookie_in(question.cookie, context.cookie_name);
  if (!session.empty())
    asked.session = context.sessions.holder_of(session, context.broker.clock().mono());
  const bool known = asked.holder != nullptr || asked.session != nullptr;
  if (auto refused = web::refuse_stranger(
          context.hosts, question, known,
          fmt::format("use {}, or allow the name with tarry.admin.allowed.hosts",
                      context.facts.admin_address)))
    co_return std::move(*refused);
  web::Rights rights;
  rights.may_read = known || context.hosts.reads_are_open();
  if (asked.holder != nullptr) {
    rights.may_change = asked.holder->role == Role::all;
    rights.may_operate = asked.holder->role != Role::read;
    rights.only_reads = asked.holder->role == Role::read;
    // admin.read.token has no holder by name, and gets the status of no token.
    if (asked.holder->is_listed) rights.holder = asked.holder->name;
  }
  static const std::string paths = whole_paths();
  auto chosen = web::choose(routes, paths, question, rights);
  if (!chosen) co_return std::move(chosen.error());
  const HandledRoute& route = handled_routes[chosen->route];
  asked.changes = is_change(route);
  // For came_by_tls: behind a proxy that ends TLS the Origin is all that tells of it.
  Call call{context,
            std::move(chosen->target),
            reader_of(asked, question),
            std::string(question.local),
            std::string(question.body),
            std::string(session),
            std::string(question.accept_encoding),
            std::string(question.if_none_match),
            rights.may_read,
            question.has_tls || (question.origin && question.origin->starts_with("https://")),
            std::string(question.accept)};
  co_return co_await handle(route, call, question);
}

}  // namespace

asio::awaitable<Reply> answer(Context& context, Question question) {
  Asked asked;
  asked.holder = context.tokens.authorized(question.authorization);
  Reply reply = co_await answer_as(context, question, asked);
  context.audit.note(name_of(asked, question), question, reply.status, asked.changes,
                     context.broker.clock().mono());
  co_return reply;
}

}  // namespace tarry::admin
