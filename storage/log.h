#pragma once

// Log: the batches of one partition.
//
//        on disk, in segments                          in memory, the tail
//     [ 0 .. 99 ][ 100 .. 199 ][ 200 ..     235 ][ 236 ..                     ]
//     ^                               ^  `flushed, kept for readers'           ^
//     start_offset()             tail begins     ^ flushed_end()               end_offset()
//
// The journal is what makes batches durable.  A log keeps them in memory, writes them to its
// segments after the journal, in large pieces, and drops them from memory when others need it:
//
//     append()  ->  journal round  ->  plan_flush(durable end)  ->  Flush::run()  ->  flushed()
//      shard                             shard                     any thread         shard
//
// A reader near the end is served from the tail, without a copy.  For older offsets it is served
// from a piece that was read ahead, or gets a DiskRead.  All blocking work has this form: an object
// that holds all it needs, that any thread may run, and that may outlive the Log.
//
// Invariants
//   - Offsets go up; a batch is never cut, and read() returns whole ones.
//   - start_offset() <= end_offset() (but in recovery, between truncate_to() and the replay of
//     what was cut), and flushed_end() <= end_offset().
//   - Everything below flushed_end() is in the segments, everything from there on in the tail.
//   - The bytes that a SegmentState counts are written, or the last Flush reported a failure.
//   - One Flush at most is in flight.
//
// Open, truncate_to() block and belong on a Background; all else runs on the shard's thread and
// never blocks.  An idle log has no file open and an empty tail: about 400 bytes.
//
// Kafka's rules and formats: docs/formats/log.md.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"
#include "storage/read_ahead.h"
#include "storage/retention.h"
#include "storage/segment.h"

namespace tarry::storage {

// A piece of a segment that a consumer will probably ask for soon (read_ahead.h). run() once, on
// any thread.
class ReadAheadTask {
 public:
  void run();

 private:
  friend class Log;
  friend class DiskRead;
  // Reads it; null when there is no whole batch, or something is wrong, which its reader will find.
  std::shared_ptr<const SegmentPiece> read() const;

  Disk* disk_ = nullptr;
  std::string directory_;
  SegmentState segment_;
  std::uint64_t log_ = 0;
  Offset from_ = 0;
  std::uint64_t position_ = 0;  // The position of the batch that begins with from_.
};

// A read of batches that left the tail.  run() once, on any thread.
class DiskRead {
 public:
  // Whole batches, the one that contains the offset first; empty when none of them may be returned
  // (below the limits that read() was given).  As many as one large read brings: the next read goes
  // on from there.  Errc::not_found when retention was faster: read() again then says out of range.
  // Errc::corrupt when there is no batch where one should be: the partition is to be fenced.
  // Throws when there is no memory.
  Result<std::vector<SharedBytes>> run();

 private:
  friend class Log;
  class Hints;

  std::shared_ptr<const SegmentPiece> find_piece() const;
  std::vector<SharedBytes> take_from_piece(std::size_t wanted) const;

  Disk* disk_ = nullptr;
  std::string directory_;
  std::vector<SegmentState> segments_;  // One, or two: the first may end before from_.
  std::shared_ptr<Hints> hints_;
  Offset from_ = 0, below_ = 0;
  std::size_t max_bytes_ = 0;
  bool at_least_one_ = false;
};

struct OffsetOutOfRange {};

// Batches in memory (empty: there are none), or where to get them.
using LogRead = std::variant<std::vector<SharedBytes>, DiskRead, OffsetOutOfRange>;

struct TimestampedOffset {
  Offset offset = 0;
  std::int64_t timestamp = 0;  // The record's, ms.
  bool operator==(const TimestampedOffset&) const = default;
};

// A look-up by time.  run() once, on any thread; on the shard's own when blocks() is false, though
// it may unpack a batch there.
class TimestampSearch {
 public:
  bool blocks() const { return !segments_.empty(); }
  // The record, or empty when there is none.  Errors as in DiskRead, and Errc::too_large for a
  // batch that unpacks to more than 64 MiB.
  Result<std::optional<TimestampedOffset>> run();

 private:
  friend class Log;
  Result<std::optional<TimestampedOffset>> run_first();
  Result<std::optional<TimestampedOffset>> run_max();
  Result<Offset> below_target(const SegmentState& segment) const;
  template <typename IsWorth, typename Consider>
  Result<> search_segment(const SegmentState& segment, Offset begin, IsWorth is_worth,
                          Consider consider);

