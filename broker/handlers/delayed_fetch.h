#pragma once

// DelayedFetch: a Fetch request that has not found enough yet.
//
//   satisfied   the bytes that are missing have come, in one of its partitions or in all of them
//               together: durable ones, below the high watermark
//               one of them cannot be read any more: its topic is deleted, it is out of service,
//               or its log start has moved past the offset that is asked for (DeleteRecords,
//               retention)
//   expired     max_wait_ms has passed: answered with what there is
//   cancelled   the client has gone, or the broker stops
//
// Rolling a log changes nothing: bytes are counted across segments.  A fetch that was satisfied or
// has expired reads once more, and answers with the result; a cancelled one gets no answer.
//
// No log is read to find out how many bytes have come.  A partition counts the bytes that become
// visible, and the fetch knows the count that belongs to what it has seen:
//
//    read at the first look      grown since        not yet asked about
//   [======================][=================][. . . . . . . . . . .]  visible_bytes()
//                          seen before        seen     |<- step ->|  the fetch is asked again here
//
// With one partition the step is all that is missing, and an append touches the fetch only when it
// satisfies it.  With k of them it is the 2k-th part: a partition that has grown by a step costs
// O(log n), its growth is taken off what is missing, and when the steps have become too long for
// what is left all k are counted and given a shorter one.  That is log2(missing) times at most.
// (The steps that have not been reported, k * (step - 1) bytes, are always less than what is
// missing, so it cannot be reached unseen.)  A partition counts up to its partition_max_bytes.
//
// It waits where its partitions are.  When they stand on several shards that is the connection's
// own, and on each other shard a watch counts the partitions there, and posts home what they have
// grown by:
//
//   home shard    DelayedFetch  <--- grown(bytes), wake() ---  Away    other shard
//                      '------------- set_step(step) -------->
//
// Lives in the coroutine that waits.  Answered exactly once: what is posted to it afterwards finds
// its address empty.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "broker/context/one_shot_event.h"
#include "broker/scatter.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

inline const purgatory::Kind fetch_kind{"fetch"};
// The part of a fetch on another shard, which is woken from there.
inline const purgatory::Kind fetch_watch_kind{"fetch_watch"};

// A partition as it was at the first look.
struct SeenPartition {
  TopicPartition id;
  Offset from = 0;         // The offset that is asked for.
  std::int64_t bytes = 0;  // Partition::visible_bytes().
  std::int64_t room = 0;   // Bytes beyond those that still count.
};

class DelayedFetch final : public purgatory::DelayedOperation {
 public:
  // `missing`: bytes.  More than there is room for are not waited for.
  DelayedFetch(Shard& home, ByShard<SeenPartition>&& seen, std::int64_t missing);
  ~DelayedFetch() override;

  // Begins to wait.  answered() is awaited then, until it is satisfied, expired or cancelled.
  void begin(purgatory::Tick deadline);
  auto answered() { return answered_.wait(); }

 private:
  // Shared with other shards; `fetch` is read on the home shard alone.
  struct Address {
    DelayedFetch* fetch;
  };
  // The partitions of one shard, counted there.
  class Count {
   public:
    explicit Count(OnShard<SeenPartition> there);
    Shard& shard() const { return *there_.shard; }
    std::size_t size() const { return there_.items.size(); }
    bool is_readable(std::size_t i) const;
    bool all_readable() const;
    std::int64_t take(std::size_t i);  // Its growth since the last call.
    std::int64_t take_all();
    void add_watching(std::int64_t step, std::vector<purgatory::Watching>& watching) const;
    purgatory::Threshold threshold(std::size_t i, std::int64_t step) const;

   private:
    OnShard<SeenPartition> there_;
  };
  class Away;

  bool is_satisfied() override;
  void on_complete(purgatory::Outcome outcome) override;
  void grown(std::int64_t bytes);
  void wake();
  bool step_is_too_long() const;
  void shorten_step();

  Shard& home_;
  Count own_;  // Watched from place 0 on.
  std::size_t partitions_ = 0;
  std::int64_t missing_;
  std::int64_t step_ = 0;
  bool unreadable_ = false;
  // Used only by a fetch that watches other shards too:
  std::shared_ptr<Address> address_;
  std::vector<std::shared_ptr<Away>> away_;  // One for each of them.
  purgatory::WatchList woken_list_;  // Ourselves alone, in the last place: how a post reaches us.
  OneShotEvent answered_;
};

}  // namespace tarry::broker
