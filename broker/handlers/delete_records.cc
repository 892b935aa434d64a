// DeleteRecords (key 21), versions 0 to 2.
//
// The log start of each partition moves to the offset that is asked for (-1: the high watermark),
// and is answered as its low watermark when that is durable.  An offset beyond the high watermark
// is refused; one below the log start changes nothing.  Delayed records have no offset yet and stay
// pending.  On each shard all log starts are moved before any of them is waited for.

#include <algorithm>
#include <chrono>
#include <optional>

#include "broker/broker.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/durability_wait.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/resolve_each.h"
#include "broker/handlers/run.h"
#include "broker/scatter.h"
#include "protocol/messages/delete_records.h"

namespace tarry::broker {

using protocol::DeleteRecordsRequest;
using protocol::DeleteRecordsResponse;
using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

const purgatory::Kind delete_records_kind{"delete_records"};

constexpr std::size_t microseconds_a_deletion = 4;

struct DeletionItem {
  TopicPartition id;
  Offset before = 0;
  std::optional<Lsn> wait_for;
  DeleteRecordsResponse::Partition* answer = nullptr;
};

// On the items' shard.
asio::awaitable<void> move_log_starts(OnShard<DeletionItem>& there) {
  YieldBudget budget(*there.shard, nullptr);
  for (DeletionItem& item : there.items) {
    if (budget.spend(microseconds_a_deletion)) co_await budget.yield();
    const auto partition = co_await there.shard->partitions().open(item.id);
    if (!partition) {
      item.answer->error_code = partition.error();
      continue;
    }
    const auto deleted = (*partition)->delete_records(item.before);
    item.answer->error_code = deleted.error;
    item.wait_for = deleted.wait_for;
  }
}

// Answers with the log starts that are durable.  On the items' shard.
asio::awaitable<void> fill_in(OnShard<DeletionItem>& there) {
  const Shard& shard = *there.shard;
  YieldBudget budget(*there.shard, nullptr);
  for (DeletionItem& item : there.items) {
    if (budget.spend()) co_await budget.yield();
    if (item.answer->error_code != ErrorCode::none) continue;
    // A log start that is not durable may come back after a crash, so it is not answered as one.
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
}

// On the items' shard.  `deadline` by the clock, which all shards have in common.
asio::awaitable<void> delete_on_shard(OnShard<DeletionItem>& there, MonoTime deadline,
                                      CancellationToken& token) {
  Shard& shard = *there.shard;
  co_await move_log_starts(there);
  // The last one is enough, because a journal becomes durable in order.
  std::optional<Lsn> last;
  for (const DeletionItem& item : there.items) {
    if (item.wait_for) last = std::max(last.value_or(0), *item.wait_for);
  }
  if (last && !token.cancelled() && !shard.stopping()) {
    DurabilityWait waiting(shard, delete_records_kind, last, std::nullopt);
    const CancellationToken::Attached attached(token, waiting);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - shard.clock().mono());
    co_await waiting.wait(shard.tick_after(left));
  }
  co_await fill_in(there);
}

asio::awaitable<DeleteRecordsResponse> delete_records(RequestContext& context,
                                                      const DeleteRecordsRequest& request) {
  const MonoTime deadline =
      context.shard.clock().mono() + std::chrono::milliseconds(std::max(request.timeout_ms, 0));
  DeleteRecordsResponse response;
  ByShard<DeletionItem> items;
  const auto take = [&](const TopicPartition& id, const auto&, const auto& partition,
                        auto& answer) {
    items.add(context.broker.shard_of(id), {id, partition.offset, std::nullopt, &answer});
  };
  DeleteRecordsResponse::Partition blank;
  blank.low_watermark = -1;
  if (!co_await resolve_each(context, AclOperation::remove, request.topics, response.topics, blank,
                             take))
    co_return response;
  const auto work = [deadline](OnShard<DeletionItem>& there, CancellationToken& token) {
    return delete_on_shard(there, deadline, token);
  };
  co_await scatter(context.shard, &context.connection, items, work);
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_records(RequestContext context) {
  return run<DeleteRecordsRequest, delete_records>(std::move(context));
}

}  // namespace tarry::broker
