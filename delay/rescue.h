#pragma once

// Rescue: what is due soon in the other partitions, while a flood in one keeps the horizon where it
// is.
//
//   due time --- Horizon ------------ settled ------- at() ------------------------------>
//        near  |  near, but far in partitions that  |  being handed  |  far
//              |  have more than their part of this |  over          |
//
// When the records of one millisecond do not fit into memory, the horizon stands inside of it until
// deliveries have made room.  Then the records behind it are handed over all the same, with copies
// of their bodies: to everybody else they are far, in their homes or on the disk, where their
// removal is marked.  When the horizon has come up to at(), the rescue is over: all of it is in
// memory once more, and was handed over again.
//
// A partition of which there is too much is *stopped* at a key: what it has from there on is far as
// before.  Each may have a third of what the others leave free, so however many flood, there is
// room for one more; and each stays in order.  When it has room again it goes on: what lies between
// its stop and at() is read once more, for such partitions alone.
//
// Invariants
//   - Each pending record whose key is_settled() was handed over since the rescue came to it, or
//     keep() said where it is; and read() has its body.
//   - Its memory, with the locators of its records, is not more than `max_bytes` and a chunk; and
//     the piece that is being read.
//   - A partition's stop only moves back, until it goes on from there.
//
// Nothing of it is written; a crash, or a horizon that moves back, ends it and loses nothing.
//
// Belongs to its BucketTier, on its thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "delay/dropped_topics.h"
#include "delay/homes.h"
#include "delay/horizon.h"
#include "delay/location.h"
#include "storage/bucket_change.h"
#include "storage/chunk.h"
#include "storage/pending.h"

namespace tarry::delay {

class Rescue {
 public:
  using PendingKey = storage::PendingKey;
  using PendingView = storage::PendingView;
  // Whether most of what is near is the partition's, so that nothing of it is rescued; may be
  // empty.
  using Floods = std::function<bool(const TopicPartition&)>;
  // The partitions that are stopped, and where.
  using Stops = std::map<TopicPartition, PendingKey>;

  // A copy of some records of a partition.
  struct Kept;
  // What has left, which may take long to be freed.
  class Freed;

  Rescue(std::size_t max_bytes, Floods floods);
  ~Rescue();
  Rescue(const Rescue&) = delete;
  Rescue& operator=(const Rescue&) = delete;

  bool is_on() const { return ahead_.has_value(); }
  // Everything before the horizon is handed over.
  void begin(const PendingKey& horizon);
  // In one turn, however much there is: the caller frees it.
  Freed end();

  // --- How far it is; only while it is on.

  const PendingKey& at() const { return ahead_->at(); }
  // It may go on: there is room for more, beside what partitions have that are stopped.  That may
  // stay for as long as the flood does, so nobody waits for it to leave.
  bool may_go_on() const {
    const std::size_t room = max_bytes_ - std::min(max_bytes_, stopped_bytes_);
    return !is_handing() && bytes_ - stopped_bytes_ < room - room / 4;
  }

  // Chunks that were read, and the entries of them that are wanted, in the order of their keys.
  struct Read {
    std::vector<storage::LoadedChunk> chunks;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> wanted;
    std::vector<std::uint32_t> left;  // Of each chunk, those that were not handed over.

    // Wanted is what is pending and due in [from, until), unless its partition is stopped before
    // it.
    void choose(const PendingKey& from, const PendingKey& until, const Stops& stops);
    // Wanted is what these partitions have in [from, until), not before their stops.
    void choose_again(const PendingKey& from, const PendingKey& until, const Stops& stops);
    std::size_t bytes() const;

   private:
    template <typename IsWanted>
    void choose_if(const PendingKey& from, const PendingKey& until, IsWanted is_wanted);
  };
  // A piece of so many bytes is being read; 0: it is not.  What came of it counts from advance()
  // on.
  void set_reading(std::size_t bytes) { read_bytes_ = bytes; }
  // Moves to `until`: everything before it that is pending is in `read` or in memory.
  void advance(const PendingKey& until, const Homes& homes, Read read);
  // Hands over, or passes over, so many entries; returns how many it handed over.
  std::size_t hand_over(std::size_t budget, const Homes& homes, const DroppedTopics& dropped,
                        const std::function<void(const PendingView&, const Location&)>& near);
  // While it is, what is in memory and on the disk stays where it is.
  bool is_handing() const {
    return is_on() && (next_ < read_.wanted.size() || ahead_->is_handing() || again_.has_value());
  }
  // Ever, all that it has come to was handed over.
  std::uint64_t times_settled() const { return times_settled_; }
  Stops stops() const;

  // --- What was stopped and has room again

  // Something has left, here or of a partition that is stopped, since resumable() has looked at all
  // of them.
  bool may_resume() const { return !is_handing() && to_look_ > 0 && !stopped_.empty(); }
  // Some of the partitions that may go on, and where.  Looks at a bounded number.
  Stops resumable();
  // Nothing came of what it found: it looks again.
  void look_again() { to_look_ = stopped_.size(); }
  // These partitions go on up to `until`, at() at most: everything before it that they have from
  // `from` on is in `read` or in memory, and everything before `from` was handed over, by the
  // horizon if it is behind their stops.
  void resume(const PendingKey& from, const PendingKey& until, const Stops& those,
              const Homes& homes, Read read);

  // --- Its records

