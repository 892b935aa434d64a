#include "admin/overview.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "broker/broker.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::ShardStatus;

// Older than this, the size of the data directory is looked up again.
constexpr std::chrono::seconds disk_use_kept{10};

struct Machine {
  ProcessStatus process;
  DiskStatus disk;
};

asio::awaitable<Machine> read_process_status(Context& context) {
  auto& use = context.disk_use;
  const MonoTime now = context.broker.clock().mono();
  const bool stale = !use.looking && (!use.at || now - *use.at >= disk_use_kept);
  if (stale) use.looking = true;
  auto machine = co_await context.here.blocking([&broker = context.broker, stale] {
    return Machine{process_status(), {stale ? broker::bytes_on_disk(broker) : 0}};
  });
  if (stale) {
    use.bytes = machine.disk.bytes;
    use.at = now;
    use.looking = false;
  }
  machine.disk.bytes = use.bytes;
  co_return machine;
}

TopicTotals totals_of(const storage::TopicsImage& topics) {
  TopicTotals totals;
  totals.topics = topics.size();
  for (const auto& topic : topics.by_name())
    totals.partitions += static_cast<std::uint64_t>(topic->partitions);
  return totals;
}

}  // namespace

void PendingStatus::report(MetricSink& sink) const {
  sink.gauge({"tarry_delay_pending", "Pending records."}, total);
  sink.gauge({"tarry_delay_next_due_timestamp_seconds", "Due time of the next pending record.",
              "next_due"},
             next_due);
}

void TopicTotals::report(MetricSink& sink) const {
  sink.gauge({"tarry_broker_topics", "Topics."}, topics);
  sink.gauge({"tarry_broker_partitions", "Partitions of all topics."}, partitions);
}

void DiskStatus::report(MetricSink& sink) const {
  sink.gauge(
      {"tarry_storage_bytes", "Size of all files of the broker, updated every 10 s at most."},
      bytes);
}

asio::awaitable<Overview> overview(Context& context) {
  Overview overview;
  const auto machine = co_await read_process_status(context);
  overview.disk = machine.disk;
  overview.process = machine.process;
  overview.pending = co_await pending_status(context);
  overview.shards = co_await broker::shard_statuses(context.broker, context.here);
  overview.topics = totals_of(context.here.topics());
  co_return overview;
}

asio::awaitable<PendingStatus> pending_status(Context& context) {
  Result<storage::PendingFirst> first;
  do {  // A step at a time, so that others get at the pool.
    first = co_await context.here.blocking(
        [&store = context.broker.pending()] { return store.next_due(); });
  } while (first && !first->known);
  if (!first) throw Refused{500, first.error().message};
  co_return PendingStatus{context.broker.pending().total(), first->due};
}

std::string_view state_of(const std::vector<ShardStatus>& shards) {
  if (std::ranges::any_of(shards, &ShardStatus::failed)) return "failed";
  if (std::ranges::any_of(shards, &ShardStatus::stopping)) return "stopping";
  if (!std::ranges::all_of(shards, &ShardStatus::has_room)) return disk_full;
  return "running";
}

}  // namespace tarry::admin
