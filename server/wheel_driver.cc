#include "server/wheel_driver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/post.hpp>

namespace tarry::server {
namespace {

// Timers fired or moved in one step: well below a millisecond of work.
constexpr std::size_t step_budget = 4096;

}  // namespace

WheelDriver::WheelDriver(boost::asio::io_context& context, broker::Shard& shard)
    : shard_(shard), context_(context), timer_(context) {}

WheelDriver::~WheelDriver() {
  stop();
}

void WheelDriver::start() {
  shard_.wheel().set_wakeup_listener([this] { arm(); });
  arm();
}

void WheelDriver::stop() {
  if (std::exchange(stopped_, true)) return;
  // The wheel outlives this object.
  shard_.wheel().set_wakeup_listener({});
  timer_.cancel();
}

void WheelDriver::arm() {
  if (stopped_ || step_posted_) return;
  const auto due = shard_.wheel().next_due();
  if (!due) {
    // The timer that we sleep for was cancelled.  We leave the alarm as it is: one needless wake-up
    // is cheaper than resetting it.
    return;
  }
  if (armed_ && armed_for_ <= *due) return;
  armed_ = true;
  armed_for_ = *due;
  timer_.expires_at(
      std::chrono::time_point_cast<std::chrono::steady_clock::duration>(shard_.time_of(*due)));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || stopped_) return;
    armed_ = false;
    step();
  });
}

void WheelDriver::step() {
  step_posted_ = false;
  if (stopped_) return;
  const auto progress = shard_.wheel().advance(shard_.tick(), step_budget);
  if (progress.more) {
    step_posted_ = true;
    // Other work of the shard comes between.
    return boost::asio::post(context_, [this] { step(); });
  }
  arm();
}

}  // namespace tarry::server
