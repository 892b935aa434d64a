#include "relay/admin_server.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "base/log.h"
#include "base/token_proof.h"
#include "relay/call.h"
#include "relay/orders.h"
#include "relay/peer_client.h"
#include "relay/peers.h"
#include "relay/pending_routes.h"
#include "web/access_tokens.h"
#include "web/audit.h"
#include "web/http_server.h"
#include "web/json_reply.h"
#include "web/metrics_text.h"
#include "web/routes.h"

namespace tarry::relay {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using std::chrono::milliseconds;
using web::json_reply;
using web::Needs;
using web::Refused;
using web::Reply;

// Each time Kafka is asked for the whole group; a copy that begins a few seconds later is as good.
constexpr milliseconds standby_interval{2'000};

enum class RouteAction {
  health,
  ready,
  proof,
  status,
  wheel,
  metrics,
  list,
  count,
  get,
  cancel,
  move,
  deliver,
  select,
  orders
};

struct HandledRoute {
  web::Route route;
  RouteAction does;
};

constexpr std::string_view in_partition = "partition scope";
constexpr std::string_view one_example = "/delayed/orders.delayed/order-4711?partition=0";
constexpr std::size_t any_size = std::numeric_limits<std::size_t>::max();
constexpr std::array handled_routes{
    HandledRoute{{"GET", "/healthz", Needs::nothing}, RouteAction::health},
    HandledRoute{{"GET", "/readyz", Needs::nothing}, RouteAction::ready},
    HandledRoute{{"GET", "/proof", Needs::nothing, "nonce", "/proof?nonce=0123...cdef"},
                 RouteAction::proof},
    HandledRoute{{"GET", "/status", Needs::right_to_read, "scope", "/status?scope=member"},
                 RouteAction::status},
    HandledRoute{{"GET", "/wheel", Needs::right_to_read, "scope", "/wheel?scope=member"},
                 RouteAction::wheel},
    HandledRoute{{"GET", "/metrics", Needs::right_to_read}, RouteAction::metrics},
    HandledRoute{{"GET", "/delayed", Needs::right_to_read,
                  "topic partition from to id key limit after values scope",
                  "/delayed?topic=orders.delayed&from=2026-11-21T09:00:00Z&id=order-*&limit=100"},
                 RouteAction::list},
    HandledRoute{{"GET", "/delayed/count", Needs::right_to_read, "topic partition by from to scope",
                  "/delayed/count?topic=orders.delayed&by=hour"},
                 RouteAction::count},
    HandledRoute{{"GET", "/delayed/TOPIC/ID", Needs::right_to_read, in_partition, one_example},
                 RouteAction::get},
    HandledRoute{
        {"DELETE", "/delayed/TOPIC/ID", Needs::right_to_operate, in_partition, one_example},
        RouteAction::cancel},
    HandledRoute{
        {"PATCH", "/delayed/TOPIC/ID", Needs::right_to_operate, in_partition, one_example, true},
        RouteAction::move},
    HandledRoute{{"POST", "/delayed/TOPIC/ID/deliver", Needs::right_to_operate, in_partition,
                  "/delayed/orders.delayed/order-4711/deliver?partition=0"},
                 RouteAction::deliver},
    HandledRoute{{"POST", "/delayed/TOPIC/select", Needs::right_to_operate, "", "", true},
                 RouteAction::select},
    // By a member, for as many records as HttpServer takes.
    HandledRoute{{"POST", "/peer/orders", Needs::token, "", "", true, any_size},
                 RouteAction::orders},
};
constexpr auto routes = [] {
  std::array<web::Route, handled_routes.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = handled_routes[i].route;
  return all;
}();
constexpr std::string_view paths =
    "/status, /delayed, /delayed/count, /wheel, /metrics, /healthz, /readyz";

// The sender of a request.
struct Asker {
  const web::AccessTokens::Holder* holder = nullptr;  // The token's that came; null: none came.
  bool is_peer = false;
  bool changes = false;  // Set when its route is known.
};

// Not for health checks, which anybody may ask for.
bool needs_something(std::string_view target) {
  const auto path = target.substr(0, target.find('?'));
  return std::ranges::none_of(routes, [&](const web::Route& route) {
    return route.needs == Needs::nothing && route.path == path;
  });
}

}  // namespace

struct AdminServer::Impl {
  // --- The server's thread.
  awaitable<Reply> answer(web::Question question);
  awaitable<Reply> answer_as(const web::Question& question, Asker& asked);
  awaitable<Reply> handle(RouteAction does, const Call& call);
  awaitable<Reply> get_status(const Call& call);
  Reply get_metrics(const Call& call) const;
  Reply get_proof(const Call& call) const;
  awaitable<void> follow_standby();

