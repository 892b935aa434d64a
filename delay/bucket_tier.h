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
// horizon ahead, piece by piece; an hour that does not fit is downgraded on disk first
// (BucketStore::next_piece()).  When memory is short the horizon moves back, and what is behind it
// is upgraded to the disk.
//
// The pending records are always those in memory, and those on disk except the ones that memory
// knows to be gone.  A record that is added and removed between two checkpoints leaves nothing
// behind.
//
// Invariants
//   - Every pending record with a key before settled_before() was handed to near() once, or add()
//     said so; and its body is in memory.
//   - One piece of work of this shard is on the Background at a time (the lane), so nothing is read
//     while it is written.  Flushes and pages are not in the lane.
//   - A home (storage/bucket.h) that was written up to a place takes no operation from before it.
//   - No call to the store is made on the shard's thread, but for open().
//   - A step hands over, seals or scans a bounded number of entries.
//
// No threads: everything runs on the shard's thread, but the work that Background is given, which
// has its own copies, or chunks that nobody changes any more.  The tier may be destroyed at any
// time outside its own hooks.  The store outlives it and its work.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/id_events.h"
#include "delay/intake_charge.h"
#include "delay/location.h"
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
    // The store is flushed when so much of it is in RocksDB's memory, checkpoint or not.
    std::size_t flush_bytes = 32u << 20;
    // False: nothing comes near.  For the replay of a journal, after which the tier goes.
    bool loads = true;
    // Counts what is added and removed; may be null.
    storage::PendingCounts* counts = nullptr;
  };

  struct Hooks {
    // The record is near from now on.  The view lives until the call ends.
    std::function<void(const PendingView&, const Location&)> near;
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
  // it is set aside already, or gone.
  bool set_aside(const PendingKey& key, const Location& location);

  // --- Time.

  // Hands over what came near, and begins work.  True: there is more to do at once.
  bool step(WallTime now);
  // When step() has something to load; empty: never, as it stands.
  std::optional<WallTime> next_load() const;
  PendingKey horizon() const { return horizon_; }
  // All near records with smaller keys are handed over: deliveries go up to here, in order.
  PendingKey settled_before() const {
    return handing_.empty() ? horizon_ : std::min(horizon_, handing_from_);
  }

  // --- Reading.

  // A near record; empty: it is not pending.  The view lives until the next call that changes
  // something.
  std::optional<PendingView> read(const PendingKey& key, const Location& location = {}) const;
  // It will be read or removed soon: in two steps, some records apart, the first bytes of it come
  // near the processor.
  static constexpr std::size_t usual_body = 192;
  static constexpr std::size_t only_key = 1;
  void prefetch_offset(const Location& location) const {
    if (const Place at = place_at(location); at.resident != nullptr)
      at.resident->chunk->prefetch_offset(at.index);
  }
  void prefetch(const Location& location, std::size_t bytes) const {
    if (const Place at = place_at(location); at.resident != nullptr)
      at.resident->chunk->prefetch(at.index, bytes);
  }

  using Found = std::move_only_function<void(Result<std::optional<storage::PendingRecord>>)>;
  // The record that is pending under `key` when `found` is called, near or far.  `found` may be
  // called at once.
  void find(const PendingKey& key, Found found);
  // The same of a handle, whose record may have been moved.
  void find_handle(const PendingKey& handle, Found found);
  // The last events of an id, oldest first; none: it is unknown.
  using Events = std::move_only_function<void(Result<std::vector<storage::ScheduleEvent>>)>;
  void find_id(const TopicPartition& partition, std::string id, Events events);
  // The store's rows of several ids of a partition.  While there is one, memory keeps what it
  // was told since the store was asked, written or not: together they know the last event of each.
  // So it may be asked for long before it is used.  Short-lived.
  class IdRows {
   private:
    friend class BucketTier;
    // The last event of each; none: memory knew all.
    std::vector<std::optional<storage::ScheduleEvent>> last_;
    std::uint64_t since_ = 0;           // The oldest Told that is needed beside it,
    std::shared_ptr<const bool> pin_;   //   and what keeps that.
    std::shared_ptr<const bool> held_;  // While there is one, its rows count as memory.
  };
  // Reads them on the Background, beside the lane; `rows` is called at once if memory knows all of
  // a few.  Ids that are asked for while a question for a few is on its way go with the next one:
  // so many small batches cost one question.  The bytes of the ids live until then.
  void read_ids(const TopicPartition& partition, std::vector<std::string_view> ids,
                std::move_only_function<void(Result<IdRows>)> rows);
  // The last event of the id that is number `at` of those that `rows` were read for; empty: the id
  // is unknown.
  std::optional<storage::ScheduleEvent> last_event(const TopicPartition& partition,
                                                   std::string_view id, const IdRows& rows,
                                                   std::size_t at) const;

  // --- Checkpoints.

  // Writes everything that was told before this call to the store's memory; then `done`.  For a
  // checkpoint the host then flushes the store and notes its journal.
  void write_all(std::move_only_function<void()> done);
  // A checkpoint is noted: no operation before `place` will be replayed.
  void noted(storage::JournalPlace place);

  // --- Figures.

  // The number of the topic's pending records, in all shards.
  std::int64_t pending_of(const TopicId& topic);
  // What IntakeCharge adds to and takes from; and what the topic has of it, in all shards.
  IntakeCharge::Sums coming(const TopicId& topic);
  std::int64_t coming_of(const TopicId& topic);
  std::size_t coming_bytes() const { return coming_bytes_; }
  // The account of what a principal has pending, in all shards.
  storage::PendingCounts::Account account(PrincipalId principal) {
    return options_.counts->account(principal);
  }
  // What was added and removed until now is in the accounts from then on.  Whoever adds or removes
  // calls this at the end, because all shards write to the same accounts: with every record it
  // would cost more than the counting.
  void tell_account();

  // The part of a level of buckets that is in memory.
  struct Level {
    std::size_t records = 0;
    std::size_t bytes = 0;
    std::size_t chunks = 0;
    std::size_t on_disk = 0;      // Entries of those of its chunks that are on disk too.
    std::uint64_t to_disk = 0;    // Records that left memory for the disk,
    std::uint64_t loaded = 0;     //   and that came from there.
    std::uint64_t came_back = 0;  // Near ones that became far again.
  };
  using Levels = std::array<Level, storage::bucket_levels>;

  struct Stats {
    std::size_t memory_bytes = 0;
    std::size_t chunks = 0;             // Chunks in memory.
    std::size_t records = 0;            // In memory.
    std::size_t homes = 0;              // Hours and months that are known.
    std::size_t dropped_topics = 0;     // Those of which somebody may still have records.
    std::uint64_t written = 0;          // Records that went to disk,
    std::uint64_t spared = 0;           //   and that were gone before.
    std::uint64_t downgrades = 0;       // Records that came near.
    std::uint64_t pulled_back = 0;      // Times that the horizon was.
    std::uint64_t disk_downgrades = 0;  // Steps of dealing on disk.
    std::uint64_t loads = 0;            // Pieces.
    std::uint64_t freed_bytes = 0;      // On disk, of what was gone before its time came near.
    std::uint64_t homes_seen = 0;       // In search of those that are to be written or forgotten.
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
  // step() should be called, to give memory to the disk; when it is at it, it wakes the host
  // itself.
  bool is_short() const { return !busy_ && !no_room_ && wants_to_spill(); }
  // Something is to be loaded when memory is free again, of which nobody tells the tier.
  bool waits_for_memory() const { return load_waits_; }
  // The bytes that the host's locators of near records take of the same budget.
  void set_locator_bytes(std::size_t bytes) { locators_ = bytes; }
  // New records should wait: memory is spent, and applying or writing does not keep up; or their
  // due times are so spread that the homes alone spend it.
  bool is_full() const { return used() + coming_bytes_ + homes_bytes() >= options_.memory_bytes; }

 private:
  // A chunk in memory: the end of a tail, or what was loaded.
  struct Resident {
    std::shared_ptr<storage::Chunk> chunk;  // Nobody changes it once it is sealed.
    storage::Bucket home;
    std::uint32_t number = 0;  // Among numbered_.
    storage::LiveEntries live;
    std::size_t live_count = 0;
    bool sealed = false;
    bool writing = false;
    bool on_shelf = true;
    std::optional<storage::ChunkKey> key;  // On disk.
    std::vector<Sequence> gone;            // Since it was sealed, and not written.
    storage::LiveEntries aside;            // Those that were set aside; shorter than `live`: no
    std::size_t aside_count = 0;           //   others were.  And how many of them are pending.
    std::size_t charged = 0;               // The bytes that memory_ counts for it.
    std::size_t entries_on_disk = 0;       // The entries of its chunk there, as it was written.

    bool is_written() const { return key.has_value(); }
    const storage::Bucket& bucket() const { return chunk->bucket(); }
    bool has(const PendingKey& record, std::size_t at) const {
      return at < live.size() && live[at] && chunk->key_at(at) == record;
    }
  };
  // So many records of a home are marked before it is swept.
  static constexpr std::uint64_t least_gone = 4'096;
  // The residents of one bucket.
  struct Shelf {
    std::vector<std::shared_ptr<Resident>> residents;
    bool in_order = true;  // Their sequence numbers rise from one to the next.
  };
  struct Home {
    storage::JournalPlace written;
    std::map<storage::Bucket, Shelf> shelves;
    std::unordered_set<Sequence> gone;  // On disk alone, and not written yet.
    std::vector<storage::ChunkKey> dead;
    storage::ChunkKeys aside;  // On disk until the next start: nobody loads or deals them.
    // Added less removed since it was written; also of nobody, so that they add up to the topics'.
    storage::PendingUses uses;
    std::size_t unwritten = 0;            // Bytes of its residents that are not on disk,
    std::size_t tails = 0;                //   and how many these are.
    std::size_t marks = 0;                // Charged for what is gone and not written.
    std::uint64_t gone_on_disk = 0;       // Marks written since it was swept,
    std::uint64_t sweep_at = least_gone;  //   and when to look whether that is worth it.
    bool dirty = false;
    bool aside_unwritten = false;  // Records that were set aside wait for its next write.
    bool on_disk = false;          // It may have chunks there that are not in memory.
    bool foreign = false;          // It may have chunks of another number of shards.
    storage::BucketLevel split = storage::BucketLevel::hour;  // The level of new tails.
  };
  using Homes = std::map<storage::Bucket, Home>;
  // The home of a due time, made where there is none, and the place up to which it is written.
  // Records come and go by the thousand in one hour, so the last one is kept.
  struct Recent {
    storage::Bucket id{};
    Home* home = nullptr;  // Null: none is kept.
    storage::JournalPlace written;
  };
  // From so many unwritten tails on, new ones of a home are of seconds.
  static constexpr std::size_t max_fine_tails = 4'096;

  // Requests that wait for the lane; more are refused.
  static constexpr std::size_t max_waiting_lookups = 65'536;
  struct Lookup {
    PendingKey key;
    Found found;
    bool by_handle = false;
  };
  struct IdLookup {
    TopicPartition partition;
    std::string id;
    Events events;
  };
  struct Place {                   // The place of an entry in memory.
    Resident* resident = nullptr;  // Null: it is not in memory.
    std::size_t index = 0;
  };
  using IdLasts = std::vector<std::vector<std::optional<storage::ScheduleEvent>>>;
  struct IdQuestion {
    TopicPartition partition;
    std::vector<std::string_view> ids;
    IdRows rows;
    std::move_only_function<void(Result<IdRows>)> answer;
  };
  // The questions that are for a few ids each.  A piece of work may outlive the tier, and answers
  // them all the same.
  struct IdQuestions {
    std::vector<IdQuestion> waiting;
    bool asking = false;
  };
  using Forwards = std::map<PendingKey, std::optional<PendingKey>>;  // By handle.
  // The events between two writes of rows that belong to no home.
  struct Told {
    std::uint64_t number = 0;
    Forwards forwards;
    IdEvents ids;
    std::size_t bytes = 0;  // Charged for it.
    // Held by the IdRows that need this one and all that follow.
    std::shared_ptr<const bool> pin = std::make_shared<const bool>(true);
  };
  // The records of a home that ended while it is being written.
  struct Removals {
    std::unordered_set<Sequence> of_home;
    std::vector<std::vector<Sequence>> of_chunks;
  };
  using Sealed = std::vector<std::pair<storage::Bucket, std::shared_ptr<Resident>>>;

  // The memory of a home while no record of it is in memory.
  static constexpr std::size_t home_bytes = sizeof(Homes::value_type) + 4 * sizeof(void*);
  std::size_t homes_bytes() const { return homes_.size() * home_bytes; }
  // Without the homes, which stay whatever leaves memory, and without what is coming: no record
  // that is near has to leave for it.
  std::size_t used() const { return memory_ + locators_; }
  // With many homes so little is left that less is written at a time, but not next to nothing.
  bool wants_to_spill() const {
    return used() >= spill_from() || (is_full() && used() >= options_.memory_bytes / 8);
  }
  // The bytes that are loaded at once, at least.
  std::size_t piece_bytes() const { return options_.memory_bytes / 8; }
  std::size_t load_bytes(const storage::Bucket& id, const Home& home) const;
  bool has_gone(const storage::Bucket& id, const Home& home) const;
  std::vector<Sequence> gone_of(const storage::Bucket& id, const Home& home) const;
  std::size_t split_from() const {
    return options_.split_bytes != 0 ? options_.split_bytes : piece_bytes();
  }
  std::size_t spill_from() const { return options_.memory_bytes - options_.memory_bytes / 4; }

  // --- bucket_tier.cc
  std::optional<Location> added(storage::JournalPlace at, const PendingView& record);
  void removed(storage::JournalPlace at, const PendingKey& key, const TopicPartition& partition,
               WallTime first, const storage::PendingShare& share, const Location& location);
  void tell(const TopicPartition& partition, std::string_view id,
            const storage::ScheduleEvent& event);
  void charge_told(std::size_t bytes);
  void forward(const PendingKey& handle, std::optional<PendingKey> now);
  struct Counted;
  Counted& counted(const TopicId& topic, PrincipalId principal);
  void count(Home& home, const TopicId& topic, const storage::PendingShare& share, int change);
  storage::PendingCounts::Counter& counter(const TopicId& topic);
  void begin_write_all();
  storage::Bucket home_of(WallTime due) const;
  Recent home_for(WallTime due);
  Place place_at(const Location& location) const;
  Place locate(const PendingKey& key) const;
  Place locate(const PendingKey& key, const Location& location, Place& last) const;
  static Place covering(const Shelf& shelf, const PendingKey& key);
  static storage::BucketLevel tail_level(const storage::Bucket& id, const Home& home);
  static void split_tails(Home& home);
  void number(const std::shared_ptr<Resident>& resident);
  Resident& tail(Home& home, Shelf& shelf, const storage::Bucket& home_id,
                 const storage::Bucket& bucket);
  Level& level_of(const Resident& resident) {
    return stats_.levels[static_cast<std::size_t>(resident.chunk->bucket().level)];
  }
  void leave(Resident& resident);
  void kill(const Place& place);
  void sweep_homes(std::size_t budget);
  void forget_topics();
  void mark(Home& home);
  void charge(Home& home, Resident& resident);
  void let_go(Home& home, Resident& resident);
  void take_off_shelf(Home& home, Resident& resident);
  void set_down(Resident& resident);
  bool is_gone(const PendingKey& key) const;
  bool is_gone_from_memory(const PendingKey& key) const;
  std::optional<std::optional<storage::PendingRecord>> known(const PendingKey& key) const;
  const std::optional<PendingKey>* forwarded(const PendingKey& handle) const;
  Found unless_moved(const PendingKey& handle, const PendingKey& at, Found found);
  void ask(std::shared_ptr<std::vector<IdQuestion>> asked, bool is_for_few);
  void ask_next();
  static void answer(std::vector<IdQuestion>& asked, Result<IdLasts> lasts);
  const storage::ScheduleEvent* last_told(const TopicPartition& partition, std::string_view id,
                                          std::uint64_t since) const;
  bool has_near(const Resident& resident) const;
  void hand_over(std::size_t budget);
  void sweep(std::size_t budget);
  void begin_handing(const PendingKey& until);
  void pull_back(WallTime now);
  void count_back(const Home& home, const PendingKey& horizon);
  void evict(Home& home);
  bool is_ended(const Home& home) const;
  bool may_forget(const storage::Bucket& id, const Home& home) const;
  void look_for_earliest(const Homes::value_type& at, std::optional<Earliest>& first,
                         std::size_t& entries) const;
  std::optional<storage::Bucket> next_home(WallTime from) const;

  // --- bucket_tier_lane.cc
  template <typename T, typename Then>
  void run(std::move_only_function<Result<T>()> work, Then then);
  template <typename Seen>
  void for_homes(std::optional<storage::Bucket>& from, Seen seen);
  bool begin_work(WallTime now);
  bool begin_finds();
  std::optional<storage::Bucket> foreign_home(const PendingKey& key) const;
  bool open_months(WallTime now);
  bool deal_months(WallTime until);
  bool begin_load(WallTime now);
  void begin_deal(const storage::Bucket& month);
  void begin_adopt(const storage::Bucket& home);
  void loaded(const storage::Bucket& id, storage::Piece piece);
  bool begin_checkpoint_write();
  bool is_worth_writing(const storage::Bucket& id, const Home& home) const;
  bool begin_spill(WallTime now);
  bool begin_forget();
  bool begin_disk_sweep();
  void write_homes(const std::vector<storage::Bucket>& ids);
  storage::HomeWrite seal(const storage::Bucket& id, Home& home, Sealed& sealed, Removals& gone);
  void written(const storage::HomeWrite& change, const Sealed& sealed,
               const std::vector<storage::ChunkKey>& keys);
  void write_told(bool ends_checkpoint);
  void forget_told();
  void flush();
  static storage::ChunkKeys known_keys(const Home& home);
  void failed(const Error& error);

  storage::BucketStore& store_;
  Background& background_;
  const storage::Owner owner_;
  const Options options_;
  const Hooks hooks_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  std::uint32_t epoch_ = 0;
  std::map<TopicId, storage::PendingCounts::Counter*> counters_;
  // The last one of them: null at first.
  std::pair<TopicId, storage::PendingCounts::Counter*> recent_counter_{};
  std::map<TopicId, storage::PendingCounts::Counter*> coming_;
  // Where records of a topic by a principal are counted.
  struct Counted {
    storage::PendingCounts::Counter* topic;
    storage::PendingCounts::Account account;  // Null: the principal is unknown.
    storage::PendingUse use;                  // What this tier has added to the account,
    storage::PendingUse untold;               //   and what it is about to add.
  };
  std::map<std::pair<TopicId, PrincipalId>, Counted> counted_;
  // The last one that was asked for, as most records are of the same; null: none.  No other has
  // anything untold.
  std::pair<const std::pair<TopicId, PrincipalId>, Counted>* last_counted_ = nullptr;
  Homes homes_;
  Recent recent_;  // Forgotten when a home goes, is written, or months become hours.
  // Topics that were dropped, and of which there may still be something here; with the number of
  // checkpoints until there is not.
  std::map<TopicId, int> dropped_;
  std::optional<storage::Bucket> drop_from_;  // The home that is looked at next for them.
  storage::JournalPlace applied_;             // Everything before it was told.
  std::size_t memory_ = 0;
  std::size_t locators_ = 0;
  std::size_t coming_bytes_ = 0;  // Accepted, and not applied.
  std::size_t live_ = 0;
  // Records that are due later go to months.  Months before it are closed: they are dealt out to
  // hours.
  WallTime hours_end_ = WallTime::min();

  PendingKey horizon_{WallTime::min(), 0};
  std::chrono::milliseconds lead_;  // Less than options_.lead while memory is short,
  WallTime lead_from_{};            //   and not more before this.
  // Chunks with entries from handing_from_ to the horizon that are to be handed over, and how many
  // entries each had when the horizon moved.
  std::deque<std::pair<std::shared_ptr<Resident>, std::size_t>> handing_;
  PendingKey handing_from_{WallTime::min(), 0};
  std::size_t handed_ = 0;  // Entries of the first one.

  // The residents by their numbers, which locations name; null: the number is free.
  std::vector<std::shared_ptr<Resident>> numbered_;
  std::vector<std::uint32_t> free_numbers_;
  // The place at which a record was last read and removed: requests without a location often come
  // in the order in which the records came.
  mutable Place last_read_;
  Place last_removed_;

  PendingKey loading_from_{WallTime::min(), 0};  // The horizon when a piece was asked for.
  // Homes on disk of which much may be gone, and how far they are swept.
  std::map<storage::Bucket, std::optional<storage::ChunkKey>> disk_sweeps_;
  // Chunks that may have records of dropped topics, and how many of their entries were looked at.
  std::deque<std::pair<std::shared_ptr<Resident>, std::size_t>> sweeping_;

  bool busy_ = false;  // The lane.
  bool flushing_ = false;
  bool no_room_ = false;     // For a flush.
  bool load_waits_ = false;  // For memory.
  bool failed_ = false;
  bool dealt_last_ = false;  // The last piece of work was a part of something large.
  bool found_last_ = false;  // The last piece of work was a lookup: now it is another one's turn.
  std::deque<Lookup> lookups_;
  std::deque<IdLookup> id_lookups_;
  const std::shared_ptr<IdQuestions> id_questions_ = std::make_shared<IdQuestions>();
  std::optional<storage::Bucket> write_next_;  // A checkpoint's next home to be looked at.
  bool told_due_ = false;                      // And then what belongs to no home.
  std::vector<std::move_only_function<void()>> checkpoint_done_;
  std::vector<std::move_only_function<void()>> checkpoint_next_;  // Asked for meanwhile.
  storage::JournalPlace noted_;                                   // By the last checkpoint.
  std::optional<storage::Bucket> forget_next_;  // The next home that may be forgotten.
  // While memory is short: the next home to be looked at, and the fullest ones before it.
  std::optional<storage::Bucket> spill_next_;
  std::vector<std::pair<std::size_t, storage::Bucket>> fullest_;

  std::shared_ptr<Told> told_ = std::make_shared<Told>();  // Not written yet.
  std::shared_ptr<Told> told_writing_;                     // Being written.
  std::deque<std::shared_ptr<Told>> told_kept_;            // Written, and needed by IdRows.
  // IdRows that there may be, oldest first, and their bytes, which are charged.
  std::deque<std::pair<std::weak_ptr<const bool>, std::size_t>> rows_held_;
  Stats stats_;
};

}  // namespace tarry::delay
