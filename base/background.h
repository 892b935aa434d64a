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

#include <functional>
#include <memory>
#include <utility>

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
    auto value = std::make_unique<std::unique_ptr<Value>>();
    auto* slot = value.get();
    run_and_then(
        [slot, work = std::move(work)]() mutable { *slot = std::make_unique<Value>(work()); },
        [value = std::move(value), then = std::move(then)]() mutable { then(std::move(**value)); });
  }
};

}  // namespace tarry
