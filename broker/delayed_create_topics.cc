#include "broker/delayed_create_topics.h"

#include <array>

#include "broker/shard.h"

namespace tarry::broker {

boost::asio::awaitable<purgatory::Outcome> DelayedCreateTopics::wait(purgatory::Tick deadline) {
  const std::array watching{
      purgatory::Watching{created_.added, static_cast<purgatory::Threshold>(count_)}};
  start(home_.purgatory(), home_.tick(), deadline, watching);
  if (!answered_.fired()) co_await answered_.wait();
  co_return *outcome();
}

}  // namespace tarry::broker
