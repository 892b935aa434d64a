// ListOffsets (key 2), versions 1 to 10.
//
// -1 latest, -2 earliest, -3 the record with the largest timestamp (from version 7 on), -4 earliest
// local (8), -5 latest tiered (9, of which there is none); a timestamp: the first record, not
// batch, that is not older.  None is offset -1 without an error.

#include <utility>

#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "protocol/messages/list_offsets.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

constexpr std::int64_t latest = -1;
constexpr std::int64_t earliest = -2;
constexpr std::int64_t max_timestamp = -3;
constexpr std::int64_t earliest_local = -4;
constexpr std::int64_t latest_tiered = -5;

struct Found {
  ErrorCode error = ErrorCode::none;
  Offset offset = -1;
  std::int64_t timestamp = -1;
};

// On the partition's shard.
asio::awaitable<Found> find_offset(Shard& shard, TopicPartition id, std::int64_t target) {
  const auto opened = co_await shard.partitions().open(id);
  if (!opened) co_return Found{opened.error(), -1, -1};
  Partition& partition = **opened;
  if (partition.fenced()) co_return Found{ErrorCode::kafka_storage_error, -1, -1};
  if (target == latest) co_return Found{ErrorCode::none, partition.high_watermark(), -1};
  if (target == earliest || target == earliest_local)
    co_return Found{ErrorCode::none, partition.log_start(), -1};
  if (target == latest_tiered) co_return Found{};
  if (target < 0 && target != max_timestamp) co_return Found{ErrorCode::invalid_request, -1, -1};

  auto search =
      target == max_timestamp ? partition.find_max_timestamp() : partition.find_timestamp(target);
  Result<std::optional<storage::TimestampedOffset>> found;
  if (search.blocks()) {
    auto work = [search = std::move(search)]() mutable { return search.run(); };
    found = co_await shard.blocking(std::move(work));
  } else {
    found = search.run();
  }
  if (!found) {
    // Retention was faster: the first record that is left is not older than those that went.
    if (found.error().code == Errc::not_found)
      co_return Found{ErrorCode::offset_not_available, -1, -1};
    if (Partition* const still = shard.partitions().find(id);
        still != nullptr && found.error().code == Errc::corrupt) {
      still->fence(found.error().message);
    }
    co_return Found{ErrorCode::kafka_storage_error, -1, -1};
  }
  if (!*found) co_return Found{};
  co_return Found{ErrorCode::none, (*found)->offset, (*found)->timestamp};
}

asio::awaitable<protocol::ListOffsetsResponse> list_offsets(
    RequestContext& context, const protocol::ListOffsetsRequest& request) {
  protocol::ListOffsetsResponse response;
  YieldBudget budget(context.shard, &context.connection);
  for (const auto& topic : request.topics) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    auto& answers = response.topics.emplace_back();
    answers.name = topic.name;
    const auto known = context.shard.topics().find(topic.name);
    for (const auto& partition : topic.partitions) {
      if (budget.spend() && !co_await budget.yield()) co_return response;
      protocol::ListOffsetsResponse::Partition answer;
      answer.partition_index = partition.partition_index;
      if (!known || partition.partition_index < 0 ||
          partition.partition_index >= known->partitions) {
        answer.error_code = ErrorCode::unknown_topic_or_partition;
      } else if (partition.current_leader_epoch > 0) {
        answer.error_code = ErrorCode::unknown_leader_epoch;
      } else {
        const TopicPartition id{known->id, partition.partition_index};
        Shard& there = context.broker.shard_of(id);
        auto work = [&there, id, target = partition.timestamp] {
          return find_offset(there, id, target);
        };
        const Found found = co_await context.broker.on(context.shard, there, std::move(work));
        answer.error_code = found.error;
        answer.offset = found.offset;
        answer.timestamp = found.timestamp;
        answer.leader_epoch = found.offset >= 0 ? 0 : -1;
      }
      answers.partitions.push_back(answer);
    }
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_list_offsets(RequestContext context) {
  return run<protocol::ListOffsetsRequest, list_offsets>(context);
}

}  // namespace tarry::broker
