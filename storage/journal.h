#pragma once

// Journal: where a shard writes everything that must survive a crash.
//
//   append, append, append ...      round 7, gathered on the shard's thread
//   [ round 6 ]                     in flight: one write and one fdatasync on the Background
//   [ 3 ][ 4 ][ 5 ]                 durable, until a checkpoint has them elsewhere
//
// Group commit: while one round is on its way to the disk, the next one gathers; when the first is
// durable its completions run, in the order of the appends among those of one durability, and the
// next one starts.  So any number of partitions and stores shares one sync.
//
//   auto lsn = journal.append(pieces, [](const Result<>& r) { ... });  // Gathers; calls on_ready.
//   journal.start_round();          // By the owner, at the end of the turn in which on_ready came.
//
// Invariants
//   - A record is atomic: after any crash it is there wholly, with the same LSN, or not at all.
//   - A record whose completion said OK is there after a power cut (Durability::fsync), or after a
//     kill (Durability::os).
//   - The records that are there are a prefix of those appended.  Nothing else ever appears.
//   - A block that was synced is never written again until a checkpoint has passed it.
//   - A failed write or sync ends the incarnation: nothing is tried again, on_failure is called
//     once, all waiting completions get the error, and appends are refused from then on.
//   - A file that cannot be opened for want of descriptors or memory (Errc::exhausted), or because
//     the data directory is away, ends nothing: the round or spare that needs it is postponed until
//     retry_space().
//
// The bytes are in journal_format.h, reading them again in journal_recovery.h.
//
// Space.  Files are of one size (file_bytes; larger for one record that would not fit) and are
// used again when a checkpoint has passed them.  The next one is made ready ahead: space taken,
// then zeros written, since a sync over blocks that were written before costs half.  When the
// disk is full or no checkpoint comes, new work is refused with no_space while `reserve_bytes` are
// left, so that deliveries, which free space, can go on.
//
// A backup copies the files of a running journal.  keep_files() keeps those that a checkpoint has
// passed, and hold_rounds() stops all journals for a moment, so that their ends fit together.
//
// Owner: the shard.  Everything runs on the shard's thread, except the work on the Background,
// which shares nothing with it.  May be destroyed at any time outside its own callbacks: the round
// in flight finishes by itself and no completion runs.  The directory may be opened again when it
// has finished.

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/background.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/result.h"
#include "base/windowed_histogram.h"
#include "storage/durability.h"
#include "storage/file.h"
#include "storage/journal_format.h"
#include "storage/journal_recovery.h"
#include "storage/journal_stats.h"

namespace tarry::storage {

struct JournalOptions {
  std::string directory;  // journal/SHARD
  std::uint32_t shard = 0;

  // The size of one file.  It is small enough that a checkpoint soon frees a file, and large enough
  // that beginning a new file (two more syncs) is rare.  A multiple of block_bytes, at least 64
  // KiB.
  std::uint64_t file_bytes = 32 << 20;

  // The largest distance from checkpoint to end, which recovery has to read (0.3 s).  At least two
  // files.
  std::uint64_t max_bytes = 256 << 20;

  // The part of max_bytes and of the disk's free space that only deliveries may use.
  std::uint64_t reserve_bytes = 16 << 20;

  // A round of this size takes no more records: larger rounds do not sync faster.
  std::size_t round_bytes = 4 << 20;

  // The first LSN of a journal that did not exist before; a multiple of block_bytes.
  Lsn first_lsn = 0;

  // Runs the rounds alone, so that they queue behind no other work; null: they run with the rest.
  Background* round_lane = nullptr;
};

// The journal calls all of them on the shard's thread; none may destroy the Journal.
struct JournalHooks {
  // Something is gathered and no round is in flight: the owner calls start_round() at the end of
  // the turn, when all that belongs together is appended.  Called once until it does.
  std::function<void()> on_ready;

  // The incarnation is over (above).  Called once, before the waiting completions get the error.
  std::function<void(const Error&)> on_failure;

  // Half of max_bytes is live (called once until release() frees some), or a file cannot be made.
  std::function<void()> on_pressure;

