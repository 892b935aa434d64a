#pragma once

// BucketTier: a shard's part of the overflow wheel that continues on disk: the bodies of what is
// near, the tails of what is far, and the way between them.
//
//   add() --> tails, in memory                                   horizon
//                 |  write_all(), or the budget is spent             |   near: in memory, handed
//                 v                                                  |   to the wheel
//   BucketStore: months, hours, minutes ... --- loaded ahead ------->|
//                                                                    v
//                                       read() <--- near(): locator into the wheel
//
// A record is *near* if its key is before the horizon: it is in memory, and the engine's wheel has
// its locator.  The horizon runs some time ahead of the clock.  A record behind it is *far*: in a
// tail until a checkpoint or a spent budget writes it, and then on disk alone.  Loading moves the
// horizon ahead, piece by piece; an hour that does not fit is dealt on disk first
// (BucketStore::next_piece()).  When memory is short the horizon moves back, and what is behind it
// is upgraded to the disk.
//
// While the near records of some partitions spend the memory and the horizon stands before the
// clock, a Rescue makes near what is due in the other partitions.
//
// The pending records are always those in memory, and those on disk except the ones that memory
// knows to be gone.  A record that is added and removed between two checkpoints leaves nothing
// behind.
//
// Invariants
//   - Every pending record of which is_settled() was handed to near(), or add() said so; and its
//     body is in memory, unless it was set aside.
//   - One piece of work of this shard is on the Background at a time (the lane), so nothing is read
//     while it is written.  Flushes and pages are not in the lane.
//   - A home (storage/bucket.h) that was written up to a place takes no operation from before it.
//   - No call to the store is made on the shard's thread, but for open().
//   - A step hands over, seals or scans a bounded number of entries; a piece that was read is added
//     to memory in several steps.
//
// The tier decides what is done when; its rooms hold the state, each with an invariant of its own,
// and each uses only those to its left:
//
//   Lane, TierCounts, UnwrittenRows, Homes  <  DroppedTopics  <  Horizon, IdReader
//       <  Lookups, Rescue
//
// No threads: everything runs on the shard's thread, but the work that Background is given, which
// has its own copies, or chunks that nobody changes any more.  The tier may be destroyed at any
// time outside its own hooks.  The store outlives it and its work.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/dropped_topics.h"
#include "delay/homes.h"
#include "delay/horizon.h"
#include "delay/id_reader.h"
#include "delay/intake_charge.h"
#include "delay/lane.h"
#include "delay/location.h"
#include "delay/lookups.h"
#include "delay/rescue.h"
#include "delay/tier_counts.h"
#include "delay/unwritten_rows.h"
#include "storage/bucket_store.h"
#include "storage/journal_record.h"
#include "storage/pending_counts.h"

namespace tarry::delay {

class BucketTier {
 public:
  using PendingKey = storage::PendingKey;
  using PendingView = storage::PendingView;

  struct Options {
    // The shard's equal share of the memory for delayed records: so no lock is shared.
    std::size_t memory_bytes = 128u << 20;
    // So far ahead of the clock everything is in memory, if it fits.
    std::chrono::milliseconds lead{120'000};
    // Records that are due later are kept in months.
    std::chrono::milliseconds hours_ahead{std::chrono::hours{24 * 366}};
    // Limits of one step: entries that are handed over, and the bytes of the tails that one piece
    // of work writes.
    std::size_t step_entries = 2'048;
    std::size_t write_bytes = 4u << 20;
    std::size_t write_homes = 512;
    // An hour with so many bytes in memory that are not written is too large to be loaded at once:
    // what is added to it from then on is in finer buckets, and need not be dealt to them later.
    // 0: as many as a piece that is loaded may have.
    std::size_t split_bytes = 0;
    // So many homes are looked at in one turn: some tenths of a millisecond.
    std::size_t homes_a_turn = 4'096;
    // The store is flushed when so much of it is in RocksDB's memory, checkpoint or not.  While a
    // flush is slow as much may gather again; then only loads write until it has ended, and what
    // makes room for one that waits for memory.
    std::size_t flush_bytes = 32u << 20;
    // False: nothing comes near.  For the replay of a journal, after which the tier goes.
    bool loads = true;
    // Counts what is added and removed; may be null.
    storage::PendingCounts* counts = nullptr;
  };

