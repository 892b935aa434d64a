#include "delay/far_tier.h"

#include <algorithm>

namespace tarry::delay {

Result<bool> FarTier::load(WallTime until, const Take& take) {
  const PendingKey end{until, 0};
  // Nothing of ours is in between.
  horizon_ = std::max(horizon_, std::min(end, first_.empty() ? searched_until_ : *first_.begin()));
  if (horizon_ >= end) return false;
  auto found = store_.window(horizon_, until, step_);
  if (!found) return std::unexpected(found.error());
  for (const auto& locator : found->locators) take(locator);
  horizon_ = found->next.value_or(end);
  first_.erase(first_.begin(), first_.lower_bound(horizon_));
  searched_until_ = std::max(searched_until_, horizon_);
  return found->next.has_value();
}

void FarTier::pull_back(const PendingKey& horizon) {
  horizon_ = std::min(horizon_, horizon);
  first_ = {horizon_};  // Or near it, which is as good: loading will tell.
  searched_until_ = behind(horizon_);
  // What was held back behind it is far like everything else.
  std::erase_if(held_, [this](const auto& held) { return held.second >= horizon_; });
}

void FarTier::parked(const PendingKey& key) {
  if (key >= searched_until_) return;  // The next look finds it.
  first_.insert(key);
  if (first_.size() <= step_) return;
  searched_until_ = *first_.rbegin();
  first_.erase(searched_until_);
}

void FarTier::look_again() {
  if (first_.empty()) return;
  searched_until_ = *first_.begin();
  first_.clear();
}

Result<> FarTier::search_first(const std::function<bool(const storage::PendingLocator&)>& ours) {
  if (first_far_known()) return {};
  auto found = store_.window(searched_until_, WallTime::max(), std::min(look_, step_));
  if (!found) return std::unexpected(found.error());
  for (const auto& locator : found->locators) {
    if (ours(locator)) first_.insert(locator.key);
  }
  searched_until_ = found->next.value_or(PendingKey{WallTime::max(), 0});
  look_ = first_.empty() ? std::min(2 * look_, step_) : first_look;
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
  for (const auto& locator : found->locators) {
    if (locator.key >= horizon_) break;
    held->second = behind(locator.key);
    take(locator);
  }
  if (found->next && *found->next <= horizon_) {
    held->second = *found->next;
  } else {
    held_.erase(held);
  }
  return {};
}

}  // namespace tarry::delay
