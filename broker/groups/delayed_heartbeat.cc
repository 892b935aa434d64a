#include "broker/groups/delayed_heartbeat.h"

#include <span>
#include <utility>

#include "broker/groups/group_waits.h"

namespace tarry::broker {

DelayedHeartbeat::DelayedHeartbeat(GroupWaits& group, std::string member_id,
                                   std::chrono::milliseconds timeout)
    : DelayedOperation(heartbeat_kind),
      group_(group),
      member_id_(std::move(member_id)),
      timeout_(timeout) {
  ends_ = group_.host().tick_after(timeout_);
  begin();
}

void DelayedHeartbeat::begin() {
  start(group_.host().purgatory(), group_.host().tick(), ends_, {});
}

void DelayedHeartbeat::heard() {
  ends_ = group_.host().tick_after(timeout_);
  move_deadline(ends_);  // When it has just expired, on_complete() sees that it was heard since.
}

std::optional<purgatory::Tick> DelayedHeartbeat::prolonged() {
  // A member that waits for our answer sends no heartbeat; its connection shows that it is there.
  if (!group_.is_parked(member_id_)) return std::nullopt;
  return ends_ = group_.host().tick_after(timeout_);
}

void DelayedHeartbeat::on_complete(purgatory::Outcome outcome) {
  if (outcome != purgatory::Outcome::expired) return;
  if (ends_ > group_.host().tick()) return begin();
  if (group_.is_parked(member_id_)) return heard(), begin();
  group_.on_session_expired(std::string(member_id_));  // Destroys us.
}

}  // namespace tarry::broker
