#include "broker/groups/group_offsets.h"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "broker/context/durability_wait.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {

using protocol::ErrorCode;
using std::chrono::milliseconds;

namespace {

// Commits on their way keep an expiry from telling old from new; they are there for a round.
constexpr milliseconds wait_for_commits{1000};

// In one turn: offsets of which it is only asked when they expire, and those that are removed.
constexpr std::size_t asked_a_turn = 4096;
constexpr std::size_t expired_a_turn = 1000;
constexpr milliseconds between_expiries{10};

// The memory of one offset, with its place in the map.
std::size_t bytes_of(const CommittedOffset& offset) {
  return sizeof(GroupOffsets::Map::value_type) + 4 * sizeof(void*) + offset.metadata.size();
}

storage::CommittedOffset view_of(const TopicPartition& partition, const CommittedOffset& offset) {
  return {partition,        offset.offset,  offset.leader_epoch,
          offset.committed, offset.expires, offset.metadata};
}

ErrorCode commit_error(const Error& error) {
  return error.code == Errc::too_large ? ErrorCode::invalid_commit_offset_size
                                       : ErrorCode::coordinator_not_available;
}

}  // namespace

struct GroupOffsets::State {
  ShardContext& shard;
  OffsetBudget& budget;
  std::shared_ptr<GroupShare> share;
  const std::string group;
  std::move_only_function<void()> on_empty;
  Map offsets;
  const std::size_t name_bytes;
  std::size_t bytes = 0;          // The size of `offsets`, without those on their way.
  std::size_t pending = 0;        // Journal records on their way.
  GroupOffsets* owner = nullptr;  // Null when the group is gone.

  void enter(std::shared_ptr<GroupShare> into) {
    share = std::move(into);
    ++share->groups;
    share->name_bytes += name_bytes;
    share->offset_bytes += bytes;
  }
  void leave() {
    --share->groups;
    share->name_bytes -= name_bytes;
    share->offset_bytes -= bytes;
  }

  void hold(std::size_t more) {
    bytes += more;
    budget.bytes += more;
    share->offset_bytes += more;
  }
  void release(std::size_t less) {
    bytes -= less;
    budget.bytes -= less;
    share->offset_bytes -= less;
  }

  // Empty if a commit of `all` bytes, `more` of them new, has room; else the bound that it hits.
  std::string_view bound_of(const GroupShare& payer, std::size_t all, std::size_t more,
                            std::size_t limit) const {
    if (more == 0) return budget.bytes + all <= limit ? "" : "all of which is taken";
    if (all <= budget.room_of(payer, limit)) return "";
    return budget.bytes + all > OffsetBudget::for_new(limit)
               ? "and an eighth of it is kept for repeated commits"
               : "and no client may use more than it leaves free for others";
  }
};

GroupOffsets::GroupOffsets(ShardContext& shard, OffsetBudget& budget, std::string group,
                           std::move_only_function<void()> on_empty,
                           std::shared_ptr<GroupShare> share, std::size_t name_bytes)
    : shard_(shard),
      budget_(budget),
      state_(std::make_shared<State>(shard, budget, nullptr, std::move(group), std::move(on_empty),
                                     Map{}, name_bytes)),
      timer_([this] { expire(); }) {
  state_->owner = this;
  state_->enter(std::move(share));
  budget.name_bytes += name_bytes;
}

GroupOffsets::~GroupOffsets() {
  // Records on their way keep the state; their callbacks see that its owner is gone.
  state_->leave();
  budget_.bytes -= state_->bytes;
  budget_.name_bytes -= state_->name_bytes;
  state_->offsets.clear();
  state_->owner = nullptr;
}

void GroupOffsets::restore(std::span<const storage::CommittedOffset> offsets) {
  TARRY_ASSERT(empty(), "only a new group is restored");
  for (const auto& stored : offsets) {
    const auto& offset =
        state_->offsets
            .insert_or_assign(stored.partition,
                              CommittedOffset{stored.offset, stored.leader_epoch, stored.committed,
                                              stored.expires, std::string(stored.metadata)})
            .first->second;
    state_->hold(bytes_of(offset));
  }
  arm_for_all();
}

