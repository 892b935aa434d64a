#pragma once

// AsioTimerDriver: turns a TimerService of Drive::descriptor on an existing io_context.
//
//    boost::asio::io_context context;
//    TimerService timers({.drive = Drive::descriptor});
//    AsioTimerDriver driver(context, timers);
//    context.run();                      // callbacks run in here
//
// It waits for the service's descriptor, runs what is due, and waits again.  A step is bounded:
// its remainder waits behind the other work of the context.  Any number of threads
// may run the context; one of them at a time runs timers.
//
// The driver is pending work of the context, which therefore does not run out of work while it
// lives.  The service and the context outlive it.  It is made and destroyed where no thread runs
// the context, or on its only one, also in a callback; nothing runs afterwards.
//
// The one header of timing that needs Boost.Asio.

#include <cstddef>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "timing/service/timer_service.h"

namespace tarry::timing {

class AsioTimerDriver {
 public:
  AsioTimerDriver(boost::asio::io_context& context, TimerService& service,
                  std::size_t budget = TimerService::default_budget)
      : loop_(std::make_shared<Loop>(context, service, budget)) {
    loop_->wait(loop_);
  }
  AsioTimerDriver(const AsioTimerDriver&) = delete;
  AsioTimerDriver& operator=(const AsioTimerDriver&) = delete;
  ~AsioTimerDriver() {
    loop_->stopped = true;
    loop_->descriptor.cancel();
    loop_->descriptor.release();  // It is the service's.
  }

 private:
  // Its handler may be queued still when the driver is destroyed, and keeps this.
  struct Loop {
    Loop(boost::asio::io_context& context, TimerService& timers, std::size_t step)
        : descriptor(context, timers.fd()), service(timers), budget(step) {}

    void wait(const std::shared_ptr<Loop>& self) {
      descriptor.async_wait(boost::asio::posix::descriptor_base::wait_read,
                            [self](const boost::system::error_code& error) {
                              if (error || self->stopped) return;
                              self->service.run_due(self->budget);
                              if (!self->stopped) self->wait(self);
                            });
    }

    boost::asio::posix::stream_descriptor descriptor;
    TimerService& service;
    const std::size_t budget;
    bool stopped = false;
  };

  const std::shared_ptr<Loop> loop_;
};

}  // namespace tarry::timing
