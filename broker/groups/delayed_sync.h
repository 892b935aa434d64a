#pragma once

// DelayedSync: a SyncGroup request that waits for the leader's assignments.
//
//   satisfied   the assignments have come and are durable.  Or they will not come: a rebalance has
//               begun (REBALANCE_IN_PROGRESS), the member was removed (UNKNOWN_MEMBER_ID) or fenced
//               (FENCED_INSTANCE_ID), it has sent another SyncGroup, or the journal refused them
//   expired     the rebalance timeout has passed since the generation began: a member that has
//               not sent SyncGroup by then, be it the leader, is removed (and gets
//               UNKNOWN_MEMBER_ID when it does), and all others must join again
//               (REBALANCE_IN_PROGRESS).  When all have sent it, only the journal is waited for,
//               for offsets.commit.timeout.ms: if it is late no member is removed, the parked ones
//               get COORDINATOR_NOT_AVAILABLE, and all must join again
//   cancelled   the client has gone, or the broker stops.  The member stays until its session ends
//
// It lives in the coroutine of its request, on the thread of the group's shard.

#include <optional>
#include <string>

#include "base/bytes.h"
#include "broker/groups/group_reply.h"
#include "protocol/error_code.h"

namespace tarry::broker {

inline const purgatory::Kind sync_kind{"sync"};

// The answer to a member.  Its assignment may be megabytes: it is shared with the group, and copied
// into the response where that does not hold up a shard.
struct SyncAnswer {
  protocol::ErrorCode error_code = protocol::ErrorCode::none;
  std::optional<std::string> protocol_type;
  std::optional<std::string> protocol_name;
  SharedBytes assignment;
};

class DelayedSync final : public GroupReply<SyncAnswer> {
 public:
  DelayedSync() : GroupReply(sync_kind) {}
  ~DelayedSync() override;

 private:
  void on_timeout() override;
  void given_up() override;
};

}  // namespace tarry::broker
