#pragma once

// GroupOffsets: the committed offsets of one consumer group, and their expiry.
//
//   commit() --> journal (not durable) --durable--> all(), db/meta --> retention --> gone
//
// Only durable offsets are shown: no client sees an offset that a crash could take back.  Commits
// become visible in the order in which commit() was called.
//
// An offset expires as follows (KIP-211; offsets.retention.minutes).  The timer checks this when
// one may expire, at most every offsets.retention.check.interval.ms:
//
//   group                               expires at
//   Empty                               when it became empty + retention, or its commit's if later
//   a simple consumer's (no members)    its commit + retention
//   Stable, topic not subscribed        its commit + retention
//   anything else                       not at all
//
// A client of OffsetCommit version 2 to 4 may give its own time instead of the sum.
//
// Invariants
//   - Keys are topic ids: a topic that is created again under an old name has no offsets.
//   - The offsets of a deleted topic are gone when the deletion is answered.
//   - All groups of a shard together stay within tarry.group.offsets.bytes; commits above it are
//     refused, existing offsets are kept.  The groups of one client take no more of it than they
//     leave for all others (GroupShare).  Names need room beside the offsets when their groups are
//     made; then they keep nobody from committing.
//   - While nothing can expire no timer runs.
//
// Belongs to its group's owner (Groups); everything runs on the group's shard, and asserts that.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log_throttle.h"
#include "broker/context/cancellation_token.h"
#include "broker/groups/group_share.h"
#include "protocol/error_code.h"
#include "storage/journal_record.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class ShardContext;

struct CommittedOffset {
  Offset offset = -1;
  std::int32_t leader_epoch = -1;  // -1: the client gave none.
  WallTime committed;
  WallTime expires = storage::never_expires;  // A time that the client gave; else retention says.
  std::string metadata;                       // The client's own text.
};

// How a group's state affects the expiry of its offsets.
struct OffsetExpiry {
  enum class Since : std::uint8_t { never, commit, moment };
  Since since = Since::commit;
  WallTime moment;  // For Since::moment: when the group became empty.
  // Their topics do not expire; they are in use.
  std::set<std::string, std::less<>> subscribed;
};

// The memory of the names and the committed offsets of all groups of a shard, including commits in
// flight.
struct OffsetBudget {
  std::size_t bytes = 0;       // The memory of the offsets.
  std::size_t name_bytes = 0;  // Those of a data directory are taken without asking.
  LogThrottle full;            // Commits are refused.
  // Offsets that expire, of as many groups as clients have made.
  LogThrottle expiries{20};

  // Groups in which offsets expire take turns, because those of very many may be due at once, after
  // a long stop: so many groups in each of these intervals.
  static constexpr std::size_t expire_together = 64;
  static constexpr timing::Tick between_turns = 10;
  timing::Tick turn_at = 0;    // The last turn that was given.
  std::size_t turn_taken = 0;  // Groups that have it.
  // The tick from which on the next group has its turn.
  timing::Tick next_turn(timing::Tick now) {
    if (turn_at < now) {
      turn_at = now;
      turn_taken = 0;
    } else if (turn_taken == expire_together) {
      turn_at += between_turns;
      turn_taken = 0;
    }
    ++turn_taken;
    return turn_at;
  }

  // The bytes that new offsets may take; the rest is kept for repeated commits.
  static std::size_t for_new(std::size_t limit) { return limit - limit / 8; }
  // The bytes by which the offsets of the client of `share` may grow.
  std::size_t room_of(const GroupShare& share, std::size_t limit) const {
    return GroupShare::room(share.offset_bytes, bytes, for_new(limit));
  }
  // The bytes that the names of its new groups may take.
  std::size_t room_for_names(const GroupShare& share, std::size_t limit) const {
    return GroupShare::room(share.offset_bytes + share.name_bytes, bytes + name_bytes,
                            for_new(limit));
  }
};

class GroupOffsets {
 public:
  using Map = std::map<TopicPartition, CommittedOffset>;
  using Commits = std::vector<std::pair<TopicPartition, CommittedOffset>>;

