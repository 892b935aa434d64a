#pragma once

// resolve_each(): every partition that a request names, authorized and resolved, with a place in
// the answer; for requests whose topics have names and whose partitions have indexes.
//
//   topics of the request --> authorize_topic() --> resolve()
//                                 |--> take(id, topic, partition, answer)
//                                 '--> an error code in the answer
//
// Invariant: the answer's elements stay where they are, so that what take() keeps may point to
// them while `answered` lives.
//
// It takes turns: a request may name any number of partitions.

#include <vector>

#include <boost/asio/awaitable.hpp>

#include "broker/context/yield_budget.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/resolve.h"
#include "broker/shard.h"
#include "protocol/error_code.h"

namespace tarry::broker {

// False: the client has gone, and nobody reads the answer.  `blank` is the answer of a partition
// before anything is known of it.
template <typename Asked, typename Answered, typename Blank, typename Take>
boost::asio::awaitable<bool> resolve_each(const RequestContext& context, AclOperation operation,
                                          const std::vector<Asked>& asked,
                                          std::vector<Answered>& answered, const Blank& blank,
                                          Take take) {
  YieldBudget budget(context.shard, &context.connection);
  answered.reserve(asked.size());
  for (const auto& topic : asked) {
    if (budget.spend() && !co_await budget.yield()) co_return false;
    auto& answers = answered.emplace_back();
    answers.name = topic.name;
    answers.partitions.reserve(topic.partitions.size());
    const auto known = context.shard.topics().find(topic.name);
    const bool may = authorize_topic(context, operation, topic.name);
    for (const auto& partition : topic.partitions) {
      if (budget.spend() && !co_await budget.yield()) co_return false;
      auto& answer = answers.partitions.emplace_back(blank);
      answer.partition_index = partition.partition_index;
      auto leader_epoch = no_leader_epoch;
      if constexpr (requires { partition.current_leader_epoch; })
        leader_epoch = partition.current_leader_epoch;
      const auto id = resolve(known, partition.partition_index, leader_epoch);
      if (may && id) {
        take(*id, topic, partition, answer);
      } else {
        answer.error_code = may ? id.error() : protocol::ErrorCode::topic_authorization_failed;
      }
    }
  }
  co_return true;
}

}  // namespace tarry::broker
