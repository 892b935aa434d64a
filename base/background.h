#pragma once

// Background: runs work that blocks (writes, syncs, reads of old segments, RocksDB flushes), so
// that a shard's thread never blocks.
//
//   background.run([=] { return write_and_sync(round); },        // On some thread of the pool.
//                  [this](Result<> r) { round_is_durable(r); }); // On the caller's shard again.
//
// Work that returns nothing has a `then` that takes nothing.  Each shard has one Background of its
// own: `then` runs on that shard's thread, never inside run(). Pieces of work run in any order and
// at the same time; a caller that needs an order starts the next piece from `then`.  A shard that
// stops lets what it started finish.  In tests both parts may run in the caller, one after the
// other, when the test says so.
//
// The threads of the pool catch nothing. run() therefore turns an exception of work that returns a
// Result (no memory, for example) into its error; other work must not throw.

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace tarry {

class Background {
 public:
  using Work = std::move_only_function<void()>;

  virtual ~Background() = default;
  virtual void run_and_then(Work work, Work then) = 0;

  // `work` returns what `then` takes.
  template <typename F, typename Then>
  void run(F work, Then then) {
    using Value = decltype(work());
    if constexpr (std::is_void_v<Value>) {
      run_and_then(std::move(work), std::move(then));
    } else {
      // Allocated here, because the caller can catch std::bad_alloc and the pool's thread cannot.
      auto value = std::make_unique<std::optional<Value>>();
      auto* slot = value.get();
      run_and_then([slot, work = std::move(work)]() mutable { slot->emplace(caught(work)); },
                   [value = std::move(value), then = std::move(then)]() mutable {
                     then(std::move(**value));
                   });
    }
  }

  // Returns what `work` returns.  If that is a Result, an exception becomes its error.
  template <typename F>
  static auto caught(F&& work) -> decltype(work()) {
    if constexpr (requires { static_cast<const Error&>(work().error()); }) {
      try {
        return work();
      } catch (const std::bad_alloc&) {
        return fail(Errc::io, "no memory");  // Short enough to need no allocation.
      } catch (const std::exception& thrown) {
        return fail(Errc::io, thrown.what());
      }
    } else {
      return work();
    }
  }
};

}  // namespace tarry
