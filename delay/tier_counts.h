#pragma once

// TierCounts: what the BucketTier of a shard adds to the counts of pending records that all shards
// share (storage::PendingCounts), and what its batches that are on their way add to them.
//
//   add() --> what they are about to get --tell()--> the topic's counter, the principal's account
//
// Invariant: what was added to an account is known by topic, so that a dropped topic's part is
// taken off again.
//
// Belongs to its BucketTier, on its thread; the counters are all shards'.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/ids.h"
#include "delay/intake_charge.h"
#include "storage/pending_counts.h"

namespace tarry::delay {

class TierCounts {
 public:
  using Account = storage::PendingCounts::Account;

  // `counts` may be null: nothing is counted.
  explicit TierCounts(storage::PendingCounts* counts) : counts_(counts) {}
  ~TierCounts() { *alive_ = false; }
  TierCounts(const TierCounts&) = delete;
  TierCounts& operator=(const TierCounts&) = delete;

  // A record more of the topic and the principal, or one less.
  void add(const TopicId& topic, const storage::PendingShare& share, int change);
  void tell();
  void topic_dropped(const TopicId& topic);

  std::int64_t pending_of(const TopicId& topic);
  Account account(PrincipalId principal) { return counts_->account(principal); }

  // The batches on their way to the tier.
  IntakeCharge::Sums coming(const TopicId& topic);
  std::int64_t coming_of(const TopicId& topic);
  std::size_t coming_bytes() const { return coming_bytes_; }

 private:
  using Counter = storage::PendingCounts::Counter;
  // The counters of records of a topic by a principal.
  struct Counted {
    Counter* topic;
    Account account;             // Null: the principal is unknown.
    storage::PendingUse use;     // This tier has added it to the account.
    storage::PendingUse untold;  // It is about to add this, to the topic's counter too.
  };
  Counted& counted(const TopicId& topic, PrincipalId principal);
  Counter& counter(const TopicId& topic);

  storage::PendingCounts* const counts_;
  std::map<TopicId, Counter*> counters_;
  std::pair<TopicId, Counter*> recent_counter_{};  // The last one of them: null at first.
  std::map<TopicId, Counter*> coming_;
  std::size_t coming_bytes_ = 0;  // Held by batches that are accepted and not applied.
  std::map<std::pair<TopicId, PrincipalId>, Counted> counted_;
  // The last one that was asked for, as most records are of the same; null: none.  No other has
  // anything untold.
  std::pair<const std::pair<TopicId, PrincipalId>, Counted>* last_counted_ = nullptr;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tarry::delay
