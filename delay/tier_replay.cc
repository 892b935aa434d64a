#include "delay/tier_replay.h"

#include <variant>

#include <fmt/core.h>

namespace tarry::delay {
namespace {

// Half of what RocksDB takes before it flushes by itself (BucketLimits::write_buffer_bytes).
constexpr std::size_t flush_bytes = 128u << 20;
// Less than a shard loads at once, of which nothing is known here.
constexpr std::size_t split_share = 64;

}  // namespace

Result<> TierReplay::begin(std::uint32_t shard, std::uint32_t journals) {
  const auto known = store_.shards();
  if (!known) return std::unexpected(known.error());
  // Before the store's first flush it does not know.
  const std::uint32_t shards = *known != 0 ? *known : journals;
  if (shard >= shards) {
    return fail(Errc::corrupt, fmt::format("it belongs to shard {}, but {} was written by {} "
                                           "shards; restore the whole data directory from a copy",
                                           shard, store_.directory(), shards));
  }
  BucketTier::Options options;
  options.memory_bytes = memory_bytes_;
  options.flush_bytes = flush_bytes;
  options.split_bytes = memory_bytes_ / split_share;
  // The engine loads the records that are due soon when it runs; here they only pass through.
  options.loads = false;
  BucketTier::Hooks hooks;
  hooks.near = [](const BucketTier::PendingView&, const Location&) {};
  hooks.pulled_back = [](const storage::PendingKey&) {};
  hooks.wake = [] {};
  hooks.failed = [this](const Error& error) { failed_ = error; };
  hooks.flush = flush_;
  const storage::Owner owner{static_cast<std::uint16_t>(shard), static_cast<std::uint16_t>(shards)};
  tier_ = std::make_unique<BucketTier>(store_, background_, owner, options, std::move(hooks));
  return tier_->open(now_);
}

Result<> TierReplay::added(storage::JournalPlace at, const storage::PendingAdded& added) {
  tier_->add(at, added);
  return write_if_full();
}

Result<> TierReplay::removed(storage::JournalPlace at, const storage::PendingRemoved& removed) {
  tier_->remove(at, removed);
  return write_if_full();
}

Result<> TierReplay::record(Lsn lsn, Bytes record) {
  storage::JournalPlace at{lsn};
  return storage::for_each_operation(record, [&](const storage::Operation& operation) {
    const auto* const pending = std::get_if<storage::PendingAdded>(&operation);
    const auto* const gone = std::get_if<storage::PendingRemoved>(&operation);
    Result<> told = pending != nullptr ? added(at, *pending)
                    : gone != nullptr  ? removed(at, *gone)
                                       : Result<>();
    ++at.operation;
    return told;
  });
}

Result<> TierReplay::end() {
  auto written = write();
  tier_.reset();
  return written;
}

Result<> TierReplay::write() {
  bool written = false;
  tier_->write_all([&written] { written = true; });
  while (!written && !failed_) tier_->step(now_);
  if (failed_) return std::unexpected(*failed_);
  return {};
}

Result<> TierReplay::topic_deleted(const TopicId& topic) {
  return store_.drop_topic(topic);
}

Result<std::vector<TopicId>> TierReplay::topics() {
  const auto totals = store_.totals();
  if (!totals) return std::unexpected(totals.error());
  std::vector<TopicId> out;
  for (const auto& [topic, count] : *totals) out.push_back(topic);
  return out;
}

}  // namespace tarry::delay
