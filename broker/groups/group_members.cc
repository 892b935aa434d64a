#include "broker/groups/group_members.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/assert.h"

namespace tarry::broker {

using protocol::ErrorCode;
using std::chrono::milliseconds;

bool offers(std::span<const GroupProtocol> protocols, std::string_view name) {
  return std::ranges::find(protocols, name, &GroupProtocol::name) != protocols.end();
}

std::size_t GroupMembers::bytes_of_protocol(std::size_t name, std::size_t metadata) {
  // The node in offers_, with a name of its own.
  constexpr std::size_t offer = 88;
  // The block of shared metadata; empty metadata has none.
  constexpr std::size_t block = 48;
  return sizeof(GroupProtocol) + offer + 2 * name + (metadata == 0 ? 0 : block + metadata);
}

std::size_t GroupMembers::bytes_of(const GroupRecord::Member& member) {
  std::size_t bytes = sizeof(GroupMember) + 2 * member.id.size() + member.client_id.size() +
                      member.client_host.size();
  if (member.instance_id) bytes += 2 * member.instance_id->size();
  for (const auto& protocol : member.protocols) {
    bytes += bytes_of_protocol(protocol.name.size(), protocol.metadata.size());
  }
  return bytes;
}

// --- Look-up

GroupMember* GroupMembers::find(std::string_view id) {
  const auto found = members_.find(id);
  return found != members_.end() ? &found->second : nullptr;
}

const GroupMember* GroupMembers::find(std::string_view id) const {
  const auto found = members_.find(id);
  return found != members_.end() ? &found->second : nullptr;
}

GroupMember* GroupMembers::find_static(std::string_view instance_id) {
  const auto known = instances_.find(instance_id);
  return known != instances_.end() ? find(known->second) : nullptr;
}

GroupMembers::Or<const GroupMember*> GroupMembers::identify(
    std::string_view id, std::optional<std::string_view> instance_id) const {
  if (instance_id) {
    const auto known = instances_.find(*instance_id);
    if (known == instances_.end()) return std::unexpected(ErrorCode::unknown_member_id);
    // Another client has taken the place over with the same instance id.
    if (known->second != id) return std::unexpected(ErrorCode::fenced_instance_id);
  }
  const auto* found = find(id);
  if (found == nullptr) return std::unexpected(ErrorCode::unknown_member_id);
  return found;
}

GroupMembers::Or<GroupMember*> GroupMembers::identify(std::string_view id,
                                                      std::optional<std::string_view> instance_id) {
  const auto found = std::as_const(*this).identify(id, instance_id);
  if (!found) return std::unexpected(found.error());
  return const_cast<GroupMember*>(*found);
}

// --- Changes

GroupMembers::~GroupMembers() {
  tell_change(held_bytes(), 0);
}

void GroupMembers::tell_change(std::size_t before, std::size_t now) {
  share_->member_bytes += now - before;  // Modulo 2^64: it may be less.
  host_.member_bytes_changed(before, now);
}

void GroupMembers::count_in(std::shared_ptr<GroupShare> share) {
  share_->member_bytes -= held_bytes();
  share_ = std::move(share);
  share_->member_bytes += held_bytes();
}

void GroupMembers::count_pending(std::size_t bytes) {
  const std::size_t before = held_bytes();
  pending_bytes_ = bytes;
  tell_change(before, held_bytes());
}

void GroupMembers::count(GroupMember& member, std::size_t bytes) {
  const std::size_t before = held_bytes();
  bytes_ = bytes_ - member.counted + bytes;
  member.counted = bytes;
  tell_change(before, held_bytes());
}

void GroupMembers::assign(GroupMember& member, SharedBytes assignment) {
  const std::size_t before = held_bytes();
  assigned_bytes_ = assigned_bytes_ - member.assignment.size() + assignment.size();
  member.assignment = std::move(assignment);
  tell_change(before, held_bytes());
}

GroupMember& GroupMembers::add(std::string id, std::optional<std::string> instance_id) {
  // It is in both maps, or in none if there is no memory.
  if (instance_id) instances_.insert_or_assign(*instance_id, id);
  const auto place = [&] {
    try {
      return members_.try_emplace(id).first;
    } catch (const std::bad_alloc&) {
      if (instance_id) instances_.erase(*instance_id);
      throw;
    }
  }();
  GroupMember& member = place->second;
  member.id = std::move(id);
  member.instance_id = std::move(instance_id);
  count(member, bytes_of(member));
  return member;
}

void GroupMembers::describe(GroupMember& member, std::string_view client_id,
                            std::string_view client_host, std::vector<GroupProtocol> protocols) {
  // Allocations come first: if one fails, the member is as it was.
  std::string id(client_id), host(client_host);
  count_offers(protocols);
  forget_offers(member.protocols);
  member.client_id = std::move(id);
  member.client_host = std::move(host);
  member.protocols = std::move(protocols);
  count(member, bytes_of(member));
}

GroupMember& GroupMembers::rename(GroupMember& member, const std::string& new_id) {
  // Copied first: nothing finds the member while it is out of the map.
  std::string key = new_id, id = new_id, known = new_id;
  // The node moves with all that points to the member: requests that are parked, its session.
  auto place = members_.extract(member.id);
  place.key() = std::move(key);
  GroupMember& now = members_.insert(std::move(place)).position->second;
  now.id = std::move(id);
  count(now, bytes_of(now));
  instances_.find(*now.instance_id)->second = std::move(known);
  return now;
}

void GroupMembers::remove(GroupMember& member) {
  forget_offers(member.protocols);
  assign(member, {});
  count(member, 0);
  if (member.instance_id) instances_.erase(*member.instance_id);
  members_.erase(members_.find(member.id));
}

// All of them are counted, or none if there is no memory.
void GroupMembers::count_offers(std::span<const GroupProtocol> protocols) {
  std::size_t counted = 0;
  try {
    for (; counted < protocols.size(); ++counted) ++offers_[protocols[counted].name];
  } catch (const std::bad_alloc&) {
    forget_offers(protocols.first(counted));
    throw;
  }
}

void GroupMembers::forget_offers(std::span<const GroupProtocol> protocols) {
  for (const auto& protocol : protocols) {
    const auto found = offers_.find(protocol.name);
    if (--found->second == 0) offers_.erase(found);
  }
}

// --- Protocols in common

bool GroupMembers::share_one_of(std::span<const GroupProtocol> protocols,
                                const GroupMember* instead_of) const {
  const std::size_t others = members_.size() - (instead_of != nullptr ? 1 : 0);
  return std::ranges::any_of(protocols, [&](const GroupProtocol& protocol) {
    const auto found = offers_.find(protocol.name);
    const std::size_t all = found == offers_.end() ? 0 : found->second;
    const bool itself = instead_of != nullptr && offers(instead_of->protocols, protocol.name);
    return all - (itself ? 1 : 0) == others;
  });
}

const std::string& GroupMembers::vote(std::string_view leader) const {
  // The protocols that all have are among the leader's, and mostly there is one: so they are looked
  // for once, not among the many names that each member may bring.
  const auto& leaders = members_.find(leader)->second.protocols;
  std::map<std::string_view, std::size_t> votes;
  for (const auto& protocol : leaders)
    if (offers_.find(protocol.name)->second == members_.size()) votes.emplace(protocol.name, 0);
  TARRY_ASSERT(!votes.empty(), "members have a protocol in common");
  // Each member votes for the first of its protocols that all have.  The one with the most votes
  // wins, and among equals the one that the leader prefers.
  if (votes.size() > 1) {
    for (const auto& [id, member] : members_) {
      for (const auto& protocol : member.protocols) {
        const auto found = votes.find(protocol.name);
        if (found == votes.end()) continue;
        ++found->second;
        break;
      }
    }
  }
  const GroupProtocol* best = nullptr;
  std::size_t most = 0;
  for (const auto& protocol : leaders) {
    const auto found = votes.find(protocol.name);
    if (found == votes.end() || (best != nullptr && found->second <= most)) continue;
    best = &protocol;
    most = found->second;
  }
  return best->name;
}

milliseconds GroupMembers::rebalance_timeout() const {
  milliseconds longest{0};
  for (const auto& [id, member] : members_) longest = std::max(longest, member.rebalance_timeout);
  return longest;
}

}  // namespace tarry::broker
