#pragma once

// MemoryPool: the limit of the memory that clients make all shards hold together
// (tarry.memory.bytes), and the sum of what they hold.
//
// The shards' ledgers report to it and are asked through it to free some (ledger.h); what is held
// outside of the shards is taken from it directly (pool_part.h).  One for the process; any thread.

#include <atomic>
#include <cstddef>
#include <vector>

namespace tarry::broker {

class Ledger;

class MemoryPool {
 public:
  explicit MemoryPool(std::size_t limit) : limit_(limit) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  std::size_t limit() const { return limit_; }
  // The part of it for work that asks first: an eighth is kept for bytes that come without asking.
  std::size_t for_work() const { return limit_ - limit_ / 8; }
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  // The connections of all shards.
  std::size_t debtors() const { return debtors_.load(std::memory_order_relaxed); }

  // Unless there is room for so many bytes of work, has the shards close the connections that hold
  // the most.  The shards have been made, and their threads have not ended.
  void ask_for_room(std::size_t bytes);

 private:
  friend class Debtor;
  friend class Ledger;
  friend class PoolPart;

  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> used_in_parts_{0};  // The part of it that no ledger has (pool_part.h).
  std::atomic<std::size_t> debtors_{0};
  std::vector<Ledger*> ledgers_;  // Constant once the shards are made.
};

}  // namespace tarry::broker
