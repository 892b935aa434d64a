#pragma once

// FreedOnPool: frees a request's working memory on the pool.  To free very many elements takes as
// long as to make them, and a request whose client has disconnected may end after any of its steps.
//
//   std::map<std::string_view, int> times;
//   const FreedOnPool freed(context.shard, times);  // Behind it, so that it goes first.
//
// It takes what is in the containers when it goes; those that were moved away have nothing then.
// Memory that waits for the pool stays charged until it is freed, and memory for which there is no
// room is freed at once: so clients can make a slow pool hold only a bounded amount.

#include <cstddef>
#include <new>
#include <tuple>
#include <utility>

#include "broker/context/ledger.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {

// On the shard's thread.
template <typename... Containers>
class FreedOnPool {
 public:
  explicit FreedOnPool(ShardContext& shard, Containers&... containers)
      : shard_(shard), containers_(containers...) {}
  FreedOnPool(const FreedOnPool&) = delete;
  FreedOnPool& operator=(const FreedOnPool&) = delete;
  ~FreedOnPool() {
    std::apply([this](Containers&... each) { free(each...); }, containers_);
  }

 private:
  // Fewer are freed at once: to hand them over would take longer.
  static constexpr std::size_t freed_here = 1000;
  // About: an element's node in the heap, and what it has there itself.
  static constexpr std::size_t bytes_beside = 128;

  void free(Containers&... containers) {
    if ((containers.size() + ...) <= freed_here) return;
    // Nobody owes it: the request that made it may be answered, and its connection gone.
    Charge charge(shard_.ledger(), nullptr);
    const std::size_t bytes =
        ((containers.size() * (sizeof(typename Containers::value_type) + bytes_beside)) + ...);
    if (!charge.try_grow(bytes)) return;
    try {
      auto work = [taken = std::tuple<Containers...>(std::move(containers)...)] {};
      shard_.background().run(std::move(work), [charge = std::move(charge)] {});
    } catch (const std::bad_alloc&) {
      // Then they are freed here.
      return;
    }
  }

  ShardContext& shard_;
  const std::tuple<Containers&...> containers_;
};

}  // namespace tarry::broker
