#pragma once

// Retention: chooses the segments to delete, and says when to ask again.  Whole segments, from the
// front only.
//
//     [ 0 ..  99 ][100 .. 199 ][200 .. 299 ][300 ..      tail in memory
//       too old     too old     young        active
//     `----- go ------------'
//
//   retention.ms     a segment goes when its youngest record is older.  Its age counts from the
//                    larger of its last timestamp and its last append, so that a delayed record
//                    which was overdue is not gone before anyone has read it.
//   retention.bytes  the first goes as long as what is left is no smaller than this.
//   start offset     what lies wholly below goes (DeleteRecords).
//
// Never the active segment, and never one that reaches past the high watermark.  But an active
// segment that is too old is closed, so that it can go.  Pure; the work is SegmentRemoval.

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"
#include "storage/segment.h"

namespace tarry::storage {

struct RetentionDecision {
  std::size_t segments = 0;   // How many of the first go.
  bool close_active = false;  // All closed ones go, and so may the active one, once it is closed.
  // When time makes the next one go; empty when only new bytes or offsets can.
  std::optional<WallTime> next;
};

// `segments` from the first to the active one; `unflushed_bytes` are not in any of them yet.
RetentionDecision decide_retention(std::span<const SegmentState> segments, const LogConfig& config,
                                   WallTime now, Offset start_offset, Offset high_watermark,
                                   std::uint64_t unflushed_bytes);

// Takes segments off the disk: renames their files to NAME.deleted, then unlinks them, so that what
// a crash leaves over is known by its name.  Self-contained: any thread, after the Log is gone too;
// where another topic has the directory by then, there is nothing to do.  Readers that have a file
// open read on.
class SegmentRemoval {
 public:
  // First makes the (empty) segment that begins at `*create`, so that at every moment there is one
  // that says where the log goes on.
  SegmentRemoval(Disk& disk, std::string directory, const TopicId& topic, std::vector<Offset> bases,
                 std::optional<Offset> create);

  const std::vector<Offset>& bases() const { return bases_; }
  // A run that failed is repeated; until one succeeds, the removals of later segments wait.
  // Segments that no run has removed are there after the next start.
  Result<> run();

 private:
  Disk* disk_;
  std::string directory_;
  TopicId topic_;
  std::vector<Offset> bases_;
  std::optional<Offset> create_;
};

// Takes a whole log off the disk, if the one in the directory is that topic's (its name may have
// been given out again): renames its directory to NAME.ID-delete, as Kafka does, then
// empties and removes it.
class LogRemoval {
 public:
  LogRemoval(Disk& disk, std::string directory, const TopicId& topic);
  Result<> run();  // Once.  remove_deleted_logs() finds what it leaves over.

 private:
  Disk* disk_;
  std::string directory_;
  TopicId topic_;
  std::string renamed_;
};

// The topic whose log is in `directory`, by its partition.metadata; empty if there is none.
Result<std::optional<TopicId>> topic_of_log(Disk& disk, const std::string& directory);

// False: another topic has the directory by now.
Result<bool> is_log_of(Disk& disk, const std::string& directory, const TopicId& topic);

// A topic may be deleted while its log is being written, and one of the same name make its log in
// that directory, on another shard too.  So whoever writes to a log, makes one or takes the
// directory away holds this from the look whose it is until it is done.  Some directories share
// one, so nobody holds two.
std::unique_lock<std::mutex> hold_log_directory(const std::string& directory);

// Removes what LogRemovals of an earlier run left in `logs_directory`.  Returns how many.
Result<std::size_t> remove_deleted_logs(Disk& disk, const std::string& logs_directory);

}  // namespace tarry::storage
