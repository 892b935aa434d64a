#include "delay/far_tier.h"

#include <algorithm>

namespace tarry::delay {

Result<bool> FarTier::load(WallTime until, const Take& take) {
  if (known_ && (!first_far_ || *first_far_ >= until)) {
    horizon_ = std::max(horizon_, PendingKey{until, 0});  // Nothing of ours is in between.
    return false;
  }
  auto found = store_.window(horizon_, until, step_);
  if (!found) return std::unexpected(found.error());
  for (const auto& locator : *found) take(locator);
  const bool more = found->size() == step_;
  horizon_ = more ? behind(found->back().key) : std::max(horizon_, PendingKey{until, 0});
  if (!known_ || !first_far_ || *first_far_ < horizon_.due) {
    known_ = false;
    first_far_.reset();
    scanned_ = horizon_;
  }
  return more;
}

void FarTier::pull_back(const PendingKey& horizon) {
  horizon_ = std::min(horizon_, horizon);
  known_ = true;
  first_far_ = horizon_.due;
  // What was held back behind it is far like everything else.
  std::erase_if(held_, [this](const auto& held) { return held.second >= horizon_; });
}

void FarTier::parked(const PendingKey& key) {
  if (known_) first_far_ = first_far_ ? std::min(*first_far_, key.due) : key.due;
  // Else the scan, or the next one, finds it - unless it has passed there already.
  if (!known_ && key < scanned_) {
    known_ = true;
    first_far_ = key.due;
  }
}

void FarTier::left(const PendingKey& key) {
  if (!known_ || !first_far_ || key < horizon_ || key.due > *first_far_) return;
  known_ = false;  // Another one is the first now, or none: no alarm may wait for this one.
  first_far_.reset();
  scanned_ = horizon_;
}

void FarTier::look_again() {
  known_ = false;
  first_far_.reset();
  scanned_ = horizon_;
}

Result<> FarTier::look_ahead(const std::function<bool(const storage::PendingLocator&)>& ours) {
  if (known_) return {};
  scanned_ = std::max(scanned_, horizon_);
  auto found = store_.window(scanned_, WallTime::max(), step_);
  if (!found) return std::unexpected(found.error());
  for (const auto& locator : *found) {
    if (!ours(locator)) continue;
    known_ = true;
    first_far_ = locator.key.due;
    return {};
  }
  if (found->size() < step_) {
    known_ = true;
    first_far_.reset();
  } else {
    scanned_ = behind(found->back().key);
  }
  return {};
}

void FarTier::hold_back(PartitionSlot partition, const PendingKey& from) {
  const auto [held, is_new] = held_.try_emplace(partition, from);
  if (!is_new) held->second = std::min(held->second, from);
}

std::optional<PendingKey> FarTier::held_from(PartitionSlot partition) const {
  const auto held = held_.find(partition);
  if (held == held_.end()) return std::nullopt;
  return held->second;
}

Result<> FarTier::refill(PartitionSlot partition, const Take& take) {
  const auto held = held_.find(partition);
  if (held == held_.end()) return {};
  if (held->second >= horizon_) {
    held_.erase(held);
    return {};
  }
  auto found = store_.window(held->second, horizon_.due + std::chrono::milliseconds{1}, step_);
  if (!found) return std::unexpected(found.error());
  bool ended = found->size() < step_;
  for (const auto& locator : *found) {
    if (locator.key >= horizon_) {
      ended = true;
      break;
    }
    held->second = behind(locator.key);
    take(locator);
  }
  if (ended) held_.erase(held);
  return {};
}

}  // namespace tarry::delay
