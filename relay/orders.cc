#include "relay/orders.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "relay/admin_json.h"

namespace tarry::relay {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::awaitable;
using delay::ControlOutcome;
using std::chrono::milliseconds;

// Orders are tried again for so long while partitions move.
constexpr milliseconds order_time{8'000};
constexpr milliseconds order_again{200};
// A member that hangs is waited for so much longer.
constexpr milliseconds grace_time{2'000};
// A list waits for so long for what was just sent, and shows what is there then.
constexpr milliseconds look_time{1'000};
constexpr std::string_view outcome_unknown = "it is not known whether it was done";

// Between members.
Json told_json(const OrderTarget& wanted) {
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
OrderResult told_from(const Json& json) {
  if (field_of(json, "error").is_string()) {
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
    return fail(Errc::io, fmt::format("{}; {}", no_sense, outcome_unknown));
  delay::Controlled told;
  told.outcome = static_cast<ControlOutcome>(outcome);
  told.due = from_ms(integer_in(json, "due_ms"));
  told.offset = integer_in(json, "offset", -1);
  return told;
}

}  // namespace

awaitable<std::vector<OrderResult>> Orders::obey_here(const Order& order,
                                                      std::vector<OrderTarget*> wanted,
                                                      MonoTime deadline, milliseconds grace) {
  struct Round {
    Round(asio::io_context& on, std::size_t count, MonoTime until)
        : told(count,
               fail(Errc::io, fmt::format("this member does not answer; {}", outcome_unknown))),
          open(count),
          done(on, until) {}
    std::vector<OrderResult> told;
    std::size_t open;
    asio::steady_timer done;
  };
  // The member may answer after this has stopped waiting, and keeps orders that it has not answered
  // until its end, which is after that of io_: so they do not own what has a timer of io_.
  const auto round = std::make_shared<Round>(io_, wanted.size(), deadline + grace);
  std::vector<OrderRequest> given;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Order one = order;
    one.name = wanted[i]->name;
    auto answer = [this, waiting = std::weak_ptr(round), i](OrderResult told) {
      // The member answers on its own thread.
      asio::post(io_, [waiting, i, told = std::move(told)] {
        const auto found = waiting.lock();
        if (!found) return;
        found->told[i] = told;
        if (--found->open == 0) found->done.cancel();
      });
    };
    given.push_back({wanted[i]->source, std::move(one), deadline, std::move(answer)});
  }
  member_.give(std::move(given));
  boost::system::error_code ignored;
  // Without orders nobody would cancel the timer.
  if (round->open > 0)
    co_await round->done.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  co_return round->told;
}

awaitable<void> Orders::obey_there(const Order& order, Peer peer, std::vector<OrderTarget*> wanted,
                                   milliseconds time) {
  Json body{
      {"kind", static_cast<int>(order.kind)}, {"time_ms", time.count()}, {"orders", Json::array()}};
  if (const auto* due = std::get_if<WallTime>(&order.due)) body["due_ms"] = to_ms(*due);
  if (const auto* by = std::get_if<milliseconds>(&order.due)) body["by_ms"] = by->count();
  for (const auto* each : wanted)
    body["orders"].push_back({{"topic", each->source.topic},
                              {"partition", each->source.partition},
                              {"name", each->name}});
  // The other member waits for `time` itself, and its answer has to find this one still here.
  const PeerReply told = co_await peers_.ask(std::move(peer), "POST", "/peer/orders", text_of(body),
                                             time + peer_timeout);
  std::string error;
  if (!told.json) {
    error = told.json.error().message;
    // The member was not reached or has refused, so nothing has begun there.
    const bool is_known =
        told.json.error().code == Errc::invalid || told.json.error().code == Errc::not_found;
    if (!is_known) error += fmt::format("; {}", outcome_unknown);
    // The answers are told apart by their places alone.
  } else if (!has_lists(*told.json, {"told"}) ||
             field_of(*told.json, "told").size() != wanted.size()) {
    error = fmt::format("{}; {}", no_sense, outcome_unknown);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (error.empty()) {
      wanted[i]->told = told_from(field_of(*told.json, "told")[i]);
    } else {
      wanted[i]->told = fail(Errc::io, fmt::format("member {} at {}: {}", told.peer.instance,
                                                   told.peer.address, error));
    }
  }
}

awaitable<Json> Orders::take(const Json& body) {
  if (!body.is_object() || !body.contains("orders") || !body["orders"].is_array())
    throw web::Refused{400, "the body has to be an object with orders"};
  Order order;
  // A kind that this version does not know must not be carried out as another one.
  const int kind = body.value("kind", -1);
  if (kind < 0 || kind > static_cast<int>(Order::Kind::deliver))
    throw web::Refused{400, "the body has to have a kind: 0 (cancel), 1 (move) or 2 (deliver)"};
  order.kind = static_cast<Order::Kind>(kind);
  if (body.contains("due_ms")) order.due = from_ms(body["due_ms"].get<std::int64_t>());
  if (body.contains("by_ms")) order.due = milliseconds(body["by_ms"].get<std::int64_t>());
  std::vector<OrderTarget> wanted;
  for (const auto& each : body["orders"])
    wanted.push_back(
        {{each.value("topic", ""), each.value("partition", 0)}, each.value("name", "")});
  std::vector<OrderTarget*> all;
  for (auto& each : wanted) all.push_back(&each);
  // Bounded, because an order is kept for as long as its sender says.
  const milliseconds time(
      std::clamp<std::int64_t>(body.value("time_ms", std::int64_t{0}), 0, 60'000));
  const auto told = co_await obey_here(order, all, clock_.mono() + time, grace_time);
  Json answer{{"told", Json::array()}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].told = told[i];
    answer["told"].push_back(told_json(wanted[i]));
  }
  co_return answer;
}

awaitable<void> Orders::carry_out(const Order& order, std::vector<OrderTarget>& wanted) {
  const MonoTime deadline = clock_.mono() + order_time;
  // A member that does not own the partition now says not_found: another one is asked.
  const auto is_open = [](const OrderTarget& each) {
    return !each.told || (!*each.told && each.told->error().code == Errc::not_found);
  };
  for (bool is_first = true;; is_first = false) {
    const auto known = co_await peers_.listing();
    if (!known) throw web::Refused{503, known.error().message};
    std::vector<OrderTarget*> here;
    std::map<std::string, std::pair<Peer, std::vector<OrderTarget*>>> there;
    for (auto& each : wanted) {
      if (!is_open(each)) continue;
      const auto owner = std::ranges::find_if(known->peers, [&](const Peer& peer) {
        return std::ranges::find(peer.assigned, each.source) != peer.assigned.end();
      });
      if (owner == known->peers.end()) {
        each.told = fail(Errc::not_found,
                         fmt::format("no member of the group owns {} now", each.source.text()));
      } else if (peers_.is_us(*owner)) {
        here.push_back(&each);
      } else {
        auto& [peer, orders] = there[owner->key];
        peer = *owner;
        orders.push_back(&each);
      }
    }
    // All of them at the same time.
    const auto left = std::chrono::ceil<milliseconds>(deadline - clock_.mono());
    std::size_t open = there.size();
    asio::steady_timer all_told(io_, asio::steady_timer::time_point::max());
    for (auto& [key_text, asked] : there)
      asio::co_spawn(io_, obey_there(order, asked.first, asked.second, std::max(left, 100ms)),
                     [&open, &all_told, &orders = asked.second](const std::exception_ptr& thrown) {
                       for (OrderTarget* each : orders)
                         if (thrown) each->told = fail(Errc::io, std::string(outcome_unknown));
                       if (--open == 0) all_told.cancel();
                     });
    if (!here.empty()) {
      const auto told = co_await obey_here(order, here, deadline, grace_time);
      for (std::size_t i = 0; i < here.size(); ++i) here[i]->told = told[i];
    }
    boost::system::error_code ignored;
    if (open > 0) co_await all_told.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (std::ranges::none_of(wanted, is_open) || clock_.mono() + order_again >= deadline) co_return;
    peers_.forget_listing();
    // The first time at once: the listing may just have been old.
    if (!is_first) co_await peers_.sleep(order_again);
  }
}

awaitable<void> Orders::look(const PendingQuery& query) {
  std::vector<OrderTarget> wanted;
  for (const auto& each : member_.status().partitions)
    if ((each.stage == Stage::owned || each.stage == Stage::reading) && query.wants(each.source))
      wanted.push_back({each.source, ""});
  // Other members look at what they own themselves, when they are asked for their parts.
  if (wanted.empty()) co_return;
  std::vector<OrderTarget*> all;
  for (auto& each : wanted) all.push_back(&each);
  const Order order{.kind = Order::Kind::look};
  co_await obey_here(order, all, clock_.mono() + look_time, 0ms);
}

}  // namespace tarry::relay
