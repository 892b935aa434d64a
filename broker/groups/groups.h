#pragma once

// Groups: the consumer groups of one shard, with their committed offsets.
//
//   JoinGroup ... --> handler --> Broker::shard_of_group(id).groups() --> Group
//                                                                          |
//               db/meta <-- OffsetStore <-- durable -- journal <-- store() + offsets
//                  '--> restore(), at the start
//
// A group comes into being with the first member that joins, or the first offset that is committed
// for it.  It is removed when it is deleted, or when it has no members and no offsets: at once
// if it was never stored, else some time later (offsets.retention.check.interval.ms).
//
// A group belongs to the shard that its id's CRC-32C says, so that a client's requests for it meet
// on one thread, whichever connections they come by.
//
// Everything runs on the shard's thread, which its doors assert; requests come in by Broker::on().

#include <cstdint>
#include <deque>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/ledger.h"
#include "broker/groups/group.h"
#include "broker/groups/group_offsets.h"
#include "protocol/error_code.h"
#include "protocol/messages/heartbeat.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/leave_group.h"
#include "protocol/messages/sync_group.h"
#include "purgatory/watch_list.h"
#include "storage/offset_store.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class Connection;
class ShardContext;

// A group as its shard keeps it.
struct GroupEntry final : Group {
  GroupEntry(GroupHost& host, ShardContext& shard, OffsetBudget& budget,
             const std::shared_ptr<GroupShare>& share, std::string group_id,
             std::move_only_function<void()> on_offsets_empty)
      : Group(host, group_id, share),
        offsets(shard, budget, group_id, std::move(on_offsets_empty), share, name_bytes(group_id)) {
  }

  void count_in(const std::shared_ptr<GroupShare>& share) {
    count_members_in(share);
    offsets.count_in(share);
  }

  // The map of all groups, the group, its offsets and their callback have the name.  The rest of a
  // group has a fixed size, which tarry.max.groups bounds.
  static std::size_t name_bytes(std::string_view id) { return 4 * id.size(); }

  GroupOffsets offsets;
  // The journal's record that removes it, in the state Dead.
  Lsn removal = 0;
  // It was stored, was unused when it was last looked at, and waits in Groups for its removal.
  bool awaits_removal = false;

  // Nobody is in it and nothing is committed.
  bool is_unused() const { return is(GroupState::empty) && is_vacant() && offsets.empty(); }
};

class Groups final : private GroupHost {
 public:
  // Longer ids are no group's (INVALID_GROUP_ID); the empty one has offsets at most, as in Kafka.
  // Kafka takes what its protocol can carry, 32 767 bytes; there too a topic's name has 249, and
  // ids are made of such names.  A group that is stored with a longer id expires, or is deleted.
  static constexpr std::size_t max_id_bytes = 1024;
  using ById = std::map<std::string, std::shared_ptr<GroupEntry>, std::less<>>;

  explicit Groups(ShardContext& shard);
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // At the start.  An error names the group.
  Result<> restore(const storage::OffsetStore::StoredGroup& stored);

  const ById& all() const;
  std::size_t member_bytes() const;
  // With the names of all groups.
  std::size_t offset_bytes() const;
  GroupEntry* find(std::string_view id) const;  // Null: there is none.
  // Made for `owner` (owner_of()) when there is none.  INVALID_GROUP_ID, or
  // COORDINATOR_NOT_AVAILABLE when there are tarry.max.groups already, or the owner has as many as
  // are left for all others.
  std::expected<GroupEntry*, protocol::ErrorCode> find_or_make(std::string_view id,
                                                               std::string_view owner);
  // GroupOffsets::commit() for this client, which a group without members counts for then, and one
  // that nobody has used since the start.
  std::expected<Lsn, protocol::ErrorCode> commit(GroupEntry& group, std::string_view owner,
                                                 GroupOffsets::Commits commits);

  // For a group that was made for a request which was then refused.
  void drop_if_unused(GroupEntry& group);

  // --- Requests.  `request` and what `context` views live until they are answered.

  boost::asio::awaitable<JoinAnswer> join(const protocol::JoinGroupRequest& request,
                                          Group::JoinContext context,
                                          std::shared_ptr<CancellationToken> token);
  boost::asio::awaitable<SyncAnswer> sync(const protocol::SyncGroupRequest& request,
                                          GroupAssignments assignments,
                                          std::shared_ptr<CancellationToken> token);
  protocol::ErrorCode heartbeat(const protocol::HeartbeatRequest& request);
  // The result for each; or one error for all.
  std::expected<std::vector<protocol::ErrorCode>, protocol::ErrorCode> leave(
      std::string_view group_id, std::span<const Group::Leaving> members);

