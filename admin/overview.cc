#include "admin/overview.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/views/delayed_records.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::ShardStatus;

// Older than this, the size of the data directory is looked up again; with very many files it
// takes long, and waits for so many times as long.
constexpr std::chrono::seconds disk_use_kept{10};
constexpr int disk_use_share = 50;

// The first due time on disk, too, unless it is in another bucket meanwhile: a bucket with very
// many records takes long to read.
constexpr std::chrono::seconds first_due_kept{10};
constexpr int first_due_share = 50, first_due_hurried_share = 4;

// Blocks.
std::vector<FileSystem> file_systems(const broker::BrokerIdentity& broker) {
  std::vector<FileSystem> found;
  std::optional<dev_t> first;
  for (const auto& directory : {broker.data_directory, broker.log_directory}) {
    struct stat status {};
    // One file system counts once, or a sum over the directories would say twice what is free.
    if (::stat(directory.c_str(), &status) != 0 || first == status.st_dev) continue;
    if (!first) first = status.st_dev;
    std::error_code failed;
    const auto space = std::filesystem::space(directory, failed);
    if (!failed) {
      found.push_back({directory, space.available, space.capacity, space.capacity - space.free});
    }
  }
  return found;
}

struct Machine {
  ProcessStatus process;
  DiskStatus disk;
  broker::DatabaseMemory databases;
};

asio::awaitable<Machine> read_process_status(Context& context) {
  auto& use = context.disk_use;
  const MonoTime now = context.broker.clock().mono();
  // One look at a time: with very many files it takes longer than the scrapes are apart.
  const bool stale = !use.looking && (!use.again || now >= *use.again);
  if (stale) use.looking = true;
  const std::shared_ptr<void> looked(nullptr, [&use, stale](void*) {
    if (stale) use.looking = false;
  });
  auto machine = co_await context.here.blocking([&broker = context.broker, stale] {
    return Machine{process_status(),
                   {stale ? broker::bytes_on_disk(broker) : broker::BytesOnDisk{},
                    file_systems(broker.identity())},
                   broker::database_memory(broker)};
  });
  if (stale) {
    use.bytes = machine.disk.files.all;
    use.log_bytes = machine.disk.files.logs;
    use.journal_bytes = machine.disk.files.journals;
    const MonoTime ended = context.broker.clock().mono();
    use.again = now + std::max<MonoTime::duration>(disk_use_kept, (ended - now) * disk_use_share);
  }
  machine.disk.files = {use.bytes, use.log_bytes, use.journal_bytes};
  co_return machine;
}

// When the first record on disk is due, not before `bucket`, in which there is one.
asio::awaitable<WallTime> first_on_disk(Context& context, WallTime bucket) {
  auto& known = context.first_on_disk;
  const MonoTime now = context.broker.clock().mono();
  const bool is_same = known.from == bucket;
  if (known.looking || (is_same && now < known.again)) co_return is_same ? known.due : bucket;
  known.looking = true;
  const std::shared_ptr<void> looked(nullptr, [&known](void*) { known.looking = false; });
  const auto due = co_await broker::first_due_on_disk(context.broker, context.here, bucket);
  // Damage of one file does not blind those who watch the broker.
  if (!due)
    log_error("admin", "the first pending record on disk cannot be read: {}", due.error().message);
  known.from = bucket;
  // There may be none, for memory knows more than the disk.
  known.due = due ? due->value_or(bucket) : bucket;
  const MonoTime ended = context.broker.clock().mono();
  known.again = now + std::max<MonoTime::duration>(first_due_kept, (ended - now) * first_due_share);
  known.soon = now + (ended - now) * first_due_hurried_share;
  co_return known.due;
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
      {"tarry_storage_bytes", "Size of all files of the broker, updated at most every 10 s."},
      files.all);
}

void ClientMemory::report(MetricSink& sink) const {
  sink.gauge({"tarry_broker_client_memory_bytes",
              "Memory used for clients: requests, their decoded form and unread responses."},
             used_bytes);
  sink.gauge({"tarry_broker_client_memory_limit_bytes",
              "The limit of the memory used for clients (tarry.memory.bytes): near it, the "
              "connections that use the most are closed."},
             limit_bytes);
}

void BackupStatus::report(MetricSink& sink) const {
  sink.gauge({"tarry_broker_last_backup_timestamp_seconds",
              "When the last complete backup began; absent before the first one since the "
              "broker's start.",
              "last_backup_ms"},
             last_begun);
}

asio::awaitable<Overview> overview(Context& context) {
  Overview overview;
  const auto machine = co_await read_process_status(context);
  overview.disk = machine.disk;
  overview.process = machine.process;
  overview.databases = machine.databases;
  overview.shards = co_await broker::shard_statuses(context.broker, context.here);
  overview.pending = co_await pending_status(context, overview.shards);
  overview.pending_files = co_await broker::pending_files(context.broker, context.here);
  overview.topics = totals_of(context.here.topics());
  const auto& memory = *context.here.broker_context().memory;
  overview.memory = {memory.used(), memory.limit()};
  overview.backup = {context.last_backup};
  co_return overview;
}

asio::awaitable<PendingStatus> pending_status(Context& context,
                                              const std::vector<ShardStatus>& shards) {
  PendingStatus status{context.broker.pending_counts().total(), std::nullopt};
  std::optional<WallTime> bucket;  // The beginning of the bucket that has it.
  for (const auto& shard : shards) {
    const auto& due = shard.delay.next_due;
    auto& first = shard.delay.next_due_exact ? status.next_due : bucket;
    if (due) first = first ? std::min(*first, *due) : *due;
  }
  if (status.total == 0) {  // The disk may still have what was of a deleted topic, or cancelled.
    status.next_due.reset();
    co_return status;
  }
  if (bucket && (!status.next_due || *bucket < *status.next_due)) {
    const WallTime due = co_await first_on_disk(context, *bucket);
    status.next_due = status.next_due ? std::min(*status.next_due, due) : due;
  }
  co_return status;
}

std::string_view state_of(const broker::Broker& broker, const std::vector<ShardStatus>& shards) {
  if (std::ranges::any_of(shards, &ShardStatus::failed)) return "failed";
  if (std::ranges::any_of(shards, &ShardStatus::stopping)) return "stopping";
  if (broker.lost_directory()) return lost_directory;
  if (!std::ranges::all_of(shards, &ShardStatus::has_room)) return disk_full;
  return "running";
}

}  // namespace tarry::admin