  // A round or a spare file is postponed, for this reason: the owner calls retry_space() after a
  // while.
  std::function<void(const Error&)> on_postponed;
};

// A delivery is a little larger than the record that made it pending (offset, removals, our
// headers).  So work is limited to this much less than the largest record: a record that was
// accepted can be delivered.
inline constexpr std::uint64_t delivery_overhead_bytes = 4096;

// `reserve_bytes` of max_bytes and of the disk are reserved for operations that free space.
enum class Reserve : std::uint8_t {
  keep,  // New work: refused while only the reserve is left.
  use,   // A delivery or a removal: it frees space, and may use the reserve.
};

// The largest record that a journal of `max_bytes` takes: at most half of it, so that the record
// fits while the other half waits for a checkpoint.
constexpr std::uint64_t record_limit(std::uint64_t max_bytes, Reserve reserve) {
  const std::uint64_t half = max_bytes / 2;
  const std::uint64_t limit = half < max_journal_record_bytes ? half : max_journal_record_bytes;
  return reserve == Reserve::keep ? limit - delivery_overhead_bytes : limit;
}

class Journal {
 public:
  // Ok: the event has happened.  An error: it has not, and the record may or may not be there after
  // the next start.  Runs on the shard's thread, never inside append(); may append.
  using Completion = std::move_only_function<void(const Result<>&)>;

  // Goes on after what recover_journal() found (Errc::invalid when there is more), as a new
  // incarnation in a new file; what was cut is out of reach, for ever, when this returns.  Blocks
  // for a few syncs.  All references outlive the Journal.  `clock` is for stats alone.
  static Result<std::unique_ptr<Journal>> open(Disk& disk, Background& background, Random& random,
                                               const Clock& clock, JournalOptions options,
                                               JournalHooks hooks,
                                               const RecoveredJournal& recovered);
  ~Journal();

  // Adds one record, made of `pieces` one after the other; they are copied before it returns, but
  // for long ones that lie in `kept`, which does not change: those are copied with the round's
  // write on the Background, because to copy megabytes holds the shard.  The LSN is the one that
  // recovery will give with the record.  When it is an error the record is not there and
  // `completion`, which may be empty, is never called:
  //   no_space   full (above); what was appended before is not affected
  //   too_large  more than record_limit()
  //   io ...     the incarnation has failed, with this error
  Result<Lsn> append(std::span<const Bytes> pieces, Completion completion,
                     Durability durability = Durability::fsync, Reserve reserve = Reserve::keep,
                     const SharedBytes& kept = {});
  Result<Lsn> append(Bytes record, Completion completion, Durability durability = Durability::fsync,
                     Reserve reserve = Reserve::keep) {
    return append(std::span(&record, 1), std::move(completion), durability, reserve);
  }

  // Starts writing the gathered round, unless a round is in flight or nothing is gathered.
  void start_round();

  // A round is on its way to the disk.
  bool in_flight() const { return in_flight_ != nullptr; }

  // Whether a record of `bytes` would be taken now.
  bool has_room(std::uint64_t bytes, Reserve reserve = Reserve::keep) const;

  // The last attempt to make a file found no space; rounds wait for a file.
  bool disk_is_full() const { return disk_is_full_; }
  // Something waits for a file that could not be opened.
  bool is_postponed() const { return postponed_round_ || spare_postponed_; }
  // Retries what is postponed and, while the disk is full, checks whether it still is.  The owner
  // calls it about once a second while the disk is full, and after on_postponed; checkpoint() does
  // it too.
  void retry_space();

  // Everything before it is durable.  A checkpoint is such an LSN.
  Lsn durable_lsn() const { return durable_; }
  // The LSN of the next record, or slightly less.
  Lsn end_lsn() const { return gathered_end(); }
  Lsn checkpoint_lsn() const { return checkpoint_; }

  // Nothing in flight and nothing gathered: all that was appended is durable.
  bool is_idle() const { return rounds_.empty() && in_flight_ == nullptr; }

  // No round states yet that the last one was synced, and none is coming: damage to it would look
  // like a torn end.  The owner arms a timer (100 ms will do) and calls note_idle().
  bool needs_idle_note() const;
  // Writes an empty round that states it, if that is still needed.
  void note_idle();

  // Everything before `lsn` (one that durable_lsn() gave) is kept elsewhere, durably: notes it on
  // the disk, then frees the files before it.  `then` runs on the shard's thread.  One at a time.
  void checkpoint(Lsn lsn, Completion then);

  // No round starts from here until release_rounds().  `held` is called as soon as none is in
  // flight, but for one that is postponed and stays so: in this call, or when that one is durable
  // or postponed, or the journal fails.  From then on durable_lsn() stands still, and no later
  // record is reported.  Called once at most.
  void hold_rounds(std::move_only_function<void()> held);
  void release_rounds();
  // While `keep`, files that a checkpoint has passed stay as they are.
  void keep_files(bool keep);

