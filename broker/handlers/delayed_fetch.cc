#include "broker/handlers/delayed_fetch.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "broker/partitions/partition.h"
#include "broker/shard.h"

namespace tarry::broker {

DelayedFetch::Count::Count(OnShard<SeenPartition> there) : there_(std::move(there)) {}

bool DelayedFetch::Count::is_readable(std::size_t i) const {
  const auto& seen = there_.items[i];
  const auto* partition = there_.shard->partitions().find(seen.id);
  return partition != nullptr && !partition->retired() && !partition->fenced() &&
         partition->log_start() <= seen.from;
}

bool DelayedFetch::Count::all_readable() const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (!is_readable(i)) return false;
  }
  return true;
}

std::int64_t DelayedFetch::Count::take(std::size_t i) {
  auto& seen = there_.items[i];
  const auto* partition = there_.shard->partitions().find(seen.id);
  if (partition == nullptr) return 0;
  // Beyond its room a partition's bytes are left out of the answer, so they do not count.
  const std::int64_t grown = std::min(partition->visible_bytes() - seen.bytes, seen.room);
  seen.bytes = partition->visible_bytes();
  seen.room -= grown;
  return grown;
}

std::int64_t DelayedFetch::Count::take_all() {
  std::int64_t grown = 0;
  for (std::size_t i = 0; i < size(); ++i) grown += take(i);
  return grown;
}

purgatory::Threshold DelayedFetch::Count::threshold(std::size_t i, std::int64_t step) const {
  const auto& seen = there_.items[i];
  // Growth beyond its room brings the fetch nothing.
  return seen.room > 0 ? seen.bytes + std::min(step, seen.room) : purgatory::never_reached;
}

void DelayedFetch::Count::add_watching(std::int64_t step,
                                       std::vector<purgatory::Watching>& watching) const {
  for (std::size_t i = 0; i < size(); ++i) {
    // A partition that is gone has nothing to watch; then not all are readable, and nobody waits.
    if (auto* partition = there_.shard->partitions().find(there_.items[i].id))
      watching.push_back({partition->fetches, threshold(i, step)});
  }
}

// The part of a fetch that stands on another shard.  Made at home; used and let go over there.
class DelayedFetch::Away final : public purgatory::DelayedOperation {
 public:
  Away(OnShard<SeenPartition> there, Shard& home, std::shared_ptr<Address> address)
      : DelayedOperation(fetch_watch_kind),
        count_(std::move(there)),
        home_(home),
        address_(std::move(address)) {}

  Shard& shard() const { return count_.shard(); }

  void begin(std::int64_t step) {
    step_ = step;
    // Bytes that have come since the first look are reported at once.
    tell(count_.take_all());
    std::vector<purgatory::Watching> watching;
    count_.add_watching(step_, watching);
    // The home operation ends this one.
    start(shard().purgatory(), shard().tick(), purgatory::no_deadline, watching);
  }

  void set_step(std::int64_t step) {
    if (!waiting()) return;
    step_ = step;
    tell(count_.take_all());
    for (std::size_t i = 0; i < count_.size(); ++i) rewatch(i, count_.threshold(i, step_));
  }

 private:
  // Only what ends the whole fetch satisfies it.  For mere growth it reports to its home shard and
  // waits on.
  bool is_satisfied() override {
    const auto which = asked_for();
    if (!which) return !count_.all_readable();
    if (!count_.is_readable(*which)) return true;
    tell(count_.take(*which));
    rewatch(*which, count_.threshold(*which, step_));
    return false;
  }

  void on_complete(purgatory::Outcome) override {
    boost::asio::post(home_.executor(), [address = address_] {
      if (address->fetch != nullptr) address->fetch->wake();
    });
  }

  void tell(std::int64_t bytes) {
    if (bytes == 0) return;
    boost::asio::post(home_.executor(), [address = address_, bytes] {
      if (address->fetch != nullptr) address->fetch->grown(bytes);
    });
  }

  Count count_;
  Shard& home_;
  const std::shared_ptr<Address> address_;
  std::int64_t step_ = 0;
};

DelayedFetch::DelayedFetch(Shard& home, ByShard<SeenPartition>&& seen, std::int64_t missing)
    : DelayedOperation(fetch_kind), home_(home), own_({&home, {}}), missing_(missing) {
  std::int64_t room = 0;
  for (auto& there : seen) {
    partitions_ += there.items.size();
    for (const auto& each : there.items) room += each.room;
    if (there.shard == &home_) {
      own_ = Count(std::move(there));
    } else {
      if (!address_) address_ = std::make_shared<Address>(this);
      away_.push_back(std::make_shared<Away>(std::move(there), home_, address_));
    }
  }
  // More than the partitions may bring together is not waited for, or a client whose min.bytes is
  // larger than its limits would always wait to the end.
  missing_ = std::min(missing_, room);
}

DelayedFetch::~DelayedFetch() {
  withdraw();
  // Posts from other shards may still be under way to us.
  if (address_) address_->fetch = nullptr;
  for (auto& away : away_) {
    auto& executor = away->shard().executor();
    // The last reference goes there, where it may be waiting.
    boost::asio::post(executor, [away = std::move(away)]() mutable { away.reset(); });
  }
}

void DelayedFetch::begin(purgatory::Tick deadline) {
  missing_ -= own_.take_all();  // Since the first look.
  shorten_step();
  for (auto& away : away_) {
    boost::asio::post(away->shard().executor(), [away, step = step_] { away->begin(step); });
  }
  std::vector<purgatory::Watching> watching;
  own_.add_watching(step_, watching);
  if (!away_.empty()) watching.push_back({woken_list_, purgatory::never_reached});
  start(home_.purgatory(), home_.tick(), deadline, watching);
}

bool DelayedFetch::is_satisfied() {
  const auto which = asked_for();
  if (!which) return missing_ <= 0 || !own_.all_readable();
  const std::size_t i = *which;
  // The list behind the partitions is our own: another shard has reported something.
  if (i == own_.size()) return missing_ <= 0 || unreadable_;
  if (!own_.is_readable(i)) return true;
  missing_ -= own_.take(i);
  if (missing_ > 0 && step_is_too_long()) {
    shorten_step();
  } else {
    rewatch(i, own_.threshold(i, step_));
  }
  return missing_ <= 0;
}

bool DelayedFetch::step_is_too_long() const {
  // Each partition may hide up to a step less one; all of them together must not hide enough.
  return static_cast<std::int64_t>(partitions_) * (step_ - 1) >= missing_;
}

void DelayedFetch::shorten_step() {
  missing_ -= waiting() ? own_.take_all() : 0;
  const auto parts = static_cast<std::int64_t>(partitions_);
  step_ = parts == 1 ? missing_ : std::max<std::int64_t>(missing_ / (2 * parts), 1);
  if (!waiting()) return;
  for (std::size_t i = 0; i < own_.size(); ++i) rewatch(i, own_.threshold(i, step_));
  for (auto& away : away_) {
    boost::asio::post(away->shard().executor(), [away, step = step_] { away->set_step(step); });
  }
}

void DelayedFetch::grown(std::int64_t bytes) {
  missing_ -= bytes;
  if (missing_ > 0 && step_is_too_long()) shorten_step();
  if (missing_ <= 0) woken_list_.check_all();
}

void DelayedFetch::wake() {
  unreadable_ = true;
  woken_list_.check_all();
}

void DelayedFetch::on_complete(purgatory::Outcome) {
  answered_.fire();
}

}  // namespace tarry::broker
