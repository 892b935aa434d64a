#pragma once

// PendingCounts: how many records of each topic are pending, and how many records and bytes of each
// principal, over all shards.
//
//   start   totals of the store, once the journals are replayed   set()
//   then    each shard adds and subtracts what becomes durable     counter(), account()
//           and what it has accepted until then                    coming()
//
// A shard asks for a counter once and keeps it; so nobody waits for anybody else while
// records come and go.  Never written to the disk: the store has counts of its own (BucketStore).
//
// A topic's counter goes with its topic.  An account is of a principal's records of all topics, so
// what a dropped topic added to it has to be taken off again: forget() does that for what there was
// at the start, and each shard for what it has added since.  An account also has what is accepted
// and not durable yet, where a quota asks for it (delay/pending_quota.h).
//
// Any thread.  A counter lives as long as this; an account as long as anybody has it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/ids.h"
#include "storage/bucket_change.h"
#include "storage/pending.h"

namespace tarry::storage {

// The pending records of one principal, and their bytes.  Nothing but its sums depends on it, so
// shards add to it in any order.
class PendingAccount {
 public:
  void add(const PendingUse& use) {
    records_.fetch_add(use.records);
    bytes_.fetch_add(use.bytes);
  }
  void take_off(const PendingUse& use) { add({-use.records, -use.bytes}); }
  PendingUse use() const { return {records_.load(), bytes_.load()}; }

 private:
  static constexpr std::size_t cache_line = 64;
  // Shards add for every record: accounts of two principals do not share a line.
  alignas(cache_line) std::atomic<std::int64_t> records_{0};
  std::atomic<std::int64_t> bytes_{0};
};

class PendingCounts {
 public:
  using Counter = std::atomic<std::int64_t>;
  using Account = std::shared_ptr<PendingAccount>;

  Counter& counter(const TopicId& topic) {
    const std::lock_guard lock(mutex_);
    return *of(counters_, topic);
  }
  // Records that are accepted and not pending yet.
  Counter& coming(const TopicId& topic) {
    const std::lock_guard lock(mutex_);
    return *of(coming_, topic);
  }
  Account account(PrincipalId principal) {
    const std::lock_guard lock(mutex_);
    return account_of(principal);
  }
  void set(const TopicId& topic, std::uint64_t count) {
    const std::lock_guard lock(mutex_);
    of(counters_, topic)->store(static_cast<std::int64_t>(count));
  }
  // Once, before anything is added.
  void set(PendingUses uses) {
    const std::lock_guard lock(mutex_);
    at_start_ = std::move(uses);
    for (const auto& [of, use] : at_start_) account_of(of.second)->add(use);
  }
  // Its topic is dropped: what is still told of it counts no more.
  void forget(const TopicId& topic) {
    const std::lock_guard lock(mutex_);
    counters_.erase(topic);
    coming_.erase(topic);
    const auto first = at_start_.lower_bound({topic, 0});
    auto end = first;
    for (; end != at_start_.end() && end->first.first == topic; ++end)
      account_of(end->first.second)->take_off(end->second);
    at_start_.erase(first, end);
  }

  std::uint64_t pending_of(const TopicId& topic) const {
    const std::lock_guard lock(mutex_);
    const auto known = counters_.find(topic);
    return known == counters_.end() ? 0 : count(*known->second);
  }
  std::uint64_t total() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [topic, counter] : counters_) sum += count(*counter);
    return sum;
  }
  // The use of each principal that has, or had at some time since the start, records pending.
  std::map<PrincipalId, PendingUse> uses() const {
    const std::lock_guard lock(mutex_);
    std::map<PrincipalId, PendingUse> out;
    for (const auto& [principal, account] : accounts_) out.emplace(principal, account->use());
    return out;
  }

 private:
  static std::uint64_t count(const Counter& counter) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, counter.load()));
  }
  using Counters = std::map<TopicId, Counter*>;
  Counter* of(Counters& counters, const TopicId& topic) {
    auto& known = counters[topic];
    if (known == nullptr) known = &all_.emplace_back(0);
    return known;
  }
  const Account& account_of(PrincipalId principal) {
    auto& known = accounts_[principal];
    if (known == nullptr) known = std::make_shared<PendingAccount>();
    return known;
  }

  mutable std::mutex mutex_;
  std::deque<Counter> all_;  // Counters of dropped topics are here too: some shard may know them.
  Counters counters_;
  Counters coming_;
  std::map<PrincipalId, Account> accounts_;
  PendingUses at_start_;  // Less what is forgotten.
};

}  // namespace tarry::storage
