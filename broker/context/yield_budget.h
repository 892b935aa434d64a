#pragma once

// YieldBudget: makes a request that names many things yield its shard now and then, so that it does
// not hold up the shard for long.
//
//   YieldBudget budget(context.shard, &context.connection);
//   for (const auto& name : request.names) {
//     if (budget.spend() && !co_await budget.yield()) co_return response;  // Nobody waits for it.
//     ... a microsecond's work ...
//   }
//
// max_elements (protocol/codec.h) bounds the number of things that a request may name.

#include <cstddef>

#include <boost/asio/awaitable.hpp>

namespace tarry::broker {

class Connection;
class ShardContext;

class YieldBudget {
 public:
  // On the shard's thread.  `connection`: of this shard; null when its end ends nothing.
  YieldBudget(ShardContext& shard, const Connection* connection)
      : shard_(shard), connection_(connection) {}

  // Another step, of `microseconds` or so; true: the budget is spent, and it is time to yield.
  bool spend(std::size_t microseconds = 1) {
    spent_ += microseconds;
    return spent_ > budget;
  }

  // Resumes in our turn (broker/context/step_queue.h).  False if no client waits for the answer any
  // more.
  boost::asio::awaitable<bool> yield();

 private:
  // A millisecond or two: short enough that nobody notices, and yielding costs a thousandth of it.
  static constexpr std::size_t budget = 1000;

  ShardContext& shard_;
  const Connection* const connection_;
  std::size_t spent_ = 0;
};

}  // namespace tarry::broker
