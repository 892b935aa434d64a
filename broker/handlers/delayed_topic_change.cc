#include "broker/handlers/delayed_topic_change.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/request_context.h"
#include "broker/context/yield_budget.h"
#include "broker/shard.h"

namespace tarry::broker {

namespace asio = boost::asio;

namespace {

// To refuse one, or to begin with it.
constexpr std::size_t microseconds_a_change = 4;
// A millisecond's work for shard 0.
constexpr std::size_t changes_a_hop = 256;

// On shard 0: the first of `changes`, up to one that changed something or took long, because the
// results before it are waited for.
asio::awaitable<std::vector<TopicResult<TopicPtr>>> make_some(Broker& broker,
                                                              std::span<TopicChange> changes,
                                                              const std::atomic<bool>& given_up) {
  std::vector<TopicResult<TopicPtr>> results;
  const auto before = broker.topics().image();
  const auto begun = broker.shard(0).tick();
  for (auto& change : changes) {
    if (given_up) break;
    auto result = co_await change();
    results.push_back(std::move(result));
    // The caller learns at once what holds; the next hop goes on behind it.
    if (broker.topics().image() != before || broker.shard(0).tick() != begun) break;
  }
  co_return results;
}

// On the connection's shard; outlives a request that is answered first.
asio::awaitable<void> make_all(Broker& broker, Shard& home, std::vector<TopicChange> changes,
                               std::shared_ptr<TopicChanges> made) {
  const FreedOnPool freed(home, changes);
  try {
    YieldBudget budget(home, nullptr);
    std::span<TopicChange> left = changes;
    while (!left.empty() && !made->given_up) {
      auto work = [&broker, &given_up = made->given_up,
                   some = left.first(std::min(left.size(), changes_a_hop))] {
        return make_some(broker, some, given_up);
      };
      auto results = co_await broker.on(home, broker.shard(0), std::move(work));
      left = left.subspan(results.size());
      const bool is_time = budget.spend(microseconds_a_change * results.size());
      for (auto& result : results) made->add(std::move(result));
      if (is_time) co_await budget.yield();
    }
  } catch (...) {
    made->fail(std::current_exception());
  }
}

}  // namespace

asio::awaitable<purgatory::Outcome> DelayedTopicChange::wait(purgatory::Tick deadline) {
  const std::array watching{
      purgatory::Watching{changes_.added, static_cast<purgatory::Threshold>(count_)}};
  start(home_.purgatory(), home_.tick(), deadline, watching);
  if (!answered_.fired()) co_await answered_.wait();
  co_return *outcome();
}

asio::awaitable<std::vector<TopicResult<TopicPtr>>> change_topics(RequestContext& context,
                                                                  purgatory::Kind kind,
                                                                  std::vector<TopicChange> changes,
                                                                  purgatory::Tick deadline) {
  const FreedOnPool freed(context.shard, changes);
  if (changes.empty() || context.connection.closed())
    co_return std::vector<TopicResult<TopicPtr>>();
  const std::size_t count = changes.size();
  const auto made = std::make_shared<TopicChanges>();
  asio::co_spawn(context.shard.executor(),
                 // Detached: changes that have begun are finished even if the client goes or its
                 // time is up.
                 make_all(context.broker, context.shard, std::move(changes), made), asio::detached);
  DelayedTopicChange waiting(context.shard, kind, *made, count);
  const CancelOnClose cancel_on_close(context.connection, context.shard, context.shard);
  const CancellationToken::Attached attached(*cancel_on_close.token(), waiting);
  co_await waiting.wait(deadline);
  made->given_up = true;
  if (made->failure) std::rethrow_exception(made->failure);
  co_return std::move(made->results);
}

}  // namespace tarry::broker
