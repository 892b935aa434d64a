#pragma once

// Group: a consumer group, which agrees on who reads which partitions (Kafka's classic protocol).
//
//                    the first member joins
//   +---------+ ------------------------------> +---------------------+ ---+
//   |  Empty  |                                 | PreparingRebalance  |    | (1)
//   +---------+ <------------------------------ +---------------------+ <--+
//     |             it ends with no member        |              ^  ^
//     | removed, or nothing                       | all are in,  |  |
//     | is left of it                             | or time is   |  +----------+
//     v                                           | up: genera-  | (2)         |
//   +---------+                                   v tion + 1     |             |
//   |  Dead   |                                 +---------------------+        |
//   +---------+                                 | CompletingRebalance |        |
//                                               +---------------------+        | (3)
//                                                 | the leader's               |
//                                                 v assignments are durable    |
//             a restart finds members           +---------------------+        |
//   ------------------------------------------> |       Stable        | -------+
//                                               +---------------------+
//
//   (1)       Time is up, the remaining members are all static, and none has joined: the group
//             waits as long again, until one has joined or their sessions have ended.
//   (2), (3)  A member joins, leaves, is lost, offers other protocols, or does not sync in time.
//   (2)       A static member comes back; the assignments are too large, or the journal refuses
//             them or is late.
//   (3)       The leader joins again; a static member comes back and another protocol is voted for.
//
//   A member:  JoinGroup -> parked until the generation begins -> SyncGroup -> parked until Stable
//              -> Heartbeat ... -> LeaveGroup
//   Pending:   was given a member id (MEMBER_ID_REQUIRED) and is expected to join with it.
//   Static:    has an instance id; a client that comes with it takes the member's place under a
//              new member id, and the one before is fenced.
//
// Invariants
//   - A generation's members and their assignments never change: each change is a rebalance.  (Only
//     a static member may come back in between, under a new id, with its former assignment.)
//   - In Empty and Dead there are no members; in other states there are some, except between the
//     last one's leaving and the end of the rebalance.
//   - No member gets assignments that are not durable.
//   - Every state that waits for a member ends by itself: by sessions, or by the rebalance timeout,
//     which counts from the beginning of a rebalance and again from that of a generation.  A first
//     rebalance lasts for the initial delay at least, and the wait for the journal is that of a
//     commit (offsets.commit.timeout.ms): neither depends on the members.
//   - A member with a parked JoinGroup counts as joined, until its client disconnects.
//
// A GroupRecord survives a restart: the last generation whose assignments reached the journal, with
// all its members, or the group when it became Empty.  The members' sessions begin anew, and a
// member continues with its generation.
//
// Belongs to Groups; everything runs on its shard's thread.  A group never waits: requests that it
// cannot answer yet are kept with their members (DelayedJoin, DelayedSync).

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "broker/groups/delayed_heartbeat.h"
#include "broker/groups/delayed_join.h"
#include "broker/groups/delayed_sync.h"
#include "broker/groups/group_host.h"
#include "broker/groups/group_members.h"
#include "broker/groups/group_record.h"
#include "broker/groups/group_waits.h"
#include "protocol/error_code.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/sync_group.h"
#include "purgatory/purgatory.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

enum class GroupState : std::uint8_t {
  empty,
  preparing_rebalance,
  completing_rebalance,
  stable,
  dead,
};
std::string_view name_of(GroupState state);  // Kafka's: "PreparingRebalance".

// The assignments from a leader, by member id.
using GroupAssignments = std::map<std::string, SharedBytes, std::less<>>;
// They may have many megabytes; on any thread.
GroupAssignments assignments_of(const protocol::SyncGroupRequest& request);
// The protocols that a client offers, each name once; none if it offers more than a hundred, which
// a group refuses.  They may have many megabytes; on any thread.
std::vector<GroupProtocol> protocols_of(const protocol::JoinGroupRequest& request);

