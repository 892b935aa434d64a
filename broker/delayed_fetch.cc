#include "broker/delayed_fetch.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "broker/partition.h"
#include "broker/shard.h"

namespace tarry::broker {
namespace {

void add_watching(Shard& shard, const std::vector<SeenPartition>& partitions,
                  std::vector<purgatory::Watching>& watching) {
  for (const auto& seen : partitions) {
    if (auto* partition = shard.open_partition(seen.id)) {
      watching.push_back({partition->fetches, seen.high_watermark + 1});
    }
  }
}

bool any_moved(Shard& shard, const std::vector<SeenPartition>& partitions) {
  for (const auto& seen : partitions) {
    if (has_moved(shard, seen)) return true;
  }
  return false;
}

}  // namespace

bool has_moved(Shard& shard, const SeenPartition& seen) {
  const auto* partition = shard.open_partition(seen.id);
  return partition == nullptr || partition->retired() || partition->fenced() ||
         partition->high_watermark() > seen.high_watermark;
}

// The part of a fetch that stands on another shard.  Made at home, used and let go over there.
class DelayedFetch::Watch final : public purgatory::DelayedOperation {
 public:
  Watch(const OnShard& there, Shard& home, std::shared_ptr<Address> address)
      : DelayedOperation(purgatory::Kind::fetch_watch),
        there_(there),
        home_(home),
        address_(std::move(address)) {}

  void begin() {
    std::vector<purgatory::Watching> watching;
    add_watching(*there_.shard, there_.partitions, watching);
    // The deadline is the home operation's; this one is withdrawn when that has ended.
    start(there_.shard->purgatory(), there_.shard->tick(),
          std::numeric_limits<purgatory::Tick>::max(), watching);
  }

 private:
  bool is_satisfied() override { return any_moved(*there_.shard, there_.partitions); }
  void on_complete(purgatory::Outcome) override {
    boost::asio::post(home_.executor(), [address = address_] {
      if (address->fetch != nullptr) address->fetch->wake();
    });
  }

  const OnShard there_;
  Shard& home_;
  const std::shared_ptr<Address> address_;
};

DelayedFetch::DelayedFetch(Shard& home, std::vector<OnShard> seen)
    : DelayedOperation(purgatory::Kind::fetch),
      home_(home),
      seen_(std::move(seen)),
      address_(std::make_shared<Address>(this)) {}

DelayedFetch::~DelayedFetch() {
  withdraw();
  address_->fetch = nullptr;
  for (std::size_t i = 0, next = 0; i < seen_.size() && next < watches_.size(); ++i) {
    if (seen_[i].shard == &home_) continue;
    // The last reference goes there, where it may be waiting.
    boost::asio::post(seen_[i].shard->executor(),
                      [watch = std::move(watches_[next++])]() mutable { watch.reset(); });
  }
}

boost::asio::awaitable<purgatory::Outcome> DelayedFetch::wait(purgatory::Tick deadline) {
  std::vector<purgatory::Watching> watching{{woken_list_, purgatory::never_reached}};
  for (const auto& there : seen_) {
    if (there.shard == &home_) {
      add_watching(home_, there.partitions, watching);
      continue;
    }
    auto watch = std::make_shared<Watch>(there, home_, address_);
    watches_.push_back(watch);
    boost::asio::post(there.shard->executor(), [watch] { watch->begin(); });
  }
  start(home_.purgatory(), home_.tick(), deadline, watching);
  co_await answered_.wait();
  co_return *outcome();
}

bool DelayedFetch::is_satisfied() {
  if (woken_) return true;
  for (const auto& there : seen_) {
    if (there.shard == &home_ && any_moved(home_, there.partitions)) return true;
  }
  return false;
}

void DelayedFetch::wake() {
  woken_ = true;
  woken_list_.check_all();
}

void DelayedFetch::on_complete(purgatory::Outcome) {
  answered_.fire();
}

}  // namespace tarry::broker
