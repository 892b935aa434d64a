#include "broker/groups/group.h"

// Group: how a rebalance goes, from the first departure to the next generation (drawn in group.h).

#include <algorithm>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/log.h"

namespace tarry::broker {
namespace {

using protocol::ErrorCode;
using std::chrono::milliseconds;

// How often the group looks whether a member is back, while all are gone and their sessions go on.
constexpr milliseconds look_again{1000};

// How long until a group without members that could not be stored is stored again.
constexpr milliseconds store_again{10'000};

// Members that are removed in one turn, counted with the protocols that each has offered, a hundred
// at the most: each of these takes a microsecond or so.
constexpr std::size_t removal_a_turn = 1000;
// So many are always removed in one turn.
constexpr std::size_t few_members = 9;

constexpr std::string_view late_sync = "did not send SyncGroup in time";

}  // namespace

// --- The state machine

void Group::become(GroupState state) {
  log_debug("broker", "group {}: state changes from {} to {}, generation {}, {} members",
            printable(id_), name_of(state_), name_of(state), generation_, members_.size());
  state_ = state;
  changed_ = host_.wall();
  host_.state_changed(*this);
}

// Everybody is to join again; the generation that was is over.
void Group::rebalance() {
  refuse_syncs(ErrorCode::rebalance_in_progress);
  // Only a group that begins anew waits for more members to come.
  initial_ = is(GroupState::empty) && host_.config().group_initial_rebalance_delay.count() > 0;
  grew_ = false;
  for (auto& [id, member] : members_.all()) member.sync_expected = false;
  syncs_expected_ = 0;
  become(GroupState::preparing_rebalance);
  phase_end_ = host_.tick_after(members_.rebalance_timeout());
  const auto delay_end = host_.tick_after(host_.config().group_initial_rebalance_delay);
  // The first delay is waited for in any case; the rebalance timeout bounds its extensions.
  if (initial_) phase_end_ = std::max(phase_end_, delay_end);
  // The member that caused it was parked up to a tick ago; a static member that
  // came back may be waiting for the journal, and now waits for the generation.
  for (auto& [id, member] : members_.all()) {
    if (member.joining == nullptr) continue;
    member.joining->park(*this, member, phase_end_);
    member.joining->move_deadline(phase_end_);
  }
  if (initial_) {
    host_.wheel().schedule(phase_timer_, delay_end);
  } else {
    arm_phase_timer();
  }
  complete_join_if_all_joined();
}

// A member has come, gone, or said something new.
void Group::membership_changed() {
  if (is(GroupState::preparing_rebalance)) return complete_join_if_all_joined();
  if (!is(GroupState::dead)) rebalance();
}

void Group::complete_join_if_all_joined() {
  if (!is(GroupState::preparing_rebalance) || initial_) return;
  // A client that was just given a member id is waited for too.
  if (joined_ == members_.size() && pending_.empty()) begin_generation();
}

// A tick after the requests that wait for the phase's end: they expire, and end it then.  The
// timer is for when there are none.
void Group::arm_phase_timer() {
  host_.wheel().schedule(phase_timer_, phase_end_ + 1);
}

void Group::phase_timer_fired() {
  if (is(GroupState::empty)) return store_empty();
  if (!is(GroupState::preparing_rebalance)) return on_sync_timeout();
  // Somebody has come during the delay, so it begins again, within the rebalance timeout.
  if (initial_ && std::exchange(grew_, false) && host_.tick() < phase_end_) {
    const auto delay_end = host_.tick_after(host_.config().group_initial_rebalance_delay);
    return host_.wheel().schedule(phase_timer_, std::min(delay_end, phase_end_));
  }
  begin_generation();
}

// The timer removes them in steps, and then ends the phase.
std::optional<timing::Tick> Group::join_prolonged() const {
  if (!is(GroupState::preparing_rebalance) || host_.tick() < phase_end_) return std::nullopt;
  if (members_.size() - joined_ <= few_members) return std::nullopt;
  return host_.tick() + 1;
}

void Group::on_join_timeout() {
  if (is(GroupState::preparing_rebalance) && host_.tick() >= phase_end_) begin_generation();
}

// Members that have not joined go, a leader is found, and all who have joined get the
// generation.
void Group::begin_generation() {
  phase_timer_.cancel();
  initial_ = false;
  // A static member may come back within its session; the others' places are lost.
  const auto absent = [](const GroupMember& member) {
    return member.joining == nullptr && !member.instance_id;
  };
  if (!remove_late(absent, "did not rejoin in time"))
    return host_.wheel().schedule(phase_timer_, host_.tick() + 1);
  if (!members_.empty() && !elect_joined_leader()) {
    // Nobody is there who could assign anything: the sessions will end it.
    phase_end_ = host_.tick_after(std::max(members_.rebalance_timeout(), look_again));
    return arm_phase_timer();
  }
  // A negative number would mean that there is no generation.
  const auto next = generation_ == std::numeric_limits<std::int32_t>::max() ? 1 : generation_ + 1;
  if (members_.empty()) {
    generation_ = next;
    protocol_name_.clear();
    become(GroupState::empty);
    store_empty();
    return release_if_unused();
  }
  // All answers are made before one is given: without memory for them the rebalance goes on.
  std::vector<JoinAnswer> answers;
  answers.reserve(joined_);
  protocol_name_ = members_.vote(leader_);
  for (const auto& [id, member] : members_.all()) {
    if (member.joining == nullptr) continue;
    auto& answer = answers.emplace_back(join_answer(member));
    answer.generation_id = next;
    if (id == leader_) add_members_to(answer);
  }
  generation_ = next;
  become(GroupState::completing_rebalance);
  phase_end_ = host_.tick_after(members_.rebalance_timeout());
  arm_phase_timer();
  auto answer = answers.begin();
  for (auto& [id, member] : members_.all()) {
    // The last generation's assignments do not hold any more.
    members_.assign(member, {});
    if (member.joining == nullptr) continue;
    member.sync_expected = true;
    ++syncs_expected_;
    member.knows_its_id = true;
    member.session->heard();
    std::exchange(member.joining, nullptr)->give(std::move(*answer++));
  }
  joined_ = 0;
}

// Without this a restart would bring its last members back.
void Group::store_empty() {
  if (!was_stored_) return;
  const auto later = [this, generation = generation_] {
    // A generation that began since is stored instead.
    if (!is(GroupState::empty) || generation != generation_) return;
    if (!host_.stopping()) host_.wheel().schedule(phase_timer_, host_.tick_after(store_again));
  };
  try {
    host_.store(*this, record(), [later](ErrorCode error) {
      if (error != ErrorCode::none) later();
    });
  } catch (const std::bad_alloc&) {
    later();
  }
}

bool Group::elect_joined_leader() {
  const auto* leader = members_.find(leader_);
  if (leader != nullptr && leader->joining != nullptr) return true;
  for (const auto& [id, member] : members_.all()) {
    if (member.joining == nullptr) continue;
    leader_ = id;
    return true;
  }
  return false;
}

void Group::on_sync_timeout() {
  if (!is(GroupState::completing_rebalance) && !is(GroupState::stable)) return;
  if (host_.tick() < phase_end_) return;
  if (syncs_expected_ == 0) {
    if (is(GroupState::stable)) return;
    host_.lines().assignments.warn(
        mono(), "broker",
        fmt::format("group {}: the assignments of generation {} were not durable within {} ms",
                    printable(id_), generation_, host_.config().offsets_commit_timeout.count()));
    refuse_syncs(ErrorCode::coordinator_not_available);
    return rebalance();
  }
  if (syncs_expected_ > few_members) {
    for (auto& [id, member] : members_.all()) member.lost = member.sync_expected;
    rebalance();
    return remove_lost();
  }
  remove_late([](const GroupMember& member) { return member.sync_expected; }, late_sync);
  rebalance();
}

// --- Departures of members

bool Group::remove_late(const std::function<bool(const GroupMember&)>& late,
                        std::string_view what) {
  std::size_t spent = 0;
  for (auto next = members_.all().begin(); next != members_.all().end();) {
    // Moved on first, because remove() takes the member out of the map.
    GroupMember& member = (next++)->second;
    if (!late(member)) continue;
    if (spent >= removal_a_turn) return false;
    spent += 1 + member.protocols.size();
    log_departure(member, what);
    remove(member, ErrorCode::unknown_member_id);
  }
  return true;
}

// After a rebalance has begun: when the last of them has gone, it may be over.
void Group::remove_lost() {
  // Those that had not joined when the generation began have gone then.
  if (!is(GroupState::preparing_rebalance)) return;
  if (!remove_late([](const GroupMember& member) { return member.lost; }, late_sync))
    return host_.wheel().schedule(lost_timer_, host_.tick() + 1);
  complete_join_if_all_joined();
}

void Group::forget_join(GroupMember& member) {
  member.joining->forget();
  member.joining = nullptr;
  --joined_;
}

void Group::forget_sync(GroupMember& member) {
  member.syncing->forget();
  member.syncing = nullptr;
}

void Group::on_join_cancelled(GroupMember& member) {
  forget_join(member);
  if (host_.stopping()) return;
  // The client can come back under its id, so its session goes on.
  if (member.knows_its_id || member.instance_id) return member.session->heard();
  log_departure(member, "disconnected before it received its member id");
  // Nobody knows this id, so nobody can come back with it.
  remove(member, ErrorCode::unknown_member_id);
  membership_changed();
}

void Group::on_sync_cancelled(GroupMember& member) {
  forget_sync(member);
  member.session->heard();
}

bool Group::is_parked(std::string_view member_id) const {
  const auto* member = members_.find(member_id);
  return member != nullptr && (member->joining != nullptr || member->syncing != nullptr);
}

void Group::on_session_expired(const std::string& member_id) {
  if (is_pending(member_id)) {
    forget_pending(member_id);
    complete_join_if_all_joined();
    return release_if_unused();
  }
  GroupMember* const member = members_.find(member_id);
  TARRY_ASSERT(member != nullptr, "a session goes with its member");
  host_.lines().departures.info(
      mono(), "broker",
      fmt::format("group {}: no heartbeat from member {} for {} ms", printable(id_),
                  printable(member_id), member->session_timeout.count()));
  remove(*member, ErrorCode::unknown_member_id);
  membership_changed();
}

void Group::log_departure(const GroupMember& member, std::string_view what) {
  host_.lines().departures.info(
      mono(), "broker",
      fmt::format("group {}: member {} {}", printable(id_), printable(member.id), what));
}

void Group::remove(GroupMember& member, ErrorCode told) {
  if (member.joining != nullptr) {
    --joined_;
    std::exchange(member.joining, nullptr)->refuse(told);
  }
  if (member.syncing != nullptr) std::exchange(member.syncing, nullptr)->refuse(told);
  if (member.sync_expected) --syncs_expected_;
  const bool led = member.id == leader_;
  members_.remove(member);
  if (!led) return;
  // begin_generation() elects another one if this one does not join, or if there is no memory for
  // its name: those that are left have to learn that a member has gone.
  try {
    leader_ = members_.empty() ? std::string() : members_.all().begin()->first;
  } catch (const std::bad_alloc&) {
    leader_.clear();
  }
}

}  // namespace tarry::broker
