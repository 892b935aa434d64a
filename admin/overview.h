#pragma once

// Overview: the whole broker at one moment, for the pages that show all of it.
//
//   every shard --> ShardStatus --.
//   counts of pending records ----+--> Overview --> /status, /metrics
//   disk and process -------------'
//
// The shards are asked one after the other, so figures of two shards need not add up exactly.
// Figures that are expensive to find (the size of the data directory, the first record that is due
// on disk) are kept in the Context for a while.
//
// A coroutine of shard 0, which hops to the others; the result belongs to its request.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"
#include "admin/process_status.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "broker/views/status.h"

namespace tarry::admin {

struct PendingStatus {
  std::uint64_t total = 0;
  std::optional<WallTime> next_due;

  void report(MetricSink& sink) const;
};

struct TopicTotals {
  std::uint64_t topics = 0;
  std::uint64_t partitions = 0;

  void report(MetricSink& sink) const;
};

// The file system with a directory that the broker writes to.
struct FileSystem {
  std::string directory;
  std::uint64_t free_bytes = 0;  // For this user.
  std::uint64_t total_bytes = 0;
  std::uint64_t used_bytes = 0;  // The rest is kept from this user.
};

struct DiskStatus {
  broker::BytesOnDisk files;
  // Each once, that with the data directory first; one that cannot be asked is left out.
  std::vector<FileSystem> file_systems;

  void report(MetricSink& sink) const;
};

// The memory that clients make the broker hold (broker/context/ledger.h).
struct ClientMemory {
  std::uint64_t used_bytes = 0;
  std::uint64_t limit_bytes = 0;

  void report(MetricSink& sink) const;
};

// The copies that were made since the start.
struct BackupStatus {
  std::optional<WallTime> last_begun;  // The last whole one's begin; empty: none.

  void report(MetricSink& sink) const;
};

struct Overview {
  std::vector<broker::ShardStatus> shards;
  PendingStatus pending;
  broker::PendingFiles pending_files;
  broker::DatabaseMemory databases;
  TopicTotals topics;
  DiskStatus disk;
  ProcessStatus process;
  ClientMemory memory;
  BackupStatus backup;
};

// Looks at the disk and asks every shard.
boost::asio::awaitable<Overview> overview(Context& context);

boost::asio::awaitable<PendingStatus> pending_status(
    Context& context, const std::vector<broker::ShardStatus>& shards);

// "running", or the first of these that is true, of the broker or of any shard: failed, stopping,
// lost_directory, disk_full.
inline constexpr std::string_view disk_full = "disk full";
inline constexpr std::string_view lost_directory = "without its data directory";
std::string_view state_of(const broker::Broker& broker,
                          const std::vector<broker::ShardStatus>& shards);

}  // namespace tarry::admin
