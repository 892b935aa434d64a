#pragma once

// TurnQueue: admits one coroutine of a shard at a time, in the order of arrival.
//
//   co_await turns.take();
//   const TurnQueue::Turn turn(turns);   // Until it ends the others wait.
//
// So what one has checked still holds when it writes its change, although it waits in between.
// Everything runs on the shard's thread.

#include <deque>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>

#include "broker/context/one_shot_event.h"

namespace tarry::broker {

class TurnQueue {
 public:
  explicit TurnQueue(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
  TurnQueue(const TurnQueue&) = delete;
  TurnQueue& operator=(const TurnQueue&) = delete;

  boost::asio::awaitable<void> take() {
    if (!taken_) {
      taken_ = true;
      co_return;
    }
    OneShotEvent ours;
    waiting_.push_back(&ours);
    co_await ours.wait();  // The turn is handed over, so it stays taken.
  }

  // Gives back the turn that its coroutine has taken.
  class Turn {
   public:
    explicit Turn(TurnQueue& queue) : queue_(queue) {}
    ~Turn() { queue_.give_back(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    TurnQueue& queue_;
  };

 private:
  void give_back() {
    if (waiting_.empty()) {
      taken_ = false;
      return;
    }
    OneShotEvent* const next = waiting_.front();
    waiting_.pop_front();
    // Later: the one before it is still being destroyed.
    boost::asio::post(executor_, [next] { next->fire(); });
  }

  const boost::asio::any_io_executor executor_;
  bool taken_ = false;
  std::deque<OneShotEvent*> waiting_;
};

}  // namespace tarry::broker
