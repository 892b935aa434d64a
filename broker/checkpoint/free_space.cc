#include "broker/checkpoint/free_space.h"

#include <chrono>
#include <utility>

#include "base/background.h"
#include "base/log.h"
#include "broker/context/shard_context.h"
#include "storage/log_directory.h"

namespace tarry::broker {
namespace {

// How often free space is measured while the disk is full.
constexpr std::chrono::milliseconds look_every{1000};

// RocksDB's memory is written before it gets larger than this, whatever the journals say.
constexpr std::uint64_t max_unflushed_bytes = 32 << 20;

}  // namespace

// Allocates nothing itself: on the pool an exception would end the process.
DiskSpace disk_space(storage::Disk& disk, const BrokerIdentity& identity) {
  const auto free = [&disk](const std::string& directory) {
    return Background::caught([&] { return disk.free_space(directory); });
  };
  DiskSpace space;
  space.of_data = free(identity.data_directory).value_or(0);
  space.least = space.of_data;
  space.least_of = identity.data_directory;
  if (storage::is_within(identity.log_directory, identity.data_directory)) return space;
  if (const auto logs = free(identity.log_directory); logs && *logs < space.least) {
    space.least = *logs;
    space.least_of = identity.log_directory;
  }
  return space;
}

FreeSpace::FreeSpace(ShardContext& shard, std::move_only_function<void()> want_checkpoint)
    : shard_(shard), want_checkpoint_(std::move(want_checkpoint)), timer_([this] { look(); }) {}

void FreeSpace::look() {
  if (is_looking_ || shard_.stopping() || shard_.failed()) return;
  is_looking_ = true;
  shard_.background().run(
      [broker = &shard_.broker_context()] {
        return Found{disk_space(*broker->disk, broker->config), broker->pending->unflushed_bytes()};
      },
      [this](Found found) {
        is_looking_ = false;
        if (!shard_.stopping() && !shard_.failed()) looked(found);
      });
}

FreeSpace::Lack FreeSpace::lack_with(const DiskSpace& space) const {
  if (shard_.lost_directory()) return Lack::directory;
  const auto reserve = static_cast<std::uint64_t>(shard_.config().disk_reserve_bytes);
  if (space.least < reserve) return Lack::reserve;
  if (shard_.journal().disk_is_full()) return Lack::journal_file;
  return refused_checkpoint_ ? Lack::checkpoint : Lack::none;
}

void FreeSpace::seen(const DiskSpace& space, bool lost_directory) {
  if (shard_.stopping() || shard_.failed()) return;
  const bool was_lost = shard_.lost_directory();
  shard_.set_lost_directory(lost_directory);
  const Lack lack = lack_with(space);
  // The broker does not look at log.dirs, so only the look below finds that there is room again:
  // log.dirs may have filled up while the data directory was away.
  const bool may_be_room =
      lack == Lack::none && (lack_ == Lack::reserve || lack_ == Lack::directory);
  // At once: the look below waits for the shard's background, which may be busy for long.
  if (!may_be_room) set_lack(lack, space);
  if (lost_directory) return;
  // The checkpoints that were not tried meanwhile.
  if (was_lost) want_checkpoint_();
  if (may_be_room || (lack_ != Lack::none && !timer_.armed())) look();
}

void FreeSpace::looked(const Found& found) {
  shard_.retry_journal_space();
  set_lack(lack_with(found.space), found.space);
  // The broker tells when the directory is there again.
  if (lack_ == Lack::directory) return;
  // Before the timer is armed: a checkpoint that waited for this look is tried now.
  if (lack_ != Lack::none || found.unflushed > max_unflushed_bytes) want_checkpoint_();
  if (lack_ != Lack::none) look_again_later();
}

void FreeSpace::set_lack(Lack lack, const DiskSpace& space) {
  shard_.set_has_room(lack == Lack::none);
  const auto before = std::exchange(lack_, lack);
  if (before == lack) return;  // The operator knows.
  const auto& config = shard_.config();
  switch (lack) {
    case Lack::none:
      if (before == Lack::directory) break;
      log_info("broker", "there is space on the disk again: shard {} accepts records",
               shard_.index());
      break;
    case Lack::directory:
      break;  // The broker logs it, once for all shards.
    case Lack::reserve:
      log_error("broker",
                "disk full, no space in {}: {} bytes are free, tarry.disk.reserve.bytes is {}; "
                "shard {} accepts no records until there is more",
                space.least_of, space.least, config.disk_reserve_bytes, shard_.index());
      break;
    case Lack::journal_file:
      log_error("broker",
                "disk full, no space for the next file of the journal in {}: {} bytes are free; "
                "shard {} accepts no records until there is more",
                config.data_directory, space.of_data, shard_.index());
      break;
    case Lack::checkpoint:
      // Both numbers: it may need more than the reserve, which alone would look like room enough.
      log_error(
          "broker",
          "disk full, no space for a checkpoint (the last attempt: {}); tarry.disk.reserve.bytes "
          "is {}; shard {} accepts no records until there is more",
          *refused_checkpoint_, config.disk_reserve_bytes, shard_.index());
      break;
  }
}

void FreeSpace::look_again_later() {
  shard_.wheel().schedule(timer_, shard_.tick_after(look_every));
}

void FreeSpace::checkpoint_refused(const Error& error) {
  refused_checkpoint_ = error.message;
  shard_.set_has_room(false);
  if (shard_.stopping()) return set_lack(Lack::checkpoint, {});
  look_again_later();
  // The reserve may be short too, and then that is the reason to log.
  if (lack_ == Lack::none) look();
}

void FreeSpace::checkpoint_made() {
  if (std::exchange(refused_checkpoint_, std::nullopt)) look();
}

}  // namespace tarry::broker
