#include "broker/delayed_delete_records.h"

#include <array>

#include "broker/shard_context.h"

namespace tarry::broker {

boost::asio::awaitable<purgatory::Outcome> DelayedDeleteRecords::wait(purgatory::Tick deadline) {
  const std::array watching{
      purgatory::Watching{shard_.durable_waiters, static_cast<purgatory::Threshold>(last_)}};
  start(shard_.purgatory(), shard_.tick(), deadline, watching);
  if (!answered_.fired()) co_await answered_.wait();
  co_return *outcome();
}

bool DelayedDeleteRecords::is_satisfied() {
  return shard_.durable_through() > last_;
}

}  // namespace tarry::broker
