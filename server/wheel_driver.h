#pragma once

// WheelDriver: the one Asio timer of a shard.
//
// It sleeps until the wheel's next bucket is due, advances the wheel, and sleeps again; while no
// deadline is scheduled it does not run at all.  A deadline that is scheduled earlier than what it
// sleeps for wakes it (the wheel says so).  A step is bounded: the rest of it is posted behind the
// shard's other work.
//
// Belongs to its shard's thread; runs on the shard's io_context.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "broker/shard.h"

namespace tarry::server {

class WheelDriver {
 public:
  WheelDriver(boost::asio::io_context& context, broker::Shard& shard);
  ~WheelDriver();

  void start();
  void stop();  // Nothing fires afterwards.

 private:
  void arm();
  void step();

  broker::Shard& shard_;
  boost::asio::io_context& context_;
  boost::asio::steady_timer timer_;
  timing::Tick armed_for_ = 0;  // Meaningful while armed_.
  bool armed_ = false;
  bool step_posted_ = false;
  bool stopped_ = false;
};

}  // namespace tarry::server