  asio::io_context io;
  std::unique_ptr<web::HttpServer> http;
  AdminOptions options;
  std::shared_ptr<PeerTrust> trust;  // Null: plain HTTP.
  // From start() on.
  Member* member = nullptr;
  const Clock* clock = nullptr;
  MemberFacts facts;
  std::optional<Peers> peers;
  std::optional<Orders> orders;
  std::optional<PendingRoutes> pending;
  std::optional<web::AccessTokens> tokens;
  std::optional<web::Hosts> hosts;
  web::Audit audit;
  std::thread thread;
};

// --- From outside.

AdminServer::AdminServer(std::unique_ptr<Impl> inside) : impl_(std::move(inside)) {}

AdminServer::~AdminServer() {
  stop();
}

Result<std::unique_ptr<AdminServer>> AdminServer::open(const AdminOptions& options) {
  auto inside = std::make_unique<Impl>();
  web::HttpOptions for_http;
  for_http.host = options.host;
  for_http.port = options.port;
  auto http = web::HttpServer::open(inside->io.get_executor(), for_http);
  if (!http) return std::unexpected(http.error());
  inside->http = std::move(*http);
  inside->options = options;
  if (options.tls) {
    auto trust = open_peer_trust(options.ca);
    if (!trust) return std::unexpected(trust.error());
    inside->trust = std::move(*trust);
    inside->http->use_tls(options.tls);
  }
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(inside)));
}

const std::string& AdminServer::address() const {
  return impl_->http->address();
}

Result<> AdminServer::start(Member& member, Directory& directory, const Clock& clock,
                            Random& random, PeerKey key, MemberFacts facts) {
  Impl& in = *impl_;
  // Beside the store, because whoever can read that directory has the pending records anyway.
  auto tokens = web::AccessTokens::open(facts.data, random);
  if (!tokens) return std::unexpected(tokens.error());
  in.tokens.emplace(std::move(*tokens));
  web::Hosts::Options names;
  names.host = in.options.host;
  names.loopback_reads = in.options.loopback_reads;
  names.port = in.http->port();
  names.loopback = in.http->is_loopback();
  in.hosts.emplace(names);
  in.member = &member;
  in.clock = &clock;
  in.facts = std::move(facts);
  in.peers.emplace(in.io, directory, clock, random, std::move(key), in.facts.self);
  in.peers->use_tls(in.trust);
  in.orders.emplace(in.io, *in.peers, member, clock);
  in.pending.emplace(*in.peers, *in.orders, member, clock);
  if (const auto started =
          in.http->start([&in](web::Question question) { return in.answer(std::move(question)); });
      !started)
    return started;
  if (in.facts.standby > 0) asio::co_spawn(in.io, in.follow_standby(), asio::detached);
  in.thread = std::thread([&in] { in.io.run(); });
  return {};
}

void AdminServer::stop() {
  Impl& in = *impl_;
  if (!in.thread.joinable()) return;
  // The server belongs to its thread.
  asio::post(in.io, [&in] {
    in.http->stop();
    in.io.stop();
  });
  in.thread.join();
}