  // `on_empty` is called when the last offset has gone by itself or with its topic, also when
  // it never became durable; it may destroy this object.  `name_bytes`: the memory of the group's
  // name, which is taken without asking.
  GroupOffsets(ShardContext& shard, OffsetBudget& budget, std::string group,
               std::move_only_function<void()> on_empty,
               std::shared_ptr<GroupShare> share = std::make_shared<GroupShare>(),
               std::size_t name_bytes = 0);
  ~GroupOffsets();
  GroupOffsets(const GroupOffsets&) = delete;
  GroupOffsets& operator=(const GroupOffsets&) = delete;

  // At the start, from db/meta; only of one that is new.
  void restore(std::span<const storage::CommittedOffset> offsets);

  // Takes its place in the order of commits; the answer is given when the LSN is durable.
  // Not empty.  Errors: COORDINATOR_NOT_AVAILABLE (the disk is full, the broker stops, other groups
  // have the budget: try again),
  // INVALID_COMMIT_OFFSET_SIZE (more than a journal record or the shard's budget holds).
  // `payer`: whose room it takes; null: that of the share that the group is counted in.
  std::expected<Lsn, protocol::ErrorCode> commit(Commits commits,
                                                 std::shared_ptr<GroupShare> payer = nullptr);

  // Forgets them; the LSN as above.  Unknown partitions are skipped; 0: none was known.
  std::expected<Lsn, protocol::ErrorCode> remove(std::vector<TopicPartition> partitions);

  // Durable ones.
  const Map& all() const;
  const CommittedOffset* find(const TopicPartition& partition) const;  // Null: none.
  // None, and none on its way.
  bool empty() const;

  // Forgets those of a deleted topic, at most `most`; how many.
  std::size_t topic_deleted(const TopicId& topic, std::size_t most);

  // The share that the group is counted in.
  const GroupShare& share() const;
  void count_in(std::shared_ptr<GroupShare> share);

  // The group's state has changed.
  void set_expiry(OffsetExpiry expiry);
  // offsets.retention.minutes is another.
  void retention_changed();
  // When the timer looks next; empty: nothing can expire.
  std::optional<WallTime> next_expiry() const;

 private:
  // Shared with commits in flight in the journal, which may complete after this object is gone.
  struct State;
  std::optional<WallTime> due_of(const TopicPartition& partition,
                                 const CommittedOffset& offset) const;
  void arm(std::optional<WallTime> due);
  void arm_for_all();
  void arm_for_some();
  void expire();
  static void erase(const std::shared_ptr<State>& held, std::span<const TopicPartition> gone);

  ShardContext& shard_;
  OffsetBudget& budget_;
  const std::shared_ptr<State> state_;
  OffsetExpiry expiry_;
  std::optional<WallTime> next_expiry_;  // The time that the timer is armed for.
  bool has_turn_ = false;                // expire() has waited for its turn.
  // A client may commit hundreds of thousands, so both walks through them are made in steps.
  std::optional<TopicPartition> armed_up_to_;   // The last one that arm_for_some() has seen.
  bool is_arming_ = false;                      // Its next step is posted.
  std::optional<TopicPartition> looked_up_to_;  // The last one that expire() has seen; empty: none.
  std::optional<WallTime> later_;               // The first due time of those that it left.
  timing::CallbackTimer timer_;
};

inline const purgatory::Kind offset_commit_kind{"offset_commit"};
inline const purgatory::Kind offset_delete_kind{"offset_delete"};
inline const purgatory::Kind delete_groups_kind{"delete_groups"};

// Waits until a group's record at `lsn` is durable: NONE, or COORDINATOR_NOT_AVAILABLE.
boost::asio::awaitable<protocol::ErrorCode> wait_for_offsets(ShardContext& shard, Lsn lsn,
                                                             purgatory::Kind kind,
                                                             CancellationToken& token);

}  // namespace tarry::broker