  // The record is near because of it: new ones go to keep().
  bool is_near(const PendingKey& key, const TopicPartition& partition) const {
    return is_on() && key < near_end(partition);
  }
  // Everything that may leave before it is handed over.
  bool is_settled(const PendingKey& key, const TopicPartition& partition) const {
    return is_on() && key < settled_end(partition);
  }
  // Copies a record that is near; empty: there is no room, so its partition is stopped there.
  std::optional<Location> keep(const PendingView& record);
  // Of any record that leaves, also one that is not here.
  void remove(const PendingKey& key, const TopicPartition& partition, const Location& location);
  // A record at a place, and one wherever it is.  The view lives until the next call that changes
  // something.
  std::optional<PendingView> read(const PendingKey& key, const Location& location) const;
  std::optional<PendingView> find(const PendingKey& key) const;
  Freed topic_dropped(const TopicId& topic);

  // Without the locators of its records, and with what is being read.
  std::size_t memory() const { return bytes_ - records_ * locator_bytes + read_bytes_; }

 private:
  // The memory of a record's locator, in the wheel and in its queue.
  static constexpr std::size_t locator_bytes = 128;
  struct Part {
    // There may be ten thousand partitions with a record each, and an empty deque has 576 bytes.
    std::vector<std::unique_ptr<Kept>> chunks;
    std::size_t bytes = 0;
    std::optional<PendingKey> stop;
    std::size_t needs = 0;              // The record that did not fit; 0: it is not known.
    std::optional<PendingKey> resumed;  // Where it goes on, while that is handed over.

    // Nothing has to be known of it.
    bool is_empty() const { return chunks.empty() && !stop && !resumed; }
  };
  using Parts = std::map<TopicPartition, Part>;
  struct Place {  // Null: it is not here.
    Kept* kept = nullptr;
    std::size_t index = 0;

    Location location() const;
  };

  // It has come to the key, so that a record with it may be here.
  bool is_passed(const PendingKey& key) const {
    return is_on() && !(key < begun_at_) && key < at();
  }
  PendingKey near_end(const TopicPartition& partition) const;
  PendingKey settled_end(const TopicPartition& partition) const;
  Parts::iterator part_of(const TopicPartition& partition);
  Kept& open_chunk(Parts::iterator part, const PendingKey& key);
  void close(Part& part, Kept& kept);
  void charge(Part& part, std::size_t before, std::size_t now);
  // A partition may have as much; all may have `max_bytes_`.
  std::size_t share() const { return (max_bytes_ - std::min(max_bytes_, bytes_)) / 3; }
  void stop_at(Parts::iterator at, const PendingKey& key, std::size_t needs);
  bool has_room_again(const TopicPartition& partition, const Part& part) const;
  void end_resuming();
  void settle();
  std::size_t budget_again(std::size_t budget) const;
  bool take(const PendingView& record,
            const std::function<void(const PendingView&, const Location&)>& near);
  bool is_wanted_again(const PendingView& record,
                       const std::function<void(const PendingView&, const Location&)>& near) const;
  Place place_at(const PendingKey& key, const Location& location) const;
  static Place search(const Part& part, const PendingKey& key);
  std::unique_ptr<Kept> take_out(Part& part, std::size_t at);
  void left_beside(Parts::value_type& at, const PendingKey& key);

  const std::size_t max_bytes_;
  // A chunk is given back when all of it has left, so it is full when it has so many bytes of
  // records: little beside what a partition may have.
  const std::size_t full_bytes_;
  const Floods floods_;
  std::optional<Horizon> ahead_;  // Empty: it is not on.
  PendingKey begun_at_{};
  PendingKey settled_{};
  std::uint64_t times_settled_ = 0;
  Read read_;
  std::size_t next_ = 0;        // Of what is wanted.
  std::size_t read_bytes_ = 0;  // Of what was read or is being read, and was not handed over.
  // What those have in memory that go on; empty: none does.
  std::optional<Horizon> again_;
  std::vector<TopicPartition> resumed_;
  // Those that have records here or are stopped.
  Parts parts_;
  std::set<TopicPartition> stopped_;
  std::size_t to_look_ = 0;      // How many of these resumable() is to look at,
  TopicPartition next_look_;     //   and the next one.
  std::vector<Kept*> numbered_;  // Null: the number is free.
  std::vector<std::uint32_t> free_numbers_;
  std::size_t bytes_ = 0;          // With their locators;
  std::size_t stopped_bytes_ = 0;  //   those of them that are of stopped partitions.
  std::size_t records_ = 0;
};

struct Rescue::Kept {
  explicit Kept(const storage::Bucket& bucket) : chunk(bucket) {}

  storage::Chunk chunk;
  storage::LiveEntries live;
  std::size_t live_count = 0;
  std::uint32_t number = 0;
  std::size_t taken = 0;    // Bytes of all its records,
  std::size_t charged = 0;  //   and its memory: while it is filled it grows ahead of them.
  bool is_closed = false;   // It is filled no more.

  std::size_t memory() const { return chunk.memory_bytes() + sizeof(Kept) - sizeof(chunk); }
};

class Rescue::Freed {
 public:
  // Chunks and partitions: each takes some tenths of a microsecond.
  std::size_t size() const { return chunks_.size() + parts_.size() + read_.chunks.size(); }

 private:
  friend class Rescue;
  std::vector<std::unique_ptr<Kept>> chunks_;
  Parts parts_;
  std::set<TopicPartition> stopped_;
  std::vector<Kept*> numbered_;
  Read read_;
};

}  // namespace tarry::delay
