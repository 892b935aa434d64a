#include "server/memory_bounds.h"

#include "base/block.h"
#include "broker/settings/memory_bounds.h"
#include "delay/bucket_tier.h"
#include "delay/engine_options.h"
#include "storage/bucket_change.h"
#include "storage/database.h"
#include "storage/journal.h"
#include "storage/read_ahead.h"

namespace tarry::server {
namespace {

// An idle broker.
constexpr std::uint64_t program_bytes = std::uint64_t{25} << 20;

// A table that RocksDB keeps open, with its index and filter.
constexpr std::uint64_t open_table_bytes = std::uint64_t{50} << 10;

// The allocator keeps freed memory for some seconds, and sizes are rounded up: an eighth of what
// is used.
constexpr std::uint64_t allocator_part = 8;

std::uint64_t unsigned_of(std::int64_t setting) {
  return static_cast<std::uint64_t>(setting);
}

// The memory of RocksDB.  While a part of db/pending is flushed, as much may gather.
std::uint64_t database_bytes() {
  const storage::BucketLimits pending;
  const storage::Database::Limits meta;
  const auto tables = static_cast<std::uint64_t>(pending.max_open_files) +
                      static_cast<std::uint64_t>(meta.max_open_files);
  return 2 * delay::BucketTier::Options{}.flush_bytes + pending.block_cache_bytes +
         meta.block_cache_bytes + tables * open_table_bytes;
}

// The memory of one shard, while many records fall due at once.
std::uint64_t shard_bytes(std::uint64_t tail_bytes, std::uint64_t unwritten) {
  const delay::EngineOptions options;
  // Quiet partitions may take as much again as a flood, and the last batch may go over the bound;
  // and a batch is there twice while it is compressed.
  const std::uint64_t on_the_way = 2 * (2 * options.in_flight_bytes + options.step_bytes);
  // A round that is written and one that gathers, each in a buffer that may have grown to twice
  // its size.
  const std::uint64_t rounds = 4 * storage::JournalOptions{}.round_bytes;
  const std::uint64_t dealt = storage::BucketLimits{}.step_bytes;
  // A log keeps half of its tail after the write, and what is not written comes to it.
  const std::uint64_t log = tail_bytes / 2 + unwritten - tail_bytes;
  return on_the_way + rounds + dealt + log;
}

}  // namespace

MemoryBounds memory_bounds(const broker::BrokerConfig& config, std::uint32_t shards) {
  const std::uint64_t delayed =
      shards * std::uint64_t{broker::delay_memory_of_shard(config.delay_memory_bytes, shards)};
  MemoryBounds out;
  out.limits = unsigned_of(config.memory_bytes) + delayed +
               shards * (unsigned_of(config.tail_bytes) + unsigned_of(config.group_offsets_bytes));
  out.beside = program_bytes + Block::max_kept_bytes + storage::ReadAhead::max_bytes +
               database_bytes() + out.limits / allocator_part +
               shards * shard_bytes(unsigned_of(config.tail_bytes),
                                    broker::unwritten_deliveries(config.tail_bytes));
  return out;
}

}  // namespace tarry::server
