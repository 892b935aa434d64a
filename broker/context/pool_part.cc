#include "broker/context/pool_part.h"

#include <algorithm>

namespace tarry::broker {
namespace {

// Of the pool.
constexpr std::size_t share = 8;

// Adds to a sum that several threads change, unless it would be more than the limit.
bool add_within(std::atomic<std::size_t>& sum, std::size_t bytes, std::size_t limit) {
  auto before = sum.load(std::memory_order_relaxed);
  do {
    if (bytes > limit - std::min(limit, before)) return false;
  } while (!sum.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  return true;
}

}  // namespace

PoolPart::PoolPart(std::shared_ptr<MemoryPool> pool) : state_(std::make_shared<State>()) {
  state_->limit = pool->limit() / share;
  state_->pool = std::move(pool);
}

PoolPart::Held PoolPart::try_take(std::size_t bytes) {
  if (!add_within(state_->used, bytes, state_->limit)) return {};
  if (!add_within(state_->pool->used_, bytes, state_->pool->for_work())) {
    state_->used.fetch_sub(bytes, std::memory_order_relaxed);
    return {};
  }
  state_->pool->used_in_parts_.fetch_add(bytes, std::memory_order_relaxed);
  return {state_, bytes};
}

void PoolPart::ask_for_room(std::size_t bytes) {
  // What others give back would be of no use.
  if (bytes > limit() - std::min(limit(), used())) return;
  state_->pool->ask_for_room(bytes);
}

PoolPart::Held::~Held() {
  if (bytes_ == 0) return;
  state_->pool->used_in_parts_.fetch_sub(bytes_, std::memory_order_relaxed);
  state_->pool->used_.fetch_sub(bytes_, std::memory_order_relaxed);
  state_->used.fetch_sub(bytes_, std::memory_order_relaxed);
}

}  // namespace tarry::broker
