#pragma once

// TimerKeys: finds the timer that has a key.
//
// The keys are spread over stripes, each with a lock, so that threads with different keys do not
// wait for each other.  A stripe's lock is taken before a shard's lock, never while one is held:
// a thread that replaces or cancels a timer by its key holds the stripe for as long as that takes.

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "timing/service/timer_id.h"

namespace tarry::timing {

class TimerKeys {
 public:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
      return std::hash<std::string_view>()(key);
    }
  };
  struct alignas(64) Stripe {
    std::mutex lock;
    std::unordered_map<std::string, TimerId, Hash, std::equal_to<>> ids;
  };

  Stripe& stripe_of(std::string_view key) const { return stripes_[Hash()(key) % stripe_count]; }

  std::optional<TimerId> find(std::string_view key) const {
    Stripe& stripe = stripe_of(key);
    const std::lock_guard lock(stripe.lock);
    const auto found = stripe.ids.find(key);
    return found != stripe.ids.end() ? std::optional(found->second) : std::nullopt;
  }

  // Nothing happens when another timer has the key by now.
  void forget(std::string_view key, TimerId id) {
    Stripe& stripe = stripe_of(key);
    const std::lock_guard lock(stripe.lock);
    const auto found = stripe.ids.find(key);
    if (found != stripe.ids.end() && found->second == id) stripe.ids.erase(found);
  }

  void clear() {
    for (std::size_t i = 0; i < stripe_count; ++i) {
      const std::lock_guard lock(stripes_[i].lock);
      stripes_[i].ids.clear();
    }
  }

 private:
  // More than threads that run at once.
  static constexpr std::size_t stripe_count = 32;

  const std::unique_ptr<Stripe[]> stripes_ = std::make_unique<Stripe[]>(stripe_count);
};

}  // namespace tarry::timing
