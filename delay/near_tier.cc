#include "delay/near_tier.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <utility>

#include "base/assert.h"

namespace tarry::delay {
namespace {

// The wheel's ticks are unsigned; nothing waits for a time before 1970.
timing::Tick tick_of(WallTime time) {
  return static_cast<timing::Tick>(std::max<std::int64_t>(0, to_ms(time)));
}

WallTime time_of(timing::Tick tick) {
  constexpr auto latest = static_cast<timing::Tick>(std::numeric_limits<std::int64_t>::max());
  return from_ms(static_cast<std::int64_t>(std::min(tick, latest)));
}

}  // namespace

void NearEntry::on_expired() {
  state_ = State::queued;
  tier_->queued_->push_back(this);
}

NearTier::NearTier(WallTime now) : wheel_(tick_of(now)) {}

// Entries are timers: they have to go before the wheel that points to them.
NearTier::~NearTier() {
  slabs_.clear();
}

NearEntry* NearTier::insert(const PendingKey& key, PartitionSlot partition,
                            const Location& location) {
  // A moved record may still be in its partition's queue under its former key.
  if (NearEntry* const known = find(key.sequence);
      known != nullptr && known->state_ != NearEntry::State::abandoned) {
    if (known->key_ == key && location.chunk != Location::unknown) known->location_ = location;
    return nullptr;
  }
  if (free_ == nullptr) add_slab();
  NearEntry* const entry = free_;
  index_.insert(key.sequence, entry);  // First, because there may be no memory for it.
  free_ = entry->next_free_;
  entry->key_ = key;
  entry->partition_ = partition;
  entry->location_ = location;
  entry->tier_ = this;
  ++size_;

  if (tick_of(key.due) <= wheel_.now()) {
    entry->state_ = NearEntry::State::queued;
  } else {
    entry->state_ = NearEntry::State::waiting;
    wheel_.schedule(*entry, tick_of(key.due));
  }
  return entry;
}

void NearTier::add_slab() {
  Slab& slab = slabs_.emplace_back(slab_entries);
  for (auto entry = slab.rbegin(); entry != slab.rend(); ++entry)
    entry->next_free_ = std::exchange(free_, &*entry);
}

void NearTier::erase(NearEntry& entry) {
  TARRY_ASSERT(entry.state_ != NearEntry::State::unused, "an entry is erased once");
  entry.cancel();
  entry.state_ = NearEntry::State::unused;
  index_.erase(entry.key_.sequence, &entry);  // Not if the number is there under its new key.
  entry.next_free_ = std::exchange(free_, &entry);
  if (--size_ == 0 && slabs_.size() > slabs_kept) end_burst();
}

// Nothing is freed here, however much there is.
void NearTier::end_burst() {
  free_ = nullptr;
  swept_ = 0;
  std::ranges::move(slabs_, std::back_inserter(ended_slabs_));
  slabs_.clear();
  std::ranges::move(index_.take_all(), std::back_inserter(ended_segments_));
}

bool NearTier::free_ended(std::size_t pieces) {
  for (; pieces != 0 && has_ended(); --pieces) {
    if (!ended_slabs_.empty())
      ended_slabs_.pop_back();
    else
      ended_segments_.pop_back();
  }
  return has_ended();
}

// One bucket of the wheel after the other: so all that is due before the bucket in work is known to
// be out, however much is in it.
bool NearTier::advance(WallTime until, std::size_t budget, std::vector<NearEntry*>& queued) {
  const timing::Tick end = std::max(tick_of(until), wheel_.now());
  queued_ = &queued;
  const std::size_t before = queued.size();
  do {
    const auto next = wheel_.next_due();
    const timing::Tick to = next ? std::clamp(*next, wheel_.now(), end) : end;
    const std::size_t done = queued.size() - before;
    behind_ = wheel_.advance(to, budget - std::min(done, budget)).more;
    // It may have moved a bucket of a higher level down, which is a step's work.
    if (to % 256 == 0) break;
  } while (!behind_ && wheel_.now() < end);
  queued_ = nullptr;
  return behind_ || wheel_.now() < end;
}

WallTime NearTier::complete_before() const {
  return time_of(wheel_.now()) + std::chrono::milliseconds{behind_ ? 0 : 1};
}

std::optional<WallTime> NearTier::next_due() const {
  const auto tick = wheel_.next_due();
  if (!tick) return std::nullopt;
  return time_of(*tick);
}

bool NearTier::visit(std::size_t& cursor, std::size_t limit,
                     const std::function<void(const NearEntry&)>& seen) const {
  const std::size_t end = slabs_.size() * slab_entries;
  for (; limit != 0 && cursor < end; --limit, ++cursor) {
    const NearEntry& entry = slabs_[cursor / slab_entries][cursor % slab_entries];
    if (entry.state_ == NearEntry::State::waiting || entry.state_ == NearEntry::State::queued)
      seen(entry);
  }
  return cursor < end;
}

bool NearTier::sweep(std::size_t limit, const std::function<bool(const NearEntry&)>& unwanted) {
  for (; limit != 0; --limit) {
    if (swept_ >= slabs_.size() * slab_entries) {
      swept_ = 0;
      return true;
    }
    NearEntry& entry = slabs_[swept_ / slab_entries][swept_ % slab_entries];
    ++swept_;
    if (entry.state_ == NearEntry::State::waiting && unwanted(entry)) erase(entry);
  }
  return false;
}

std::size_t NearTier::bytes() const {
  return (slabs_.size() + ended_slabs_.size()) * slab_entries * sizeof(NearEntry) + index_.bytes() +
         ended_segments_.size() * NearIndex::segment_bytes + wheel_.stats().bytes;
}

}  // namespace tarry::delay
