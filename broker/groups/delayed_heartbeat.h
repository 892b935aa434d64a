#pragma once

// DelayedHeartbeat: a member's session, or that of a client that was given a member id and has not
// joined with it yet.  No request waits for it: it only times the member's silence.
//
//   satisfied   never
//   expired     no heartbeat came for the session timeout: the member is removed, and the group
//               rebalances.  While a JoinGroup or SyncGroup of the member is parked, the session
//               continues and does not expire
//   cancelled   the broker stops; the member is restored when the broker is back
//   withdrawn   the member has left or was removed, and its session with it
//
// Every heartbeat moves the deadline to later, which leaves the timer where it is in the wheel
// until its old deadline comes.
//
// Its group owns it, one for each member and each member id that was given out.  On the thread of
// the group's shard.

#include <chrono>
#include <string>

#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class GroupWaits;

inline const purgatory::Kind heartbeat_kind{"heartbeat"};

class DelayedHeartbeat final : public purgatory::DelayedOperation {
 public:
  // The group outlives it.
  DelayedHeartbeat(GroupWaits& group, std::string member_id, std::chrono::milliseconds timeout);

  // The member sent a request: its session begins anew.
  void heard();
  const std::string& member_id() const { return member_id_; }

 private:
  bool is_satisfied() override { return false; }
  std::optional<purgatory::Tick> prolonged() override;
  void on_complete(purgatory::Outcome outcome) override;
  void begin();

  GroupWaits& group_;
  const std::string member_id_;
  const std::chrono::milliseconds timeout_;
  purgatory::Tick ends_ = 0;
};

}  // namespace tarry::broker
