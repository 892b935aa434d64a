#pragma once

// ReadyQueues: the near records of a shard by partition, and whose turn it is to deliver.
//
//   file() --> NearTier: waits --- due ---> the ready queue of its partition, by (due, sequence)
//                                                       |
//                          next_turn(): partitions in line, one after the other
//                                                       |
//                                  take(): the first of its records, while they are settled
//
// A partition is in one of these places:
//
//   idle        nothing is ready, or a delivery is on its way, or it backs off after a refusal
//   in line     it has ready records and waits for its turn
//   served      it is its turn: next_turn() gave it out, and end_turn() ends it
//   unsettled   what is ready waits until all that may be due before it is near
//
// What always holds
//   - A partition is in line at most once, and never while it backs off or may deliver nothing
//   more.
//   - take() gives a partition's records in (due, sequence) order, and none before everything that
//     may leave before it is near (BucketTier::settled_before()).
//   - A record that is leaving is not given out.
//   - A partition is known while it has entries, a delivery on its way or a back-off.
//
// Belongs to its engine, on its thread.

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "delay/engine_context.h"
#include "delay/near_tier.h"

namespace tarry::delay {

class ReadyQueues {
 public:
  explicit ReadyQueues(EngineContext& context);

  // --- Records

  // A record is near: it waits from now on, unless it does so already.
  void file(const PendingKey& key, const TopicPartition& partition);
  NearEntry* find(Sequence sequence) const { return near_.find(sequence); }
  // Its removal is appended: it is given out no more.
  void begin_leaving(Sequence sequence);
  // Its removal was refused: it is where it was.
  void stay(const PendingKey& key, const TopicPartition& partition);

  // --- Time

  // Queues what has become due.  True: there is more to do at once.
  bool advance(WallTime now);
  // What may leave up to the horizon is near now.
  void settle();
  void end_back_offs(MonoTime now);
  // A time at which a record falls due, and one at which a back-off ends.
  std::optional<WallTime> next_due() const { return near_.next_work(); }
  std::optional<MonoTime> next_retry() const;

  // --- Turns

  // Something may leave before the first that is ready.
  bool is_behind() const { return near_.is_behind(); }
  bool any_in_line() const { return !line_.empty(); }
  // The next partition to be served; empty: none.
  std::optional<PartitionSlot> next_turn();
  void end_turn(PartitionSlot slot);

  const TopicPartition& partition(PartitionSlot slot) const { return queues_[slot].id; }
  bool is_deleted(PartitionSlot slot) const { return queues_[slot].deleted; }

  // The first of what is ready, off its queue; null when nothing may leave.
  NearEntry* take(PartitionSlot slot);
  // What becomes of an entry that was taken:
  void put_back(NearEntry& entry);                         // it is ready as before,
  void wait(NearEntry& entry) { near_.set_early(entry); }  // it is no longer due,
  void set_in_flight(NearEntry& entry) { near_.set_in_flight(entry); }
  void erase(NearEntry& entry);  // it is gone.

  // Between these a delivery of the partition is on its way, and it has no turn.
  void begin_delivery(PartitionSlot slot) { queues_[slot].delivering = true; }
  void end_delivery(PartitionSlot slot);
  // Between these the partition has no turn: what is durable and may leave first is not known yet.
  // They are counted.
  void hold(const TopicPartition& partition) { ++queues_[slot_of(partition)].holds; }
  void release(const TopicPartition& partition);
  // A delivery or a removal was refused: the partition waits, twice as long each time.
  void back_off(const TopicPartition& partition);
  // A delivery was taken: the next back-off is short again.
  void clear_back_off(PartitionSlot slot) { queues_[slot].back_off = {}; }

  // --- Bounds

  // Some waiting records may have to go: they are far again, or their topic is deleted.
  void begin_sweep();
  // A bounded part of that.  True: there is more to do.
  bool sweep();
  void topic_deleted(const TopicId& topic);

  // Visits near records that are not due yet, a step at a time, as NearTier::visit() says.
  using Seen = std::function<void(const TopicPartition& partition, WallTime due)>;
  bool visit(std::size_t& cursor, std::size_t limit, const Seen& seen) const;

  std::size_t size() const { return near_.size(); }
  std::size_t overdue() const;  // Ready, not in flight.
  std::size_t bytes() const { return near_.bytes(); }
  timing::TimingWheel::Stats wheel_stats() const { return near_.wheel_stats(); }
  // A locator with its places in the list of free ones and in the index.
  static constexpr std::size_t locator_bytes = sizeof(NearEntry) + 3 * sizeof(NearEntry*);

 private:
  enum class Place : std::uint8_t { unused, idle, in_line, served, unsettled };
  struct Queue {
    TopicPartition id;
    std::vector<NearEntry*> ready;  // A heap; the first to leave is in front.
    std::size_t entries = 0;        // In the near tier.
    Place place = Place::unused;
    bool deleted = false;              // Its topic is deleted.
    bool delivering = false;           // A delivery is on its way.
    std::uint32_t holds = 0;           // hold() without release().
    std::optional<MonoTime> retry_at;  // While it backs off.
    std::chrono::milliseconds back_off{0};
  };

  PartitionSlot slot_of(const TopicPartition& partition);
  void enqueue(NearEntry& entry);
  void push(Queue& queue, NearEntry& entry);
  bool is_settled(const NearEntry& entry) const;
  void get_in_line(PartitionSlot slot);
  void release_if_idle(PartitionSlot slot);

  EngineContext& context_;
  NearTier near_;
  std::deque<Queue> queues_;  // By slot.
  std::vector<PartitionSlot> free_slots_;
  std::unordered_map<TopicPartition, PartitionSlot> slots_;
  std::deque<PartitionSlot> line_;
  std::vector<PartitionSlot> unsettled_;
  std::multimap<MonoTime, PartitionSlot> backing_off_;
  std::vector<NearEntry*> fired_;  // Used by advance(); kept so that its memory is reused.
  bool sweeping_ = false;
  bool sweep_again_ = false;  // More entries may have to go since this sweep began.
};

}  // namespace tarry::delay