const GroupShare& GroupOffsets::share() const {
  shard_.assert_on_shard();
  return *state_->share;
}

// Commits on their way stay in the share that they began with.
void GroupOffsets::count_in(std::shared_ptr<GroupShare> share) {
  shard_.assert_on_shard();
  state_->leave();
  state_->enter(std::move(share));
}

const GroupOffsets::Map& GroupOffsets::all() const {
  shard_.assert_on_shard();
  return state_->offsets;
}

const CommittedOffset* GroupOffsets::find(const TopicPartition& partition) const {
  shard_.assert_on_shard();
  const auto found = state_->offsets.find(partition);
  return found == state_->offsets.end() ? nullptr : &found->second;
}

bool GroupOffsets::empty() const {
  shard_.assert_on_shard();
  return state_->offsets.empty() && state_->pending == 0;
}

// A commit takes room when it is written; when it is durable, its offsets take it in its place.
std::expected<Lsn, ErrorCode> GroupOffsets::commit(Commits commits,
                                                   std::shared_ptr<GroupShare> payer) {
  shard_.assert_on_shard();
  TARRY_ASSERT(!commits.empty(), "a commit has at least one offset");
  // Until the old ones go, both are there.
  std::size_t bytes = 0, more = 0;
  for (const auto& [partition, offset] : commits) {
    const std::size_t size = bytes_of(offset);
    const auto* const known = find(partition);
    bytes += size;
    more += size - std::min(size, known == nullptr ? 0 : bytes_of(*known));
  }
  const auto limit = static_cast<std::size_t>(shard_.config().group_offsets_bytes);
  if (bytes > limit) return std::unexpected(ErrorCode::invalid_commit_offset_size);
  if (!payer) payer = state_->share;
  if (const auto bound = state_->bound_of(*payer, bytes, more, limit); !bound.empty()) {
    budget_.full.error(
        shard_.clock().mono(), "broker",
        fmt::format("committed offsets take {} bytes in shard {}, {} of them for one client; the "
                    "limit is {} (tarry.group.offsets.bytes), {}: a commit of group {} with {} "
                    "bytes is refused, and others will be, until offsets expire or are deleted",
                    budget_.bytes, shard_.index(), payer->offset_bytes, limit, bound,
                    printable(state_->group), bytes));
    return std::unexpected(ErrorCode::coordinator_not_available);  // Clients try again.
  }

  storage::OffsetsCommitted operation{state_->group, {}};
  operation.offsets.reserve(commits.size());
  for (const auto& [partition, offset] : commits)
    operation.offsets.push_back(view_of(partition, offset));
  storage::JournalTransaction transaction;
  transaction.add(operation);
  transaction.on_durable([state = state_, payer, bytes, commits = std::move(commits)]() mutable {
    ShardContext& shard = state->shard;
    --state->pending;
    state->budget.bytes -= bytes;
    payer->offset_bytes -= bytes;
    // Its topic may have been deleted since, and its other offsets with it.
    std::erase_if(commits, [&](const auto& c) { return !shard.topics().find(c.first.topic); });
    storage::OffsetsCommitted done{state->group, {}};
    for (const auto& [partition, offset] : commits)
      done.offsets.push_back(view_of(partition, offset));
    if (auto applied = shard.broker_context().offset_store->apply(done); !applied)
      return shard.journal_failed(applied.error());
    if (state->owner == nullptr) return;  // Its removal comes after this in the journal.
    // The last that the group waited for, and nothing of it is left.
    if (state->owner->empty() && commits.empty()) return state->on_empty();
    std::optional<WallTime> due;
    for (auto& [partition, offset] : commits) {
      const auto [at, is_new] = state->offsets.try_emplace(partition);
      auto& place = at->second;
      if (!is_new) state->release(bytes_of(place));
      place = std::move(offset);
      state->hold(bytes_of(place));
      if (const auto when = state->owner->due_of(partition, place))
        due = std::min(due.value_or(*when), *when);
    }
    state->owner->arm(due);
  });
  const auto lsn = shard_.commit(std::move(transaction));
  if (!lsn) {
    shard_.log_not_stored.warn(shard_.clock().mono(), "broker",
                               fmt::format("group {}: offsets cannot be committed: {}",
                                           printable(state_->group), lsn.error().message));
    return std::unexpected(commit_error(lsn.error()));
  }
  ++state_->pending;
  budget_.bytes += bytes;
  payer->offset_bytes += bytes;
  return *lsn;
}

