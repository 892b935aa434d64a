#pragma once

// StepQueue: runs the steps of long requests one at a time, and lets the shard poll its sockets
// between two steps.
//
//   sockets, timers, short requests --> all that is ready --.
//        ^                                                  |
//        '------- one step of one long request <------------'
//
//   co_await shard.steps().next();   // Resumes when what is ready has run, and it is our turn.
//
// If each long request were put behind what is ready by itself, then of two hundred of them each
// would take a step before a socket is looked at again; a short request that comes meanwhile would
// wait for all of those steps, and once more in line behind them.  So it waits for one.
//
// Long requests take their steps in turn.  While the sockets bring more than the shard can do, one
// step is taken in each round, so that they come to an end too.
//
// It is for the work of a request that goes on for more than a millisecond.  Code that only has to
// leave its caller, and what the broker does for itself (a changed topic or setting), posts: it
// must not stand in line behind two hundred requests.
//
// Everything runs on the shard's thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/deferred.hpp>

namespace tarry::broker {

class StepQueue {
 public:
  explicit StepQueue(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

  // Await the result on the spot.  Without memory for it std::bad_alloc leaves the thread's run, as
  // it does for a post().
  auto next() {
    return boost::asio::async_initiate<const boost::asio::deferred_t&, void()>(
        [this](auto handler) { add(std::move(handler)); }, boost::asio::deferred);
  }

  std::size_t waiting() const { return waiting_.size(); }
  std::uint64_t taken() const { return taken_; }  // Steps, since the start.

 private:
  using Step = std::move_only_function<void()>;

  void add(Step step);
  void run();
  void post_run();

  const boost::asio::any_io_executor executor_;
  std::deque<Step> waiting_;
  bool is_posted_ = false;  // run(), for as long as something waits.
  std::uint64_t taken_ = 0;
};

}  // namespace tarry::broker
