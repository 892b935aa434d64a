#pragma once

// ReadyQueues: the near records of a shard by partition, and whose turn it is to deliver.
//
//   file() --> NearTier: waits --- a second before it is due ---> the queue of its partition
//                                                                       |
//                          next_turn(): partitions in line, one after the other
//                                                                       |
//                       take(): the first of its records, while they are due and settled
//
// A partition is in one of these places:
//
//   idle        its queue is empty, or it is held, or backs off after a refusal, or enough of it is
//               on its way
//   waiting     the first in its queue is not due yet
//   in line     it has due records and waits for its turn
//   served      it is its turn: next_turn() gave it out, and end_turn() ends it
//   unsettled   what is due waits until all that may leave before it is in the queue
//   dropping    its first records were cancelled, more of them than one step takes off its queue
//
// There are two lines: partitions that have more due than a turn delivers stand in the second one,
// which is served less often, so that a flood in one does not delay what falls due in another.
//
// Invariants
//   - A partition is in line at most once, and never while it is held or backs off or is full.
//   - take() gives a partition's records in (due, sequence) order, and none before everything that
//     may leave before it is queued.
//   - A record that is leaving is not given out.
//   - A partition is known while it has entries, a delivery on its way, a hold or a back-off.
//
// Belongs to its engine, on its thread.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "delay/due_queue.h"
#include "delay/engine_context.h"
#include "delay/near_tier.h"

namespace tarry::delay {

class ReadyQueues {
 public:
  explicit ReadyQueues(EngineContext& context);

  // --- Records

  // A record is near: it waits from now on, unless it does so already; then it is at another
  // location.
  void file(const PendingKey& key, const TopicPartition& partition, const Location& location = {});
  NearEntry* find(Sequence sequence) const { return near_.find(sequence); }
  void prefetch(Sequence sequence) const { near_.prefetch(sequence); }
  void prefetch(const NearEntry& entry, Sequence sequence) const {
    near_.prefetch(entry, sequence);
  }
  // Its removal is appended: it is given out no more.
  void begin_leaving(Sequence sequence);
  // Its removal was refused: it is where it was.
  void stay(const PendingKey& key, const TopicPartition& partition);

  // --- Time

  // Queues what is soon due, and puts partitions in line.  True: there is more to do at once.
  bool advance(WallTime now);
  // More may be settled than before: the next calls of advance() see what is.
  void settle() { to_settle_ = unsettled_.size(); }
  void end_back_offs(MonoTime now);
  // When advance() has something to do, and when a back-off ends.
  std::optional<WallTime> next_work() const;
  std::optional<MonoTime> next_retry() const;

  // --- Turns

  bool any_in_line() const { return !first_line_.empty() || !second_line_.empty(); }
  // The next partition to be served; empty: none.  `flooded`: none of those that have more due than
  // a turn delivers.
  std::optional<PartitionSlot> next_turn(bool flooded);
  // Its records that are due by `latest` may have more turns.
  void end_turn(PartitionSlot slot, WallTime latest);

  const TopicPartition& partition(PartitionSlot slot) const { return queues_[slot].id; }
  bool is_deleted(PartitionSlot slot) const { return queues_[slot].deleted; }

  std::size_t queued(PartitionSlot slot) const { return queues_[slot].items.size(); }

  // Takes the first of what is due by `latest` off its queue, as many as `taken` has room for;
  // returns how many, fewer when nothing else may leave.
  std::size_t take(PartitionSlot slot, WallTime latest, std::span<NearEntry*> taken);
  // One of these; null when nothing may leave.
  NearEntry* take(PartitionSlot slot, WallTime latest) {
    NearEntry* first = nullptr;
    take(slot, latest, {&first, 1});
    return first;
  }
  // The outcomes of an entry that was taken, and may have become `abandoned` since:
  void put_back(NearEntry& entry);  // it is queued as before,
  void set_in_flight(NearEntry& entry) { near_.set_in_flight(entry); }
  void erase(NearEntry& entry);  // it is gone.

  // Between these a delivery of the partition is on its way; several may be.
  void begin_delivery(PartitionSlot slot) { ++queues_[slot].deliveries; }
  void end_delivery(PartitionSlot slot);
  // So many are on their way that it has no turn until this is taken back.
  void set_full(PartitionSlot slot, bool full);
  // Between these the partition has no turn: what is not known yet may have to leave first.
  void hold(const TopicPartition& partition) { ++queues_[slot_of(partition)].holds; }
  void release(const TopicPartition& partition);
  // A delivery or a removal was refused: the partition waits, twice as long each time.
  void back_off(const TopicPartition& partition);
  // A delivery was taken: the next back-off is short again.
  void clear_back_off(PartitionSlot slot) { queues_[slot].back_off = {}; }

  // --- Bounds

  // Some waiting records may have to go: they are far again, or their topic is deleted.
  void begin_sweep();
  // Records of a deleted topic go, and are counted as dropped.
  void topic_deleted(const TopicId& topic);
  // A bounded part of that.  True: there is more to do.
  bool sweep();

