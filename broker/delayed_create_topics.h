#pragma once

// DelayedCreateTopics: a CreateTopics request whose topics are being created.
//
//   satisfied   each of them is created, durable and known to every shard, or was refused
//   expired     its timeout_ms has passed: REQUEST_TIMED_OUT for those that are not; one that is
//               under way may still appear, those behind it are not begun
//   cancelled   the client has gone, or the broker stops: as when expired, without an answer
//
// What creates them is a coroutine of its own, which puts each result here and may outlive the
// request:
//
//   request --> DelayedCreateTopics ---- watches ---> TopicsCreated <--- add() --- creating
//                                                         '--- given_up -------------^
//
// All of it on the connection's shard.

#include <cstddef>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "broker/topics.h"
#include "broker/wakeup.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class Shard;

// What has become of a request's topics so far, in the order in which they were asked for.
struct TopicsCreated {
  void add(TopicResult<TopicPtr> result) {
    results.push_back(std::move(result));
    added.advance_to(static_cast<purgatory::Threshold>(results.size()));
  }

  std::vector<TopicResult<TopicPtr>> results;
  purgatory::WatchList added;  // By the number of results.
  bool given_up = false;       // Nobody waits any more: nothing further is to be begun.
};

class DelayedCreateTopics final : public purgatory::DelayedOperation {
 public:
  // Until `created`, which outlives it, has `count` results.
  DelayedCreateTopics(Shard& home, TopicsCreated& created, std::size_t count)
      : DelayedOperation(purgatory::Kind::create_topics),
        home_(home),
        created_(created),
        count_(count) {}

  boost::asio::awaitable<purgatory::Outcome> wait(purgatory::Tick deadline);

 private:
  bool is_satisfied() override { return created_.results.size() >= count_; }
  void on_complete(purgatory::Outcome) override { answered_.fire(); }

  Shard& home_;
  TopicsCreated& created_;
  const std::size_t count_;
  Wakeup answered_;
};

}  // namespace tarry::broker