Result<> AdminServer::use_certificate(std::shared_ptr<ssl_ctx_st> tls) {
  Impl& in = *impl_;
  // The file is read on this thread, so that no request waits for it.
  auto trust = open_peer_trust(in.options.ca);
  if (!trust) return std::unexpected(trust.error());
  // The server and what asks the other members belong to their thread.
  asio::post(in.io, [&in, tls = std::move(tls), authorities = std::move(*trust)] {
    in.http->use_tls(tls);
    in.peers->use_tls(authorities);
  });
  return {};
}

// --- A request.

awaitable<Reply> AdminServer::Impl::answer(web::Question question) {
  Asker asked;
  asked.holder = tokens->authorized(question.authorization);
  Reply reply = co_await answer_as(question, asked);
  std::string who = web::Audit::name_of(asked.holder, question);
  if (PeerChecks::is_signature(question.authorization))
    who = asked.is_peer ? "a member of the group" : "a client with a wrong signature";
  audit.note(who, question, reply.status, asked.changes, clock->mono());
  co_return reply;
}

awaitable<Reply> AdminServer::Impl::answer_as(const web::Question& question, Asker& asked) {
  if (PeerChecks::is_signature(question.authorization) && needs_something(question.target)) {
    asked.is_peer = co_await peers->has_signed(question);
    // Perhaps another member has the same address: it must not take our answer for that one's.
    if (!asked.is_peer)
      co_return web::refusal(
          401, fmt::format("no member of the group has signed this request for the member at {}: "
                           "do two members advertise this address? give each its own --advertise",
                           facts.self.address));
  }
  const bool is_known = asked.is_peer || asked.holder != nullptr;
  // A member that has signed may use any name of this one as the Host.
  if (auto refused = web::refuse_stranger(*hosts, question, is_known,
                                          fmt::format("use {}", facts.self.address));
      refused && !asked.is_peer)
    co_return std::move(*refused);
  web::Rights rights;
  rights.may_read = is_known || hosts->reads_are_open();
  rights.may_change =
      asked.is_peer || (asked.holder != nullptr && asked.holder->role == web::Role::all);
  rights.may_operate =
      asked.is_peer || (asked.holder != nullptr && asked.holder->role != web::Role::read);
  // admin.read.token has no holder by name, and is answered as no token.
  if (asked.holder != nullptr && asked.holder->is_listed) rights.holder = asked.holder->name;
  auto chosen = web::choose(routes, paths, question, rights);
  if (!chosen) co_return std::move(chosen.error());
  const Needs needs = handled_routes[chosen->route].route.needs;
  asked.changes = needs == Needs::token || needs == Needs::right_to_operate;
  const Call call{std::move(chosen->target), std::string(question.target),
                  std::string(question.local), std::string(question.body),
                  std::string(question.accept)};
  const std::string what = fmt::format("{} {}", question.method, printable(question.target));
  try {
    co_return co_await handle(handled_routes[chosen->route].does, call);
  } catch (const Refused& refused) {
    co_return web::refusal(refused.status, refused.why);
  } catch (const std::exception& failure) {
    // One request that fails must not end the thread that answers all others.
    log_error("relay", "{}: {}", what, failure.what());
  }
  co_return web::refusal(500, "the request failed; the log of the member says why");
}

