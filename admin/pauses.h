#pragma once

// Pauses: waits of handlers that end when the admin stops.
//
// Otherwise a stopping broker would wait for them.  On shard 0's thread.

#include <chrono>
#include <list>
#include <new>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace tarry::admin {

class Pauses {
 public:
  explicit Pauses(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // False: the admin has stopped, perhaps before the time was over.
  boost::asio::awaitable<bool> wait(std::chrono::milliseconds time) {
    if (stopped_) co_return false;
    const auto timer = timers_.emplace(timers_.end(), executor_, time);
    boost::system::error_code ignored;
    try {
      co_await timer->async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    } catch (const std::bad_alloc&) {
      timers_.erase(timer);
      throw;
    }
    timers_.erase(timer);
    co_return !stopped_;
  }

  void stop() {
    stopped_ = true;
    for (auto& timer : timers_) timer.cancel();
  }
  bool stopped() const { return stopped_; }

 private:
  const boost::asio::any_io_executor executor_;
  std::list<boost::asio::steady_timer> timers_;
  bool stopped_ = false;
};

}  // namespace tarry::admin
