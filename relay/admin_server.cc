#include "relay/admin_server.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "base/time_text.h"
#include "base/token_proof.h"
#include "relay/peer_client.h"
#include "web/http_server.h"
#include "web/json_reply.h"
#include "web/metrics_text.h"
#include "web/reply_stream.h"
#include "web/routes.h"

namespace tarry::relay {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::awaitable;
using delay::ControlOutcome;
using std::chrono::milliseconds;
using web::json_reply;
using web::Needs;
using web::Refused;
using web::Reply;

constexpr std::size_t default_listed = 100, max_listed = 1'000;
// Of an answer of another member.
constexpr milliseconds peer_timeout{3'000};
// Orders are tried again for so long while partitions move.
constexpr milliseconds order_time{8'000};
constexpr milliseconds order_again{200};
// A list waits for so long for what was just sent, and shows what is there then.
constexpr milliseconds look_time{1'000};
// A stranger's request makes a new listing no more often.
constexpr milliseconds force_interval{1'000};
// A listing is used for so long.
constexpr milliseconds listing_age{500};
constexpr milliseconds standby_interval{2'000};
constexpr std::size_t most_moved = 100'000;
constexpr std::string_view perhaps_done = "it is not known whether it was done";
constexpr std::string_view no_sense = "its answer makes no sense";

enum class Does {
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
  Does does;
};

constexpr std::string_view in_partition = "partition scope";
constexpr std::string_view one_example = "/delayed/orders.delayed/order-4711?partition=0";
constexpr std::array handled_routes{
    HandledRoute{{"GET", "/healthz", Needs::nothing}, Does::health},
    HandledRoute{{"GET", "/readyz", Needs::nothing}, Does::ready},
    HandledRoute{{"GET", "/proof", Needs::nothing, "nonce", "/proof?nonce=0123...cdef"},
                 Does::proof},
    HandledRoute{{"GET", "/status", Needs::right_to_read, "scope", "/status?scope=member"},
                 Does::status},
    HandledRoute{{"GET", "/wheel", Needs::right_to_read, "scope", "/wheel?scope=member"},
                 Does::wheel},
    HandledRoute{{"GET", "/metrics", Needs::right_to_read}, Does::metrics},
    HandledRoute{{"GET", "/delayed", Needs::right_to_read,
                  "topic partition from to id key limit after values scope",
                  "/delayed?topic=orders.delayed&from=2026-11-21T09:00:00Z&id=order-*&limit=100"},
                 Does::list},
    HandledRoute{{"GET", "/delayed/count", Needs::right_to_read, "topic partition by from to scope",
                  "/delayed/count?topic=orders.delayed&by=hour"},
                 Does::count},
    HandledRoute{{"GET", "/delayed/TOPIC/ID", Needs::right_to_read, in_partition, one_example},
                 Does::get},
    HandledRoute{{"DELETE", "/delayed/TOPIC/ID", Needs::token, in_partition, one_example},
                 Does::cancel},
    HandledRoute{{"PATCH", "/delayed/TOPIC/ID", Needs::token, in_partition, one_example, true},
                 Does::move},
    HandledRoute{{"POST", "/delayed/TOPIC/ID/deliver", Needs::token, in_partition,
                  "/delayed/orders.delayed/order-4711/deliver?partition=0"},
                 Does::deliver},
    HandledRoute{{"POST", "/delayed/TOPIC/select", Needs::token, "", "", true}, Does::select},
    HandledRoute{{"POST", "/peer/orders", Needs::token, "", "", true}, Does::orders},
};
constexpr auto routes = [] {
  std::array<web::Route, handled_routes.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = handled_routes[i].route;
  return all;
}();
constexpr std::string_view paths =
    "/status, /delayed, /delayed/count, /wheel, /metrics, /healthz, /readyz";

struct Call {
  web::Target target;
  std::string raw;  // The target as it came.
  std::string local, body, accept;

  const std::string* parameter(std::string_view name) const {
    const auto found = target.query.find(name);
    return found == target.query.end() ? nullptr : &found->second;
  }
  bool is_of_member() const {
    const auto* scope = parameter("scope");
    if (scope != nullptr && *scope != "member")
      throw Refused{400, fmt::format("scope={}: give member, or leave it out", printable(*scope))};
    return scope != nullptr;
  }
};

// What another member has answered.
struct Told {
  Peer peer;
  Result<Json> json;
};

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
    if (is_plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// One order and its result.
struct Wanted {
  Source source;
  std::string name;
  std::optional<OrderTold> told{};
};

// Values nested deeper than members nest them could end the process.
bool is_flat(std::string_view text) {
  constexpr int most = 64;
  int depth = 0;
  bool is_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_text) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        is_text = false;
    } else if (text[i] == '"') {
      is_text = true;
    } else if (text[i] == '[' || text[i] == '{') {
      if (++depth > most) return false;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  return true;
}

std::size_t number_given(const char* name, const std::string& text, std::size_t least,
                         std::size_t most) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw Refused{400, fmt::format("{}={}: a number from {} to {} is expected", name,
                                   printable(text), least, most)};
  return value;
}

WallTime time_given(const char* name, const std::string& text, WallTime now) {
  if (text == "now") return now;
  if (text.starts_with('+') || text.starts_with('-')) {
    if (const auto by = parse_duration(std::string_view(text).substr(1)))
      return text.front() == '-' ? now - *by : now + *by;
  }
  const auto time = parse_time(text);
  if (!time) throw Refused{400, fmt::format("{}: {}", name, time.error().message)};
  return *time;
}

// A time or a duration in a body: text or number.
std::optional<std::string> word_in(const Json& body, const char* key) {
  const auto found = body.find(key);
  if (found == body.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number_integer()) return found->dump();
  throw Refused{400, fmt::format("{}: neither a text nor a whole number", key)};
}

delay::NewDue new_due(const Json& body, WallTime now) {
  const auto due = word_in(body, "due"), by = word_in(body, "by");
  if (due.has_value() == by.has_value())
    throw Refused{
        400, R"(a move needs either "due", a time, or "by", a duration, as in {"by": "-10m"})"};
  if (due) return time_given("due", *due, now);
  const bool is_earlier = by->starts_with('-');
  const auto duration =
      parse_duration(std::string_view(*by).substr(is_earlier || by->starts_with('+') ? 1 : 0));
  if (!duration) throw Refused{400, fmt::format("by: {}", duration.error().message)};
  return is_earlier ? -*duration : *duration;
}

Json object_given(const std::string& body, const std::set<std::string>& allowed) {
  Json json = parse_json(body);
  if (!json.is_object()) throw Refused{400, "the body has to be a JSON object"};
  for (const auto& [key, value] : json.items())
    if (!allowed.contains(key))
      throw Refused{400, fmt::format("unknown key '{}' in the body", printable(key))};
  return json;
}

std::string_view result_name(ControlOutcome outcome, Order::Kind kind) {
  if (outcome == ControlOutcome::already_delivered) return "already_delivered";
  if (outcome == ControlOutcome::unknown) return "unknown";
  return kind == Order::Kind::cancel ? "cancelled"
         : kind == Order::Kind::move ? "moved"
                                     : "delivered";
}

// Between members.
Json told_json(const Wanted& wanted) {
  Json json{{"topic", wanted.source.topic},
            {"partition", wanted.source.partition},
            {"name", wanted.name}};
  if (!*wanted.told) {
    json["error"] = wanted.told->error().message;
    json["code"] = static_cast<int>(wanted.told->error().code);
  } else {
    const auto& told = **wanted.told;
    json["outcome"] = static_cast<int>(told.outcome);
    json["due_ms"] = to_ms(told.due);
    json["offset"] = told.offset;
  }
  return json;
}
OrderTold told_from(const Json& json) {
  if (part_of(json, "error").is_string()) {
    const auto code = integer_in(json, "code");
    const bool is_refused = code == static_cast<int>(Errc::invalid);
    const bool is_elsewhere = code == static_cast<int>(Errc::not_found);
    return fail(is_refused     ? Errc::invalid
                : is_elsewhere ? Errc::not_found
                               : Errc::io,
                text_in(json, "error"));
  }
  const auto outcome = integer_in(json, "outcome", -1);
  if (outcome < 0 || outcome > static_cast<int>(ControlOutcome::unknown))
    return fail(Errc::io, fmt::format("{}; {}", no_sense, perhaps_done));
  delay::Controlled told;
  told.outcome = static_cast<ControlOutcome>(outcome);
  told.due = from_ms(integer_in(json, "due_ms"));
  told.offset = integer_in(json, "offset", -1);
  return told;
}

// Not for health checks, which anybody may ask for.
bool needs_something(std::string_view target) {
  const auto path = target.substr(0, target.find('?'));
  return std::ranges::none_of(routes, [&](const web::Route& route) {
    return route.needs == Needs::nothing && route.path == path;
  });
}

std::set<Source> covered_by(const Json& answer) {
  std::set<Source> covered;
  for (const auto& each : part_of(answer, "covers")) covered.insert(source_in(each));
  return covered;
}

}  // namespace

struct AdminServer::Impl {
  // --- The server's thread.
  awaitable<Reply> answer(web::Question question);
  awaitable<bool> is_of_peer(const web::Question& question);
  awaitable<Reply> handle(Does does, const Call& call);
  awaitable<Reply> get_status(const Call& call);
  awaitable<Reply> get_wheel(const Call& call);
  awaitable<Reply> list(const Call& call);
  awaitable<Reply> count(const Call& call);
  awaitable<Reply> get_one(const Call& call);
  awaitable<Reply> control_one(const Call& call, Order::Kind kind);
  awaitable<Reply> select(const Call& call);
  awaitable<Reply> take_orders(const Call& call);
  Reply get_metrics(const Call& call) const;
  Reply get_proof(const Call& call) const;

  PendingQuery query_of(const Call& call) const;
  // Waits for what was acknowledged before the request.
  awaitable<void> look(const Call& call);
  Json list_here(const Call& call) const;
  Json count_here(const Call& call) const;
  Json find_here(const Call& call) const;

  awaitable<Result<Listing>> listing();
  // Errc::io: it is not known whether it has done what it was asked for.
  awaitable<Told> ask(Peer peer, std::string method, std::string target, std::string body,
                      milliseconds timeout);
  // The same of all other members.
  awaitable<std::vector<Told>> ask_all(const Listing& known, std::string target);
  awaitable<Json> gather(const Call& call, Json here, std::vector<Json>& parts,
                         const char* list = "covers");
  Json missing(const Listing& known, const Call& call, const std::set<Source>& covered,
               const std::vector<Told>& told) const;

  // A member that hangs is waited for `grace` longer.
  awaitable<std::vector<OrderTold>> obey_here(const Order& order, std::vector<Wanted*> wanted,
                                              MonoTime deadline, milliseconds grace = 2s);
  awaitable<void> obey_there(const Order& order, Peer peer, std::vector<Wanted*> wanted,
                             milliseconds time);
  // Until each is told.
  awaitable<void> carry_out(const Order& order, std::vector<Wanted>& wanted);
  awaitable<void> sleep(milliseconds time);
  awaitable<void> follow_standby();
  bool is_us(const Peer& peer) const { return peer.key == facts.self.key; }
  std::string scoped(const Call& call) const {
    return call.raw + (call.raw.contains('?') ? "&" : "?") + "scope=member";
  }

  asio::io_context io;
  asio::thread_pool questions{1};  // To Kafka.
  std::unique_ptr<web::HttpServer> http;
  std::string host;
  // From start() on.
  Member* member = nullptr;
  Directory* directory = nullptr;
  const Clock* clock = nullptr;
  Random* random = nullptr;
  MemberFacts facts;
  std::optional<PeerKey> key;
  std::optional<web::Token> token;
  std::optional<web::Token> read_token;
  std::optional<web::Hosts> hosts;
  PeerChecks checks;
  Listing last_listing;
  Result<Listing> last_answer{};  // Kafka's, perhaps an error.
  MonoTime listed_at{};
  MonoTime forced_at{};
  // Those that wait for the listing that is under way; empty: none is.
  std::shared_ptr<asio::steady_timer> is_listing;
  std::thread thread;
};

// --- From outside.

AdminServer::AdminServer(std::unique_ptr<Impl> inside) : impl_(std::move(inside)) {}

AdminServer::~AdminServer() {
  stop();
}

Result<std::unique_ptr<AdminServer>> AdminServer::open(const std::string& host,
                                                       std::uint16_t port) {
  auto inside = std::make_unique<Impl>();
  web::HttpOptions options;
  options.host = host;
  options.port = port;
  auto http = web::HttpServer::open(inside->io.get_executor(), options);
  if (!http) return std::unexpected(http.error());
  inside->http = std::move(*http);
  inside->host = host;
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(inside)));
}

const std::string& AdminServer::address() const {
  return impl_->http->address();
}

Result<> AdminServer::start(Member& member, Directory& directory, const Clock& clock,
                            Random& random, PeerKey key, MemberFacts facts) {
  Impl& in = *impl_;
  auto token = web::Token::open(facts.data + "/admin.token", random);
  if (!token) return std::unexpected(token.error());
  auto read_token = web::Token::open(facts.data + "/admin.read.token", random);
  if (!read_token) return std::unexpected(read_token.error());
  in.token.emplace(std::move(*token));
  in.read_token.emplace(std::move(*read_token));
  web::Hosts::Options names;
  names.host = in.host;
  names.port = in.http->port();
  names.loopback = in.http->is_loopback();
  in.hosts.emplace(names);
  in.member = &member;
  in.directory = &directory;
  in.clock = &clock;
  in.random = &random;
  in.key.emplace(std::move(key));
  in.facts = std::move(facts);
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
  asio::post(in.io, [&in] {
    in.http->stop();
    in.io.stop();
  });
  in.thread.join();
  in.questions.join();
}

// --- A request.

awaitable<Reply> AdminServer::Impl::answer(web::Question question) {
  bool is_peer = false;
  if (PeerChecks::is_signature(question.authorization) && needs_something(question.target)) {
    is_peer = co_await is_of_peer(question);
    // Perhaps another member has the same address: it must not take our answer for that one's.
    if (!is_peer)
      co_return web::refusal(
          401, fmt::format("no member of the group has signed this for the member at {}: "
                           "is that the address of two members? give each --advertise",
                           facts.self.address));
  }
  const bool may_change = is_peer || token->authorizes(question.authorization);
  const bool is_known = may_change || read_token->authorizes(question.authorization);
  if (auto refused = web::refuse_stranger(*hosts, question, is_known,
                                          fmt::format("use {}", facts.self.address));
      refused && !is_peer)
    co_return std::move(*refused);
  auto chosen =
      web::choose(routes, paths, question, {is_known || hosts->reads_are_open(), may_change});
  if (!chosen) co_return std::move(chosen.error());
  const Call call{std::move(chosen->target), std::string(question.target),
                  std::string(question.local), std::string(question.body),
                  std::string(question.accept)};
  const std::string what = fmt::format("{} {}", question.method, printable(question.target));
  try {
    co_return co_await handle(handled_routes[chosen->route].does, call);
  } catch (const Refused& refused) {
    co_return web::refusal(refused.status, refused.why);
  } catch (const std::exception& failure) {
    log_error("relay", "{}: {}", what, failure.what());
  }
  co_return web::refusal(500, "the request failed; the log of the member says why");
}

// Whether a member of the group has signed it, for this member.
awaitable<bool> AdminServer::Impl::is_of_peer(const web::Question& question) {
  const PeerRequest asked{question.method, question.target, question.body, facts.self.address,
                          facts.self.key};
  const auto signer = checks.signer(question.authorization, asked, clock->wall());
  if (!signer) co_return false;
  const auto is_signer = [&](const Peer& peer) { return peer.key == signer->key; };
  const auto known = co_await listing();
  bool is_known = known && std::ranges::any_of(known->peers, is_signer);
  if (!is_known && clock->mono() - forced_at >= force_interval) {
    forced_at = clock->mono();
    listed_at = {};  // It may have joined just now.
    const auto again = co_await listing();
    is_known = again && std::ranges::any_of(again->peers, is_signer);
  }
  co_return is_known&& checks.take(*signer, clock->wall());
}

awaitable<Reply> AdminServer::Impl::handle(Does does, const Call& call) {
  switch (does) {
    case Does::health:
      co_return json_reply({{"status", "ok"}});
    case Does::ready: {
      const bool is_ready = member->is_ready();
      const std::string state = state_of(member->status(), is_ready);
      co_return json_reply({{"status", state}}, is_ready ? 200 : 503);
    }
    case Does::proof:
      co_return get_proof(call);
    case Does::status:
      co_return co_await get_status(call);
    case Does::wheel:
      co_return co_await get_wheel(call);
    case Does::metrics:
      co_return get_metrics(call);
    case Does::list:
      co_return co_await list(call);
    case Does::count:
      co_return co_await count(call);
    case Does::get:
      co_return co_await get_one(call);
    case Does::cancel:
      co_return co_await control_one(call, Order::Kind::cancel);
    case Does::move:
      co_return co_await control_one(call, Order::Kind::move);
    case Does::deliver:
      co_return co_await control_one(call, Order::Kind::deliver);
    case Does::select:
      co_return co_await select(call);
    case Does::orders:
      break;
  }
  co_return co_await take_orders(call);
}

Reply AdminServer::Impl::get_proof(const Call& call) const {
  const auto* nonce = call.parameter("nonce");
  if (nonce == nullptr || !is_proof_nonce(*nonce))
    throw Refused{400, "give a nonce of 64 hexadecimal digits (0-9a-f)"};
  return json_reply({{"proof", token->proof(*nonce, call.local)}, {"address", call.local}});
}

Reply AdminServer::Impl::get_metrics(const Call& call) const {
  const auto status = member->status();
  web::MetricsText text;
  text.gauge({"tarry_relay_ready", "Whether all that the group has given to it is owned."},
             member->is_ready());
  status.report_member(text);
  status.report_delayed(text);
  const auto format = web::MetricsText::format_for(call.accept);
  Reply reply;
  reply.body = text.text(format);
  reply.content_type = web::MetricsText::content_type(format);
  return reply;
}

// --- The other members.

awaitable<void> AdminServer::Impl::sleep(milliseconds time) {
  asio::steady_timer timer(io, time);
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

// Tells the member again and again of which partitions it is to keep warm copies.
awaitable<void> AdminServer::Impl::follow_standby() {
  for (;;) {
    const auto known = co_await listing();
    if (known) {
      auto wanted = standby_of(*known, facts.self.key, facts.standby);
      if (wanted) member->keep_warm(std::move(*wanted));
    }
    co_await sleep(standby_interval);
  }
}

awaitable<Result<Listing>> AdminServer::Impl::listing() {
  if (listed_at != MonoTime{} && clock->mono() - listed_at < listing_age) co_return last_listing;
  if (is_listing) {
    const auto under_way = is_listing;
    boost::system::error_code ignored;
    co_await under_way->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_return last_answer;
  }
  is_listing = std::make_shared<asio::steady_timer>(io, asio::steady_timer::time_point::max());
  auto question = [](Directory* from) -> awaitable<Result<Listing>> { co_return from->list(); };
  auto listed =
      co_await asio::co_spawn(questions.get_executor(), question(directory), asio::use_awaitable);
  if (listed) {
    last_listing = *listed;
    listed_at = clock->mono();
  }
  last_answer = listed;
  is_listing->cancel();
  is_listing.reset();
  co_return listed;
}

awaitable<Told> AdminServer::Impl::ask(Peer peer, std::string method, std::string target,
                                       std::string body, milliseconds timeout) {
  const std::string nonce = fmt::format("{:016x}{:016x}", random->u64(), random->u64());
  std::string signature =
      key->sign({method, target, body, peer.address, peer.key}, clock->wall(), nonce);
  PeerAsked asked{peer.address,    std::move(method),    std::move(target),
                  std::move(body), std::move(signature), timeout};
  const auto answered = co_await ask_peer(std::move(asked));
  Told told{std::move(peer), Json()};
  if (!answered) {
    told.json = std::unexpected(answered.error());
    co_return told;
  }
  Json json = is_flat(answered->body) ? parse_json(answered->body) : Json();
  if (answered->status == 200 && json.is_object()) {
    told.json = std::move(json);
  } else {
    const std::string error = text_in(json, "error");
    // A request that it refuses it has not begun.
    const bool is_refused = answered->status >= 400 && answered->status < 500;
    told.json = fail(is_refused ? Errc::invalid : Errc::io,
                     !error.empty()            ? error
                     : answered->status == 200 ? std::string(no_sense)
                                               : fmt::format("it answers {}", answered->status));
  }
  co_return told;
}

awaitable<std::vector<Told>> AdminServer::Impl::ask_all(const Listing& known, std::string target) {
  struct Round {
    explicit Round(asio::io_context& on) : done(on, asio::steady_timer::time_point::max()) {}
    std::vector<Told> told;
    std::size_t open = 0;
    asio::steady_timer done;
  };
  const auto round = std::make_shared<Round>(io);
  for (const auto& peer : known.peers) {
    if (is_us(peer)) continue;
    ++round->open;
    asio::co_spawn(io, ask(peer, "GET", target, "", peer_timeout),
                   [round, peer](const std::exception_ptr& thrown, Told told) {
                     if (thrown) told = {peer, fail(Errc::io, "the question failed")};
                     round->told.push_back(std::move(told));
                     if (--round->open == 0) round->done.cancel();
                   });
  }
  boost::system::error_code ignored;
  if (round->open > 0)
    co_await round->done.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  co_return std::move(round->told);
}

// The partitions that nobody has answered for.
Json AdminServer::Impl::missing(const Listing& known, const Call& call,
                                const std::set<Source>& covered,
                                const std::vector<Told>& told) const {
  Json all = Json::array();
  PendingQuery asked;
  if (const auto* topic = call.parameter("topic")) asked.topic = *topic;
  if (call.target.path.size() > 2) asked.topic = call.target.path[1];
  if (const auto* partition = call.parameter("partition"))
    asked.partition =
        static_cast<PartitionIndex>(number_given("partition", *partition, 0, 1u << 20));
  for (const auto& [topic, partitions] : known.sources) {
    for (PartitionIndex i = 0; i < partitions; ++i) {
      const Source source{topic, i};
      if (!asked.wants(source) || covered.contains(source)) continue;
      Json each{{"topic", topic},
                {"partition", i},
                {"member", nullptr},
                {"error", "no member of the group has it now"}};
      for (const auto& peer : known.peers) {
        if (std::ranges::find(peer.assigned, source) == peer.assigned.end()) continue;
        each["member"] = fmt::format("{} at {}", peer.instance, peer.address);
        each["error"] = "it is taking it over";
        for (const auto& one : told)
          if (one.peer.key == peer.key && !one.json) each["error"] = one.json.error().message;
      }
      all.push_back(std::move(each));
    }
  }
  return all;
}

// Puts the answers of all members into `parts`, ours first, and returns what is missing.  Each has
// this list beside what it covers.
awaitable<Json> AdminServer::Impl::gather(const Call& call, Json here, std::vector<Json>& parts,
                                          const char* list) {
  auto known = co_await listing();
  if (!known) throw Refused{503, known.error().message};
  std::vector<Told> told = co_await ask_all(*known, scoped(call));
  std::set<Source> covered = covered_by(here);
  parts.push_back(std::move(here));
  for (auto& each : told) {
    if (each.json && !has_lists(*each.json, {"covers", list}))
      each.json = fail(Errc::io, std::string(no_sense));
    if (!each.json) continue;
    covered.merge(covered_by(*each.json));
    parts.push_back(*each.json);
  }
  Json lacks = missing(*known, call, covered, told);
  if (!lacks.empty()) listed_at = {};
  co_return lacks;
}

namespace {

// What is there, unless something is missing: that is an error that shows the rest all the same.
Reply reply_of(Json body, const Json& lacks) {
  body["missing"] = lacks;
  if (lacks.empty()) return json_reply(body);
  const Json& first = lacks[0];
  const Json& member = first["member"];
  body["error"] = fmt::format("{} of the partitions are missing, the first of them {}-{} of {}: {}",
                              lacks.size(), first.value("topic", ""), first.value("partition", 0),
                              member.is_string() ? "member " + member.get<std::string>() : "nobody",
                              first.value("error", ""));
  return json_reply(body, 503);
}

PendingPlace place_of(const Json& record) {
  const Source source = source_in(record);
  return {from_ms(integer_in(record, "due_ms")), source,
          offset_in_handle(source, text_in(record, "handle")).value_or(0)};
}

}  // namespace

// --- Reading.

awaitable<Reply> AdminServer::Impl::get_status(const Call& call) {
  Json status =
      status_json(facts, member->status(), member->is_ready(), clock->wall(), clock->mono());
  if (call.is_of_member()) co_return json_reply(status);
  const auto known = co_await listing();
  if (!known) {
    status["relay"]["error"] = known.error().message;
    co_return json_reply(status);
  }
  std::vector<Told> told = co_await ask_all(*known, scoped(call));
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
  status["relay"]["missing"] = missing(*known, call, covered, told);
  co_return json_reply(status);
}

awaitable<Reply> AdminServer::Impl::get_wheel(const Call& call) {
  const auto status = member->status();
  Json here{{"timers", status.pending()},
            {"next_due_ms", ms_json(status.next_due())},
            {"levels", Json::array()},
            {"covers", covers_json(status)}};
  if (call.is_of_member()) co_return json_reply(here);
  std::vector<Json> parts;
  const Json lacks = co_await gather(call, std::move(here), parts);
  Json all{{"timers", 0}, {"next_due_ms", nullptr}, {"levels", Json::array()}};
  for (const auto& part : parts) {
    all["timers"] = integer_in(all, "timers") + integer_in(part, "timers");
    const Json& next = part_of(part, "next_due_ms");
    Json& first = all["next_due_ms"];
    if (next.is_number() && (first.is_null() || next < first)) first = next;
  }
  co_return reply_of(std::move(all), lacks);
}

PendingQuery AdminServer::Impl::query_of(const Call& call) const {
  PendingQuery query;
  if (const auto* topic = call.parameter("topic")) query.topic = *topic;
  if (const auto* partition = call.parameter("partition"))
    query.partition =
        static_cast<PartitionIndex>(number_given("partition", *partition, 0, 1u << 20));
  if (const auto* from = call.parameter("from"))
    query.from = time_given("from", *from, clock->wall());
  if (const auto* to = call.parameter("to")) query.until = time_given("to", *to, clock->wall());
  for (const auto& [name, into] : {std::pair{"id", &query.id}, {"key", &query.key}}) {
    const auto* pattern = call.parameter(name);
    if (pattern == nullptr) continue;
    if (pattern->empty())
      throw Refused{400, fmt::format("{} is empty: give a text, or a pattern", name)};
    *into = *pattern;
  }
  return query;
}

awaitable<void> AdminServer::Impl::look(const Call& call) {
  if (call.parameter("after") != nullptr) co_return;  // The first page has waited.
  PendingQuery query = query_of(call);
  if (call.target.path.size() > 2) query.topic = call.target.path[1];
  std::vector<Wanted> wanted;
  for (const auto& each : member->status().partitions)
    if (each.stage == Stage::owned && query.wants(each.source)) wanted.push_back({each.source, ""});
  if (wanted.empty()) co_return;
  std::vector<Wanted*> all;
  for (auto& each : wanted) all.push_back(&each);
  const Order order{.kind = Order::Kind::look};
  co_await obey_here(order, all, clock->mono() + look_time, 0ms);
}

Json AdminServer::Impl::list_here(const Call& call) const {
  const PendingQuery query = query_of(call);
  const auto* given = call.parameter("limit");
  const std::size_t limit =
      given == nullptr ? default_listed : number_given("limit", *given, 1, max_listed);
  std::optional<PendingPlace> after;
  if (const auto* text = call.parameter("after")) {
    after = parse_place(*text);
    if (!after)
      throw Refused{
          400, fmt::format("after={}: give the `next` of the previous page", printable(*text))};
  }
  const auto* values = call.parameter("values");
  // Which partitions it covers first: one that comes later has perhaps not all of its records yet.
  Json json{
      {"covers", covers_json(member->status())}, {"records", Json::array()}, {"next", nullptr}};
  const auto page = member->pending(query, after, limit);
  for (const auto& record : page.records)
    json["records"].push_back(record_json(record, values != nullptr && *values == "true"));
  if (page.next) json["next"] = place_text(*page.next);
  json["limit"] = limit;
  return json;
}

awaitable<Reply> AdminServer::Impl::list(const Call& call) {
  co_await look(call);
  Json here = list_here(call);
  if (call.is_of_member()) co_return json_reply(here);
  const std::size_t limit = here.value("limit", default_listed);
  std::vector<Json> parts;
  const Json lacks = co_await gather(call, std::move(here), parts, "records");
  // A member that has more of them has shown all up to its `next`.
  std::optional<PendingPlace> end;
  std::vector<std::pair<PendingPlace, Json>> records;
  for (auto& part : parts) {
    const auto place = parse_place(text_in(part, "next"));
    if (place && (!end || *place < *end)) end = place;
    for (auto& record : part["records"]) records.emplace_back(place_of(record), std::move(record));
  }
  std::ranges::sort(records, {}, &std::pair<PendingPlace, Json>::first);
  std::erase_if(records, [&](const auto& each) { return end && *end < each.first; });
  if (records.size() > limit) {
    records.resize(limit);
    end = records.back().first;
  }
  Json all{{"records", Json::array()}, {"next", nullptr}};
  for (auto& [place, record] : records) all["records"].push_back(std::move(record));
  if (end) all["next"] = place_text(*end);
  co_return reply_of(std::move(all), lacks);
}

Json AdminServer::Impl::count_here(const Call& call) const {
  const auto* by = call.parameter("by");
  std::chrono::minutes unit = 24h;
  if (by != nullptr && *by == "minute") {
    unit = 1min;
  } else if (by != nullptr && *by == "hour") {
    unit = 1h;
  } else if (by != nullptr && *by != "day") {
    throw Refused{400, fmt::format("by={}: give minute, hour or day", printable(*by))};
  }
  Json json{{"covers", covers_json(member->status())}};
  const auto counted = member->count(query_of(call), unit);
  json["total"] = counted.total;
  json["by"] = nullptr;
  if (by != nullptr) json["by"] = *by;
  json["counts"] = Json::array();
  if (by != nullptr)
    for (const auto& [from, count] : counted.counts)
      json["counts"].push_back({{"from", to_ms(from)}, {"count", count}});
  return json;
}

awaitable<Reply> AdminServer::Impl::count(const Call& call) {
  co_await look(call);
  Json here = count_here(call);
  if (call.is_of_member()) co_return json_reply(here);
  std::vector<Json> parts;
  const Json lacks = co_await gather(call, std::move(here), parts, "counts");
  std::uint64_t total = 0;
  std::map<std::int64_t, std::uint64_t> counts;
  for (const auto& part : parts) {
    total += static_cast<std::uint64_t>(integer_in(part, "total"));
    for (const auto& each : part_of(part, "counts"))
      counts[integer_in(each, "from")] += static_cast<std::uint64_t>(integer_in(each, "count"));
  }
  Json all{{"total", total}, {"by", parts[0]["by"]}, {"counts", Json::array()}};
  for (const auto& [from, count] : counts)
    all["counts"].push_back({{"from", from}, {"count", count}});
  co_return reply_of(std::move(all), lacks);
}

Json AdminServer::Impl::find_here(const Call& call) const {
  PendingQuery where = query_of(call);
  where.topic = call.target.path[1];
  Json json{{"covers", covers_json(member->status())}, {"records", Json::array()}};
  for (const auto& record : member->find(where, call.target.path[2]))
    json["records"].push_back(record_json(record, true));
  return json;
}

awaitable<Reply> AdminServer::Impl::get_one(const Call& call) {
  co_await look(call);
  Json here = find_here(call);
  if (call.is_of_member()) co_return json_reply(here);
  std::vector<Json> parts;
  const Json lacks = co_await gather(call, std::move(here), parts, "records");
  std::vector<std::pair<PendingPlace, Json>> records;
  for (auto& part : parts)
    for (auto& record : part["records"]) records.emplace_back(place_of(record), std::move(record));
  std::ranges::sort(records, {}, &std::pair<PendingPlace, Json>::first);
  if (records.empty()) {
    if (!lacks.empty()) co_return reply_of(Json::object(), lacks);
    throw Refused{404, fmt::format("nothing is pending under '{}' in topic {}",
                                   printable(call.target.path[2]), printable(call.target.path[1]))};
  }
  Json one = records.front().second;
  one["partitions"] = Json::array();
  for (const auto& [place, record] : records) one["partitions"].push_back(place.source.partition);
  one["missing"] = lacks;
  co_return json_reply(one);
}

// --- Orders.

awaitable<std::vector<OrderTold>> AdminServer::Impl::obey_here(const Order& order,
                                                               std::vector<Wanted*> wanted,
                                                               MonoTime deadline,
                                                               milliseconds grace) {
  struct Round {
    Round(asio::io_context& on, std::size_t count, MonoTime until)
        : told(count, fail(Errc::io, fmt::format("this member does not answer; {}", perhaps_done))),
          open(count),
          done(on, until) {}
    std::vector<OrderTold> told;
    std::size_t open;
    asio::steady_timer done;
  };
  const auto round = std::make_shared<Round>(io, wanted.size(), deadline + grace);
  std::vector<Ordered> given;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Order one = order;
    one.name = wanted[i]->name;
    given.push_back({wanted[i]->source, std::move(one), deadline, [this, round, i](OrderTold told) {
                       asio::post(io, [round, i, told = std::move(told)] {
                         round->told[i] = told;
                         if (--round->open == 0) round->done.cancel();
                       });
                     }});
  }
  member->give(std::move(given));
  boost::system::error_code ignored;
  if (round->open > 0)
    co_await round->done.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  co_return round->told;
}

awaitable<void> AdminServer::Impl::obey_there(const Order& order, Peer peer,
                                              std::vector<Wanted*> wanted, milliseconds time) {
  Json body{
      {"kind", static_cast<int>(order.kind)}, {"time_ms", time.count()}, {"orders", Json::array()}};
  if (const auto* due = std::get_if<WallTime>(&order.due)) body["due_ms"] = to_ms(*due);
  if (const auto* by = std::get_if<milliseconds>(&order.due)) body["by_ms"] = by->count();
  for (const auto* each : wanted)
    body["orders"].push_back({{"topic", each->source.topic},
                              {"partition", each->source.partition},
                              {"name", each->name}});
  const Told told =
      co_await ask(std::move(peer), "POST", "/peer/orders", text_of(body), time + peer_timeout);
  std::string error;
  if (!told.json) {
    error = told.json.error().message;
    if (told.json.error().code == Errc::io) error += fmt::format("; {}", perhaps_done);
  } else if (!has_lists(*told.json, {"told"}) ||
             part_of(*told.json, "told").size() != wanted.size()) {
    error = fmt::format("{}; {}", no_sense, perhaps_done);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (error.empty()) {
      wanted[i]->told = told_from(part_of(*told.json, "told")[i]);
    } else {
      wanted[i]->told = fail(Errc::io, fmt::format("member {} at {}: {}", told.peer.instance,
                                                   told.peer.address, error));
    }
  }
}

awaitable<Reply> AdminServer::Impl::take_orders(const Call& call) {
  const Json body = parse_json(call.body);
  if (!body.is_object() || !body.contains("orders") || !body["orders"].is_array())
    throw Refused{400, "the body has to be an object with orders"};
  Order order;
  order.kind = static_cast<Order::Kind>(std::clamp(body.value("kind", 0), 0, 2));
  if (body.contains("due_ms")) order.due = from_ms(body["due_ms"].get<std::int64_t>());
  if (body.contains("by_ms")) order.due = milliseconds(body["by_ms"].get<std::int64_t>());
  std::vector<Wanted> wanted;
  for (const auto& each : body["orders"])
    wanted.push_back(
        {{each.value("topic", ""), each.value("partition", 0)}, each.value("name", "")});
  std::vector<Wanted*> all;
  for (auto& each : wanted) all.push_back(&each);
  const milliseconds time(
      std::clamp<std::int64_t>(body.value("time_ms", std::int64_t{0}), 0, 60'000));
  const auto told = co_await obey_here(order, all, clock->mono() + time);
  Json answer{{"told", Json::array()}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].told = told[i];
    answer["told"].push_back(told_json(wanted[i]));
  }
  co_return json_reply(answer);
}

awaitable<void> AdminServer::Impl::carry_out(const Order& order, std::vector<Wanted>& wanted) {
  const MonoTime deadline = clock->mono() + order_time;
  const auto is_open = [](const Wanted& each) {
    return !each.told || (!*each.told && each.told->error().code == Errc::not_found);
  };
  for (bool is_first = true;; is_first = false) {
    const auto known = co_await listing();
    if (!known) throw Refused{503, known.error().message};
    std::vector<Wanted*> here;
    std::map<std::string, std::pair<Peer, std::vector<Wanted*>>> there;
    for (auto& each : wanted) {
      if (!is_open(each)) continue;
      const auto owner = std::ranges::find_if(known->peers, [&](const Peer& peer) {
        return std::ranges::find(peer.assigned, each.source) != peer.assigned.end();
      });
      if (owner == known->peers.end()) {
        each.told = fail(Errc::not_found,
                         fmt::format("no member of the group has {} now", each.source.text()));
      } else if (is_us(*owner)) {
        here.push_back(&each);
      } else {
        auto& [peer, orders] = there[owner->key];
        peer = *owner;
        orders.push_back(&each);
      }
    }
    // All of them at the same time.
    const auto left = std::chrono::ceil<milliseconds>(deadline - clock->mono());
    std::size_t open = there.size();
    asio::steady_timer all_told(io, asio::steady_timer::time_point::max());
    for (auto& [key_text, asked] : there)
      asio::co_spawn(io, obey_there(order, asked.first, asked.second, std::max(left, 100ms)),
                     [&open, &all_told, &orders = asked.second](const std::exception_ptr& thrown) {
                       for (Wanted* each : orders)
                         if (thrown) each->told = fail(Errc::io, std::string(perhaps_done));
                       if (--open == 0) all_told.cancel();
                     });
    if (!here.empty()) {
      const auto told = co_await obey_here(order, here, deadline);
      for (std::size_t i = 0; i < here.size(); ++i) here[i]->told = told[i];
    }
    boost::system::error_code ignored;
    if (open > 0) co_await all_told.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (std::ranges::none_of(wanted, is_open) || clock->mono() + order_again >= deadline) co_return;
    listed_at = {};
    if (!is_first) co_await sleep(order_again);
  }
}

awaitable<Reply> AdminServer::Impl::control_one(const Call& call, Order::Kind kind) {
  Order order{.kind = kind};
  if (kind == Order::Kind::move)
    order.due = new_due(object_given(call.body, {"due", "by"}), clock->wall());
  const std::string& topic = call.target.path[1];
  const std::string& name = call.target.path[2];
  const auto known = co_await listing();
  if (!known) throw Refused{503, known.error().message};
  const auto found = known->sources.find(topic);
  if (found == known->sources.end())
    throw Refused{404, fmt::format("there is no source topic '{}'", printable(topic))};
  const PendingQuery asked = query_of(call);
  std::vector<Wanted> wanted;
  for (PartitionIndex i = 0; i < found->second; ++i) {
    const Source source{topic, i};
    if (!asked.wants(source)) continue;
    // A handle names its partition.
    if (name.starts_with('@') && !offset_in_handle(source, name)) continue;
    wanted.push_back({source, name});
  }
  co_await carry_out(order, wanted);
  ControlOutcome best = ControlOutcome::unknown;
  Json partitions = Json::array(), lacks = Json::array();
  for (const auto& each : wanted) {
    if (!each.told || !*each.told) {
      const Error error = each.told ? each.told->error() : Error{Errc::io, "no answer"};
      if (error.code == Errc::invalid) throw Refused{409, error.message};
      lacks.push_back({{"topic", topic},
                       {"partition", each.source.partition},
                       {"member", nullptr},
                       {"error", error.message}});
      continue;
    }
    const auto& told = **each.told;
    best = std::min(best, told.outcome);  // Their order is from best to worst.
    if (told.outcome == ControlOutcome::unknown) continue;
    Json one{{"partition", each.source.partition}, {"result", result_name(told.outcome, kind)}};
    const bool is_done = told.outcome == ControlOutcome::done;
    if (is_done && kind == Order::Kind::deliver) one["offset"] = told.offset;
    if (is_done && kind == Order::Kind::move) one["due_ms"] = to_ms(told.due);
    partitions.push_back(std::move(one));
  }
  Json body{{"result", result_name(best, kind)}, {"partitions", std::move(partitions)}};
  if (best != ControlOutcome::done) co_return reply_of(std::move(body), lacks);
  body["missing"] = std::move(lacks);
  co_return json_reply(body);
}

// --- A selection.

// Finds what a query matches, page by page, gives the order for it, and says how far it is.
class AdminServer::Selection final : public web::ReplyStream {
 public:
  Selection(Impl& inside, std::string query, Order order, bool is_dry_run)
      : inside_(inside),
        query_(std::move(query)),
        order_(std::move(order)),
        is_dry_run_(is_dry_run) {}

  awaitable<std::optional<std::string>> next() override {
    if (is_over_) co_return std::nullopt;
    try {
      // A move may put a record where the search finds it again, so all are found first.
      const bool is_all_first = order_.kind == Order::Kind::move && !is_dry_run_;
      if (!found_all_) co_await find_some();
      if (found_all_ || !is_all_first) co_await order_some();
      is_over_ = found_all_ && found_.empty();
    } catch (const Refused& refused) {
      error_ = refused.why;
      is_over_ = true;
    }
    co_return line();
  }

 private:
  awaitable<void> find_some() {
    const std::string target = query_ + (after_.empty() ? "" : "&after=" + after_);
    auto parsed = web::parse_target(target);
    if (!parsed) throw Refused{400, parsed.error().message};
    const Call call{std::move(*parsed), target, {}, {}, {}};
    const Reply reply = co_await inside_.list(call);
    const Json page = parse_json(reply.body);
    if (reply.status != 200) throw Refused{reply.status, page.value("error", "")};
    for (const auto& record : page["records"]) {
      ++matched_;
      if (is_dry_run_ && shown_.size() < 10) shown_.push_back(record);
      if (!is_dry_run_) found_.push_back({source_in(record), text_in(record, "handle")});
    }
    if (found_.size() > most_moved)
      throw Refused{400, fmt::format("the selection has more than {} records, which cannot be "
                                     "moved at once; nothing was moved",
                                     most_moved)};
    after_ = page["next"].is_string() ? page["next"].get<std::string>() : "";
    found_all_ = after_.empty();
  }

  awaitable<void> order_some() {
    std::vector<Wanted> some;
    const auto count = std::min(found_.size(), max_listed);
    std::move(found_.end() - static_cast<std::ptrdiff_t>(count), found_.end(),
              std::back_inserter(some));
    found_.resize(found_.size() - count);
    if (some.empty()) co_return;
    co_await inside_.carry_out(order_, some);
    for (const auto& each : some) {
      if (each.told && *each.told) {
        ++told_[static_cast<std::size_t>((*each.told)->outcome)];
      } else if (failed_++ == 0) {
        error_ = each.told ? each.told->error().message : "no answer";
      }
    }
  }

  std::string line() const {
    Json body{
        {"matched", matched_},
        {"done", told_[static_cast<std::size_t>(ControlOutcome::done)]},
        {"already_delivered", told_[static_cast<std::size_t>(ControlOutcome::already_delivered)]},
        {"unknown", told_[static_cast<std::size_t>(ControlOutcome::unknown)]}};
    if (failed_ != 0) body["failed"] = failed_;
    if (!error_.empty()) body["error"] = error_;
    if (is_over_ && is_dry_run_) body["records"] = shown_;
    return text_of(body) + "\n";
  }

  Impl& inside_;
  const std::string query_;
  const Order order_;
  const bool is_dry_run_;
  std::string after_;
  std::vector<Wanted> found_;  // And not ordered yet.
  bool found_all_ = false, is_over_ = false;
  std::uint64_t matched_ = 0, failed_ = 0;
  std::array<std::uint64_t, 3> told_{};
  std::string error_;  // The first one.
  Json shown_ = Json::array();
};

awaitable<Reply> AdminServer::Impl::select(const Call& call) {
  const Json body = object_given(
      call.body, {"id", "key", "from", "to", "partition", "action", "due", "by", "dry_run"});
  std::string query = "/delayed?limit=1000&topic=" + percent_encoded(call.target.path[1]);
  bool is_empty = true;
  for (const char* name : {"id", "key", "from", "to", "partition"}) {
    const auto word = word_in(body, name);
    if (!word) continue;
    query += fmt::format("&{}={}", name, percent_encoded(*word));
    is_empty = is_empty && std::string_view(name) == "partition";
  }
  if (is_empty)  // It would be everything by a slip.
    throw Refused{400, "the selection is empty: give an id, a key, from or to"};
  const std::string action = word_in(body, "action").value_or("");
  Order order;
  if (action == "move") {
    order.kind = Order::Kind::move;
    order.due = new_due(body, clock->wall());
  } else if (action == "deliver") {
    order.kind = Order::Kind::deliver;
  } else if (action != "cancel") {
    throw Refused{400, fmt::format("action: '{}' is not one; give cancel, move or deliver",
                                   printable(action))};
  }
  if (order.kind != Order::Kind::move && (body.contains("due") || body.contains("by")))
    throw Refused{400, "due and by belong to the action move"};
  if (body.contains("dry_run") && !body["dry_run"].is_boolean())
    throw Refused{400, "dry_run: give true or false"};
  const bool is_dry_run = body.value("dry_run", false);
  Reply reply;
  reply.content_type = "application/x-ndjson";
  reply.stream = std::make_shared<Selection>(*this, std::move(query), std::move(order), is_dry_run);
  co_return reply;
}

}  // namespace tarry::relay
