#include "delay/horizon.h"

#include <cstdint>

#include "base/assert.h"

namespace tarry::delay {

using storage::Bucket;
using storage::bucket_of;
using storage::BucketLevel;

namespace {

// The horizon is not pulled back further.
constexpr std::chrono::milliseconds least_lead{1'000};
// The lead does not grow again before so much time has passed.
constexpr std::chrono::milliseconds lead_grows_after{30'000};

// False: none of its keys is in [from, until).  The sequence numbers count too: of a millisecond
// that comes piece by piece the pieces before are not looked at again.
bool may_have(const storage::Chunk& chunk, const storage::PendingKey& from,
              const storage::PendingKey& until) {
  return storage::PendingKey{chunk.earliest(), chunk.first()} < until &&
         !(storage::PendingKey{chunk.latest(), chunk.last()} < from);
}

}  // namespace

Horizon::Horizon(std::chrono::milliseconds lead, const PendingKey& at)
    : longest_lead_(lead), at_(at), lead_(lead), handing_from_(at) {}

void Horizon::lengthen_lead(WallTime now) {
  if (lead_ < longest_lead_ && now >= lead_from_) lead_ = std::min(lead_ * 2, longest_lead_);
}

std::optional<Horizon::PendingKey> Horizon::pull_back(WallTime now) {
  lead_ = std::max(lead_ / 2, least_lead);
  lead_from_ = now + lead_grows_after;
  const Bucket last = bucket_of(split_level(), now + lead_);
  const PendingKey to{last.end(), 0};
  if (!(to < at_)) return std::nullopt;
  return std::exchange(at_, to);
}

BucketLevel Horizon::split_level() const {
  return lead_ >= span_of(BucketLevel::minute) ? BucketLevel::minute : BucketLevel::second;
}

void Horizon::advance(const PendingKey& until, const Homes& homes) {
  TARRY_ASSERT(handing_.empty(), "one range is handed over at a time");
  TARRY_ASSERT(at_ < until, "the horizon moves ahead");
  handing_from_ = at_;
  handed_ = 0;
  at_ = until;
  const auto& all = homes.all();
  for (auto home = all.lower_bound(bucket_of(BucketLevel::hour, handing_from_.due));
       home != all.end() && home->first.level == BucketLevel::hour &&
       home->first.start <= until.due;
       ++home) {
    for (const auto& [bucket, shelf] : home->second.shelves) {
      if (bucket.end() <= handing_from_.due || bucket.start > until.due) continue;
      for (const auto& resident : shelf.residents)
        if (may_have(*resident->chunk, handing_from_, until))
          handing_.emplace_back(resident, resident->chunk->size());
    }
  }
}

std::size_t Horizon::hand_over(std::size_t budget, const DroppedTopics& dropped,
                               const std::function<void(const PendingView&, const Location&)>& near,
                               const std::function<void(Sequence)>& soon) {
  constexpr std::size_t ahead = 8;
  std::size_t handed = 0;
  while (budget > 0 && !handing_.empty()) {
    const auto& [resident, size] = handing_.front();
    // One that has left memory meanwhile has nothing but what was set aside.
    if (handed_ == size || !resident->on_shelf) {
      handing_.pop_front();
      handed_ = 0;
      continue;
    }
    const std::size_t index = handed_++;
    --budget;
    if (soon && index + ahead < size) soon(resident->chunk->key_at(index + ahead).sequence);
    if (!resident->live[index]) continue;
    const PendingView view = resident->chunk->at(index);
    if (view.key < handing_from_ || !(view.key < at_)) continue;
    if (dropped.contains(view.partition.topic)) continue;
    ++handed;
    near(view, {resident->number, static_cast<std::uint32_t>(index)});
  }
  return handed;
}

}  // namespace tarry::delay
