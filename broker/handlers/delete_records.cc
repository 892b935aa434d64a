// DeleteRecords (key 21), versions 0 to 2.
//
// The log start of each partition moves to the offset that is asked for (-1: the high watermark),
// and is answered as its low watermark when that is durable.  An offset beyond the high watermark
// is refused; one below the log start changes nothing.  Delayed records have no offset yet and stay
// pending.  All partitions are begun before any of them is waited for.

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/context/durability_wait.h"
#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "protocol/messages/delete_records.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

using Request = protocol::DeleteRecordsRequest;
using Response = protocol::DeleteRecordsResponse;

struct Item {
  TopicPartition id;
  Offset before = 0;
  std::optional<Lsn> wait_for;
  Response::Partition* answer = nullptr;
};

// The items of one shard.
struct Group {
  Shard* shard;
  std::vector<Item> items;
};

// On the group's shard.
asio::awaitable<int> begin(Group& group) {
  for (Item& item : group.items) {
    const auto partition = co_await group.shard->partitions().open(item.id);
    if (!partition) {
      item.answer->error_code = partition.error();
      continue;
    }
    const auto deleted = (*partition)->delete_records(item.before);
    item.answer->error_code = deleted.error;
    item.wait_for = deleted.wait_for;
  }
  co_return 0;
}

// On the group's shard.  `deadline` by the clock, which all shards have in common.
asio::awaitable<int> finish(Group& group, MonoTime deadline,
                            std::shared_ptr<CancellationToken> token) {
  Shard& shard = *group.shard;
  std::optional<Lsn> last;
  for (const Item& item : group.items) {
    if (item.wait_for) last = std::max(last.value_or(0), *item.wait_for);
  }
  if (last && !token->cancelled() && !shard.stopping()) {
    DurabilityWait waiting(shard, *last, std::nullopt, delete_records_kind);
    CancellationToken::Attached attached(*token, waiting);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - shard.clock().mono());
    co_await waiting.wait(shard.tick_after(left));
  }
  for (Item& item : group.items) {
    if (item.answer->error_code != ErrorCode::none) continue;
    if (item.wait_for && shard.durable_through() <= *item.wait_for) {
      item.answer->error_code = ErrorCode::request_timed_out;
      continue;
    }
    if (const auto* partition = shard.partitions().find(item.id)) {
      item.answer->low_watermark = partition->log_start();
    } else {
      item.answer->error_code = ErrorCode::unknown_topic_or_partition;  // Deleted meanwhile.
    }
  }
  co_return 0;
}

asio::awaitable<Response> delete_records(RequestContext& context, const Request& request) {
  Broker& broker = context.broker;
  const MonoTime deadline =
      context.shard.clock().mono() + std::chrono::milliseconds(std::max(request.timeout_ms, 0));
  Response response;
  std::vector<Group> groups;
  response.topics.reserve(request.topics.size());
  for (const auto& topic : request.topics) {
    auto& answers = response.topics.emplace_back();
    answers.name = topic.name;
    answers.partitions.reserve(topic.partitions.size());  // They are pointed to.
    const auto known = context.shard.topics().find(topic.name);
    for (const auto& partition : topic.partitions) {
      auto& answer = answers.partitions.emplace_back();
      answer.partition_index = partition.partition_index;
      answer.low_watermark = -1;
      if (!known || partition.partition_index < 0 ||
          partition.partition_index >= known->partitions) {
        answer.error_code = ErrorCode::unknown_topic_or_partition;
        continue;
      }
      const TopicPartition id{known->id, partition.partition_index};
      Shard* const shard = &broker.shard_of(id);
      auto group = std::ranges::find(groups, shard, &Group::shard);
      if (group == groups.end()) group = groups.insert(groups.end(), Group{shard, {}});
      group->items.push_back({id, partition.offset, std::nullopt, &answer});
    }
  }
  for (auto& group : groups) {
    auto work = [&group] { return begin(group); };
    co_await broker.on(context.shard, *group.shard, std::move(work));
  }
  for (auto& group : groups) {
    CancelOnClose cancel_on_close(context.connection, context.shard, *group.shard);
    auto work = [&group, deadline, token = cancel_on_close.token()] {
      return finish(group, deadline, token);
    };
    if (context.connection.closed()) break;
    co_await broker.on(context.shard, *group.shard, std::move(work));
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_records(RequestContext context) {
  return run<Request, delete_records>(context);
}

}  // namespace tarry::broker
