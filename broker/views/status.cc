#include "broker/views/status.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <boost/asio/use_awaitable.hpp>

#include "broker/broker.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/countdown.h"
#include "broker/scatter.h"
#include "broker/views/each_shard.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// Partitions that one step on a shard looks at, so that it does not hold the shard for long.
constexpr std::size_t partitions_per_step = 1024;
// Those whose shard is looked up in one.
constexpr std::size_t placed_per_step = 16'384;
// The list for the answers about more is made on the pool.
constexpr std::size_t made_here = 16'384;

// A partition's place in the question and in the answer.
using Place = std::size_t;

PartitionStatus status_of(const Shard& shard, Partition* partition) {
  PartitionStatus status;
  status.shard = shard.index();
  if (partition == nullptr) return status;
  status.open = true;
  status.fenced = partition->fenced();
  if (status.fenced) status.reason = *partition->fence_reason();
  status.log_start = partition->log_start();
  status.high_watermark = partition->high_watermark();
  status.log_end = partition->log_end();
  status.bytes = partition->size_bytes();
  return status;
}

// On the shard's thread; writes to places that nobody else looks at meanwhile.
asio::awaitable<void> look_at(Shard& shard, std::span<const TopicPartition> partitions,
                              std::span<const Place> places, std::size_t open_up_to,
                              std::span<PartitionStatus> statuses) {
  Countdown opened;
  opened.one_begun();  // Our own loop, so that nothing is waited for inside it.
  for (const Place place : places) {
    Partition* const open = shard.partitions().find(partitions[place]);
    // Only so many are opened for an answer: each costs files and memory from then on.
    if (open != nullptr || place >= open_up_to) {
      statuses[place] = status_of(shard, open);
      continue;
    }
    opened.one_begun();
    shard.partitions().with(partitions[place], [&, place](Partitions::Found partition) {
      statuses[place] = status_of(shard, partition.value_or(nullptr));
      opened.one_ended();
    });
  }
  opened.one_ended();
  if (!opened.all_ended()) co_await opened.wait();
}

// Adds the files of `directory`; `logs` and `journals` are the directories of those.
void add_files(const std::string& directory, const std::string& logs, const std::string& journals,
               BytesOnDisk& to) {
  namespace fs = std::filesystem;
  std::error_code error;
  // Files come and go meanwhile: what cannot be looked at is not there any more.
  fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied,
                                      error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone) || gone) continue;
    const auto size = at->file_size(gone);
    if (gone) continue;
    const std::string& path = at->path().native();
    to.all += size;
    if (path.starts_with(logs)) to.logs += size;
    if (path.starts_with(journals)) to.journals += size;
  }
}

}  // namespace

void ShardStatus::report(MetricSink& sink) const {
  counters.report(sink);
  sink.gauge({"tarry_broker_partitions_open",
              "Partitions that have been used since the start and are open."},
             partitions_open);
  sink.gauge({"tarry_broker_partitions_out_of_service",
              "Partitions that cannot be used because their files are damaged or cannot be opened; "
              "/status names them."},
             partitions_out_of_service);
  sink.gauge({"tarry_storage_log_tail_bytes",
              "Memory of the newest batches of logs: for consumers that read at the end, and those "
              "that are in no segment yet."},
             log_tail_bytes);
  sink.counter(
      {"tarry_broker_header_slips_total",
       "Headers of accepted records whose name is one letter off from a header that schedules."},
      header_slips_total);
  sink.counter({"tarry_broker_dead_letters_total",
                "Records with invalid headers that were written to NAME.invalid instead."},
               dead_letters_total);
  sink.gauge({"tarry_broker_has_room",
              "1: the broker accepts records; 0: the disk is full, or the data directory is gone."},
             has_room);
  sink.counter({"tarry_storage_checkpoints_total", "Completed checkpoints."}, checkpoints_total);
  sink.histogram(
      {"tarry_broker_turn_seconds",
       "Time for which a shard's thread works on one task (a turn) and serves nothing else; CPU "
       "time if the turn follows a wait.",
       "turn_ms"},
      turn_us, TimeUnit::microseconds);
  sink.gauge({"tarry_broker_longest_turn_seconds",
              "The longest turn of a shard's thread in the last minutes.", "longest_turn_seconds"},
             static_cast<double>(turn_us.recent.max()) / 1e6);
  sink.gauge({"tarry_broker_longest_turn_cpu_seconds",
              "The most CPU time that one turn used in the last minutes; 0 if none lasted a "
              "millisecond.",
              "longest_turn_cpu_seconds"},
             static_cast<double>(longest_busy_turn_us) / 1e6);
  delay.report(sink);
  journal.report(sink);
}

void DatabaseMemory::report(MetricSink& sink) const {
  sink.gauge({"tarry_storage_database_memory_bytes",
              "Memory of the databases: rows that are not written yet, cached blocks and open "
              "tables."},
             bytes);
}

DatabaseMemory database_memory(Broker& broker) {
  return {broker.meta().memory_bytes() + broker.pending().memory_bytes()};
}

void ShardStatus::report_produce_errors(MetricSink& sink) const {
  for (const auto& [error, batches] : produce_errors) {
    const MetricLabel label(sink, "error", protocol::name(error));
    sink.counter(
        {"tarry_broker_produce_errors_total",
         "Producer batches that were answered with an error, by error.", protocol::name(error)},
        batches);
  }
}

