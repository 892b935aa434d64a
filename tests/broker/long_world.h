#pragma once

// LongWorld: a World that tells how much others get to do while a request that names very many
// things is at work.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/post.hpp>

#include "broker/handlers/run.h"
#include "tests/broker/world.h"

namespace tarry::broker::test {

constexpr std::size_t many = 20'000;

struct LongWorld : World {
  explicit LongWorld(std::function<void(BrokerConfig&)> configure = [](BrokerConfig&) {})
      : World({.shards = 1, .configure = std::move(configure)}) {
    for (std::size_t i = 0; i < many; ++i) names.push_back(std::to_string(i));
  }

  // Begins it, and whoever wants a turn again and again has at least so many before it is answered.
  template <typename Request>
  std::shared_ptr<Pending> begin_long(const Request& request, int version, int at_least = 10) {
    runs_at_once = false;
    const auto pending = begin(request, version);
    int turns = 0;
    std::function<void()> another = [&] {
      if (pending->answer) return;
      ++turns;
      if (hang_up) connection().close();
      background().step();  // A long request is decoded there, and its answer encoded.
      boost::asio::post(shard().executor(), another);
    };
    another();
    run();
    if (!hang_up) CHECK_MESSAGE(turns > at_least, std::string(Request::name));
    runs_at_once = true;
    return pending;
  }
  template <typename Response, typename Request>
  Response call_long(const Request& request, int version, int at_least) {
    return read<Response>(*begin_long(request, version, at_least), version);
  }

  // How much others get to do while a request is at work that waits for the journal and the pool.
  struct Steps {
    int turns = 0;   // Others', before it waits for the first time, its decoding aside.
    int pieces = 0;  // Work for the pool, with the journal's rounds; at least one.
  };
  template <typename Response, typename Request>
  Response change(const Request& request, int version, Steps& steps) {
    runs_at_once = false;
    steps = {};
    const auto pending = begin(request, version);
    if (protocol::encode_request_frame(7, "test", request, version).size() > decoded_here) {
      turn();
      background().step();
    }
    std::function<void()> another = [&] {
      if (pending->answer || background().size() > 0) return;
      if (steps.pieces == 0) ++steps.turns;
      if (steps.turns > 1'000'000) return;
      boost::asio::post(shard().executor(), another);
    };
    while (!pending->answer && steps.pieces < 10'000) {
      boost::asio::post(shard().executor(), another);
      turn();
      ++steps.pieces;
      background().step();
    }
    runs_at_once = true;
    run();
    return read<Response>(*pending, version);
  }

  std::vector<std::string> names;
  bool hang_up = false;
};

// Everybody but a super user needs a rule.
inline void with_rules(BrokerConfig& config) {
  config.authorizer.enabled = true;
  config.authorizer.super_users = {"User:ANONYMOUS"};
}
// Rules are looked up, and allow everything.
inline void with_lookups(BrokerConfig& config) {
  config.authorizer.enabled = true;
  config.authorizer.allow_without_rule = true;
}

}  // namespace tarry::broker::test
