#pragma once

// DelayedJoin: a JoinGroup request whose group is not complete yet.
//
//   satisfied   the group is complete: all members that it knows have joined, no client that was
//               given a member id is still expected, and a group that was empty has waited for
//               group.initial.rebalance.delay.ms.  Or the member's place is lost: it was removed,
//               or another one with its instance id has joined (FENCED_INSTANCE_ID), or it has
//               joined again.  For a static member that came back in a stable group: its new id is
//               durable
//   expired     the group's rebalance timeout has passed (in a group that was empty, the initial
//               delay too): members that have not joined by then are removed, but for static
//               members, whose places last as long as their sessions, and those that have joined
//               are answered with the generation that begins.  For a static member that came back
//               in a stable group: offsets.commit.timeout.ms has passed and its new id is not
//               durable: the answer is COORDINATOR_NOT_AVAILABLE
//   cancelled   the client has gone, or the broker stops.  The member stays until its session
//               ends; one that was never told its id (versions 0 to 3) can never come back and is
//               removed at once
//
// It lives in the coroutine of its request, on the thread of the group's shard.

#include "broker/groups/group_reply.h"
#include "protocol/messages/join_group.h"

namespace tarry::broker {

inline const purgatory::Kind join_kind{"join"};

class DelayedJoin final : public GroupReply<protocol::JoinGroupResponse> {
 public:
  DelayedJoin() : GroupReply(join_kind) {}
  ~DelayedJoin() override;

 private:
  void on_timeout() override;
  void given_up() override;
};

}  // namespace tarry::broker