  struct Hooks {
    // The record is near from now on.  The view lives until the call ends.  It is called again for
    // one that was rescued, when the horizon passes it: from then on it is at the second location.
    std::function<void(const PendingView&, const Location&)> near;
    // Whether the partition has much of what is near, so that nothing more of it is to be near
    // while memory is short; may be empty.
    Rescue::Floods floods;
    // `near` will be called for it soon; may be empty.
    std::function<void(Sequence)> near_soon;
    // Memory is short: records from this key on are far again, and the wheel forgets them.
    std::function<void(const PendingKey&)> pulled_back;
    // A piece of work is done: step() has something to do.
    std::function<void()> wake;
    // The incarnation is over; called once, and nothing is done any more.
    std::function<void(const Error&)> failed;
    // Makes the store durable on the Background; empty: BucketStore::flush().  With Errc::no_space
    // or Errc::exhausted nothing is lost, and memory is given no more to the disk until a
    // checkpoint is noted.
    std::function<Result<>()> flush;
    // The shard that owns a partition, for chunks of another number of shards.
    storage::BucketStore::OwnerOf owner_of;
  };

  BucketTier(storage::BucketStore& store, Background& background, storage::Owner owner,
             const Options& options, Hooks hooks);
  ~BucketTier();
  BucketTier(const BucketTier&) = delete;
  BucketTier& operator=(const BucketTier&) = delete;

  // Once, before anything else; blocks.  The journal is replayed after it, by add() and remove().
  Result<> open(WallTime now);

  // --- Durable operations, in the order of the journal, each at its place in it.

  // Not empty: the record is near, and the caller has it in its wheel from now on.
  std::optional<Location> add(storage::JournalPlace at, const storage::PendingAdded& added);
  // For a record that was pending, or delivered on arrival.  A record that is pending on under
  // another key (it was moved, or it recurs) is added again in the same turn.
  void remove(storage::JournalPlace at, const storage::PendingRemoved& removed,
              const Location& location = {});
  // The host has dropped it from the store too; what comes of it later is left out.
  void topic_dropped(const TopicId& topic);

  // A near record that is due and cannot be delivered before the next start: it leaves memory as
  // soon as its chunk is on disk and has no others.  find() does not know it from then on.  False:
  // it is set aside already, or gone; or it was rescued, and comes near again with the horizon.
  bool set_aside(const PendingKey& key, const TopicPartition& partition, const Location& location);

  // --- Time.

  // Hands over what came near, and begins work.  True: there is more to do at once.
  bool step(WallTime now);
  // When step() has something to load; empty: never, as it stands.
  std::optional<WallTime> next_load() const;
  PendingKey horizon() const { return horizon_.at(); }
  // A record with this key in this partition is near, or will be handed over in one of these steps.
  bool is_near(const PendingKey& key, const TopicPartition& partition) const {
    return key < horizon_.at() || rescue_.is_near(key, partition);
  }
  // All of the partition's records that leave before it are handed over: deliveries go up to here,
  // in order.
  bool is_settled(const PendingKey& key, const TopicPartition& partition) const {
    return key < horizon_.settled_before() || rescue_.is_settled(key, partition);
  }
  // The same of every partition's records with smaller keys.
  PendingKey settled_before() const { return horizon_.settled_before(); }
  // It changes whenever more may be settled than before.
  struct Settled {
    PendingKey before;
    std::uint64_t rescued = 0;  // Times that all that is rescued was handed over.
    bool operator==(const Settled&) const = default;
  };
  Settled settled() const { return {horizon_.settled_before(), rescue_.times_settled()}; }

  // --- Reading.

