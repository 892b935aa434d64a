#pragma once

// GroupMembers: the members of a consumer group, found by member id and by instance id, and the
// protocols that all of them offer.
//
//    members     member id   --> GroupMember
//    instances   instance id --> member id           static members
//    offers      protocol    --> how many members offer it
//
// Invariants
//   - An instance id belongs to one member.  A client that comes back with it takes the member's
//     place under a new member id, and the one before is fenced (FENCED_INSTANCE_ID).
//   - All members have a protocol in common: share_one_of() is checked before one is added or
//     described anew.
//   - bytes() is the size of the members' descriptions; a group bounds it (tarry.group.max.bytes).
//   - The host and the client's share know what descriptions, assignments and expected clients take
//     together, until this is gone.
//
// Belongs to its Group.

#include <chrono>
#include <cstddef>
#include <expected>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "broker/groups/delayed_heartbeat.h"
#include "broker/groups/group_host.h"
#include "broker/groups/group_record.h"
#include "broker/groups/group_share.h"
#include "protocol/error_code.h"

namespace tarry::broker {

class DelayedJoin;
class DelayedSync;

struct GroupMember : GroupRecord::Member {
  DelayedJoin* joining = nullptr;  // Parked.
  DelayedSync* syncing = nullptr;
  bool sync_expected = false;         // It knows this generation and has not sent SyncGroup yet.
  bool knows_its_id = false;          // It was told its id: its client can come back.
  bool lost = false;                  // It will be removed, unless it joins first.
  std::size_t counted = 0;            // Its part of GroupMembers::bytes().
  std::shared_ptr<GroupShare> share;  // Its client's; null: it has not joined since the start.
  std::unique_ptr<DelayedHeartbeat> session;
};

bool offers(std::span<const GroupProtocol> protocols, std::string_view name);

class GroupMembers {
 public:
  using Map = std::map<std::string, GroupMember, std::less<>>;  // By member id.
  template <typename T>
  using Or = std::expected<T, protocol::ErrorCode>;

  GroupMembers(GroupHost& host, std::shared_ptr<GroupShare> share)
      : host_(host), share_(std::move(share)) {}
  ~GroupMembers();
  GroupMembers(const GroupMembers&) = delete;
  GroupMembers& operator=(const GroupMembers&) = delete;

  // For the flags and the sessions; a member's description changes only through describe(), its
  // assignment through assign().
  Map& all() { return members_; }
  const Map& all() const { return members_; }
  std::size_t size() const { return members_.size(); }
  bool empty() const { return members_.empty(); }
  std::size_t bytes() const { return bytes_; }
  std::size_t assigned_bytes() const { return assigned_bytes_; }
  // All that the host and the share have counted.
  std::size_t held_bytes() const { return bytes_ + assigned_bytes_ + pending_bytes_; }
  const GroupShare& share() const { return *share_; }
  void count_in(std::shared_ptr<GroupShare> share);
  // The memory of clients that are expected and are no members yet.
  void count_pending(std::size_t bytes);

  // Null: there is none.
  GroupMember* find(std::string_view id);
  const GroupMember* find(std::string_view id) const;
  GroupMember* find_static(std::string_view instance_id);
  // The member that a request comes from, or the reason why there is none.
  Or<GroupMember*> identify(std::string_view id, std::optional<std::string_view> instance_id);
  Or<const GroupMember*> identify(std::string_view id,
                                  std::optional<std::string_view> instance_id) const;

  GroupMember& add(std::string id, std::optional<std::string> instance_id);
  void describe(GroupMember& member, std::string_view client_id, std::string_view client_host,
                std::vector<GroupProtocol> protocols);
  void assign(GroupMember& member, SharedBytes assignment);
  // A static member comes back: the same place, under another id.
  GroupMember& rename(GroupMember& member, const std::string& new_id);
  void remove(GroupMember& member);

  // Whether all members, except `instead_of`, offer one of these in common.
  bool share_one_of(std::span<const GroupProtocol> protocols, const GroupMember* instead_of) const;
  // Each member votes for the first of its protocols that all have; a tie is the leader's.
  const std::string& vote(std::string_view leader) const;

  // The longest of any member.
  std::chrono::milliseconds rebalance_timeout() const;

  // The memory that a member takes.
  static std::size_t bytes_of(const GroupRecord::Member& member);
  static std::size_t bytes_of_protocol(std::size_t name, std::size_t metadata);

 private:
  void count_offers(std::span<const GroupProtocol> protocols);
  void forget_offers(std::span<const GroupProtocol> protocols);
  // The member's part of bytes(), and of what the host has counted, is `bytes` now.
  void count(GroupMember& member, std::size_t bytes);
  void tell_change(std::size_t before, std::size_t now);

  GroupHost& host_;
  std::shared_ptr<GroupShare> share_;
  Map members_;
  std::map<std::string, std::string, std::less<>> instances_;
  std::map<std::string, std::size_t, std::less<>> offers_;
  std::size_t bytes_ = 0;
  std::size_t assigned_bytes_ = 0;
  std::size_t pending_bytes_ = 0;
};

}  // namespace tarry::broker
