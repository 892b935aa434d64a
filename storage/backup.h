#pragma once

// Backup: the files of a consistent copy of a running broker's data directory.
//
//   begin        TARGET/ is made, with .unfinished-backup in it
//                <- every journal keeps its files from here on (Journal::keep_files)
//   hold_state   journal/N/checkpoint, db/meta, db/pending    links in DATA/.tarry-backup
//   hold_logs    logs/TOPIC-PARTITION/*                       links in LOGS/.tarry-backup,
//                                                         and lengths
//                <- one moment in which no journal moves (Journal::hold_rounds): its ends
//   hold_journals                                         what is needed of them, up to these ends
//   copy_journals journal/N/*.journal, in steps
//                <- the journals reuse their files again
//   copy_files   what the links hold, in steps
//   finish       all is synced, then meta.properties, then .unfinished-backup is removed
//
// The copy is what a power cut in that one moment might have left: segments and databases are
// between the journals' checkpoints and the moment, in whatever state each of them was, and the
// journals have all the rest.  So a start recovers it as it recovers from a crash, and needs
// nothing else.  All that was durable before the moment is in it, nothing after it is; and because
// it is one moment for all shards, no effect is in it without its cause: no committed offset is
// beyond its log.
//
// Segments are copied, because the end of a log is written in place.  The databases' tables never
// change once they are written: on one file system they stay links.
//
// DATA/.tarry-backup is there from begin() until the end, so there is one backup at a time; what a
// killed broker left of it is removed by the next start (remove_backup_leftovers).  A file in it
// says that it is ours: a directory of somebody else stays, and refuses the backup.
//
// Blocks: for a Background, one call at a time.  Errors: invalid (the target), in_use, no_space,
// else io; the message names the path.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"

namespace tarry::storage {

class BucketStore;
class Database;

// In a directory that is a backup, but not a whole one.
inline constexpr const char* unfinished_backup_name = ".unfinished-backup";

// In DATA and LOGS, the links of a backup that is running.
inline constexpr const char* backup_stage_name = ".tarry-backup";

struct BackupSource {
  std::string data;           // DATA, absolute
  std::string logs;           // LOGS, absolute; DATA/logs, or elsewhere.
  std::size_t shards = 1;     // journal/0 to journal/shards-1.
  std::uint64_t reserve = 0;  // The bytes that stay free where DATA is.
};

class Backup {
 public:
  // `target` has to be absolute; it must be empty, or not exist while its parent does.
  static Result<std::unique_ptr<Backup>> begin(Disk& disk, BackupSource source, std::string target);
  // Removes the links, and the target if it is not finished.
  ~Backup();
  Backup(const Backup&) = delete;
  Backup& operator=(const Backup&) = delete;

  Result<> hold_state(Database& meta, BucketStore& pending);
  // A part of the logs; true: there is more.
  Result<bool> hold_logs();
  // All that lies before these, which Journal::durable_lsn() gave, by shards.  Refuses, before
  // anything is copied, what does not fit on the disk.
  Result<> hold_journals(const std::vector<Lsn>& ends);
  // Some megabytes; true: there is more.
  Result<bool> copy_journals();
  Result<bool> copy_files();
  Result<> finish();

  const std::string& target() const { return target_; }
  std::uint64_t copied_bytes() const { return copied_; }
  // Known after hold_journals().
  std::uint64_t total_bytes() const { return total_; }
  std::uint64_t files() const { return files_done_; }

 private:
  // A file that stays, up to the length that it had then.
  struct Held {
    std::string name;
    std::uint64_t bytes;
    bool may_end_early = false;  // False: an early end is damage.
  };
  // The files of one directory: `from` has the links, `to` is in the target.
  struct HeldDirectory {
    std::string from, to;
    bool may_link;  // Its files never change.
    std::vector<Held> files;
  };
  class Copying;

  Backup(Disk& disk, BackupSource source, std::string target);
  Result<> make_target();
  Result<> take_stage();
  Result<> make_log_stage();
  void drop_stage();
  Result<> hold_directory(const std::string& name);
  Result<> hold_files(const std::string& directory, const std::string& name, bool may_link);
  Result<HeldDirectory> hold_journal(std::size_t shard, Lsn end) const;
  bool links_reach_target() const;
  Result<> check_space(std::uint64_t bytes) const;
  Result<bool> copy_until(std::size_t end);
  Result<bool> copy_next(std::size_t end);
  std::string stage() const { return source_.data + "/" + backup_stage_name; }
  std::string log_stage() const { return source_.logs + "/" + backup_stage_name; }

  Disk& disk_;
  const BackupSource source_;
  const std::string target_;
  bool made_target_ = false;  // It did not exist.
  bool owns_target_ = false, owns_stage_ = false, owns_log_stage_ = false, finished_ = false;
  int target_descriptor_ = -1;

  std::vector<std::string> log_names_;  // Directories that hold_logs() has still to look at.
  bool logs_listed_ = false;
  std::vector<HeldDirectory> held_;
  std::size_t journals_ = 0;              // The number of the first ones, the journals'.
  std::size_t directory_ = 0, file_ = 0;  // The next one to copy.
  std::unique_ptr<Copying> copying_;
  std::uint64_t total_ = 0, copied_ = 0, files_done_ = 0;
  std::uint64_t checked_at_ = 0;  // copied_ at the last look at the free space.
};

// Removes the files that a broker that was killed in a backup has left in its own directories.
Result<> remove_backup_leftovers(const std::string& data, const std::string& logs);

}  // namespace tarry::storage
