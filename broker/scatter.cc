#include "broker/scatter.h"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>

namespace tarry::broker {

void begin_elsewhere(Shard& here, Shard& there, boost::asio::awaitable<void>&& work,
                     const std::shared_ptr<WorkElsewhere>& elsewhere) {
  boost::asio::co_spawn(
      there.executor(), std::move(work),
      boost::asio::bind_executor(here.executor(), [elsewhere](std::exception_ptr error) {
        if (error) elsewhere->failed = error;
        elsewhere->ended.one_ended();
      }));
  elsewhere->ended.one_begun();  // It cannot have ended: its end comes to this thread.
}

}  // namespace tarry::broker
