#pragma once

// DelayedSync: a SyncGroup request that waits for the leader's assignments.
//
//   satisfied   the assignments have come and are durable.  Or they will not come: a rebalance has
//               begun (REBALANCE_IN_PROGRESS), the member was removed (UNKNOWN_MEMBER_ID) or fenced
//               (FENCED_INSTANCE_ID), it has asked again, or the journal refused them
//   expired     the rebalance timeout has passed since the generation began: who has not asked by
//               then, be it the leader, is removed (and told UNKNOWN_MEMBER_ID when it asks), and
//               all others are to join again (REBALANCE_IN_PROGRESS).  When all have asked the
//               journal alone is waited for, for offsets.commit.timeout.ms: if it is late nobody is
//               removed, who waits is told COORDINATOR_NOT_AVAILABLE, and all are to join again
//   cancelled   the client has gone, or the broker stops.  The member stays until its session ends

#include "broker/groups/group_reply.h"
#include "protocol/messages/sync_group.h"

namespace tarry::broker {

inline const purgatory::Kind sync_kind{"sync"};

class DelayedSync final : public GroupReply<protocol::SyncGroupResponse> {
 public:
  DelayedSync() : GroupReply(sync_kind) {}
  ~DelayedSync() override;

 private:
  void on_timeout() override;
  void given_up() override;
};

}  // namespace tarry::broker