  // Visits near records that are not due yet, a step at a time, as NearTier::visit() says.
  using Seen = std::function<void(const TopicPartition& partition, WallTime due)>;
  bool visit(std::size_t& cursor, std::size_t limit, const Seen& seen) const;

  // Much of what is near is the partition's, and more than two turns deliver.
  bool has_much_of_all(const TopicPartition& partition) const;
  std::size_t size() const { return near_.size(); }
  std::size_t overdue() const;  // Due, not in flight, and not leaving.
  std::size_t bytes() const { return near_.bytes() + queued_ * sizeof(DueQueue::Item); }
  timing::TimingWheel::Stats wheel_stats() const { return near_.wheel_stats(); }
  // Their memory: a locator with its place in the index.
  std::size_t locator_bytes() const {
    return near_.size() * (sizeof(NearEntry) + NearIndex::bytes_per_entry) +
           queued_ * sizeof(DueQueue::Item);
  }

 private:
  enum class Place : std::uint8_t { unused, idle, waiting, in_line, served, unsettled, dropping };
  // A cancelled record that is not the first of its queue stays there until it is, so a client that
  // cancels the last ones first leaves many behind one.  A step takes so many off: some tenths of a
  // millisecond.
  static constexpr std::size_t drops_a_step = 512;
  struct Queue {
    TopicPartition id;
    DueQueue items;
    std::size_t entries = 0;  // In the near tier.
    std::size_t deliveries = 0;
    std::uint32_t holds = 0;  // hold() without release().
    Place place = Place::unused;
    bool deleted = false;              // Its topic is deleted.
    bool full = false;                 // Enough of it is on its way.
    bool flooded = false;              // After its last turn there was more to deliver.
    std::optional<MonoTime> retry_at;  // While it backs off.
    WallTime waits_until{};            // While it is waiting.
    std::chrono::milliseconds back_off{0};
  };

  // How many records stand in queues although they are leaving, by their due times.  Those that are
  // due are no overdue records, however long they stand there.
  class Leaving {
   public:
    void begin(WallTime due) { ++(due <= passed_ ? due_ : later_[due]); }
    void end(WallTime due);
    void pass(WallTime now);
    std::size_t due_by(WallTime now) const;

   private:
    WallTime passed_ = WallTime::min();
    std::size_t due_ = 0;  // Those that were due by passed_, the latest time of pass().
    // The others: queues have what is due within a second, so these are few.
    std::map<WallTime, std::size_t> later_;
  };

  // A record that has left the wheel.
  struct Moved {
    PartitionSlot slot;
    DueQueue::Item item;
  };

  PartitionSlot slot_of(const TopicPartition& partition);
  std::optional<PartitionSlot> known_slot(const TopicPartition& partition) const;
  void enqueue(NearEntry& entry);
  void enqueue_moved();
  void came(PartitionSlot slot, WallTime due);
  NearEntry& pop(Queue& queue);
  void forget(NearEntry& entry);
  void drop(NearEntry& entry);
  bool drop_abandoned(Queue& queue);
  void drop_later(PartitionSlot slot);
  void go_on_dropping();
  bool settle_some();
  bool sweep_deleted(std::size_t& budget);
  bool is_settled(const PendingKey& key, const Queue& queue) const;
  void find_place(PartitionSlot slot, WallTime latest);
  void find_place(PartitionSlot slot) { find_place(slot, context_.time.now()); }
  void release_if_idle(PartitionSlot slot);

  EngineContext& context_;
  NearTier near_;
  std::deque<Queue> queues_;  // By slot.
  std::vector<PartitionSlot> free_slots_;
  std::unordered_map<TopicPartition, PartitionSlot> slots_;
  PartitionSlot recent_slot_ = 0;  // The last one that was asked for.
  std::set<std::pair<WallTime, PartitionSlot>> waiting_;
  std::deque<PartitionSlot> first_line_;
  std::deque<PartitionSlot> second_line_;
  int first_in_a_row_ = 0;  // Served from the first line.
  std::deque<PartitionSlot> unsettled_;
  std::size_t to_settle_ = 0;  // The first ones of these are to be looked at again.
  std::deque<PartitionSlot> dropping_;
  std::size_t drops_left_ = drops_a_step;  // Until the next step.
  std::multimap<MonoTime, PartitionSlot> backing_off_;
  std::vector<PartitionSlot> deleted_;  // Their queues are to be emptied.
  std::size_t queued_ = 0;              // In all queues.
  Leaving leaving_;                     // The entries that are abandoned.
  // Used by advance(); kept so that their memory is reused.
  std::vector<NearEntry*> moved_;
  std::vector<Moved> sorted_;
  std::vector<DueQueue::Item> run_;
  bool sweeping_ = false;
  bool sweep_again_ = false;  // More entries may have to go since this sweep began.
};

}  // namespace tarry::delay