  Disk* disk_ = nullptr;
  std::string directory_;
  bool max_ = false;  // The largest timestamp, not the first from target_ on.
  std::int64_t target_ = 0;
  Offset from_ = 0, below_ = 0;  // Records outside do not count.
  std::vector<SegmentState> segments_;
  std::vector<SharedBytes> batches_;  // The tail's; they follow the segments.
};

// The result of a Flush, handed back to its Log.
struct FlushDone {
  Offset end = 0;       // Everything below is in the segments.
  bool synced = false;  // Everything that was ever flushed is durable, names too.
  bool closed_segment = false;

 private:
  friend class Log;
  friend class Flush;
  std::vector<SegmentState> segments_;  // As written; the first replaces the active one.
  std::size_t bytes_ = 0;
  bool new_names_ = false;  // In the directory, since it was last synced.
  std::optional<Offset> start_written_;
};

// Writes part of the tail to the segments.  run() on any thread, the Log's owner waiting for
// it with flushed() or flush_failed().
class Flush {
 public:
  std::size_t bytes() const { return bytes_; }  // Batch bytes; 0: there is only something to sync.
  Offset end() const { return done_.end; }

  // `sync`: when it returns, all that was flushed so far survives a power cut.
  // Errc::no_space: what was written is taken back, and a new plan may be made.
  // Errc::exhausted: a file could not be opened, or the block that a segment ends in not be read,
  // or not be asked whose directory it is.
  // run() may be called again, which writes the same to the same places; until then the Log waits.
  // So it may after std::bad_alloc, which never comes instead of an error.
  // Any other error is final, as for every write (file.h).
  Result<FlushDone> run(bool sync);

 private:
  friend class Log;

  Disk* disk_ = nullptr;
  std::string directory_;
  TopicId topic_;
  std::vector<SegmentWrite> writes_;
  std::vector<Offset> unsynced_;      // Segments of earlier flushes, none of them in writes_.
  bool names_were_unsynced_ = false;  // In the directory, when this was planned.
  bool names_unsynced_ = false;       // The same with what is written now.
  std::optional<Offset> start_;       // To be noted in the directory.
  std::size_t bytes_ = 0;
  std::size_t begun_ = 0;  // The number of writes_ begun, in this run() or an earlier one.
  FlushDone done_;
};

struct RetentionPlan {
  // The work to run; the log has already forgotten these segments.
  std::optional<SegmentRemoval> removal;
  // When time makes the next segment go.  A flush that closed a segment, or a changed config, is a
  // reason to look earlier.
  std::optional<WallTime> next;
};

class Log {
 public:
  struct Opened;

  // Creates the log in `directory`, or loads the one that is there.  Errc::corrupt when it belongs
  // to another topic id or holds what cannot be read; bytes are never changed because of that.
  static Result<Opened> open(Disk& disk, std::string directory, const TopicId& topic,
                             const LogConfig& config);

  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;
  ~Log();

  const std::string& directory() const { return directory_; }
  const LogConfig& config() const { return config_; }
  void set_config(const LogConfig& config);  // Counts from the next plan on.

  Offset start_offset() const { return start_offset_; }  // The first that may be read.
  Offset end_offset() const { return end_offset_; }      // The next to give out.
  Offset flushed_end() const { return active().next; }

  // --- Batches in

  // `batches` are whole ones, base offsets and leader epochs filled in, with the offsets `first`
  // to `last`; `first` is end_offset().  `max_timestamp` is the largest of their records: a batch
  // that comes alone is indexed by it, of several each by its own header.  `appended` is now.
  void append(SharedBytes batches, Offset first, Offset last, std::int64_t max_timestamp,
              WallTime appended);

  // --- Batches out

  // Batches from the one that contains `from` on (its base may be lower), wholly below `below`,
  // within `max_bytes`; the first even if it alone is larger, when `at_least_one`.  Out of range:
  // below the start or after the end.
  LogRead read(Offset from, Offset below, std::size_t max_bytes, bool at_least_one);
  // The read-ahead that the last read() asks for; mostly none.
  std::unique_ptr<ReadAheadTask> take_read_ahead() { return std::move(ahead_); }