std::expected<Lsn, ErrorCode> GroupOffsets::remove(std::vector<TopicPartition> partitions) {
  shard_.assert_on_shard();
  std::erase_if(partitions, [&](const auto& p) { return !state_->offsets.contains(p); });
  if (partitions.empty()) return Lsn{0};
  // It frees what it is about, so a full disk does not stop it.
  storage::JournalTransaction transaction(storage::Reserve::use);
  transaction.add(storage::OffsetsRemoved{state_->group, partitions});
  transaction.on_durable([state = state_, partitions = std::move(partitions)] {
    --state->pending;
    erase(state, partitions);
  });
  const auto lsn = shard_.commit(std::move(transaction));
  if (!lsn) return std::unexpected(commit_error(lsn.error()));
  ++state_->pending;
  return *lsn;
}

// The erasure is durable, or need not be.  The group may be destroyed in here.
void GroupOffsets::erase(const std::shared_ptr<State>& held, std::span<const TopicPartition> gone) {
  // A copy: on_empty may end the group, and with it the state that `held` is part of.
  const std::shared_ptr<State> state = held;  // NOLINT(performance-unnecessary-copy-initialization)
  ShardContext& shard = state->shard;
  const storage::OffsetsRemoved operation{state->group, {gone.begin(), gone.end()}};
  if (auto applied = shard.broker_context().offset_store->apply(operation); !applied)
    return shard.journal_failed(applied.error());
  if (state->owner == nullptr) return;
  for (const auto& partition : gone) {
    const auto found = state->offsets.find(partition);
    if (found == state->offsets.end()) continue;
    state->release(bytes_of(found->second));
    state->offsets.erase(found);
  }
  if (state->owner->empty()) state->on_empty();
}

std::size_t GroupOffsets::topic_deleted(const TopicId& topic, std::size_t most) {
  shard_.assert_on_shard();
  std::vector<TopicPartition> gone;
  auto at = state_->offsets.lower_bound({topic, 0});
  for (; gone.size() < most && at != state_->offsets.end() && at->first.topic == topic; ++at)
    gone.push_back(at->first);
  // No journal record: that the topic is deleted says it already, and the next start removes what
  // a crash leaves of this.
  if (!gone.empty()) erase(state_, gone);
  return gone.size();
}

// --- Expiry

std::optional<WallTime> GroupOffsets::due_of(const TopicPartition& partition,
                                             const CommittedOffset& offset) const {
  using Since = OffsetExpiry::Since;
  if (expiry_.since == Since::never) return std::nullopt;
  if (!expiry_.subscribed.empty()) {
    const auto topic = shard_.topics().find(partition.topic);
    if (topic && expiry_.subscribed.contains(topic->name)) return std::nullopt;
  }
  if (offset.expires != storage::never_expires) return offset.expires;
  const WallTime since = expiry_.since == Since::moment ? std::max(expiry_.moment, offset.committed)
                                                        : offset.committed;
  return since + shard_.config().offsets_retention;
}

void GroupOffsets::arm(std::optional<WallTime> due) {
  if (!due || shard_.stopping()) return;
  if (next_expiry_ && *next_expiry_ <= *due) return;
  next_expiry_ = due;
  // A wheel reaches no further than a century.
  const milliseconds wait = std::clamp<milliseconds>(*due - shard_.clock().wall(), milliseconds{0},
                                                     std::chrono::years{100});
  shard_.wheel().schedule(timer_, shard_.tick_after(wait));
}

