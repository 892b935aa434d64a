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
//               are answered with the generation that begins; very many are removed in steps, some
//               milliseconds longer.  For a static member that came back
//               in a stable group: offsets.commit.timeout.ms has passed and its new id is not
//               durable: the answer is COORDINATOR_NOT_AVAILABLE
//   cancelled   the client has gone, or the broker stops.  The member stays until its session
//               ends; one that was never told its id (versions 0 to 3) can never come back and is
//               removed at once
//
// It lives in the coroutine of its request, on the thread of the group's shard.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "broker/groups/group_reply.h"
#include "protocol/error_code.h"

namespace tarry::broker {

inline const purgatory::Kind join_kind{"join"};

// The answer to a member.  The leader gets the metadata of all members, which may be megabytes: it
// is shared with the group, and copied into the response where that does not hold up a shard.
struct JoinAnswer {
  struct Member {
    std::string member_id;
    std::optional<std::string> group_instance_id;
    SharedBytes metadata;
  };

  protocol::ErrorCode error_code = protocol::ErrorCode::none;
  std::int32_t generation_id = -1;
  std::optional<std::string> protocol_type;
  std::optional<std::string> protocol_name;
  std::string leader;
  bool skip_assignment = false;
  std::string member_id;
  std::vector<Member> members;
};

class DelayedJoin final : public GroupReply<JoinAnswer> {
 public:
  DelayedJoin() : GroupReply(join_kind) {}
  ~DelayedJoin() override;

 private:
  std::optional<purgatory::Tick> prolonged() override;
  void on_timeout() override;
  void given_up() override;
};

}  // namespace tarry::broker
