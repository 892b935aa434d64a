#include "delay/tier_counts.h"

#include <atomic>

namespace tarry::delay {

void TierCounts::add(const TopicId& topic, const storage::PendingShare& share, int change) {
  if (counts_ == nullptr) return;
  counted(topic, share.principal).untold.add({change, change * std::int64_t{share.bytes}});
}

// All shards share a counter and an account, so they are told once for each run of records of one
// topic by the same principal.
void TierCounts::tell() {
  if (last_counted_ == nullptr) return;
  Counted& of = last_counted_->second;
  if (of.untold == storage::PendingUse{}) return;
  // Nothing else follows from its value.
  of.topic->fetch_add(of.untold.records, std::memory_order_relaxed);
  if (of.account != nullptr) {
    of.account->add(of.untold);
    of.use.add(of.untold);
  }
  of.untold = {};
}

TierCounts::Counted& TierCounts::counted(const TopicId& topic, PrincipalId principal) {
  const std::pair of(topic, principal);
  if (last_counted_ != nullptr && last_counted_->first == of) return last_counted_->second;
  tell();
  auto at = counted_.find(of);
  if (at == counted_.end()) {
    Counted made{&counter(topic), nullptr, {}, {}};
    if (principal != unknown_principal) made.account = counts_->account(principal);
    at = counted_.emplace(of, std::move(made)).first;
  }
  last_counted_ = &*at;
  return at->second;
}

TierCounts::Counter& TierCounts::counter(const TopicId& topic) {
  auto& [last, last_counter] = recent_counter_;
  if (last_counter != nullptr && last == topic) return *last_counter;
  auto& known = counters_[topic];
  if (known == nullptr) known = &counts_->counter(topic);
  recent_counter_ = {topic, known};
  return *known;
}

void TierCounts::topic_dropped(const TopicId& topic) {
  counters_.erase(topic);
  coming_.erase(topic);
  recent_counter_ = {};
  tell();
  last_counted_ = nullptr;
  for (auto of = counted_.lower_bound({topic, 0}); of != counted_.end() && of->first.first == topic;
       of = counted_.erase(of)) {
    // The records are not removed one by one, so nothing else takes them off.
    if (of->second.account != nullptr) of->second.account->take_off(of->second.use);
  }
}

std::int64_t TierCounts::pending_of(const TopicId& topic) {
  return counts_ == nullptr ? 0 : counter(topic).load(std::memory_order_relaxed);
}

IntakeCharge::Sums TierCounts::coming(const TopicId& topic) {
  if (counts_ == nullptr) return {&coming_bytes_, nullptr, alive_};
  auto& known = coming_[topic];
  if (known == nullptr) known = &counts_->coming(topic);
  return {&coming_bytes_, known, alive_};
}

std::int64_t TierCounts::coming_of(const TopicId& topic) {
  const auto known = coming(topic).records;
  return known == nullptr ? 0 : known->load(std::memory_order_relaxed);
}

}  // namespace tarry::delay
