#pragma once

// Background: where work goes that blocks (writes, syncs, reads of old segments, RocksDB
// flushes), so that a shard's thread never does.
//
//   background.run([=] { return write_and_sync(round); },        // On some thread of the pool.
//                  [this](Result<> r) { round_is_durable(r); }); // On the caller's shard again.
//
// Each shard has one Background of its own: `then` runs on that shard's thread, never inside
// run().  Pieces of work run in any order and at once; who needs an order starts the next from
// `then`.  A shard that stops lets what it started finish.  In tests both parts may run in the
// caller, one after the other, when the test says so.
//
// Nobody catches what work throws, so nothing is thrown: of work that returns a Result, what it
// throws (there was no memory) is the error.

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
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
    // Made here, where somebody catches what is thrown.
    auto value = std::make_unique<std::optional<Value>>();
    auto* slot = value.get();
    run_and_then(
        [slot, work = std::move(work)]() mutable { slot->emplace(caught(work)); },
        [value = std::move(value), then = std::move(then)]() mutable { then(std::move(**value)); });
  }

  // What `work` returns; of a Result, the error of what it throws.
  template <typename F>
  static auto caught(F&& work) -> decltype(work()) {
    if constexpr (requires { static_cast<const Error&>(work().error()); }) {
      try {
        return work();
      } catch (const std::bad_alloc&) {
        return fail(Errc::io, "no memory");  // So short that it takes none.
      } catch (const std::exception& thrown) {
        return fail(Errc::io, thrown.what());
      }
    } else {
      return work();
    }
  }
};

}  // namespace tarry