  // Removes groups and their offsets in one round of the journal, behind their records that are on
  // the way there; answered when that is durable.  The result for each: NON_EMPTY_GROUP;
  // GROUP_ID_NOT_FOUND, as in Kafka also of a group whose removal is under way;
  // COORDINATOR_NOT_AVAILABLE if the journal is late or refuses it.  Kafka's own tools ask again
  // then, those of librdkafka do not.
  boost::asio::awaitable<std::vector<protocol::ErrorCode>> remove(std::vector<std::string_view> ids,
                                                                  CancellationToken& token);

  // These visit at most so many groups after `after`, which moves on.  False: there are no more.
  bool topic_deleted(const TopicId& topic, std::string& after, std::size_t groups);
  // offsets.retention.minutes has changed: so have the times at which offsets expire.
  bool retention_changed(std::string& after, std::size_t groups);
  // Ends all waiting, and removes no member: a restart finds them again.
  void stop();

 private:
  // --- GroupHost
  const BrokerConfig& config() const override;
  purgatory::Purgatory& purgatory() override;
  timing::TimingWheel& wheel() override;
  timing::Tick tick() const override;
  timing::Tick tick_after(std::chrono::milliseconds wait) const override;
  WallTime wall() const override;
  Random& random() override;
  bool stopping() const override;
  GroupLines& lines() override { return lines_; }
  void store(Group& group, const GroupRecordView& record, Stored then) override;
  bool has_member_room(const Group& group, const GroupShare& share, std::size_t more) override;
  void member_bytes_changed(std::size_t before, std::size_t now) override;
  void state_changed(Group& group) override;
  void on_unused(Group& group) override;

  bool is_too_long(std::string_view id);
  GroupEntry& make(std::string_view id, std::shared_ptr<GroupShare> share);
  std::shared_ptr<GroupShare> share_of(std::string_view owner);
  bool for_some(std::string& after, std::size_t groups,
                const std::function<void(GroupEntry&)>& work);
  // A record on its way to the journal and the store by the pool.
  struct Storing {
    std::shared_ptr<GroupEntry> group;
    std::shared_ptr<const GroupRecord> record;  // Null once the pool has it.
    std::size_t bytes;                          // The size of its encoding.
    std::shared_ptr<Stored> then;
  };
  void write_at_once(const std::shared_ptr<GroupEntry>& group, const GroupRecordView& record,
                     std::shared_ptr<Stored> then);
  Storing take_next();
  void store_next();
  void row_made(Result<std::shared_ptr<storage::PreparedGroup>> row);
  protocol::ErrorCode write_row(std::shared_ptr<storage::PreparedGroup> row);
  void apply_row(const std::shared_ptr<storage::PreparedGroup>& row);
  void next_stored(protocol::ErrorCode code);
  void log_refused(std::string_view id, const Error& error);
  bool is_storing(const Group& group) const;
  boost::asio::awaitable<void> wait_for_records(const std::vector<std::string_view>& ids,
                                                CancellationToken& token);
  void check_unused();
  void remove_unused();
  std::expected<Lsn, protocol::ErrorCode> write_removal(GroupEntry& group);

  ShardContext& shard_;
  GroupLines lines_;
  OffsetBudget offset_budget_;
  std::map<std::string, std::weak_ptr<GroupShare>, std::less<>> shares_;  // By owner.
  std::size_t sweep_shares_at_;  // At this size of shares_ those that have gone are taken out.
  Charge shares_charge_;         // The memory of shares_, which outlives its clients' connections.
  const std::shared_ptr<GroupShare> nobodys_ = std::make_shared<GroupShare>();
  Charge members_charge_;  // The memory of all groups' members: no connection owes it.
  Charge storing_charge_;  // The records in storing_, or their rows.
  ById groups_;
  // Groups' long records, and others behind one of the same group, until they are stored.
  std::deque<Storing> storing_;
  bool is_storing_next_ = false;         // The first of them is on its way.
  std::uint64_t stored_total_ = 0;       // Those that have left the line.
  purgatory::WatchList stored_waiters_;  // By stored_total_.
  // Ids of groups that may be unused; looked at in turns of their own, when who changed them is
  // done.  While there are some a turn is posted.
  std::deque<std::string> unused_;
  // Each that awaits_removal, once; no walk through all groups has to look for them.
  std::deque<std::weak_ptr<GroupEntry>> stored_unused_;
  timing::CallbackTimer unused_timer_;  // Runs while there are some.
};

// The client that a new group counts for: its user, or its address if it has not logged in, of
// which all of an IPv6 /64 are one.
std::string owner_of(const Connection& connection);

}  // namespace tarry::broker
