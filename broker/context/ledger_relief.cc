// How work waits for memory, and how a ledger makes room for it (ledger.h).

#include <algorithm>
#include <chrono>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "broker/context/ledger.h"
#include "broker/context/one_shot_event.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {
namespace {

using std::chrono::milliseconds;

// Others may give memory back at any time, and looking again is cheap.
constexpr milliseconds look_again_for_memory{10};
// Others may end by themselves before somebody is closed.
constexpr milliseconds relief_after{300};
constexpr milliseconds refused_after{1000};
// The memory of a closed connection is not given back before its handlers have ended.
constexpr milliseconds between_reliefs{100};

// To close one of few connections that holds less helps nobody.
constexpr std::size_t max_spared = std::size_t{256} << 10;
// A little more than an idle connection takes, which is 18 KB with TLS.
constexpr std::size_t min_spared = std::size_t{24} << 10;

}  // namespace

// Very many connections may hold little each.  When they hold half of the limit, one of them holds
// as much as this.
std::size_t Ledger::min_foreclosed() const {
  const std::size_t each = pool_.limit() / 2 / std::max<std::size_t>(pool_.debtors(), 1);
  return std::clamp(each, min_spared, max_spared);
}

// In a turn of its own, also here: a session is not closed while it counts what it holds.
void Ledger::relieve_all(std::size_t goal, std::size_t at_least) {
  at_least = std::max(at_least, min_foreclosed());
  // Charges come many in a turn, and the first has asked already.
  if (std::exchange(relieving_, true)) return;
  for (Ledger* const each : pool_.ledgers_) {
    boost::asio::post(each->shard_.executor(), [this, each, goal, at_least] {
      if (each == this) relieving_ = false;
      each->relieve(goal, at_least);
    });
  }
}

void Ledger::relieve_for(std::size_t bytes) {
  const std::size_t for_work = pool_.for_work();
  // Work that wants more than anybody holds ends nobody.
  relieve_all(for_work - std::min(for_work, bytes), bytes);
}

void MemoryPool::ask_for_room(std::size_t bytes) {
  if (ledgers_.empty() || used() + bytes <= for_work()) return;
  // Any of them asks all, on its own thread.
  Ledger* const first = ledgers_.front();
  boost::asio::post(first->shard_.executor(), [first, bytes] { first->relieve_for(bytes); });
}

void Ledger::relieve(std::size_t goal, std::size_t at_least) {
  const auto now = shard_.tick();
  if (relieved_ != 0 && now < relieved_ + static_cast<timing::Tick>(between_reliefs.count()) &&
      // Above the limit nobody waits for those that are being closed.
      pool_.used() <= pool_.limit())
    return;
  const std::size_t used = pool_.used();
  std::size_t over = used > goal ? used - goal : 0;
  // If the pool is full, some shard holds more than its part of what the shards may hold.
  const std::size_t beside = pool_.used_in_parts_.load(std::memory_order_relaxed);
  const std::size_t part = (goal - std::min(goal, beside)) / pool_.ledgers_.size();
  while (over > 0 && used_ > part) {
    const auto [largest, freed] = find_largest(at_least);
    if (largest == nullptr) return;
    relieved_ = now;
    // Before it is called, which may change what it owes.
    largest->foreclosed_ = true;
    largest->foreclose(
        fmt::format("clients hold {} bytes of memory; the limit is {} (tarry.memory.bytes), and "
                    "this connection holds the most, {}",
                    used, pool_.limit(), freed));
    over -= std::min(over, freed);
  }
}

boost::asio::awaitable<bool> Charge::grow(std::size_t bytes) {
  if (try_grow(bytes)) co_return true;
  ShardContext& shard = ledger_->shard_;
  const auto begun = shard.tick();
  bool asked = false;
  // A shard that stops waits for its requests.
  for (auto now = begun; !shard.stopping() && now < begun + refused_after.count();
       now = shard.tick()) {
    if (!asked && now >= begun + relief_after.count()) {
      asked = true;
      ledger_->relieve_for(bytes);
    }
    OneShotEvent again;
    timing::CallbackTimer timer([&again] { again.fire(); });
    shard.wheel().schedule(timer, shard.tick_after(look_again_for_memory));
    co_await again.wait();
    if (try_grow(bytes)) co_return true;
  }
  co_return false;
}

}  // namespace tarry::broker