  // A near record; empty: it is not pending.  The view lives until the next call that changes
  // something.
  std::optional<PendingView> read(const PendingKey& key, const Location& location = {}) const;
  // It will be read or removed soon: in two steps, some records apart, the first bytes of it come
  // near the processor.
  static constexpr std::size_t usual_body = 192;
  static constexpr std::size_t only_key = 1;
  void prefetch_offset(const Location& location) const { homes_.prefetch_offset(location); }
  void prefetch(const Location& location, std::size_t bytes) const {
    homes_.prefetch(location, bytes);
  }

  using Found = Lookups::Found;
  // The record that is pending under `key` when `found` is called, near or far.  `found` may be
  // called at once.
  void find(const PendingKey& key, Found found) { lookups_.find(key, std::move(found)); }
  // The same of a handle, whose record may have been moved.
  void find_handle(const PendingKey& handle, Found found) {
    lookups_.find_handle(handle, std::move(found));
  }
  // The last events of an id, oldest first; none: it is unknown.
  using Events = Lookups::Events;
  void find_id(const TopicPartition& partition, std::string id, Events events) {
    lookups_.find_id(partition, std::move(id), std::move(events));
  }
  using IdRows = delay::IdRows;
  // Reads the last events of ids on the Background, beside the lane; `rows` is called at once if
  // memory knows all of them.  The bytes of the ids live until then.
  void read_ids(const TopicPartition& partition, std::vector<std::string_view> ids,
                IdReader::Done rows) {
    id_reader_.read(partition, std::move(ids), std::move(rows));
  }
  // The last event of the id that is number `at` of those that `rows` were read for; empty: the id
  // is unknown.
  std::optional<storage::ScheduleEvent> last_event(const TopicPartition& partition,
                                                   std::string_view id, const IdRows& rows,
                                                   std::size_t at) const {
    return id_reader_.last_event(partition, id, rows, at);
  }

  // --- Checkpoints.

  // Writes everything that was told before this call to the store's memory; then `done`.  For a
  // checkpoint the host then flushes the store and notes its journal.
  void write_all(std::move_only_function<void()> done);
  // A checkpoint is noted: no operation before `place` will be replayed.
  void noted(storage::JournalPlace place);

  // --- Figures.

  // The number of the topic's pending records, in all shards.
  std::int64_t pending_of(const TopicId& topic) { return counts_.pending_of(topic); }
  // The sums that IntakeCharge adds to and takes from; and the topic's count, in all shards.
  IntakeCharge::Sums coming(const TopicId& topic) { return counts_.coming(topic); }
  std::int64_t coming_of(const TopicId& topic) { return counts_.coming_of(topic); }
  std::size_t coming_bytes() const { return counts_.coming_bytes(); }
  // The account of what a principal has pending, in all shards.
  storage::PendingCounts::Account account(PrincipalId principal) {
    return counts_.account(principal);
  }
  // Puts all that was added and removed until now into the counts and the accounts.  A caller that
  // adds or removes does this at the end, because all shards write to the same: with every record
  // it would cost more than the counting.
  void tell_counts() { counts_.tell(); }

  // The part of a level of buckets that is in memory.
  using Level = Homes::Level;
  using Levels = Homes::Levels;

