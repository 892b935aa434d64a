#pragma once

// FreeSpace: whether a shard has room on the disk for new records.
//
//    every 8 MB that are appended --.
//    every second while full -------+--> look() --> ShardContext::has_room()
//    a checkpoint that failed ------'                        ^
//    Broker::look_at_disk(), each second --> seen() ---------'
//
// The shard's own looks are for those that fill the disk through it, the broker's for all others:
// another program may fill the disk while no shard has anything to do.  The broker looks at the
// data directory alone, because a log.dirs that hangs would end its watch; each second it asks the
// shards to look if log.dirs is elsewhere.
//
// There is room when all of these hold
//   - the data directory is the one that was opened,
//   - tarry.disk.reserve.bytes are free, on the disk of log.dirs too if that is elsewhere,
//   - the journal found space for its next file,
//   - the last checkpoint was not given up for want of space.
//
// A full disk does not end the broker.  Records are refused, deliveries and checkpoints go on with
// the reserve, and each look asks for a checkpoint, which lets journal files be used again.  The
// log says when and why the disk is full (reserve, journal file or checkpoint), when that reason
// changes, and when there is room again; Broker logs a lost directory.
//
// While the data directory is not the one that was opened, no checkpoint is tried: it would fail,
// and end a broker that may get its directory back.
//
// A shard that has failed (ShardContext::failed()) never has room again, and is not looked at.
//
// Belongs to its shard and its thread; what asks the disk runs on the shard's background.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "broker/settings/broker_config.h"
#include "storage/file.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class ShardContext;

// How much is free where the broker writes.
struct DiskSpace {
  std::uint64_t of_data = 0;  // The data directory.
  // That or log.dirs: the one with less.
  std::uint64_t least = 0;
  std::string_view least_of = {};  // Lives as long as the broker.
};

// Blocks.  A disk that cannot be asked has nothing free; but without log.dirs its partitions cannot
// be opened, and say so.
DiskSpace disk_space(storage::Disk& disk, const BrokerIdentity& identity);

class FreeSpace {
 public:
  // `want_checkpoint` is called when one would help: it frees journal files, or writes what RocksDB
  // holds in memory.
  FreeSpace(ShardContext& shard, std::move_only_function<void()> want_checkpoint);

  void stop() { timer_.cancel(); }

  // A record is in the journal.
  void appended(Lsn lsn) {
    if (lsn < space_checked_at_ + space_check_bytes) return;
    space_checked_at_ = lsn;
    look();
  }

  // Asks the disk; the answer comes in a later turn.
  void look();

  // Takes what the broker has seen of the data directory: for each shard, once a second while
  // something is wrong, and once when it is over.
  void seen(const DiskSpace& space, bool lost_directory);

  // A checkpoint was given up for want of space: no records are accepted until one succeeds.
  void checkpoint_refused(const Error& error);
  void checkpoint_made();
  // The refused checkpoint is tried again with the next look.
  bool will_retry_checkpoint() const { return refused_checkpoint_ && timer_.armed(); }

 private:
  // The reserve is many times larger than this, so a lack is noticed before the reserve is used up.
  static constexpr std::uint64_t space_check_bytes = 8 << 20;

  // The reason why there is no room.
  enum class Lack { none, directory, reserve, journal_file, checkpoint };
  struct Found {
    DiskSpace space;
    std::uint64_t unflushed;  // Bytes that RocksDB holds in memory.
  };
  void looked(const Found& found);
  Lack lack_with(const DiskSpace& space) const;
  void set_lack(Lack lack, const DiskSpace& space);
  void look_again_later();

  ShardContext& shard_;
  std::move_only_function<void()> want_checkpoint_;
  Lack lack_ = Lack::none;
  std::optional<std::string> refused_checkpoint_;  // How much it needs, and how much is free.
  bool is_looking_ = false;
  Lsn space_checked_at_ = 0;  // The last look that was due to what was appended.
  timing::CallbackTimer timer_;
};

}  // namespace tarry::broker