  bool has_failed() const { return failure_.has_value(); }
  JournalStats stats() const;
  std::uint64_t incarnation() const { return incarnation_; }

 private:
  struct JournalFile;
  struct Round;
  struct Outcome;
  struct RoundTask;

  Journal(Disk& disk, Background& background, const Clock& clock, JournalOptions options,
          JournalHooks hooks);

  Result<> begin(Random& random, const RecoveredJournal& recovered);
  Result<> check_never_begun(const std::string& path, Lsn first);
  Result<> take_over_files(const RecoveredJournal& recovered);
  std::string new_spare_path();
  JournalFileHeader file_header(Lsn first) const;
  std::string path_of(const std::string& name) const { return options_.directory + "/" + name; }

  Lsn gathered_end() const;
  std::uint64_t live_bytes() const { return gathered_end() - checkpoint_; }
  Round& round_for(std::uint64_t record_bytes);
  std::shared_ptr<JournalFile> take_spare(std::uint64_t bytes);
  void notify_ready();
  void notify_pressure();
  void tell_held();
  void write_round(bool also_sync);
  void run_round(std::shared_ptr<RoundTask> task, bool also_sync);
  void sync_round(std::shared_ptr<RoundTask> task, std::chrono::nanoseconds took);
  bool postpone_round(const Outcome& outcome, std::function<void()> again);
  void finish_round(Outcome outcome);
  static void complete(Round& round, bool all, const Result<>& result);
  void fail_all(const Error& error);
  void prepare_spare(std::uint64_t bytes, bool ahead);
  void fill_with_zeros(std::shared_ptr<JournalFile> spare, std::uint64_t at);
  void release(Lsn lsn);

  // On the Background; `then` comes back here, unless we are gone by then.
  template <typename Work, typename Then>
  void run(Work work, Then then) {
    run_on(background_, std::move(work), std::move(then));
  }
  template <typename Work, typename Then>
  void run_on(Background& where, Work work, Then then);

  Disk& disk_;
  Background& background_;
  Background& round_lane_;
  const Clock& clock_;
  const JournalOptions options_;
  const JournalHooks hooks_;
  std::uint64_t incarnation_ = 0;  // Constant after open(), as are salt_ and begin_.
  std::uint64_t salt_ = 0;
  Lsn begin_ = 0;

  // checkpoint_ <= durable_ <= the LSN of in_flight_, and each round begins where the one before
  // it ends (after the file's header, where it begins a file).
  Lsn checkpoint_ = 0;
  Lsn durable_ = 0;
  Lsn data_end_ = 0;               // The end of the last durable round that has records.
  Lsn stated_ = 0;                 // A durable round or file says that all before it was synced.
  std::uint64_t next_number_ = 1;  // The number of the next round that starts.
  std::deque<std::shared_ptr<Round>> rounds_;  // Gathered; the last one may take more.
  std::shared_ptr<Round> in_flight_;           // The Background's until it comes back.
  std::shared_ptr<Round> used_;                // A durable one, kept for its memory.

  std::deque<std::shared_ptr<JournalFile>> live_;  // Durably begun, not released; in order.
  std::shared_ptr<JournalFile>
      written_;  // The file that rounds are written to: the last of live_, or the next one.
  std::vector<std::shared_ptr<JournalFile>> spares_;  // Space on the disk that is ours already.

  // The file of the last of rounds_, or of the next one; it may not be on the disk yet.
  Lsn open_first_ = 0;
  std::uint64_t open_bytes_ = 0;
  bool open_is_on_disk_ = true;

  std::uint64_t next_spare_ = 0;           // Part of its name.
  bool preparing_ = false;                 // A spare is being made.
  bool disk_is_full_ = false;              // The last try to make one found no space.
  bool spare_postponed_ = false;           // It found no descriptor or no memory.
  std::function<void()> postponed_round_;  // Goes on with in_flight_.
  bool ready_notified_ = false;
  bool pressure_notified_ = false;
  bool checkpointing_ = false;
  bool keeping_files_ = false;
  bool holding_rounds_ = false;
  std::move_only_function<void()> on_held_;  // Empty once it was called.
  std::optional<Error> failure_;
  JournalStats stats_;  // Without what stats() adds.
  WindowedHistogram round_us_;

  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  // Lets a result that comes back after our end see that.
};

}  // namespace tarry::storage
