#pragma once

// PoolPart: a bounded part of the MemoryPool, for what clients make the broker hold outside of the
// shards' ledgers: TLS handshakes, and bodies of requests to the admin.
//
//   ledgers of the shards ----------------+
//   PoolPart of the handshakes  <= 1/8 ---+--> MemoryPool (tarry.memory.bytes)
//   PoolPart of the admin       <= 1/8 ---+
//
// It is asked before the memory is used; the caller waits or refuses where there is no room.
// Nobody's connection can be closed for what is taken here, so a part is small: whoever fills it
// leaves the rest of the pool to the clients of the shards.
//
// Any thread.

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "broker/context/memory_pool.h"

namespace tarry::broker {

class PoolPart {
  struct State {
    std::shared_ptr<MemoryPool> pool;
    std::size_t limit = 0;
    std::atomic<std::size_t> used{0};
  };

 public:
  explicit PoolPart(std::shared_ptr<MemoryPool> pool);

  // Bytes that were taken, given back when it goes; it may outlive the part.
  class Held {
   public:
    Held() = default;
    Held(Held&& other) noexcept
        : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(state_, other.state_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Held();

    // Whether it holds any.
    explicit operator bool() const { return bytes_ > 0; }

   private:
    friend class PoolPart;
    Held(std::shared_ptr<State> state, std::size_t bytes)
        : state_(std::move(state)), bytes_(bytes) {}

    std::shared_ptr<State> state_;
    std::size_t bytes_ = 0;
  };

  // `bytes` > 0; nothing is held if neither the part nor the pool has room for all of them.
  Held try_take(std::size_t bytes);
  // If the part has room for so many and the pool has not, has the shards close the connections
  // that hold the most.
  void ask_for_room(std::size_t bytes);

  std::size_t used() const { return state_->used.load(std::memory_order_relaxed); }
  std::size_t limit() const { return state_->limit; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tarry::broker
