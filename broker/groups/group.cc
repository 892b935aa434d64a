#include "broker/groups/group.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/log.h"
#include "storage/journal.h"

namespace tarry::broker {
namespace {

using protocol::ErrorCode;
using protocol::JoinGroupRequest;
using protocol::SyncGroupRequest;
using std::chrono::milliseconds;

// A client id may have 32 KiB, and a member's id goes to all members.
constexpr std::size_t max_prefix_bytes = 255;

// A client that is given a member id joins with it at once.
constexpr milliseconds max_pending_time{10'000};

// The memory of a member id that was given out, which the session and the map have.
constexpr std::size_t bytes_of_pending = sizeof(DelayedHeartbeat) + 3 * max_prefix_bytes;
// The memory of a group, which may exist for such ids alone.
constexpr std::size_t bytes_of_group = 2048;

// Clients offer one to three.
constexpr std::size_t max_protocols = 100;

// The part of a group's record beside its members' texts and assignments: four strings of 32 KiB at
// most (the protocol's type and name, the leader, the client id of the member that joins last).
constexpr std::size_t bytes_beside = std::size_t{160} << 10;

// The memory that a member with this request would take.
std::size_t bytes_of(const JoinGroupRequest& request) {
  std::size_t bytes = sizeof(GroupMember) + 2 * request.member_id.size();
  if (request.group_instance_id) bytes += 2 * request.group_instance_id->size();
  for (const auto& protocol : request.protocols) {
    bytes += GroupMembers::bytes_of_protocol(protocol.name.size(), protocol.metadata.size());
  }
  return bytes;
}

// The place of the id that begins most like `id`: ids begin with their client's.
template <typename Pending>
auto most_similar(Pending& pending, std::string_view id) {
  const auto alike = [id](const auto& at) {
    return std::ranges::mismatch(at->first, id).in1 - at->first.begin();
  };
  const auto next = pending.lower_bound(id);
  if (next == pending.begin()) return next;
  const auto previous = std::prev(next);
  return next == pending.end() || alike(previous) > alike(next) ? previous : next;
}

void refuse_join(DelayedJoin& reply, const JoinGroupRequest& request, ErrorCode code) {
  JoinAnswer answer;
  answer.error_code = code;
  answer.member_id = request.member_id;
  reply.give(std::move(answer));
}

}  // namespace

std::vector<GroupProtocol> protocols_of(const JoinGroupRequest& request) {
  std::vector<GroupProtocol> protocols;
  // Each is compared with all others.
  if (request.protocols.size() > max_protocols) return protocols;
  protocols.reserve(request.protocols.size());
  for (const auto& [name, metadata] : request.protocols) {
    if (offers(protocols, name)) continue;
    protocols.push_back({std::string(name), shared_copy(metadata)});
  }
  return protocols;
}

std::string_view name_of(GroupState state) {
  switch (state) {
    case GroupState::empty:
      return "Empty";
    case GroupState::preparing_rebalance:
      return "PreparingRebalance";
    case GroupState::completing_rebalance:
      return "CompletingRebalance";
    case GroupState::stable:
      return "Stable";
    case GroupState::dead:
      return "Dead";
  }
  return "Unknown";
}

Group::Group(GroupHost& host, std::string id, std::shared_ptr<GroupShare> share)
    : host_(host),
      id_(std::move(id)),
      changed_(host.wall()),
      members_(host, std::move(share)),
      phase_timer_([this] { phase_timer_fired(); }),
      lost_timer_([this] { remove_lost(); }) {}

Group::~Group() {
  for (auto& [id, member] : members_.all()) {
    if (member.joining != nullptr) member.joining->forget();
    if (member.syncing != nullptr) member.syncing->forget();
  }
}

SharedBytes Group::metadata_of(const GroupMember& member) const {
  const auto protocol = std::ranges::find(member.protocols, protocol_name_, &GroupProtocol::name);
  return protocol == member.protocols.end() ? SharedBytes() : protocol->metadata;
}

// --- JoinGroup

void Group::join(const JoinGroupRequest& request, const JoinContext& context, DelayedJoin& reply) {
  if (is(GroupState::dead))
    return refuse_join(reply, request, ErrorCode::coordinator_not_available);
  if (request.protocols.size() > max_protocols)
    return refuse_join(reply, request, ErrorCode::inconsistent_group_protocol);
  auto protocols =
      context.protocols != nullptr ? std::move(*context.protocols) : protocols_of(request);
  if (request.member_id.empty()) {
    return join_newcomer(request, context, std::move(protocols), reply);
  }
  if (is_pending(request.member_id)) {
    // A static member is never given an id first.
    if (request.group_instance_id) return refuse_join(reply, request, ErrorCode::unknown_member_id);
    if (!supports(request.protocol_type, protocols, nullptr)) {
      return refuse_join(reply, request, ErrorCode::inconsistent_group_protocol);
    }
    if (members_.size() >= static_cast<std::size_t>(host_.config().group_max_size))
      return refuse_join(reply, request, ErrorCode::group_max_size_reached);
    if (const auto error = room_error(request, context, nullptr); error != ErrorCode::none)
      return refuse_join(reply, request, error);
    forget_pending(request.member_id);
    return add_member(std::string(request.member_id), request, context, std::move(protocols),
                      reply);
  }
  const auto member = members_.identify(request.member_id, request.group_instance_id);
  if (!member) return refuse_join(reply, request, member.error());
  join_again(**member, request, context, std::move(protocols), reply);
}

void Group::join_newcomer(const JoinGroupRequest& request, const JoinContext& context,
                          std::vector<GroupProtocol> protocols, DelayedJoin& reply) {
  const BrokerConfig& config = host_.config();
  GroupMember* const place =
      request.group_instance_id ? members_.find_static(*request.group_instance_id) : nullptr;
  if (!supports(request.protocol_type, protocols, place)) {
    return refuse_join(reply, request, ErrorCode::inconsistent_group_protocol);
  }
  if (const auto error = room_error(request, context, place); error != ErrorCode::none)
    return refuse_join(reply, request, error);
  if (place != nullptr)
    return replace_static(*place, request, context, std::move(protocols), reply);
  const auto max_size = static_cast<std::size_t>(config.group_max_size);
  if (members_.size() >= max_size)
    return refuse_join(reply, request, ErrorCode::group_max_size_reached);
  std::string id = new_member_id(request.group_instance_id.value_or(context.client_id));
  if (context.needs_known_id && !request.group_instance_id) {
    JoinAnswer answer;
    answer.error_code = ErrorCode::member_id_required;
    answer.member_id = id;
    // Clients that take ids and do not come back lock nobody out: each takes the place of another,
    // of the same client id if there is one.  A client that comes back without a place is given
    // another id.
    if (pending_.size() >= max_size) {
      pending_.erase(most_similar(pending_, id));
    } else if (!has_room(members_.empty() ? payer(context) : share(),
                         bytes_of_group + bytes_of_pending)) {
      return refuse_join(reply, request, ErrorCode::coordinator_not_available);
    }
    const milliseconds session_timeout{request.session_timeout_ms};
    auto session =
        std::make_unique<DelayedHeartbeat>(*this, id, std::min(session_timeout, max_pending_time));
    pending_.emplace(std::move(id), std::move(session));
    count_pending();
    return reply.give(std::move(answer));
  }
  add_member(std::move(id), request, context, std::move(protocols), reply);
}

void Group::join_again(GroupMember& member, const JoinGroupRequest& request,
                       const JoinContext& context, std::vector<GroupProtocol> protocols,
                       DelayedJoin& reply) {
  if (!supports(request.protocol_type, protocols, &member)) {
    return refuse_join(reply, request, ErrorCode::inconsistent_group_protocol);
  }
  if (const auto error = room_error(request, context, &member); error != ErrorCode::none)
    return refuse_join(reply, request, error);
  const bool same = member.protocols == protocols && protocol_type_ == request.protocol_type;
  // As in Kafka, a leader that joins a stable group again asks for a rebalance.
  const bool leads = member.id == leader_;
  // A member that has missed the answer gets the generation that has begun once more.
  if ((is(GroupState::completing_rebalance) && same) ||
      (is(GroupState::stable) && same && !leads)) {
    member.session->heard();
    auto answer = join_answer(member);
    if (leads) add_members_to(answer);
    return reply.give(std::move(answer));
  }
  update(member, request, context, std::move(protocols));
  park(member, reply);
  membership_changed();
}

void Group::replace_static(GroupMember& member, const JoinGroupRequest& request,
                           const JoinContext& context, std::vector<GroupProtocol> protocols,
                           DelayedJoin& reply) {
  const std::string old_id = member.id;
  const std::string old_leader = leader_;
  const std::string new_id = new_member_id(*member.instance_id);
  host_.lines().takeovers.info(
      mono(), "broker",
      fmt::format("group {}: member {} is replaced by {}, which has the same group.instance.id",
                  printable(id_), printable(old_id), printable(new_id)));
  // A client that waits under the old id is fenced: the place belongs to the new one.
  if (member.joining != nullptr) {
    --joined_;
    std::exchange(member.joining, nullptr)->refuse(ErrorCode::fenced_instance_id);
  }
  if (member.syncing != nullptr) {
    std::exchange(member.syncing, nullptr)->refuse(ErrorCode::fenced_instance_id);
  }
  // Made before the new id is known: without a session it would stay for ever.
  const milliseconds timeout{request.session_timeout_ms};
  auto session = std::make_unique<DelayedHeartbeat>(*this, new_id, timeout);
  std::string leader = leader_ == old_id ? new_id : leader_;
  GroupMember& now = members_.rename(member, new_id);
  now.knows_its_id = false;
  leader_ = std::move(leader);
  now.session = std::move(session);
  now.session_timeout = timeout;
  update(now, request, context, std::move(protocols));
  park(now, reply);

  // A stable group goes on as it was, unless another protocol is voted for now.
  if (!is(GroupState::stable) || members_.vote(leader_) != protocol_name_)
    return membership_changed();
  host_.state_changed(*this);
  // It waits for the journal alone, and not for a rebalance.
  reply.park(*this, now, host_.tick_after(host_.config().offsets_commit_timeout));
  // It goes on with what it had, once a restart would know it under its new id.
  was_stored_ = true;
  host_.store(*this, record(),
              [this, new_id, old_leader, can_skip = context.can_skip](ErrorCode error) {
                GroupMember* const found = members_.find(new_id);
                if (found == nullptr || found->joining == nullptr) return;
                if (!is(GroupState::stable)) return;  // It joins the generation that comes.
                GroupMember& back = *found;
                --joined_;
                DelayedJoin& waiting = *std::exchange(back.joining, nullptr);
                back.session->heard();
                if (error != ErrorCode::none) return waiting.refuse(error);
                back.knows_its_id = true;
                auto answer = join_answer(back);
                if (back.id == leader_) {
                  // A leader that does not know skip_assignment must not assign anew: nobody would
                  // be told.
                  if (can_skip) {
                    answer.skip_assignment = true;
                    add_members_to(answer);
                  } else {
                    answer.leader = old_leader;
                  }
                }
                waiting.give(std::move(answer));
              });
}

void Group::add_member(std::string id, const JoinGroupRequest& request, const JoinContext& context,
                       std::vector<GroupProtocol> protocols, DelayedJoin& reply) {
  std::string leader = leader_.empty() ? id : leader_;
  std::optional<std::string> instance_id;
  if (request.group_instance_id) instance_id = *request.group_instance_id;
  GroupMember& member = members_.add(std::move(id), std::move(instance_id));
  member.knows_its_id = !request.member_id.empty();
  try {
    update(member, request, context, std::move(protocols));
  } catch (const std::bad_alloc&) {
    // Nobody knows its id, and without a session it would stay for ever.
    members_.remove(member);
    throw;
  }
  leader_ = std::move(leader);
  park(member, reply);
  // A first rebalance is prolonged while members still come.
  if (is(GroupState::preparing_rebalance)) grew_ = true;
  membership_changed();
}

// The member is from now on as the request says.
void Group::update(GroupMember& member, const JoinGroupRequest& request, const JoinContext& context,
                   std::vector<GroupProtocol> protocols) {
  // Allocations come first, because they may fail: a member that is described anew causes a
  // rebalance.
  const milliseconds session{request.session_timeout_ms};
  std::unique_ptr<DelayedHeartbeat> begun;
  if (member.session == nullptr || member.session_timeout != session)
    begun = std::make_unique<DelayedHeartbeat>(*this, member.id, session);
  if (members_.size() == 1) protocol_type_ = request.protocol_type;
  members_.describe(member, context.client_id, context.client_host, std::move(protocols));
  member.share = context.share;
  // Version 0 has one timeout for both.
  member.rebalance_timeout =
      request.rebalance_timeout_ms < 0 ? session : milliseconds{request.rebalance_timeout_ms};
  if (begun != nullptr) {
    member.session_timeout = session;
    member.session = std::move(begun);
  } else {
    member.session->heard();
  }
}

void Group::park(GroupMember& member, DelayedJoin& reply) {
  if (member.joining == nullptr) {
    ++joined_;
  } else {
    // It has asked again, on another connection: who waits on the old one is not needed.
    std::exchange(member.joining, nullptr)->refuse(ErrorCode::rebalance_in_progress);
  }
  member.joining = &reply;
  member.lost = false;
  // When a rebalance begins now, it ends then too.
  reply.park(*this, member,
             is(GroupState::preparing_rebalance) ? phase_end_
                                                 : host_.tick_after(members_.rebalance_timeout()));
}

JoinAnswer Group::join_answer(const GroupMember& member) const {
  JoinAnswer answer;
  answer.generation_id = generation_;
  answer.protocol_type = protocol_type_;
  answer.protocol_name = protocol_name_;
  answer.leader = leader_;
  answer.member_id = member.id;
  return answer;
}

void Group::add_members_to(JoinAnswer& answer) const {
  answer.members.reserve(members_.size());
  for (const auto& [id, member] : members_.all())
    answer.members.push_back({id, member.instance_id, metadata_of(member)});
}

// --- SyncGroup

GroupAssignments assignments_of(const SyncGroupRequest& request) {
  GroupAssignments assignments;
  for (const auto& [member_id, assignment] : request.assignments)
    assignments[std::string(member_id)] = shared_copy(assignment);
  return assignments;
}

void Group::sync(const SyncGroupRequest& request, GroupAssignments assignments,
                 DelayedSync& reply) {
  if (is(GroupState::dead)) return reply.refuse(ErrorCode::coordinator_not_available);
  const auto found = members_.identify(request.member_id, request.group_instance_id);
  if (!found) return reply.refuse(found.error());
  if (request.generation_id != generation_) return reply.refuse(ErrorCode::illegal_generation);
  if ((request.protocol_type && *request.protocol_type != protocol_type_) ||
      (request.protocol_name && *request.protocol_name != protocol_name_)) {
    return reply.refuse(ErrorCode::inconsistent_group_protocol);
  }
  GroupMember& member = **found;
  if (is(GroupState::preparing_rebalance)) return reply.refuse(ErrorCode::rebalance_in_progress);
  settle_sync(member);
  member.session->heard();
  if (is(GroupState::stable)) return reply.give(sync_answer(member));

  if (member.syncing != nullptr) {
    std::exchange(member.syncing, nullptr)->refuse(ErrorCode::rebalance_in_progress);
  }
  member.syncing = &reply;
  reply.park(*this, member, phase_end_);
  // A leader that asks again has its assignments on the way to the journal already.
  if (member.id == leader_ && storing_ != generation_) take_assignments(std::move(assignments));
}

SyncAnswer Group::sync_answer(const GroupMember& member) const {
  SyncAnswer answer;
  answer.protocol_type = protocol_type_;
  answer.protocol_name = protocol_name_;
  answer.assignment = member.assignment;
  return answer;
}

void Group::take_assignments(GroupAssignments assignments) {
  // Members that have left since need no assignment.
  std::erase_if(assignments,
                [&](const auto& each) { return members_.find(each.first) == nullptr; });
  std::size_t bytes = 0;
  for (const auto& [member_id, assignment] : assignments) bytes += assignment.size();
  // Not together with the members, who were let in: the group would rebalance for ever.
  if (bytes > max_bytes()) {
    host_.lines().assignments.warn(
        mono(), "broker",
        fmt::format("group {}: the leader's assignments have {} bytes; the limit is {} ({})",
                    printable(id_), bytes, max_bytes(), max_bytes_setting()));
    refuse_syncs(ErrorCode::unknown_server_error);
    return rebalance();
  }
  if (!has_room(share(), bytes, members_.assigned_bytes())) {
    refuse_syncs(ErrorCode::coordinator_not_available);
    return rebalance();
  }
  // The record has the assignments before the members do: they count only when they are durable.
  const auto kept = std::make_shared<GroupAssignments>(std::move(assignments));
  host_.store(*this, record(*kept), [this, generation = generation_, kept](ErrorCode error) {
    assignments_stored(generation, std::move(*kept), error);
  });
  // Afterwards: if there was no memory, nothing is on its way, and the leader may ask again.
  storing_ = generation_;
  was_stored_ = true;
}

void Group::assignments_stored(std::int32_t generation, GroupAssignments assignments,
                               ErrorCode error) {
  if (storing_ == generation) storing_.reset();
  // A rebalance has begun meanwhile: those who asked have their answers.
  if (generation != generation_ || !is(GroupState::completing_rebalance)) return;
  if (error != ErrorCode::none) {
    refuse_syncs(error);
    return rebalance();
  }
  become(GroupState::stable);
  for (auto& [id, member] : members_.all()) {
    // A member without an assignment gets empty bytes.
    if (const auto found = assignments.find(id); found != assignments.end()) {
      members_.assign(member, std::move(found->second));
    }
    if (member.syncing == nullptr) continue;
    member.session->heard();
    std::exchange(member.syncing, nullptr)->give(sync_answer(member));
  }
  // Everybody has asked, so the timer has nobody to remove.
  if (syncs_expected_ == 0) phase_timer_.cancel();
}

void Group::refuse_syncs(ErrorCode code) {
  for (auto& [id, member] : members_.all()) {
    if (member.syncing == nullptr) continue;
    member.session->heard();
    std::exchange(member.syncing, nullptr)->refuse(code);
  }
}

void Group::settle_sync(GroupMember& member) {
  if (!std::exchange(member.sync_expected, false)) return;
  if (--syncs_expected_ > 0) return;
  if (is(GroupState::stable)) return phase_timer_.cancel();
  // The leader has asked too, so only the journal is waited for: that takes as long as it takes for
  // a commit, whatever the members' own timeouts.
  phase_end_ = host_.tick_after(host_.config().offsets_commit_timeout);
  for (auto& [id, each] : members_.all()) {
    if (each.syncing != nullptr) each.syncing->move_deadline(phase_end_);
  }
  arm_phase_timer();
}

// --- Heartbeat, LeaveGroup, commits

ErrorCode Group::heartbeat(std::int32_t generation, std::string_view member_id,
                           std::optional<std::string_view> instance_id) {
  if (is(GroupState::dead)) return ErrorCode::coordinator_not_available;
  const auto member = members_.identify(member_id, instance_id);
  if (!member) return member.error();
  if (generation != generation_) return ErrorCode::illegal_generation;
  (*member)->session->heard();
  return is(GroupState::preparing_rebalance) ? ErrorCode::rebalance_in_progress : ErrorCode::none;
}

std::vector<ErrorCode> Group::leave(std::span<const Leaving> members) {
  std::vector<ErrorCode> results;
  results.reserve(members.size());
  bool changed = false;
  for (const auto& [member_id, instance_id] : members) {
    if (is(GroupState::dead)) {
      results.push_back(ErrorCode::coordinator_not_available);
      continue;
    }
    if (!instance_id && is_pending(member_id)) {
      forget_pending(member_id);
      results.push_back(ErrorCode::none);
      continue;
    }
    std::string_view who = member_id;
    if (who.empty() && instance_id) {
      if (const auto* known = members_.find_static(*instance_id)) who = known->id;
    }
    const auto member = members_.identify(who, instance_id);
    results.push_back(member ? ErrorCode::none : member.error());
    if (!member) continue;
    log_debug("broker", "group {}: member {} leaves", printable(id_), printable((*member)->id));
    remove(**member, ErrorCode::unknown_member_id);
    changed = true;
  }
  // One rebalance for all that leave together.
  if (changed) membership_changed();
  complete_join_if_all_joined();
  release_if_unused();
  return results;
}

ErrorCode Group::check_commit(std::int32_t generation, std::string_view member_id,
                              std::optional<std::string_view> instance_id) const {
  if (is(GroupState::dead)) return ErrorCode::coordinator_not_available;
  if (generation < 0 && members_.empty()) return ErrorCode::none;
  if (generation < 0 && member_id.empty() && !instance_id) return ErrorCode::unknown_member_id;
  const auto member = members_.identify(member_id, instance_id);
  if (!member) return member.error();
  if (generation != generation_) return ErrorCode::illegal_generation;
  // It has joined and does not know yet what it has.
  if (is(GroupState::completing_rebalance)) return ErrorCode::rebalance_in_progress;
  return ErrorCode::none;
}

void Group::touch_session(std::string_view member_id) {
  if (auto* member = members_.find(member_id)) member->session->heard();
}

// --- The places of clients, and their memory

void Group::forget_pending(std::string_view id) {
  pending_.erase(pending_.find(id));
  count_pending();
}

void Group::count_pending() {
  members_.count_pending(pending_.empty() ? 0
                                          : bytes_of_group + pending_.size() * bytes_of_pending);
}

bool Group::has_room(const GroupShare& share, std::size_t more, std::size_t freed) const {
  return more <= freed || host_.has_member_room(*this, share, more - freed);
}

const GroupShare& Group::payer(const JoinContext& context) const {
  const bool changes = members_.empty() || share().is_nobodys;
  return changes && context.share ? *context.share : share();
}

void Group::release_if_unused() {
  if (is(GroupState::empty) && is_vacant()) host_.on_unused(*this);
}

void Group::die() {
  TARRY_ASSERT(members_.empty(), "a group with members is not removed");
  phase_timer_.cancel();
  lost_timer_.cancel();
  // A client that comes with one of these ids is told to look for its coordinator again.
  pending_.clear();
  count_pending();
  become(GroupState::dead);
}

// --- The stored record

GroupRecordView Group::record(const GroupAssignments& assignments) const {
  GroupRecordView out;
  out.generation = generation_;
  out.changed = changed_;
  out.protocol_type = protocol_type_;
  out.protocol_name = protocol_name_;
  out.leader = leader_;
  out.members.reserve(members_.size());
  for (const auto& [id, member] : members_.all()) {
    const auto given = assignments.find(id);
    out.members.push_back(
        {&member, given == assignments.end() ? member.assignment : given->second});
  }
  return out;
}

Result<> Group::restore(GroupRecord record) {
  TARRY_ASSERT(is_vacant() && generation_ == 0, "a group is restored before it is used");
  // Later code relies on both: that each member offers the protocol, and that the leader is a
  // member.
  for (const auto& member : record.members) {
    if (offers(member.protocols, record.protocol_name)) continue;
    return fail(Errc::corrupt,
                fmt::format("group {}: member {} does not offer protocol {}", printable(id_),
                            printable(member.id), printable(record.protocol_name)));
  }
  const bool has_leader = !record.members.empty() || !record.leader.empty();
  if (has_leader && std::ranges::find(record.members, record.leader, &GroupRecord::Member::id) ==
                        record.members.end()) {
    return fail(Errc::corrupt, fmt::format("group {}: its leader {} is not a member",
                                           printable(id_), printable(record.leader)));
  }
  generation_ = record.generation;
  protocol_type_ = std::move(record.protocol_type);
  protocol_name_ = std::move(record.protocol_name);
  leader_ = std::move(record.leader);
  for (auto& stored : record.members) {
    GroupMember& member = members_.add(std::move(stored.id), std::move(stored.instance_id));
    members_.describe(member, stored.client_id, stored.client_host, std::move(stored.protocols));
    member.session_timeout = stored.session_timeout;
    member.rebalance_timeout = stored.rebalance_timeout;
    members_.assign(member, std::move(stored.assignment));
    member.knows_its_id = true;
    member.session = std::make_unique<DelayedHeartbeat>(*this, member.id, member.session_timeout);
  }
  if (!members_.empty()) become(GroupState::stable);
  // become() has set the time to now.
  changed_ = record.changed;
  was_stored_ = true;
  return {};
}

// --- Members

// Whether a client with these can be a member: all must have one protocol in common.  `instead_of`
// is the member that it is or replaces.
bool Group::supports(std::string_view type, std::span<const GroupProtocol> protocols,
                     const GroupMember* instead_of) const {
  if (type.empty() || protocols.empty()) return false;
  if (members_.size() == (instead_of != nullptr ? 1U : 0U)) return true;
  return type == protocol_type_ && members_.share_one_of(protocols, instead_of);
}

// The limit for the members' descriptions, and for their assignments: a journal record has both.
std::size_t Group::max_bytes() const {
  const auto journal_bytes = static_cast<std::uint64_t>(host_.config().journal_max_bytes);
  const std::uint64_t record = storage::record_limit(journal_bytes, storage::Reserve::keep);
  return std::min(static_cast<std::size_t>(host_.config().group_max_bytes),
                  (record - bytes_beside) / 2);
}

std::string_view Group::max_bytes_setting() const {
  return max_bytes() == static_cast<std::size_t>(host_.config().group_max_bytes)
             ? "tarry.group.max.bytes"
             : "a quarter of tarry.journal.max.bytes";
}

// The error if what this client says is too large for a member, or for one that takes another's
// place: for the group's own limit, or for the room that other groups have left, which clients ask
// for again.
ErrorCode Group::room_error(const JoinGroupRequest& request, const JoinContext& context,
                            const GroupMember* instead_of) const {
  const std::size_t freed = instead_of != nullptr ? GroupMembers::bytes_of(*instead_of) : 0;
  const std::size_t wanted = bytes_of(request);
  const std::size_t bytes = members_.bytes() - freed + wanted;
  if (bytes > max_bytes()) {
    host_.lines().limits.warn(mono(), "broker",
                              fmt::format("group {}: a member is refused: all subscriptions "
                                          "together would take {} bytes; the limit is {} ({})",
                                          printable(id_), bytes, max_bytes(), max_bytes_setting()));
    return ErrorCode::group_max_size_reached;
  }
  if (!has_room(payer(context), wanted, freed)) return ErrorCode::coordinator_not_available;
  return ErrorCode::none;
}

// Kafka's form: the client's id or the instance id, and a random UUID.
std::string Group::new_member_id(std::string_view prefix) {
  const TopicId uuid = host_.random().topic_id();
  std::string id(prefix.substr(0, max_prefix_bytes));
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) id += '-';
    id += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return id;
}

}  // namespace tarry::broker
