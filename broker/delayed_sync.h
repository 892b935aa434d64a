#pragma once

// DelayedSync: a SyncGroup request that waits for the leader's assignments.
//
//   satisfied   the assignments have come and are durable.  Or they will not come: a rebalance has
//               begun (REBALANCE_IN_PROGRESS), the member was removed (UNKNOWN_MEMBER_ID) or fenced
//               (FENCED_INSTANCE_ID), it has asked again, or the journal refused them
//   expired     the rebalance timeout has passed since the generation began: who has not asked by
//               then, be it the leader, is removed, and all others are to join again.  When all
//               have asked and the journal is late, nobody is removed, and who waits is told
//               REBALANCE_IN_PROGRESS: he joins again
//   cancelled   the client has gone, or the broker stops.  The member stays until its session ends

#include "broker/group_reply.h"
#include "protocol/messages/sync_group.h"

namespace tarry::broker {

class DelayedSync final : public GroupReply<protocol::SyncGroupResponse> {
 public:
  DelayedSync() : GroupReply(purgatory::Kind::sync) {}
  ~DelayedSync() override;

 private:
  void time_is_over() override;
  void given_up() override;
};

}  // namespace tarry::broker
