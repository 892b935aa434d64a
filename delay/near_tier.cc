#include "delay/near_tier.h"

#include <algorithm>
#include <chrono>
#include <limits>

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

// Sequence numbers come one after the other, and those next to each other are looked for one after
// the other: a cache line of them stays together, and a multiplication spreads the lines.
constexpr unsigned line_bits = 2;

}  // namespace

void NearEntry::on_expired() {
  state_ = State::queued;
  tier_->queued_->push_back(this);
}

NearTier::NearTier(WallTime now) : wheel_(tick_of(now)), index_(64) {}

// Entries are timers: they have to go before the wheel that points to them.
NearTier::~NearTier() {
  slabs_.clear();
}

NearEntry* NearTier::insert(const PendingKey& key, PartitionSlot partition,
                            const Location& location) {
  // A moved record may still be in its partition's queue under its former key.
  if (const NearEntry* const known = find(key.sequence);
      known != nullptr && known->state_ != NearEntry::State::abandoned)
    return nullptr;
  if (free_.empty()) {
    auto& slab = slabs_.emplace_back(slab_entries);
    free_.reserve(slabs_.size() * slab_entries);
    for (auto entry = slab.rbegin(); entry != slab.rend(); ++entry) free_.push_back(&*entry);
  }
  NearEntry* const entry = free_.back();
  free_.pop_back();
  entry->key_ = key;
  entry->partition_ = partition;
  entry->location_ = location;
  entry->tier_ = this;
  ++size_;
  index_insert(*entry);

  if (tick_of(key.due) <= wheel_.now()) {
    entry->state_ = NearEntry::State::queued;
  } else {
    entry->state_ = NearEntry::State::waiting;
    wheel_.schedule(*entry, tick_of(key.due));
  }
  return entry;
}

void NearTier::erase(NearEntry& entry) {
  TARRY_ASSERT(entry.state_ != NearEntry::State::unused, "an entry is erased once");
  entry.cancel();
  entry.state_ = NearEntry::State::unused;
  index_erase(entry);
  free_.push_back(&entry);
  if (--size_ == 0 && slabs_.size() > 64) {
    // The memory of a burst is given back when the burst is over.
    free_.clear();
    free_.shrink_to_fit();
    slabs_.clear();
    index_.assign(64, {});
    index_.shrink_to_fit();
    swept_ = 0;
  }
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
  return slabs_.size() * slab_entries * (sizeof(NearEntry) + sizeof(NearEntry*)) +
         index_.size() * sizeof(Indexed) + wheel_.stats().bytes;
}

std::size_t NearTier::home_of(Sequence sequence) const {
  const std::uint64_t line = ((sequence >> line_bits) * 0x9e3779b97f4a7c15u) >> 16;
  const std::uint64_t within = sequence & ((1u << line_bits) - 1);
  return static_cast<std::size_t>(line << line_bits | within) & (index_.size() - 1);
}

std::size_t NearTier::slot_for(Sequence sequence) const {
  const std::size_t mask = index_.size() - 1;
  std::size_t slot = home_of(sequence);
  while (index_[slot].entry != nullptr && index_[slot].sequence != sequence)
    slot = (slot + 1) & mask;
  return slot;
}

void NearTier::index_insert(NearEntry& entry) {
  if (size_ * 3 > index_.size() * 2) grow_index();
  index_[slot_for(entry.key_.sequence)] = {entry.key_.sequence, &entry};
}

void NearTier::grow_index() {
  std::vector<Indexed> old(index_.size() * 2);
  old.swap(index_);
  for (const Indexed& each : old) {
    if (each.entry != nullptr) index_[slot_for(each.sequence)] = each;
  }
}

// An entry that was pushed past the hole moves back into it, so that no search ends too early.
void NearTier::index_erase(const NearEntry& entry) {
  const std::size_t mask = index_.size() - 1;
  std::size_t hole = slot_for(entry.key_.sequence);
  if (index_[hole].entry != &entry) return;  // It is there under its new key.
  for (std::size_t at = (hole + 1) & mask; index_[at].entry != nullptr; at = (at + 1) & mask) {
    if (((at - home_of(index_[at].sequence)) & mask) >= ((at - hole) & mask)) {
      index_[hole] = index_[at];
      hole = at;
    }
  }
  index_[hole] = {};
}

}  // namespace tarry::delay
