#pragma once

// Lane: the work of one BucketTier on the Background, a piece at a time.
//
//   run(work, then) --> busy --> work, on the Background --> then(), wake(), on the shard's thread
//
// Invariants
//   - While a piece is under way no other one begins, so nothing is read while it is written.
//   - After a failure, and after close(), no `then` is called any more.
//
// Belongs to its BucketTier, on its thread; what is under way may outlive it.

#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "base/assert.h"
#include "base/background.h"
#include "base/result.h"

namespace tarry::delay {

class Lane {
 public:
  // `wake`: a piece is done.  `failed`: called once, for the first failure.
  Lane(Background& background, std::function<void()> wake, std::function<void(const Error&)> failed)
      : background_(background), wake_(std::move(wake)), told_failed_(std::move(failed)) {}
  ~Lane() { close(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  bool is_busy() const { return busy_; }
  bool has_failed() const { return failed_; }
  void fail(const Error& error) {
    if (std::exchange(failed_, true)) return;
    told_failed_(error);
  }
  void close() { *alive_ = false; }
  // The value becomes false when the lane is closed; work beside the lane checks it.
  std::shared_ptr<const bool> alive() const { return alive_; }

  template <typename T, typename Then>
  void run(std::move_only_function<Result<T>()> work, Then then) {
    TARRY_ASSERT(!busy_, "one piece of work is on the lane at a time");
    busy_ = true;
    auto finish = [this, alive = alive_, then = std::move(then)](Result<T> result) mutable {
      if (!*alive) return;
      busy_ = false;
      if (failed_) return;
      if (!result) return fail(result.error());
      if constexpr (std::is_void_v<T>)
        then();
      else
        then(std::move(*result));
      // `then` may have told somebody who has destroyed the tier.
      if (*alive) wake_();
    };
    try {
      background_.run(std::move(work), std::move(finish));
    } catch (const std::bad_alloc&) {
      busy_ = false;  // It has not begun, and nobody would end it.
      throw;
    }
  }

 private:
  Background& background_;
  const std::function<void()> wake_;
  const std::function<void(const Error&)> told_failed_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool busy_ = false;
  bool failed_ = false;
};

}  // namespace tarry::delay
