#pragma once

// scatter(): does a request's work on each shard that has partitions of it.
//
//   ByShard<Item> items;                                     // Grouped by the partition's shard.
//   for (each partition of the request) items.add(broker.shard_of(id), {id, ...});
//   const auto work = [&](OnShard<Item>& there, CancellationToken& token) {
//     return append(there, token);                           // An awaitable<void>.
//   };
//   co_await scatter(context.shard, &context.connection, items, work);
//
//   home shard                        shard 1                shard 2
//   begin 1 --------------------->    work(its items)
//   begin 2 --------------------------------|----------->    work(its items)
//   work(own items): a plain call           |                     |
//   wait for all           <----------------+---------------------+
//
// Kafka's ordering guarantees: in each partition a connection's requests take effect in the order
// in which they were sent, also while several of them are being answered.  They rest on this:
//   - A shard's items keep the order of the request.
//   - All work is begun before the handler waits: first that of the other shards, in the order of
//     the request, so that they work while this one does; then this shard's own.
//   - Work for one shard begins there in the order in which it was sent, so a later request's does
//     not overtake an earlier one's.
//   - The work of a handler that changes partitions gives each item its place in the order of its
//     partition before it waits for anything.  A Produce of very many batches yields in between; it
//     is not pipelined, so its connection has no other request at work meanwhile.
//
// Other invariants
//   - scatter() returns or throws when all work has ended, whether or not some of it threw.  So the
//     items and what the work refers to need to live no longer than the coroutine that waits.
//   - Each shard's work has a cancellation token of its shard, which the client's end cancels.
//   - This shard's own work costs no hop, and no allocation but the frames of the two coroutines.
//
// A Fetch groups its partitions in the same way but goes from one shard to the next by itself: the
// bytes that one of them returns are taken off the limit of the next.  So do DescribeGroups and
// OffsetFetch, whose answers have one bound for all shards.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/container/small_vector.hpp>

#include "broker/context/cancel_on_close.h"
#include "broker/context/countdown.h"
#include "broker/shard.h"

namespace tarry::broker {

// The items of one shard, in the order of the request.
template <typename Item>
struct OnShard {
  Shard* shard;
  boost::container::small_vector<Item, 1> items;
};

// The items of a request.  Most requests are for one shard, and many for one partition.
template <typename Item>
class ByShard {
 public:
  void add(Shard& shard, Item item) {
    const auto found = std::ranges::find(groups_, &shard, &OnShard<Item>::shard);
    OnShard<Item>& there =
        found == groups_.end() ? groups_.emplace_back(OnShard<Item>{&shard, {}}) : *found;
    there.items.push_back(std::move(item));
  }

  // In the order in which the request names them first.
  auto begin() { return groups_.begin(); }
  auto end() { return groups_.end(); }
  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }

  // The shard that has all items; null when several have, or there are none.
  Shard* only_shard() const { return groups_.size() == 1 ? groups_.front().shard : nullptr; }

 private:
  boost::container::small_vector<OnShard<Item>, 1> groups_;
};

// The work of a request that other shards do, as the shard that waits for it knows it.
struct WorkElsewhere {
  Countdown ended;
  std::exception_ptr failed;
};

// Runs `work` on the thread of `there`; its end comes to that of `here`, which calls this.
void begin_elsewhere(Shard& here, Shard& there, boost::asio::awaitable<void>&& work,
                     const std::shared_ptr<WorkElsewhere>& elsewhere);

// Runs on the thread of `here`; `client` is a connection of that shard, or null when nobody's end
// cancels the work.  `work` outlives the call, because g++ 12 destroys a temporary callable twice
// (GCC bug 99576).
template <typename Item, typename Work>
boost::asio::awaitable<void> scatter(Shard& here, Connection* client, ByShard<Item>& items,
                                     const Work& work) {
  OnShard<Item>* own = nullptr;
  std::list<CancelOnClose> cancel_elsewhere;
  std::shared_ptr<WorkElsewhere> elsewhere;
  std::exception_ptr failed;
  for (OnShard<Item>& group : items) {
    if (group.shard == &here) {
      own = &group;
      continue;
    }
    try {
      if (!elsewhere) elsewhere = std::make_shared<WorkElsewhere>();
      const auto& cancel = cancel_elsewhere.emplace_back(client, here, *group.shard);
      begin_elsewhere(here, *group.shard, work(group, *cancel.token()), elsewhere);
    } catch (...) {
      failed = std::current_exception();
    }
  }
  if (own != nullptr) {
    try {
      const CancelOnClose cancel(client, here, here);
      co_await work(*own, *cancel.token());
    } catch (...) {
      failed = std::current_exception();
    }
  }
  // Work that has begun refers to the items, whatever became of the rest.
  if (elsewhere && !elsewhere->ended.all_ended()) {
    // Only the working coroutines own the event that we wait for: if the process ends first, our
    // coroutine is destroyed with the last of them instead of keeping itself alive.
    WorkElsewhere& waited_for = *std::exchange(elsewhere, nullptr);
    co_await waited_for.ended.wait();
    if (waited_for.failed) failed = waited_for.failed;
  } else if (elsewhere && elsewhere->failed) {
    failed = elsewhere->failed;
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace tarry::broker