void GroupOffsets::arm_for_all() {
  timer_.cancel();
  next_expiry_.reset();
  has_turn_ = false;
  looked_up_to_.reset();
  later_.reset();
  armed_up_to_.reset();
  arm_for_some();
}

void GroupOffsets::arm_for_some() {
  const auto& offsets = state_->offsets;
  while (expiry_.since != OffsetExpiry::Since::never) {
    auto at = armed_up_to_ ? offsets.upper_bound(*armed_up_to_) : offsets.begin();
    std::optional<WallTime> due;
    for (auto left = asked_a_turn; left > 0 && at != offsets.end(); --left, ++at) {
      armed_up_to_ = at->first;
      const auto when = due_of(at->first, at->second);
      if (when) due = std::min(due.value_or(*when), *when);
    }
    arm(due);
    if (at == offsets.end() || is_arming_) return;
    try {
      boost::asio::post(shard_.executor(), [state = state_] {
        if (state->owner == nullptr) return;
        state->owner->is_arming_ = false;
        state->owner->arm_for_some();
      });
      is_arming_ = true;
      return;
    } catch (const std::bad_alloc&) {
      // Then the rest goes on at once.
    }
  }
}

void GroupOffsets::retention_changed() {
  shard_.assert_on_shard();
  arm_for_all();
}

std::optional<WallTime> GroupOffsets::next_expiry() const {
  shard_.assert_on_shard();
  return next_expiry_;
}

void GroupOffsets::set_expiry(OffsetExpiry expiry) {
  shard_.assert_on_shard();
  expiry_ = std::move(expiry);
  arm_for_all();
}

void GroupOffsets::expire() {
  next_expiry_.reset();
  if (shard_.stopping()) return;
  const WallTime now = shard_.clock().wall();
  if (state_->pending > 0) return arm(now + wait_for_commits);
  if (!std::exchange(has_turn_, false)) {
    const timing::Tick tick = shard_.tick();
    const timing::Tick turn = budget_.next_turn(tick);
    has_turn_ = turn > tick;
    if (has_turn_) return arm(now + milliseconds{turn - tick});
  }
  const auto& offsets = state_->offsets;
  std::vector<TopicPartition> gone;
  auto at = looked_up_to_ ? offsets.upper_bound(*looked_up_to_) : offsets.begin();
  for (auto left = asked_a_turn; left > 0 && gone.size() < expired_a_turn && at != offsets.end();
       --left, ++at) {
    looked_up_to_ = at->first;
    const auto due = due_of(at->first, at->second);
    if (!due) continue;
    if (*due <= now) {
      gone.push_back(at->first);
    } else {
      later_ = std::min(later_.value_or(*due), *due);
    }
  }
  const bool has_seen_all = at == offsets.end();
  // Not one by one: what falls due within the interval goes at its end.
  const WallTime next_look = now + shard_.config().offsets_retention_check;
  if (!gone.empty()) {
    budget_.expiries.info(shard_.clock().mono(), "broker",
                          fmt::format("group {}: {} committed offsets have expired",
                                      printable(state_->group), gone.size()));
    // A removal that the journal refuses is tried again at the next look.
    if (!remove(std::move(gone))) later_ = next_look;
  }
  if (!has_seen_all) return arm(now + between_expiries);
  looked_up_to_.reset();
  if (const auto later = std::exchange(later_, std::nullopt)) arm(std::max(*later, next_look));
}

boost::asio::awaitable<ErrorCode> wait_for_offsets(ShardContext& shard, Lsn lsn,
                                                   purgatory::Kind kind, CancellationToken& token) {
  const auto timeout = shard.config().offsets_commit_timeout;
  co_return co_await wait_until_durable(shard, lsn, kind, timeout, token)
      ? ErrorCode::none
      : ErrorCode::coordinator_not_available;
}

}  // namespace tarry::broker
