#pragma once

// PendingTerms and Reservation: who produces a batch, what its user may do, and how much it may
// have pending.
//
//   accept()   the batch is taken apart, its ids are taken   --> Reservation: what it adds less
//              what it takes away from the same user
//   apply()    what the tier counts from now on              --> leaves the Reservation
//
// A reservation is in the principal's account, beside what is pending durably.  So batches that are
// on their way on several shards cannot exceed a quota together; one that is not appended gives its
// room back when it goes.
//
// A batch that adds nothing on balance is always accepted: cancels, and replacements that are not
// larger.
//
// Belongs to an engine, on its thread; a Reservation may end on any thread.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/ids.h"
#include "storage/pending.h"
#include "storage/pending_counts.h"

namespace tarry::delay {

struct PendingTerms {
  PrincipalId principal = unknown_principal;
  std::optional<std::int64_t> max_records = std::nullopt;  // The quota pending_records,
  std::optional<std::int64_t> max_bytes = std::nullopt;    //   and pending_bytes.
  std::string_view user = {};  // For messages; lives until the batch is accepted or refused.
  // The principal's rights over pending records of the topic.
  bool may_schedule = true;  // Also replace.
  bool may_cancel = true;

  bool is_limited() const { return max_records || max_bytes; }
};

// The reasons of a refusal because of them.
inline constexpr std::string_view may_not_schedule = "may_not_schedule";
inline constexpr std::string_view may_not_cancel = "may_not_cancel";

class Reservation {
 public:
  using Account = storage::PendingCounts::Account;
  using Use = storage::PendingUse;

  Reservation() = default;
  Reservation(Account account, const Use& use) : account_(std::move(account)), held_(use) {
    account_->add(held_);
  }
  Reservation(Reservation&& other) noexcept
      : account_(std::exchange(other.account_, nullptr)), held_(other.held_) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(held_, other.held_);
    return *this;
  }
  ~Reservation() { end(); }

  void end() {
    if (account_) account_->take_off(held_);
    account_ = nullptr;
  }

  // The room for `use`, as the terms allow it; or none, and `there` is what there was.
  static Reservation take(const Account& account, const Use& use, const PendingTerms& terms,
                          Use& there) {
    // First: two that ask at the same time see each other, and at worst both have to try again.
    Reservation taken(
        account, {std::max<std::int64_t>(use.records, 0), std::max<std::int64_t>(use.bytes, 0)});
    there = account->use();
    there.add({-taken.held_.records, -taken.held_.bytes});
    if (is_above(there.records, use.records, terms.max_records) ||
        is_above(there.bytes, use.bytes, terms.max_bytes))
      return {};
    return taken;
  }
  static bool is_above(std::int64_t there, std::int64_t more,
                       const std::optional<std::int64_t>& limit) {
    return limit && more > 0 && there + more > *limit;
  }

  explicit operator bool() const { return account_ != nullptr; }

  // These are in the account as pending from now on: called after that.
  void is_counted(const Use& use) { change({-use.records, -use.bytes}); }
  // The batch takes it away, which makes room for what it adds; called before the tier forgets it,
  // so that nobody else gets that room.
  void is_taken_away(const storage::PendingShare& share) { change({1, share.bytes}); }

 private:
  void change(const Use& more) {
    if (!account_ || more == Use{}) return;
    account_->add(more);
    held_.add(more);
  }

  Account account_;  // Null: there is no reservation.
  Use held_;
};

}  // namespace tarry::delay
