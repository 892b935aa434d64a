#include "broker/groups/delayed_removal.h"

#include <array>

#include "broker/groups/group_offsets.h"

namespace tarry::broker {

DelayedRemoval::DelayedRemoval(const std::uint64_t& stored, std::uint64_t wanted)
    : DelayedOperation(delete_groups_kind), stored_(stored), wanted_(wanted) {}

boost::asio::awaitable<void> DelayedRemoval::wait(purgatory::Purgatory& purgatory,
                                                  purgatory::Tick now, purgatory::Tick deadline,
                                                  purgatory::WatchList& told) {
  const std::array watching{purgatory::Watching{told, static_cast<purgatory::Threshold>(wanted_)}};
  start(purgatory, now, deadline, watching);
  if (!answered_.fired()) co_await answered_.wait();
}

void DelayedRemoval::on_complete(purgatory::Outcome) {
  answered_.fire();
}

}  // namespace tarry::broker
