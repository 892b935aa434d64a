#pragma once

// Wakeup: parks one coroutine until somebody on the same thread says go.
//
//   Wakeup answered;
//   operation.on_complete = [&] { answered.fire(); };
//   co_await answered.wait();
//
// fire() before wait() is kept: wait() then returns at once.  The coroutine goes on inside
// fire(), so fire() comes last in whatever calls it.  One coroutine, one time.

#include <functional>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace tarry::broker {

class Wakeup {
 public:
  boost::asio::awaitable<void> wait() {
    if (fired_) co_return;
    co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>&, void()>(
        [this](auto handler) { resume_ = std::move(handler); }, boost::asio::use_awaitable);
  }

  void fire() {
    if (std::exchange(fired_, true)) return;
    if (auto resume = std::exchange(resume_, nullptr)) resume();
  }

 private:
  bool fired_ = false;
  std::move_only_function<void()> resume_;
};

}  // namespace tarry::broker
