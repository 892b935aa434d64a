// ListOffsets (key 2), versions 1 to 10.
//
// -1 latest, -2 earliest, -3 the record with the largest timestamp (from version 7 on), -4 earliest
// local (8), -5 latest tiered (9, of which there is none); a timestamp: the first record, not
// batch, that is not older.  None is offset -1 without an error.

#include <cstdint>
#include <optional>
#include <utility>

#include "broker/broker.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/resolve_each.h"
#include "broker/handlers/run.h"
#include "broker/scatter.h"
#include "protocol/messages/list_offsets.h"

namespace tarry::broker {

using protocol::ErrorCode;
using protocol::ListOffsetsRequest;
using protocol::ListOffsetsResponse;
namespace asio = boost::asio;

namespace {

constexpr std::int64_t latest = -1;
constexpr std::int64_t earliest = -2;
constexpr std::int64_t max_timestamp = -3;
constexpr std::int64_t earliest_local = -4;
constexpr std::int64_t latest_tiered = -5;

// One partition that is asked about.
struct OffsetItem {
  TopicPartition id;
  std::int64_t target;  // A timestamp, or one of the above.
  ListOffsetsResponse::Partition* answer;
};

struct FoundOffset {
  ErrorCode error = ErrorCode::none;
  Offset offset = -1;
  std::int64_t timestamp = -1;
};

// On the partition's shard.
asio::awaitable<FoundOffset> find_offset(Shard& shard, TopicPartition id, std::int64_t target) {
  const auto opened = co_await shard.partitions().open(id);
  if (!opened) co_return FoundOffset{opened.error(), -1, -1};
  Partition& partition = **opened;
  if (partition.fenced()) co_return FoundOffset{ErrorCode::kafka_storage_error, -1, -1};
  if (target == latest) co_return FoundOffset{ErrorCode::none, partition.high_watermark(), -1};
  if (target == earliest || target == earliest_local)
    co_return FoundOffset{ErrorCode::none, partition.log_start(), -1};
  if (target == latest_tiered) co_return FoundOffset{};
  // Newer clients know further numbers, which are no times.
  if (target < 0 && target != max_timestamp)
    co_return FoundOffset{ErrorCode::invalid_request, -1, -1};

  auto search =
      target == max_timestamp ? partition.find_max_timestamp() : partition.find_timestamp(target);
  Result<std::optional<storage::TimestampedOffset>> found;
  // Most are answered from memory, and then a thread of the pool would only cost time.
  if (search.blocks()) {
    auto work = [search = std::move(search)]() mutable { return search.run(); };
    found = co_await shard.blocking(std::move(work));
  } else {
    found = search.run();
  }
  if (!found) {
    // Retention was faster: the first record that is left is not older than those that went.
    if (found.error().code == Errc::not_found)
      co_return FoundOffset{ErrorCode::offset_not_available, -1, -1};
    if (Partition* const still = shard.partitions().find(id);
        // Fenced here too: the next reader would find the same damage.
        still != nullptr && found.error().code == Errc::corrupt) {
      still->fence(found.error().message);
    }
    co_return FoundOffset{ErrorCode::kafka_storage_error, -1, -1};
  }
  if (!*found) co_return FoundOffset{};
  co_return FoundOffset{ErrorCode::none, (*found)->offset, (*found)->timestamp};
}

// On the items' shard.  A search of old segments is waited for before the next one begins, so a
// request keeps no more than one thread of the pool from others.
asio::awaitable<void> find_offsets(OnShard<OffsetItem>& there, CancellationToken& token) {
  YieldBudget budget(*there.shard, nullptr);
  for (OffsetItem& item : there.items) {
    // The answers after the last one stay empty, and nobody reads them.
    if (budget.spend() && (!co_await budget.yield() || token.cancelled())) co_return;
    const FoundOffset found = co_await find_offset(*there.shard, item.id, item.target);
    item.answer->error_code = found.error;
    item.answer->offset = found.offset;
    item.answer->timestamp = found.timestamp;
    // Kafka's clients compare epochs, and one broker has only the first.
    item.answer->leader_epoch = found.offset >= 0 ? 0 : -1;
  }
}

asio::awaitable<ListOffsetsResponse> list_offsets(RequestContext& context,
                                                  const ListOffsetsRequest& request) {
  ListOffsetsResponse response;
  ByShard<OffsetItem> items;
  const auto take = [&](const TopicPartition& id, const auto&, const auto& partition,
                        auto& answer) {
    items.add(context.broker.shard_of(id), {id, partition.timestamp, &answer});
  };
  const ListOffsetsResponse::Partition blank;
  if (!co_await resolve_each(context, AclOperation::describe, request.topics, response.topics,
                             blank, take))
    co_return response;
  const auto work = [](OnShard<OffsetItem>& there, CancellationToken& token) {
    return find_offsets(there, token);
  };
  co_await scatter(context.shard, &context.connection, items, work);
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_list_offsets(RequestContext context) {
  return run<ListOffsetsRequest, list_offsets>(std::move(context));
}

}  // namespace tarry::broker