  struct Stats {
    std::size_t memory_bytes = 0;
    std::size_t chunks = 0;          // Chunks in memory.
    std::size_t records = 0;         // In memory.
    std::size_t homes = 0;           // Hours and months that are known.
    std::size_t dropped_topics = 0;  // Topics of which somebody may still have records.
    std::uint64_t written = 0;       // Records that went to disk,
    std::uint64_t spared = 0;        //   and that were gone before.
    std::uint64_t came_near = 0;     // Records that came near.
    std::uint64_t pulled_back = 0;   // Times that the horizon was.
    std::uint64_t rescues = 0;       // Times that a flood kept the horizon before the clock,
    std::uint64_t rescued = 0;       //   and the records that came near all the same.
    std::size_t rescue_bytes = 0;    // In memory_bytes: what they take.
    std::uint64_t dealt_steps = 0;   // Steps of dealing on disk.
    std::uint64_t loads = 0;         // Pieces.
    std::uint64_t freed_bytes = 0;   // On disk, of what was gone before its time came near.
    std::uint64_t homes_seen = 0;    // In search of those that are to be written or forgotten.
    std::uint64_t looked_for = 0;    // Entries and marks that loads have looked at.
    Levels levels;
  };
  Stats stats() const;
  // The buckets that have records in memory; looks at `max_looked` of them at most, beginning with
  // months.
  storage::LevelSlots slots(WallTime now, std::size_t max_looked) const;
  // The first due time, or a time before it: the beginning of the bucket that has it.
  struct Earliest {
    WallTime due;
    bool exact = true;
  };
  std::optional<Earliest> earliest() const;
  // Memory is short and no work is running: call step().  Running work wakes the host itself.
  bool is_short() const {
    return !is_at_work() && !no_room_ && !is_flush_behind_ && wants_to_spill();
  }
  // Something is to be loaded when memory is free again, of which nobody tells the tier.
  bool waits_for_memory() const { return load_waits_; }
  // The bytes that the host's locators of near records take of the same budget.
  void set_locator_bytes(std::size_t bytes) { locators_ = bytes; }
  // New records should wait: memory is spent, and applying or writing does not keep up; or their
  // due times are so spread that the homes alone spend it.
  bool is_full() const {
    return used() + rescue_.memory() + coming_bytes() + homes_.homes_bytes() >=
           options_.memory_bytes;
  }