  // The first record with a timestamp of `target` or later.
  TimestampSearch find_timestamp(std::int64_t target, Offset below) const;
  // The first of the records with the largest timestamp.
  TimestampSearch find_max_timestamp(Offset below) const;

  // --- To the disk

  // Everything in the tail below `durable_below` (what the journal has made durable), but not
  // much more than `max_bytes`; empty when nothing is to be written or synced, or while a flush is
  // in flight.
  std::optional<Flush> plan_flush(Offset durable_below,
                                  std::size_t max_bytes = std::numeric_limits<std::size_t>::max());
  void flushed(FlushDone done);
  void flush_failed(const Error& error);
  bool flush_in_flight() const { return flush_in_flight_; }
  // Whether a Flush that syncs would have something to do, now or once the journal is further.
  bool dirty() const;

  // Bytes in memory, and how many of them no flush has written yet.
  std::size_t tail_bytes() const { return tail_bytes_; }
  std::size_t unflushed_bytes() const { return unflushed_bytes_; }
  // Drops the oldest flushed batches until the tail has at most `bytes` or nothing that is flushed.
  void trim_tail(std::size_t bytes);

  // --- Recovery

  // Cuts the log so that the next batch begins at `offset`, a border of batches; below the first
  // segment (retention was faster than the checkpoint) all is cut.  The bytes after `offset` may be
  // damaged; damage before it is Errc::corrupt, and nothing is changed.  Blocks; only before the
  // first append.
  Result<> truncate_to(Offset offset);
  // Appends what the journal has: whole batches, of which those below the first segment are
  // skipped.  Errc::corrupt when they do not join the end of the log.
  Result<> replay(SharedBytes batches, WallTime appended);

  // --- Retention

  RetentionPlan plan_retention(WallTime now, Offset high_watermark);
  // Makes the records below `offset` unreadable (DeleteRecords).  The next flush notes it in the
  // directory; until that is synced the caller's journal has it.  No effect if `offset` is below
  // the start.
  void move_start(Offset offset);
  std::uint64_t size_bytes() const;  // Segments, and what of the tail is not in them yet.

  // For a topic's deletion; no flush may be in flight, and the Log is of no use afterwards.
  LogRemoval delete_all() const;

 private:
  struct TailBatch {
    SharedBytes bytes;
    Offset first, last;
    std::int64_t max_timestamp;
    WallTime appended;
  };

  Log(Disk& disk, std::string directory, const TopicId& topic, const LogConfig& config);

  const SegmentState& active() const { return segments_.back(); }
  std::span<const TailBatch> tail() const { return std::span(tail_).subspan(tail_head_); }
  std::vector<SharedBytes> read_pieces(Offset from, Offset below, std::size_t max_bytes,
                                       bool at_least_one);
  void plan_read_ahead(Offset from, Offset segment, std::uint64_t position);
  Offset tail_start() const;  // First offset that is in memory; end_offset_ when the tail is empty.

  Disk* disk_;
  std::string directory_;
  TopicId topic_;
  LogConfig config_;

  std::vector<SegmentState> segments_;  // Never empty; the last is the active one.
  bool active_exists_ = false;          // Its file is there.  (A new log has none.)
  Offset start_offset_ = 0;
  Offset end_offset_ = 0;
  Offset start_noted_ = 0;  // start_offset_ as the directory says it.

  std::vector<TailBatch> tail_;  // From tail_head_ on, in offset order; flushed ones first.
  std::size_t tail_head_ = 0;
  std::size_t tail_bytes_ = 0, unflushed_bytes_ = 0;

  bool flush_in_flight_ = false;
  bool flush_impossible_ = false;  // One failed for good, or the segments are damaged.
  bool names_unsynced_ = false;    // Files were created since the directory was synced.
  std::vector<Offset> unsynced_;   // Segments written since they were synced, ascending.

  std::shared_ptr<DiskRead::Hints> hints_;  // Made by the first disk read.
  std::unique_ptr<ReadAheadTask> ahead_;
};

// A log as open() found it.
struct Log::Opened {
  Log log;
  // The end of the last segment is broken: log.end_offset() is the end of what is good.  When the
  // journal has what follows, truncate_to() cuts the broken bytes off; when it has not, they were
  // lost after they had been synced, and the partition is to be fenced: the Log then still reads,
  // but refuses to flush, so that the bytes stay for the operator.
  std::optional<SegmentDamage> damage;
};

}  // namespace tarry::storage
