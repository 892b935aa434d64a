#pragma once

// MemoryPool: the limit of the memory that clients make all shards hold together
// (tarry.memory.bytes), and the sum of what they hold.
//
// The shards' ledgers report to it and are asked through it to free some (ledger.h).  One for the
// process; any thread.

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
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  // The connections of all shards.
  std::size_t debtors() const { return debtors_.load(std::memory_order_relaxed); }

 private:
  friend class Debtor;
  friend class Ledger;

  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> debtors_{0};
  std::vector<Ledger*> ledgers_;  // Constant once the shards are made.
};

}  // namespace tarry::broker