awaitable<Reply> AdminServer::Impl::handle(RouteAction does, const Call& call) {
  switch (does) {
    case RouteAction::health:
      co_return json_reply({{"status", "ok"}});
    case RouteAction::ready: {
      const bool is_ready = member->is_ready();
      const std::string state = state_of(member->status(), is_ready);
      // Probes look at the number alone; the word is for people.
      co_return json_reply({{"status", state}}, is_ready ? 200 : 503);
    }
    case RouteAction::proof:
      co_return get_proof(call);
    case RouteAction::status:
      co_return co_await get_status(call);
    case RouteAction::wheel:
      co_return co_await pending->get_wheel(call);
    case RouteAction::metrics:
      co_return get_metrics(call);
    case RouteAction::list:
      co_return co_await pending->list(call);
    case RouteAction::count:
      co_return co_await pending->count(call);
    case RouteAction::get:
      co_return co_await pending->get_one(call);
    case RouteAction::cancel:
      co_return co_await pending->control_one(call, Order::Kind::cancel);
    case RouteAction::move:
      co_return co_await pending->control_one(call, Order::Kind::move);
    case RouteAction::deliver:
      co_return co_await pending->control_one(call, Order::Kind::deliver);
    case RouteAction::select:
      co_return co_await pending->select(call);
    case RouteAction::orders:
      break;
  }
  co_return co_await pending->take_orders(call);
}

Reply AdminServer::Impl::get_proof(const Call& call) const {
  const auto* nonce = call.parameter("nonce");
  if (nonce == nullptr || !is_proof_nonce(*nonce))
    throw Refused{400, "give a nonce of 64 hexadecimal digits (0-9a-f)"};
  // Whichever token a client has, it finds the proof of it.
  Json proofs = Json::array();
  for (const auto& holder : tokens->holders())
    proofs.push_back(holder.token.proof(*nonce, call.local));
  Json body{{"proof", proofs.front()}, {"address", call.local}};
  body["proofs"] = std::move(proofs);
  return json_reply(body);
}

Reply AdminServer::Impl::get_metrics(const Call& call) const {
  const auto status = member->status();
  web::MetricsText text;
  text.gauge({"tarry_relay_ready",
              "1: the member owns all partitions that the group has assigned to it; 0: not yet."},
             member->is_ready());
  // The figures of this member alone: a scraper asks each member, and adds up.
  status.report_member(text);
  status.report_delayed(text);
  const auto format = web::MetricsText::format_for(call.accept);
  Reply reply;
  reply.body = text.text(format);
  reply.content_type = web::MetricsText::content_type(format);
  return reply;
}

// --- The other members.

// Tells the member again and again of which partitions it is to keep warm copies.
awaitable<void> AdminServer::Impl::follow_standby() {
  for (;;) {
    const auto known = co_await peers->listing();
    // Without an answer the copies of the last one go on: beginning them anew would cost more.
    if (known) {
      auto wanted = standby_of(*known, facts.self.key, facts.standby);
      if (wanted) member->keep_warm(std::move(*wanted));
    }
    co_await peers->sleep(standby_interval);
  }
}

// --- Reading.

awaitable<Reply> AdminServer::Impl::get_status(const Call& call) {
  Json status =
      status_json(facts, member->status(), member->is_ready(), clock->wall(), clock->mono());
  if (call.is_of_member()) co_return json_reply(status);
  const auto known = co_await peers->listing();
  // A status is wanted most when Kafka does not answer, so this member's part is shown all the
  // same.
  if (!known) {
    status["relay"]["error"] = known.error().message;
    co_return json_reply(status);
  }
  std::vector<PeerReply> told = co_await peers->ask_all(*known, call.scoped());
  for (auto& each : told) {
    if (each.json && !is_status(*each.json)) each.json = fail(Errc::io, std::string(no_sense));
    if (each.json) {
      add_status(status, each.peer, *each.json);
    } else {
      status["relay"]["members"].push_back({{"instance", each.peer.instance},
                                            {"address", each.peer.address},
                                            {"state", "unreachable"},
                                            {"error", each.json.error().message}});
    }
  }
  for (const auto& stranger : known->strangers)
    status["relay"]["members"].push_back({{"client_id", stranger}, {"state", "unknown"}});
  std::set<Source> covered;
  for (const auto& each : status["relay"]["partitions"]) covered.insert(source_in(each));
  status["relay"]["missing"] = missing_json(*known, {}, covered, told);
  co_return json_reply(status);
}

}  // namespace tarry::relay
