#pragma once

// OneShotEvent: suspends one coroutine until code on the same thread calls fire().
//
//   OneShotEvent answered;
//   operation.on_complete = [&] { answered.fire(); };
//   if (!answered.fired()) co_await answered.wait();
//
// The coroutine resumes inside fire(), so fire() must be the last call in its caller.  A fire()
// before wait() is kept: wait() then takes a turn of the thread, which a caller that checks fired()
// first saves.  One coroutine, one time.
//
// Await the result of wait() on the spot.  It needs no coroutine frame of its own: after a client's
// long wait such a frame would be several cache misses.

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
