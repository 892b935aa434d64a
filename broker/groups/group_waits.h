#pragma once

// GroupWaits: the calls to a group from the operations that wait for it: a parked JoinGroup
// (DelayedJoin), a parked SyncGroup (DelayedSync), a member's session (DelayedHeartbeat).
//
// The Group implements it; so what waits knows nothing else of a group.  On the group's shard.

#include <optional>
#include <string>
#include <string_view>

#include "broker/groups/group_host.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

struct GroupMember;

class GroupWaits {
 public:
  virtual GroupHost& host() = 0;

  // The deadline of a parked JoinGroup has passed, and the group needs until this to end its phase;
  // empty: it does not.  Changes nothing.
  virtual std::optional<timing::Tick> join_prolonged() const = 0;
  // A deadline has passed before the group had an answer; it may give one in here.
  virtual void on_join_timeout() = 0;
  virtual void on_sync_timeout() = 0;
  // The client has gone, or the broker stops.
  virtual void on_join_cancelled(GroupMember& member) = 0;
  virtual void on_sync_cancelled(GroupMember& member) = 0;
  // The request is destroyed.
  virtual void forget_join(GroupMember& member) = 0;
  virtual void forget_sync(GroupMember& member) = 0;

  // A JoinGroup or SyncGroup of the member is parked.
  virtual bool is_parked(std::string_view member_id) const = 0;
  // Nothing was heard of the member for its session timeout.
  virtual void on_session_expired(const std::string& member_id) = 0;

 protected:
  ~GroupWaits() = default;
};

}  // namespace tarry::broker