class Group : public GroupWaits {
 public:
  Group(GroupHost& host, std::string id,
        std::shared_ptr<GroupShare> share = std::make_shared<GroupShare>());
  virtual ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& id() const { return id_; }
  GroupState state() const { return state_; }
  bool is(GroupState state) const { return state_ == state; }
  std::int32_t generation() const { return generation_; }
  const std::string& protocol_type() const { return protocol_type_; }  // "consumer"
  const std::string& protocol_name() const { return protocol_name_; }  // Chosen by this generation.
  const std::string& leader() const { return leader_; }                // A member's id.
  WallTime changed() const { return changed_; }                        // When it entered state().
  const GroupMembers::Map& members() const { return members_.all(); }
  std::size_t pending_members() const { return pending_.size(); }

  // The member's metadata for the generation's protocol; empty while there is none.
  SharedBytes metadata_of(const GroupMember& member) const;

  // --- Requests.  The group keeps those that it cannot answer yet; the caller then waits.

  // About the client that asks.
  struct JoinContext {
    std::string_view client_id;
    std::string_view client_host;
    std::string_view owner;             // The client whose GroupShare the group may count in.
    std::shared_ptr<GroupShare> share;  // That one, which Groups looks up.
    bool needs_known_id = false;  // Version 4 on: a client without a member id is given one first.
    bool can_skip = false;        // Version 9: understands skip_assignment.
    // The request's protocols_of(), where they were copied before; join() takes them.
    std::vector<GroupProtocol>* protocols = nullptr;
  };
  // Group id and session timeout were checked.
  void join(const protocol::JoinGroupRequest& request, const JoinContext& context,
            DelayedJoin& reply);
  // `assignments` are those of the request.
  void sync(const protocol::SyncGroupRequest& request, GroupAssignments assignments,
            DelayedSync& reply);
  protocol::ErrorCode heartbeat(std::int32_t generation, std::string_view member_id,
                                std::optional<std::string_view> instance_id);
  // All at once, with one rebalance; returns the result for each.
  struct Leaving {
    std::string_view member_id;  // May be empty with an instance id: the operator's tools.
    std::optional<std::string_view> instance_id;
  };
  std::vector<protocol::ErrorCode> leave(std::span<const Leaving> members);

  // --- For the offsets

  // Whether a client that says it is this member of this generation may commit offsets.  A
  // generation of -1 without a member is an operator's tool or a consumer that assigns itself:
  // only while the group has no members.
  protocol::ErrorCode check_commit(std::int32_t generation, std::string_view member_id,
                                   std::optional<std::string_view> instance_id) const;
  // A member sent a request other than a heartbeat.
  void touch_session(std::string_view member_id);

  // --- For Groups

  // Restores the group as it was last stored; only for a new group.  Errc::corrupt when the record
  // contradicts itself.
  Result<> restore(GroupRecord record);
  // Views the members, and `assignments` instead of theirs where there are some.
  GroupRecordView record(const GroupAssignments& assignments = {}) const;
  // The group has no members, and expects none.
  bool is_vacant() const { return members_.empty() && pending_.empty(); }
  // The group is removed: it refuses clients (COORDINATOR_NOT_AVAILABLE, so they try again), and
  // forgets those that were given a member id.  Only without members.
  void die();
  // A GroupStored of it may be in the journal or in db/meta.
  bool was_stored() const { return was_stored_; }

  const GroupShare& share() const { return members_.share(); }
  void count_members_in(std::shared_ptr<GroupShare> share) { members_.count_in(std::move(share)); }

  // The broker stops: no timeout changes the group any more.
  void stop() {
    phase_timer_.cancel();
    lost_timer_.cancel();
  }

 private:
  // --- GroupWaits
  GroupHost& host() override { return host_; }
  std::optional<timing::Tick> join_prolonged() const override;
  void on_join_timeout() override;
  void on_join_cancelled(GroupMember& member) override;
  void forget_join(GroupMember& member) override;
  void on_sync_timeout() override;
  void on_sync_cancelled(GroupMember& member) override;
  void forget_sync(GroupMember& member) override;
  bool is_parked(std::string_view member_id) const override;
  void on_session_expired(const std::string& member_id) override;

