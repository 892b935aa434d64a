#include "broker/context/ledger.h"

#include <algorithm>

#include "base/assert.h"

namespace tarry::broker {
namespace {

// How far a ledger may be from what the pool knows of it.
constexpr std::size_t publish_step = std::size_t{64} << 10;

constexpr std::size_t min_fair_part = std::size_t{1} << 20;

}  // namespace

Debtor::Debtor(Ledger& ledger) : pool_(ledger.pool_) {
  ledger.thread_.check();
  ledger.debtors_.push_back(*this);
  pool_.debtors_.fetch_add(1, std::memory_order_relaxed);
}

Debtor::~Debtor() {
  pool_.debtors_.fetch_sub(1, std::memory_order_relaxed);
}

Ledger::Ledger(ShardContext& shard, const OwnerThread& thread, MemoryPool& pool)
    : shard_(shard), thread_(thread), pool_(pool) {
  pool_.ledgers_.push_back(this);
}

Ledger::~Ledger() {
  std::erase(pool_.ledgers_, this);
}

std::size_t Ledger::room() const {
  thread_.check();
  const std::size_t for_work = pool_.for_work();
  const std::size_t used = pool_.used();
  return for_work - std::min(for_work, used);
}

bool Ledger::is_full() const {
  thread_.check();
  return pool_.used() > pool_.limit();
}

std::size_t Ledger::fair_part() const {
  // With little room left small work still goes on.
  return std::max(room() / 8, min_fair_part);
}

void Ledger::change(Debtor* debtor, std::size_t before, std::size_t now) {
  // Giving back is not checked: when a shard has ended, its coroutines are destroyed on another
  // thread.
  if (now > before) thread_.check();
  if (debtor != nullptr) debtor->debt_ += now - before;
  used_ += now - before;  // Modulo 2^64: both may be less.
  const std::size_t apart = used_ > published_ ? used_ - published_ : published_ - used_;
  if (apart >= publish_step) publish();
}

void Ledger::publish() {
  const std::size_t more = used_ - std::exchange(published_, used_);
  const std::size_t all = pool_.used_.fetch_add(more, std::memory_order_relaxed) + more;
  // The caller has its bytes already: room is made afterwards, or it would have to wait here.
  if (all > pool_.limit()) relieve_all(pool_.limit(), 0);
}

std::pair<Debtor*, std::size_t> Ledger::find_largest(std::size_t at_least) {
  // First by what each holds alone; if none holds enough, with the log's tail that it keeps alive.
  for (const bool with_views : {false, true}) {
    Debtor* largest = nullptr;
    std::size_t most = 0;
    for (Debtor& each : debtors_) {
      const std::size_t held = each.debt_ + (with_views ? each.viewed_bytes_ : 0);
      // One that is being closed gives its memory back anyway.
      if (each.foreclosed_ || held <= most) continue;
      largest = &each;
      most = held;
    }
    if (most >= at_least) return {largest, most};
  }
  return {nullptr, 0};
}

bool Charge::try_grow(std::size_t bytes) {
  if (ledger_ == nullptr) return true;
  if (bytes > ledger_->room()) return false;
  add(bytes);
  return true;
}

SharedViews::SharedViews(Ledger& ledger, std::vector<View> views)
    : ledger_(&ledger), views_(std::move(views)) {
  ledger.thread_.check();
  for (const View& view : views_) {
    auto& kept = ledger.views_[view.first];
    ++kept.holders;
    // Views that begin with the same byte share their memory, so only the longest is charged.
    if (view.bytes <= kept.bytes) continue;
    ledger.change(nullptr, std::exchange(kept.bytes, view.bytes), view.bytes);
  }
}

SharedViews::~SharedViews() {
  if (ledger_ == nullptr) return;
  for (const View& view : views_) {
    const auto found = ledger_->views_.find(view.first);
    TARRY_ASSERT(found != ledger_->views_.end(), "a view is known while it is held");
    if (--found->second.holders > 0) continue;
    ledger_->change(nullptr, found->second.bytes, 0);
    ledger_->views_.erase(found);
  }
}

}  // namespace tarry::broker
