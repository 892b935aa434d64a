#include "broker/context/durability_wait.h"

#include <array>
#include <span>

#include "broker/context/shard_context.h"

namespace tarry::broker {

DurabilityWait::DurabilityWait(ShardContext& shard, purgatory::Kind kind,
                               std::optional<Lsn> durable, std::optional<Lsn> written)
    : DelayedOperation(kind), shard_(shard), durable_(durable), written_(written) {}

boost::asio::awaitable<purgatory::Outcome> DurabilityWait::wait(purgatory::Tick deadline) {
  std::array<purgatory::Watching, 2> watching{
      purgatory::Watching{shard_.durable_waiters,
                          static_cast<purgatory::Threshold>(durable_.value_or(0))},
      purgatory::Watching{shard_.written_waiters,
                          static_cast<purgatory::Threshold>(written_.value_or(0))}};
  std::span<const purgatory::Watching> wanted = watching;
  if (!written_) wanted = wanted.first(1);
  if (!durable_) wanted = wanted.last(1);
  start(shard_.purgatory(), shard_.tick(), deadline, wanted);
  if (!answered_.fired()) co_await answered_.wait();
  co_return *outcome();
}

boost::asio::awaitable<purgatory::Outcome> DurabilityWait::wait(std::chrono::milliseconds timeout) {
  return wait(shard_.tick_after(timeout));
}

bool DurabilityWait::is_durable(Lsn lsn) const {
  return shard_.durable_through() > lsn;
}
bool DurabilityWait::is_written(Lsn lsn) const {
  return shard_.written_through() > lsn;
}

bool DurabilityWait::is_satisfied() {
  return (!durable_ || is_durable(*durable_)) && (!written_ || is_written(*written_));
}

void DurabilityWait::on_complete(purgatory::Outcome) {
  answered_.fire();
}

boost::asio::awaitable<bool> wait_until_durable(ShardContext& shard, Lsn lsn, purgatory::Kind kind,
                                                std::chrono::milliseconds timeout,
                                                CancellationToken& token) {
  // Its cancellation has been reported already, and is not reported again.
  if (token.cancelled()) co_return false;
  DurabilityWait waiting(shard, kind, lsn, std::nullopt);
  const CancellationToken::Attached attached(token, waiting);
  co_return co_await waiting.wait(timeout) == purgatory::Outcome::satisfied;
}

}  // namespace tarry::broker