void ShardStatus::report_refused_batches(MetricSink& sink) const {
  for (const auto& [reason, batches] : refused_batches) {
    const MetricLabel label(sink, "reason", reason);
    sink.counter({"tarry_broker_refused_batches_total",
                  "Producer batches that a partition refused, by reason.", reason},
                 batches);
  }
}

ShardStatus status_of(Shard& shard) {
  ShardStatus status;
  status.index = shard.index();
  status.partitions_open = shard.partitions().all().size();
  status.partitions_out_of_service = shard.partitions().count_out_of_service();
  for (auto& [id, reason] : shard.partitions().out_of_service(ShardStatus::max_out_of_service))
    status.out_of_service.push_back({id, std::move(reason), shard.engine().set_aside_of(id)});
  status.log_tail_bytes = shard.tail_bytes;
  status.counters = shard.counters;
  status.turn_us = shard.turns.distribution(shard.clock().mono());
  status.longest_busy_turn_us = shard.busy_turns.recent(shard.clock().mono()).max();
  status.checkpoints_total = shard.checkpointer().checkpoints_total();
  for (const auto& [error, seen] : shard.produce_errors)
    status.produce_errors[error] = seen.batches;
  status.refused_batches = shard.notes().refusals();
  status.header_slips_total = shard.notes().slips_total();
  status.dead_letters_total = shard.notes().dead_letters_total();
  status.stopping = shard.stopping();
  const auto& journal = shard.journal();
  status.has_room = shard.has_room() && !journal.disk_is_full();
  status.failed = journal.has_failed();
  status.journal = journal.stats();
  status.wheel = shard.wheel().stats();
  status.wheel_tick = shard.tick();
  if (const auto due = shard.wheel().next_due()) {
    const auto wait = std::chrono::floor<milliseconds>(shard.time_of(*due) - shard.clock().mono());
    status.wheel_next_due = shard.clock().wall() + wait;
  }
  status.delay = shard.engine().stats();
  status.purgatory = shard.purgatory().stats(shard.tick());
  return status;
}

asio::awaitable<std::vector<ShardStatus>> shard_statuses(Broker& broker, Shard& here) {
  std::vector<ShardStatus> statuses(broker.shard_count());
  // Written where it belongs: its histograms are too large for the frames of coroutines.
  const auto look = [&statuses](Shard& shard) -> asio::awaitable<void> {
    statuses[shard.index()] = status_of(shard);
    co_return;
  };
  co_await on_each_shard(broker, here, look);
  co_return statuses;
}

asio::awaitable<std::vector<PartitionStatus>> partition_statuses(
    Broker& broker, Shard& here, std::vector<TopicPartition> partitions, std::size_t open_up_to) {
  std::vector<PartitionStatus> statuses;
  auto make = [count = partitions.size()] { return std::vector<PartitionStatus>(count); };
  // The memory of very many takes as long as they do.
  if (partitions.size() > made_here) {
    statuses = co_await here.blocking(std::move(make));
  } else {
    statuses = make();
  }
  ByShard<Place> items;
  for (Place place = 0; place < partitions.size(); ++place) {
    if (place > 0 && place % placed_per_step == 0) co_await here.steps().next();
    items.add(broker.shard_of(partitions[place]), place);
  }
  const auto work = [&](OnShard<Place>& there, CancellationToken&) -> asio::awaitable<void> {
    std::span<const Place> left = there.items;
    while (!left.empty()) {
      const auto some = left.first(std::min(left.size(), partitions_per_step));
      left = left.subspan(some.size());
      co_await look_at(*there.shard, partitions, some, open_up_to, statuses);
      // We may be inside what opened the last partition; and if there are more, it is another's
      // turn.
      if (left.empty()) {
        co_await asio::post(there.shard->executor(), asio::use_awaitable);
      } else {
        co_await there.shard->steps().next();
      }
    }
  };
  co_await scatter(here, nullptr, items, work);
  co_return statuses;
}

asio::awaitable<PendingFiles> pending_files(Broker& broker, Shard& here) {
  co_return co_await here.blocking([&broker] { return broker.pending().sizes(); });
}

asio::awaitable<Result<storage::BucketStore::LevelSizes>> pending_levels(Broker& broker,
                                                                         Shard& here) {
  co_return co_await here.blocking(
      [&broker, now = broker.clock().mono(), wall = broker.clock().wall()] {
        return broker.pending().levels(now, wall);
      });
}

asio::awaitable<storage::LevelSlots> memory_slots(Broker& broker, Shard& here) {
  auto all = storage::level_slots(broker.clock().wall());
  const auto merge = [&all](Shard& shard) -> asio::awaitable<void> {
    const auto slots = shard.engine().slots();
    for (std::size_t level = 0; level < all.size(); ++level) all[level].merge(slots[level]);
    co_return;
  };
  co_await on_each_shard(broker, here, merge);
  co_return all;
}

BytesOnDisk bytes_on_disk(const Broker& broker) {
  const auto& config = broker.identity();
  const std::string logs = config.log_directory + "/";
  const std::string journals = config.data_directory + "/journal/";
  BytesOnDisk bytes;
  add_files(config.data_directory, logs, journals, bytes);
  // If it lies in the data directory it was counted there.
  if (!config.log_directory.starts_with(config.data_directory + "/"))
    add_files(config.log_directory, logs, journals, bytes);
  return bytes;
}

}  // namespace tarry::broker
