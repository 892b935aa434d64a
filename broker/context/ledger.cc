#include "broker/context/ledger.h"

#include <algorithm>
#include <chrono>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "broker/context/one_shot_event.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {
namespace {

using std::chrono::milliseconds;

// How far a ledger may be from what the pool knows of it.
constexpr std::size_t publish_step = std::size_t{64} << 10;

// What work waits for is given back by others at any time: looking is cheap.
constexpr milliseconds look_again_for_memory{10};
// Others may end by themselves before somebody is closed.
constexpr milliseconds relief_after{300};
constexpr milliseconds refused_after{1000};
// What a closed connection held is not given back before its handlers have ended.
constexpr milliseconds between_reliefs{100};

// Who holds less is not worth closing.
constexpr std::size_t min_foreclosed = std::size_t{256} << 10;
constexpr std::size_t min_fair_part = std::size_t{1} << 20;

}  // namespace

Debtor::Debtor(Ledger& ledger) {
  ledger.debtors_.push_back(*this);
}

Ledger::Ledger(ShardContext& shard, MemoryPool& pool) : shard_(shard), pool_(pool) {
  pool_.ledgers_.push_back(this);
}

Ledger::~Ledger() {
  std::erase(pool_.ledgers_, this);
}

std::size_t Ledger::room() const {
  const std::size_t for_work = pool_.limit() - pool_.limit() / 8;
  const std::size_t used = pool_.used();
  return for_work - std::min(for_work, used);
}

std::size_t Ledger::fair_part() const {
  return std::max(room() / 8, min_fair_part);
}

void Ledger::change(Debtor* debtor, std::size_t before, std::size_t now) {
  if (debtor != nullptr) debtor->debt_ += now - before;
  used_ += now - before;  // Modulo 2^64: both may be less.
  const std::size_t apart = used_ > published_ ? used_ - published_ : published_ - used_;
  if (apart >= publish_step) publish();
}

void Ledger::publish() {
  const std::size_t more = used_ - std::exchange(published_, used_);
  const std::size_t all = pool_.used_.fetch_add(more, std::memory_order_relaxed) + more;
  if (all > pool_.limit()) relieve_all(pool_.limit(), min_foreclosed);
}

// In a turn of its own, also here: a session is not closed while it counts what it holds.
void Ledger::relieve_all(std::size_t goal, std::size_t at_least) {
  if (std::exchange(relieving_, true)) return;
  for (Ledger* const each : pool_.ledgers_) {
    boost::asio::post(each->shard_.executor(), [this, each, goal, at_least] {
      if (each == this) relieving_ = false;
      each->relieve(goal, at_least);
    });
  }
}

std::pair<Debtor*, std::size_t> Ledger::find_largest(std::size_t at_least) {
  for (const bool with_views : {false, true}) {
    Debtor* largest = nullptr;
    std::size_t most = 0;
    for (Debtor& each : debtors_) {
      const std::size_t held = each.debt_ + (with_views ? each.viewed_bytes_ : 0);
      if (each.foreclosed_ || held <= most) continue;
      largest = &each;
      most = held;
    }
    if (most >= at_least) return {largest, most};
  }
  return {nullptr, 0};
}

void Ledger::relieve(std::size_t goal, std::size_t at_least) {
  const auto now = shard_.tick();
  if (relieved_ != 0 && now < relieved_ + static_cast<timing::Tick>(between_reliefs.count()) &&
      pool_.used() <= pool_.limit())
    return;
  const std::size_t used = pool_.used();
  std::size_t over = used > goal ? used - goal : 0;
  // If the pool is full, some shard holds more than its part.
  while (over > 0 && used_ > goal / pool_.ledgers_.size()) {
    const auto [largest, freed] = find_largest(at_least);
    if (largest == nullptr) return;
    relieved_ = now;
    largest->foreclosed_ = true;
    largest->foreclose(
        fmt::format("clients hold {} bytes of memory; the limit is {} (tarry.memory.bytes), and "
                    "this connection holds the most, {}",
                    used, pool_.limit(), freed));
    over -= std::min(over, freed);
  }
}

bool Charge::try_grow(std::size_t bytes) {
  if (ledger_ == nullptr) return true;
  if (bytes > ledger_->room()) return false;
  add(bytes);
  return true;
}

boost::asio::awaitable<bool> Charge::grow(std::size_t bytes) {
  if (try_grow(bytes)) co_return true;
  ShardContext& shard = ledger_->shard_;
  const auto begun = shard.tick();
  bool asked = false;
  for (auto now = begun; !shard.stopping() && now < begun + refused_after.count();
       now = shard.tick()) {
    if (!asked && now >= begun + relief_after.count()) {
      asked = true;
      const std::size_t for_work = ledger_->pool_.limit() - ledger_->pool_.limit() / 8;
      // A request that wants more than anybody holds ends nobody.
      ledger_->relieve_all(for_work - std::min(for_work, bytes), std::max(bytes, min_foreclosed));
    }
    OneShotEvent again;
    timing::CallbackTimer timer([&again] { again.fire(); });
    shard.wheel().schedule(timer, shard.tick_after(look_again_for_memory));
    co_await again.wait();
    if (try_grow(bytes)) co_return true;
  }
  co_return false;
}

SharedViews::SharedViews(Ledger& ledger, std::vector<View> views)
    : ledger_(&ledger), views_(std::move(views)) {
  for (const View& view : views_) {
    auto& kept = ledger.views_[view.first];
    ++kept.holders;
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