 private:
  // Nothing else begins: what was read has to be told before anything of it is written.
  bool is_at_work() const {
    return lane_.is_busy() || loading_ || rescue_.is_handing() || lookups_.is_answering();
  }
  std::size_t memory() const { return homes_.memory() + unwritten_.memory() + id_reader_.memory(); }
  // Without the homes, which stay whatever leaves memory, and without what is coming: no record
  // that is near has to leave for it.  And without what is rescued, which has memory of its own.
  std::size_t used() const { return memory() + locators_; }
  // With many homes so little is left that less is written at a time, but not next to nothing.
  bool wants_to_spill() const {
    return used() >= spill_from() || (is_full() && used() >= options_.memory_bytes / 8);
  }
  // The bytes that are loaded at once, at least.
  static std::size_t piece_bytes(const Options& options) { return options.memory_bytes / 8; }
  std::size_t load_bytes(const storage::Bucket& id) const;
  std::size_t spill_from() const { return options_.memory_bytes - options_.memory_bytes / 4; }
  // A record that is rescued is near so long before it is due, as a rule.
  static constexpr std::chrono::milliseconds rescue_lead{1'000};

  // --- bucket_tier.cc
  void applied_until(storage::JournalPlace& at);
  void begin_write_all();
  void look_for_earliest(const Homes::Map::value_type& at, std::optional<Earliest>& first,
                         std::size_t& entries) const;

  // --- bucket_tier_lane.cc
  template <typename Seen>
  void for_homes(std::optional<storage::Bucket>& from, Seen seen);
  bool begin_work(WallTime now);
  bool open_months(WallTime now);
  bool deal_months(WallTime until);
  bool begin_load(WallTime now);
  bool begin_piece(const storage::Bucket& id);
  void begin_deal(const storage::Bucket& month);
  void begin_adopt(const storage::Bucket& home);
  // A piece that was found on disk, or a step of dealing, and what the store has not flushed.
  struct FoundPiece {
    storage::Piece piece;
    std::uint64_t unflushed = 0;
  };
  void dealt(const storage::Bucket& id, storage::BucketLevel level, std::uint64_t unflushed);
  void loaded(const storage::Bucket& id, storage::Piece piece);
  void add_loaded(std::size_t entries);
  std::optional<WallTime> next_deal_ahead() const;
  bool begin_deal_ahead(WallTime now);
  std::optional<WallTime> next_rescue() const;
  std::optional<WallTime> next_rescue_ahead() const;
  void note_room_to_rescue(WallTime now);
  bool begin_rescue(WallTime now);
  bool begin_rescue_again();
  bool begin_rescue_piece(const storage::Bucket& id, const PendingKey& from,
                          const PendingKey& until, const Rescue::Stops& again);
  void go_on_rescuing(std::size_t entries);
  void end_rescue();
  void free_rescued(Rescue::Freed freed);
  bool begin_checkpoint_write();
  bool is_worth_writing(const storage::Bucket& id, const Home& home) const;
  bool begin_spill(WallTime now);
  void pull_back(WallTime now);
  bool evict();
  bool begin_forget();
  bool begin_disk_sweep();
  storage::HomeWrite seal(const storage::Bucket& id, Homes::Sealed& sealed, Homes::Removals& gone);
  void write_homes(const std::vector<storage::Bucket>& ids);
  void write_rows(bool ends_checkpoint);
  void forget_unneeded();
  void note_unflushed(std::uint64_t bytes);
  void flush();

  storage::BucketStore& store_;
  Background& background_;
  const storage::Owner owner_;
  const Options options_;
  const Hooks hooks_;

  Lane lane_;
  TierCounts counts_;
  Homes homes_;
  DroppedTopics dropped_;
  UnwrittenRows unwritten_;
  Horizon horizon_;
  IdReader id_reader_;
  Lookups lookups_;
  Rescue rescue_;

  std::uint32_t epoch_ = 0;
  storage::JournalPlace applied_;  // Everything before it was told.
  std::size_t locators_ = 0;

  PendingKey loading_from_{WallTime::min(), 0};  // The horizon when a piece was asked for.
  // A piece that was read, and how many of its chunks are in memory.
  struct Loading {
    storage::Bucket home;
    storage::Piece piece;
    std::size_t added = 0;
  };
  std::optional<Loading> loading_;  // Empty: there is none.
  bool flushing_ = false;
  bool is_flush_behind_ = false;  // Much has gathered in RocksDB's memory while it flushes.
  bool no_room_ = false;          // For a flush.
  bool load_waits_ = false;       // For memory.
  bool rescued_last_ = false;     // The rescue takes turns with loads and writes,
  bool resumed_last_ = false;     //   and what it comes to first with what it comes to again.
  // While the rescue has no room: since when it has not got more, and the memory that it had then.
  struct NoRoomToRescue {
    WallTime since{};
    std::size_t least = std::numeric_limits<std::size_t>::max();
  };
  NoRoomToRescue no_room_to_rescue_;
  // All that could leave memory for a home's next piece has left; the same look again finds
  // nothing more.
  struct EvictedToLoad {
    storage::Bucket home;
    storage::JournalPlace applied;
    storage::PendingKey horizon;
    bool operator==(const EvictedToLoad&) const = default;
  };
  std::optional<EvictedToLoad> evicted_to_load_;
  // While the lead is short: nothing on disk before it is too large for a piece that is loaded.
  WallTime dealt_ahead_ = storage::before_all;
  bool dealt_last_ = false;  // The last piece of work was a part of something large.
  bool found_last_ = false;  // The last piece of work was a lookup: now it is another one's turn.
  std::optional<storage::Bucket> write_next_;  // A checkpoint's next home to be looked at.
  bool rows_due_ = false;                      // And then what belongs to no home.
  std::vector<std::move_only_function<void()>> checkpoint_done_;
  std::vector<std::move_only_function<void()>> checkpoint_next_;  // Asked for meanwhile.
  storage::JournalPlace noted_;                                   // By the last checkpoint.
  std::optional<storage::Bucket> forget_next_;  // The next home that may be forgotten.
  // While memory is short: the next home to be looked at, and the fullest ones before it.
  std::optional<storage::Bucket> spill_next_;
  std::vector<std::pair<std::size_t, storage::Bucket>> fullest_;
  Stats stats_;
};

}  // namespace tarry::delay
