#pragma once

// DelayedTopicChange: a request whose topics are being created, deleted, given partitions or
// configured (Kafka's DelayedCreateTopics, DelayedDeleteTopics and DelayedCreatePartitions).
//
//   satisfied   each of its changes is made, durable and known to every shard, or was refused
//   expired     its timeout_ms has passed: REQUEST_TIMED_OUT for those that are not; one that is
//               under way may still be made, those after it are not begun.  AlterConfigs and
//               IncrementalAlterConfigs have no timeout.  Metadata, which creates an unknown topic,
//               answers LEADER_NOT_AVAILABLE after a while: the next request finds the topic
//   cancelled   the client has gone, or the broker stops: as when expired, without an answer
//
// A separate coroutine makes the changes.  It puts each result here and may outlive the request:
//
//   request --> DelayedTopicChange ---- watches ---> TopicChanges <--- add() --- making
//                                                         '--- given_up ------------^
//
// All of it on the connection's shard.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "broker/context/one_shot_event.h"
#include "broker/topics/topics.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class Shard;
struct RequestContext;

inline const purgatory::Kind create_topics_kind{"create_topics"};
inline const purgatory::Kind delete_topics_kind{"delete_topics"};
inline const purgatory::Kind create_partitions_kind{"create_partitions"};
inline const purgatory::Kind alter_configs_kind{"alter_configs"};

// The results of a request's changes so far, in the order of the request.
struct TopicChanges {
  void add(TopicResult<TopicPtr> result) {
    results.push_back(std::move(result));
    added.advance_to(static_cast<purgatory::Threshold>(results.size()));
  }

  // No more results come.
  void fail(std::exception_ptr why) {
    failure = std::move(why);
    added.check_all();
  }

  std::vector<TopicResult<TopicPtr>> results;
  std::exception_ptr failure;
  purgatory::WatchList added;          // By the number of results.
  std::atomic<bool> given_up = false;  // No client waits: no further change may begin, on shard 0.
};

class DelayedTopicChange final : public purgatory::DelayedOperation {
 public:
  // Until `changes`, which outlives it, has `count` results.
  DelayedTopicChange(Shard& home, purgatory::Kind kind, TopicChanges& changes, std::size_t count)
      : DelayedOperation(kind), home_(home), changes_(changes), count_(count) {}

  boost::asio::awaitable<purgatory::Outcome> wait(purgatory::Tick deadline);

 private:
  bool is_satisfied() override { return changes_.failure || changes_.results.size() >= count_; }
  void on_complete(purgatory::Outcome) override { answered_.fire(); }

  Shard& home_;
  TopicChanges& changes_;
  const std::size_t count_;
  OneShotEvent answered_;
};

// Runs on shard 0, and views nothing of the request, which it may outlive.
using TopicChange = std::move_only_function<boost::asio::awaitable<TopicResult<TopicPtr>>()>;

// Makes them one after another and waits for all; returns the results of those that were made until
// `deadline`, or until the client went.  Throws what a change throws, and begins no further change.
boost::asio::awaitable<std::vector<TopicResult<TopicPtr>>> change_topics(
    RequestContext& context, purgatory::Kind kind, std::vector<TopicChange> changes,
    purgatory::Tick deadline);

}  // namespace tarry::broker
