#include "delay/near_tier.h"

#include <algorithm>
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

// Sequence numbers come one after the other; a multiplication spreads them over the table.
std::size_t hash_of(Sequence sequence) {
  return static_cast<std::size_t>((sequence * 0x9e3779b97f4a7c15u) >> 16);
}

}  // namespace

void NearEntry::on_expired() {
  tier_->expired(*this);
}

NearTier::NearTier(WallTime now) : wheel_(tick_of(now)), index_(64, nullptr) {}

// Entries are timers: they have to go before the wheel that points to them.
NearTier::~NearTier() {
  early_.clear();
  slabs_.clear();
}

NearEntry* NearTier::insert(const PendingKey& key, PartitionSlot partition, WallTime now) {
  // What was moved may still be in its partition's queue under its former key.
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
  entry->tier_ = this;
  ++size_;
  index_insert(entry);

  if (key.due <= now) {
    entry->state_ = NearEntry::State::ready;
  } else if (tick_of(key.due) <= wheel_.now()) {
    set_early(*entry);
  } else {
    entry->state_ = NearEntry::State::waiting;
    wheel_.schedule(*entry, tick_of(key.due));
  }
  return entry;
}

void NearTier::set_early(NearEntry& entry) {
  entry.state_ = NearEntry::State::early;
  early_.insert(&entry);
}

NearEntry* NearTier::find(Sequence sequence) const {
  return index_[slot_for(sequence)];
}

void NearTier::erase(NearEntry& entry) {
  TARRY_ASSERT(entry.state_ != NearEntry::State::unused, "an entry is erased once");
  if (entry.state_ == NearEntry::State::early) early_.erase(&entry);
  entry.cancel();
  entry.state_ = NearEntry::State::unused;
  index_erase(entry);
  free_.push_back(&entry);
  if (--size_ == 0 && slabs_.size() > 64) {
    // What a burst took is given back when it has gone.
    free_.clear();
    free_.shrink_to_fit();
    slabs_.clear();
    index_.assign(64, nullptr);
    index_.shrink_to_fit();
    swept_ = 0;
  }
}

void NearTier::expired(NearEntry& entry) {
  if (entry.key_.due <= advancing_to_) {
    entry.state_ = NearEntry::State::ready;
    ready_->push_back(&entry);
  } else {
    set_early(entry);
  }
}

bool NearTier::advance(WallTime now, std::size_t budget, std::vector<NearEntry*>& ready) {
  advancing_to_ = now;
  ready_ = &ready;
  const auto progress = wheel_.advance(tick_of(now), budget);
  ready_ = nullptr;
  std::size_t left = budget - std::min(budget, progress.fired);
  while (!early_.empty() && (*early_.begin())->key_.due <= now) {
    if (left-- == 0) return behind_ = true;
    NearEntry* const entry = *early_.begin();
    early_.erase(early_.begin());
    entry->state_ = NearEntry::State::ready;
    ready.push_back(entry);
  }
  return behind_ = progress.more;
}

std::optional<WallTime> NearTier::next_work() const {
  std::optional<WallTime> next;
  if (const auto tick = wheel_.next_due()) next = time_of(*tick);
  if (!early_.empty()) {
    const WallTime due = (*early_.begin())->key_.due;
    next = next ? std::min(*next, due) : due;
  }
  return next;
}

bool NearTier::visit(std::size_t& cursor, std::size_t limit,
                     const std::function<void(const NearEntry&)>& seen) const {
  const std::size_t end = slabs_.size() * slab_entries;
  for (; limit != 0 && cursor < end; --limit, ++cursor) {
    const NearEntry& entry = slabs_[cursor / slab_entries][cursor % slab_entries];
    if (entry.state_ == NearEntry::State::waiting || entry.state_ == NearEntry::State::early)
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
    const bool waits =
        entry.state_ == NearEntry::State::waiting || entry.state_ == NearEntry::State::early;
    if (waits && unwanted(entry)) erase(entry);
  }
  return false;
}

std::size_t NearTier::bytes() const {
  return slabs_.size() * slab_entries * (sizeof(NearEntry) + sizeof(NearEntry*)) +
         index_.size() * sizeof(NearEntry*) + wheel_.stats().bytes + early_.size() * 48;
}

std::size_t NearTier::slot_for(Sequence sequence) const {
  const std::size_t mask = index_.size() - 1;
  std::size_t slot = hash_of(sequence) & mask;
  while (index_[slot] != nullptr && index_[slot]->key_.sequence != sequence)
    slot = (slot + 1) & mask;
  return slot;
}

void NearTier::index_insert(NearEntry* entry) {
  if (size_ * 4 > index_.size() * 3) grow_index();
  index_[slot_for(entry->key_.sequence)] = entry;
}

void NearTier::grow_index() {
  std::vector<NearEntry*> old(index_.size() * 2, nullptr);
  old.swap(index_);
  for (NearEntry* entry : old) {
    if (entry != nullptr) index_[slot_for(entry->key_.sequence)] = entry;
  }
}

// What was pushed on past the hole moves back into it, so that no search ends too soon.
void NearTier::index_erase(const NearEntry& entry) {
  const std::size_t mask = index_.size() - 1;
  std::size_t hole = slot_for(entry.key_.sequence);
  if (index_[hole] != &entry) return;  // It is there under its new key.
  for (std::size_t at = (hole + 1) & mask; index_[at] != nullptr; at = (at + 1) & mask) {
    const std::size_t home = hash_of(index_[at]->key_.sequence) & mask;
    if (((at - home) & mask) >= ((at - hole) & mask)) {
      index_[hole] = index_[at];
      hole = at;
    }
  }
  index_[hole] = nullptr;
}

}  // namespace tarry::delay
