#pragma once

// DelayedFetch: a Fetch request that has not found enough yet.
//
//   satisfied   the high watermark of one of its partitions has moved past what was seen there, or
//               one of them is gone or out of service.  Who waits reads again and, when it is
//               still too little, waits again with what is left of its time
//   expired     max_wait_ms has passed: answered with what there is
//   cancelled   the client has gone, or the broker stops
//
// Its partitions may stand on several shards.  The operation waits on the connection's own; each
// other shard has a FetchWatch on the partitions there, which posts home when one of them moves:
//
//   home shard    DelayedFetch  <----- post: wake() ------  FetchWatch    other shard
//                      '------------- post: stop() -------------^
//
// Lives in the coroutine that waits.

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "broker/wakeup.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class Shard;
class Connection;

// A partition, and the high watermark that was seen there.
struct SeenPartition {
  TopicPartition id;
  Offset high_watermark = 0;
};

// Whether `partition` has changed since; on its shard.
bool has_moved(Shard& shard, const SeenPartition& partition);

class DelayedFetch final : public purgatory::DelayedOperation {
 public:
  // The partitions of one shard.
  struct OnShard {
    Shard* shard;
    std::vector<SeenPartition> partitions;
  };

  DelayedFetch(Shard& home, std::vector<OnShard> seen);
  ~DelayedFetch() override;

  boost::asio::awaitable<purgatory::Outcome> wait(purgatory::Tick deadline);

 private:
  // What other shards know of us; `fetch` is looked at on the home shard alone.
  struct Address {
    DelayedFetch* fetch;
  };
  class Watch;

  bool is_satisfied() override;
  void on_complete(purgatory::Outcome outcome) override;
  void wake();

  Shard& home_;
  const std::vector<OnShard> seen_;
  std::shared_ptr<Address> address_;
  std::vector<std::shared_ptr<Watch>> watches_;  // One for each other shard.
  purgatory::WatchList woken_list_;              // Ourselves alone: how a post reaches us.
  bool woken_ = false;
  Wakeup answered_;
};

}  // namespace tarry::broker
