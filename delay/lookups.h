#pragma once

// Lookups: requests for records and for the events of ids, by memory where it knows the answer, and
// by the disk otherwise.
//
//   find() --> memory knows --> answered at once
//         '--> waits --begin(): many at a time, on the lane--> read --answer(): some in a turn-->
//                                                       answered, or looked up again
//
// Invariants
//   - An answer is true at the moment when it is given: what memory learned since the disk was read
//     counts.  So nothing is written until all that was read is answered.
//   - A turn gives a bounded number of answers, for each may be a change of the journal.
//   - Requests that wait are bounded; more are refused.
//
// Belongs to its BucketTier, on its thread.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "delay/dropped_topics.h"
#include "delay/homes.h"
#include "delay/horizon.h"
#include "delay/lane.h"
#include "delay/unwritten_rows.h"
#include "storage/bucket_store.h"
#include "storage/pending.h"

namespace tarry::delay {

class Lookups {
 public:
  using PendingKey = storage::PendingKey;
  using Found = std::move_only_function<void(Result<std::optional<storage::PendingRecord>>)>;
  using Events = std::move_only_function<void(Result<std::vector<storage::ScheduleEvent>>)>;

  struct Memory {
    const Homes& homes;
    const Horizon& horizon;
    const DroppedTopics& dropped;
    const UnwrittenRows& unwritten;
  };
  // `adopt`: takes the chunks of a home that belong to no shard, on the lane.
  Lookups(storage::BucketStore& store, storage::Owner owner, Lane& lane, Memory memory,
          std::function<void(const storage::Bucket&)> adopt)
      : store_(store), owner_(owner), lane_(lane), memory_(memory), adopt_(std::move(adopt)) {}

  void find(const PendingKey& key, Found found);
  void find_handle(const PendingKey& handle, Found found);
  void find_id(const TopicPartition& partition, std::string id, Events events);

  // Begins a piece of work; false: there is nothing to look up, or to be answered first.
  bool begin();
  // Gives some of the answers to what was read.
  void answer();
  bool is_answering() const { return answering_ != nullptr; }

 private:
  // More are refused.
  static constexpr std::size_t max_waiting = 65'536;
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
  struct Asked;

  std::optional<std::optional<storage::PendingRecord>> known(const PendingKey& key) const;
  Found unless_moved(const PendingKey& handle, const PendingKey& at, Found found);
  void begin_if_idle() {
    if (!lane_.is_busy() && !lane_.has_failed()) begin();
  }
  static Result<> read(storage::BucketStore& store, storage::Owner owner, Asked& asked);
  std::optional<storage::PendingRecord> unless_dropped(
      std::optional<storage::PendingRecord> record) const;
  void refuse_all(Asked* asked);
  void answer(Asked& asked, std::size_t number);
  void answer_id(Asked& asked, std::size_t number);

  storage::BucketStore& store_;
  const storage::Owner owner_;
  Lane& lane_;
  const Memory memory_;
  const std::function<void(const storage::Bucket&)> adopt_;
  std::deque<Lookup> waiting_;
  std::deque<IdLookup> waiting_ids_;
  std::shared_ptr<Asked> answering_;  // Was read, and not all of it is answered; null: none.
};

}  // namespace tarry::delay
