#pragma once

// OneShotEvent: parks one coroutine until somebody on the same thread says go.
//
//   OneShotEvent answered;
//   operation.on_complete = [&] { answered.fire(); };
//   if (!answered.fired()) co_await answered.wait();
//
// The coroutine goes on inside fire(), so fire() comes last in whatever calls it.  A fire() before
// wait() is kept: wait() then takes a turn of the thread, which who asks fired() first spares.  One
// coroutine, one time.
//
// What wait() gives is to be awaited on the spot, and needs no coroutine's frame of its own: a
// frame that has lain for as long as a client waits is some lines of memory that no cache has.

#include <functional>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>

namespace tarry::broker {

class OneShotEvent {
 public:
  auto wait() {
    return boost::asio::async_initiate<const boost::asio::deferred_t&, void()>(
        [this](auto handler) {
          if (fired_) return boost::asio::post(std::move(handler));
          resume_ = std::move(handler);
        },
        boost::asio::deferred);
  }

  bool fired() const { return fired_; }
  void fire() {
    if (std::exchange(fired_, true)) return;
    if (auto resume = std::exchange(resume_, nullptr)) resume();
  }

 private:
  bool fired_ = false;
  std::move_only_function<void()> resume_;
};

}  // namespace tarry::broker