  // --- Joining
  void join_newcomer(const protocol::JoinGroupRequest& request, const JoinContext& context,
                     std::vector<GroupProtocol> protocols, DelayedJoin& reply);
  void join_again(GroupMember& member, const protocol::JoinGroupRequest& request,
                  const JoinContext& context, std::vector<GroupProtocol> protocols,
                  DelayedJoin& reply);
  void replace_static(GroupMember& member, const protocol::JoinGroupRequest& request,
                      const JoinContext& context, std::vector<GroupProtocol> protocols,
                      DelayedJoin& reply);
  void add_member(std::string id, const protocol::JoinGroupRequest& request,
                  const JoinContext& context, std::vector<GroupProtocol> protocols,
                  DelayedJoin& reply);
  void update(GroupMember& member, const protocol::JoinGroupRequest& request,
              const JoinContext& context, std::vector<GroupProtocol> protocols);
  void park(GroupMember& member, DelayedJoin& reply);
  JoinAnswer join_answer(const GroupMember& member) const;
  void add_members_to(JoinAnswer& answer) const;
  SyncAnswer sync_answer(const GroupMember& member) const;

  // --- The state machine
  void become(GroupState state);
  void rebalance();
  void membership_changed();
  void complete_join_if_all_joined();
  void begin_generation();
  void store_empty();
  bool elect_joined_leader();
  void take_assignments(GroupAssignments assignments);
  void assignments_stored(std::int32_t generation, GroupAssignments assignments,
                          protocol::ErrorCode error);
  void refuse_syncs(protocol::ErrorCode code);
  void settle_sync(GroupMember& member);
  void arm_phase_timer();
  void phase_timer_fired();

  // --- Members
  void remove(GroupMember& member, protocol::ErrorCode told);
  // Removes those that are `late`, some in each turn; whether none is left.
  bool remove_late(const std::function<bool(const GroupMember&)>& late, std::string_view what);
  void remove_lost();
  bool is_pending(std::string_view id) const { return pending_.contains(id); }
  void forget_pending(std::string_view id);
  // pending_ has changed.
  void count_pending();
  std::size_t max_bytes() const;
  std::string_view max_bytes_setting() const;  // The setting that decides max_bytes().
  // Whether there is room in `share` for `more` in place of `freed`.
  bool has_room(const GroupShare& share, std::size_t more, std::size_t freed = 0) const;
  // The share whose room a member from this client takes.
  const GroupShare& payer(const JoinContext& context) const;
  void log_departure(const GroupMember& member, std::string_view what);
  bool supports(std::string_view type, std::span<const GroupProtocol> protocols,
                const GroupMember* instead_of) const;
  protocol::ErrorCode room_error(const protocol::JoinGroupRequest& request,
                                 const JoinContext& context, const GroupMember* instead_of) const;
  MonoTime mono() const { return MonoTime{std::chrono::milliseconds{host_.tick()}}; }
  std::string new_member_id(std::string_view prefix);
  void release_if_unused();

  GroupHost& host_;
  const std::string id_;
  GroupState state_ = GroupState::empty;
  WallTime changed_;
  std::int32_t generation_ = 0;
  std::string protocol_type_;
  std::string protocol_name_;
  std::string leader_;
  bool was_stored_ = false;

  GroupMembers members_;
  std::map<std::string, std::unique_ptr<DelayedHeartbeat>, std::less<>> pending_;
  std::size_t joined_ = 0;          // Members with a parked JoinGroup.
  std::size_t syncs_expected_ = 0;  // Members that owe a SyncGroup.

  // PreparingRebalance: it ends at phase_end_ at the latest.  While it is the initial one it ends
  // with the timer alone, which waits on while newcomers come.  CompletingRebalance and Stable:
  // a member that still owes a SyncGroup then is removed; when none does, the journal was late.
  // Empty: the timer runs when that could not be stored, and it is stored again then.
  timing::Tick phase_end_ = 0;
  bool initial_ = false;
  bool grew_ = false;
  timing::CallbackTimer phase_timer_;
  timing::CallbackTimer lost_timer_;     // While members are to be removed that are lost.
  std::optional<std::int32_t> storing_;  // The generation whose assignments are being written.
};

}  // namespace tarry::broker
