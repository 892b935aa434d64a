#include "broker/groups/groups.h"

#include <algorithm>
#include <new>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "broker/context/connection.h"
#include "broker/context/shard_context.h"
#include "broker/groups/delayed_removal.h"
#include "broker/groups/subscription.h"
#include "broker/security/client_address.h"

namespace tarry::broker {

using protocol::ErrorCode;
using std::chrono::milliseconds;
namespace asio = boost::asio;

namespace {

// Unused groups, of which there may be very many: all of a round are removed in one turn.
constexpr std::size_t removed_together = 256;
constexpr milliseconds between_removals{10};

// Groups that may be unused: to forget one takes a few microseconds.
constexpr std::size_t unused_a_turn = 256;

// Those of a deleted topic that go in one turn: each is a row of the store.
constexpr std::size_t offsets_a_turn = 1000;

// A group's record of more bytes is never copied by the shard: each copy of sixteen megabytes takes
// some milliseconds.
constexpr std::size_t written_here = std::size_t{1} << 20;

// The most that waits for its turn; a client may give up its connection, and with it what that
// owes, while its record waits.
constexpr std::size_t max_storing = 1'000;
constexpr std::size_t max_storing_bytes = std::size_t{64} << 20;

// As many shares may be of clients that have no groups and no members any more.
constexpr std::size_t spare_shares = 1000;

// The memory of a share: its place in the map, and the block that goes with that.
std::size_t bytes_of_share(std::string_view owner) {
  constexpr std::size_t place = 128;
  return place + sizeof(GroupShare) + owner.size();
}

bool is_group_id(std::string_view id) {
  return !id.empty() && id.size() <= Groups::max_id_bytes;
}

ErrorCode group_error(const Error& error) {
  // A full store may get room again: clients retry.
  return error.code == Errc::too_large ? ErrorCode::unknown_server_error
                                       : ErrorCode::coordinator_not_available;
}

template <typename Response>
Response refusal(ErrorCode code) {
  Response response;
  response.error_code = code;
  return response;
}

}  // namespace

std::string owner_of(const Connection& connection) {
  std::string principal = connection.principal();
  return principal == "User:ANONYMOUS" ? network_of(connection.host()) : principal;
}

Groups::Groups(ShardContext& shard)
    : shard_(shard),
      sweep_shares_at_(spare_shares),
      shares_charge_(shard.ledger(), nullptr),
      members_charge_(shard.ledger(), nullptr),
      storing_charge_(shard.ledger(), nullptr),
      unused_timer_([this] { remove_unused(); }) {
  nobodys_->is_nobodys = true;
}

Groups::~Groups() = default;

// --- The GroupHost of all groups

// Members stay when their connections have gone, so all groups together may have a quarter of the
// clients' memory on up to four shards, and a sixteenth of it on each of more.  A client may use as
// much as it leaves for all others.
bool Groups::has_member_room(const Group& group, const GroupShare& share, std::size_t more) {
  const auto all = static_cast<std::size_t>(config().memory_bytes);
  const std::size_t limit = std::max(all / 4 / shard_.broker_context().shard_count, all / 16);
  const auto room = GroupShare::room(share.member_bytes, members_charge_.bytes(), limit);
  const bool has_room = more <= room;
  if (has_room && more <= shard_.ledger().room()) return true;
  lines_.limits.error(
      shard_.clock().mono(), "broker",
      fmt::format("group {}: no room for {} more bytes of member data; the members of all groups "
                  "take {} bytes in shard {}, {} of them for one client; {}",
                  printable(group.id()), more, members_charge_.bytes(), shard_.index(),
                  share.member_bytes,
                  has_room ? std::string("requests and responses take the rest of what clients may "
                                         "have (tarry.memory.bytes)")
                           : fmt::format("the limit is {} (a part of tarry.memory.bytes), and no "
                                         "client may use more of it than it leaves free for others",
                                         limit)));
  return false;
}

void Groups::member_bytes_changed(std::size_t before, std::size_t now) {
  members_charge_.set(members_charge_.bytes() - before + now);
}

const BrokerConfig& Groups::config() const {
  return shard_.config();
}
purgatory::Purgatory& Groups::purgatory() {
  return shard_.purgatory();
}
timing::TimingWheel& Groups::wheel() {
  return shard_.wheel();
}
timing::Tick Groups::tick() const {
  return shard_.tick();
}
timing::Tick Groups::tick_after(milliseconds wait) const {
  return shard_.tick_after(wait);
}
WallTime Groups::wall() const {
  return shard_.clock().wall();
}
Random& Groups::random() {
  return *shard_.broker_context().random;
}

bool Groups::stopping() const {
  return shard_.stopping();
}

bool Groups::is_storing(const Group& group) const {
  return std::ranges::any_of(storing_,
                             [&](const Storing& each) { return each.group.get() == &group; });
}

void Groups::store(Group& group, const GroupRecordView& record, Stored then) {
  std::shared_ptr<GroupEntry> kept = groups_.find(group.id())->second;
  auto shared_then = std::make_shared<Stored>(std::move(then));
  const std::size_t bytes = encoded_bytes(record);
  // Behind one of its own that waits it waits too: the journal has a group's records in the order
  // of its states.
  if (bytes <= written_here && !is_storing(group))
    return write_at_once(kept, record, std::move(shared_then));
  if (storing_.size() >= max_storing || storing_charge_.bytes() + bytes > max_storing_bytes) {
    shard_.log_not_stored.warn(
        shard_.clock().mono(), "broker",
        fmt::format("group {} cannot be stored: {} records of groups, with {} bytes, are on their "
                    "way to the journal",
                    printable(group.id()), storing_.size(), storing_charge_.bytes()));
    // In a later turn: a group is never called back inside store().
    return asio::post(shard_.executor(),
                      [weak = std::weak_ptr(kept), told = std::move(shared_then)] {
                        if (const auto alive = weak.lock())
                          (*told)(ErrorCode::coordinator_not_available);
                      });
  }
  storing_.push_back({std::move(kept), std::make_shared<const GroupRecord>(snapshot_of(record)),
                      bytes, std::move(shared_then)});
  try {
    store_next();
  } catch (const std::bad_alloc&) {
    storing_.pop_back();  // The only one: nobody would ask for its row.
    throw;
  }
  storing_charge_.add(bytes);
}

Groups::Storing Groups::take_next() {
  Storing next = std::move(storing_.front());
  storing_.pop_front();
  storing_charge_.set(storing_charge_.bytes() - next.bytes);
  stored_waiters_.advance_to(static_cast<purgatory::Threshold>(++stored_total_));
  return next;
}

// One record after the other, so that a later one of the same group finds the store as the journal
// has it.  The pool encodes it and copies it into its row; the journal copies the row's bytes where
// it writes its round, and the pool brings the row into the store's memory.
void Groups::store_next() {
  if (is_storing_next_ || storing_.empty()) return;
  auto work =
      [store = shard_.broker_context().offset_store, id = storing_.front().group->id(),
       record =
           storing_.front().record]() mutable -> Result<std::shared_ptr<storage::PreparedGroup>> {
    const auto encoded = std::exchange(record, nullptr);
    const Buffer value = encode_group(*encoded);
    return store->prepare({id, value});
  };
  shard_.background().run(
      std::move(work),
      [this](Result<std::shared_ptr<storage::PreparedGroup>> row) { row_made(std::move(row)); });
  storing_.front().record = nullptr;  // The pool frees it.
  is_storing_next_ = true;
}

void Groups::row_made(Result<std::shared_ptr<storage::PreparedGroup>> row) {
  auto code = ErrorCode::coordinator_not_available;
  try {
    if (row) code = write_row(std::move(*row));
  } catch (const std::bad_alloc&) {
    // Then nothing of it is in the journal.
  }
  if (code != ErrorCode::none) next_stored(code);
}

// NONE: it is in the journal.
ErrorCode Groups::write_row(std::shared_ptr<storage::PreparedGroup> row) {
  const std::string& id = storing_.front().group->id();
  const Bytes value = row->value();
  storage::JournalTransaction transaction;
  transaction.add(storage::GroupStored{id, value});
  transaction.keep(SharedBytes(row, value));
  transaction.on_durable([this, row = std::move(row)] { apply_row(row); });
  const auto lsn = shard_.commit(std::move(transaction));
  if (lsn) return ErrorCode::none;
  log_refused(id, lsn.error());
  return group_error(lsn.error());
}

void Groups::apply_row(const std::shared_ptr<storage::PreparedGroup>& row) {
  auto* const store = shard_.broker_context().offset_store;
  auto apply = [store, made = row]() mutable {
    const auto applied = std::exchange(made, nullptr);  // It is freed there, too.
    return store->apply(*applied);
  };
  try {
    return shard_.apply_on_pool(std::move(apply), [this] { next_stored(ErrorCode::none); });
  } catch (const std::bad_alloc&) {
    // It is durable, so the store gets it in any case.
  }
  if (auto applied = store->apply(*row); !applied) return shard_.journal_failed(applied.error());
  next_stored(ErrorCode::none);
}

// The first in the line is where it belongs, or was refused.
void Groups::next_stored(ErrorCode code) {
  const Storing done = take_next();
  is_storing_next_ = false;
  for (bool is_begun = false; !is_begun;) {
    try {
      store_next();
      is_begun = true;
    } catch (const std::bad_alloc&) {
      // Nobody would ask for its row again.
      (*take_next().then)(ErrorCode::coordinator_not_available);
    }
  }
  (*done.then)(code);
}

void Groups::write_at_once(const std::shared_ptr<GroupEntry>& group, const GroupRecordView& record,
                           std::shared_ptr<Stored> then) {
  Buffer value = encode_group(record);
  storage::JournalTransaction transaction;
  transaction.add(storage::GroupStored{group->id(), value});
  // The group may have gone while its record was on the way.
  const auto tell = [weak = std::weak_ptr(group), told = std::move(then)](ErrorCode code) {
    if (const auto alive = weak.lock()) (*told)(code);
  };
  // The bytes are given to the store when they are durable.
  transaction.on_durable([this, tell, id = group->id(), value = std::move(value)] {
    auto applied = shard_.broker_context().offset_store->apply(storage::GroupStored{id, value});
    if (!applied) return shard_.journal_failed(applied.error());
    tell(ErrorCode::none);
  });
  const auto lsn = shard_.commit(std::move(transaction));
  if (lsn) return;
  log_refused(group->id(), lsn.error());
  // In a later turn: a group is never called back inside store().
  asio::post(shard_.executor(), [tell, code = group_error(lsn.error())] { tell(code); });
}

void Groups::log_refused(std::string_view id, const Error& error) {
  shard_.log_not_stored.warn(
      shard_.clock().mono(), "broker",
      fmt::format("group {} cannot be stored: {}", printable(id), error.message));
}

void Groups::state_changed(Group& group) {
  auto& kept = static_cast<GroupEntry&>(group);
  // A generation has begun, and its leader has joined.
  if (kept.is(GroupState::completing_rebalance))
    if (const auto& share = kept.members().at(kept.leader()).share) kept.count_in(share);
  OffsetExpiry expiry;
  expiry.since = OffsetExpiry::Since::never;
  if (kept.is(GroupState::empty)) {
    // Without a type it never had members: somebody assigns partitions to himself.
    const bool simple = kept.protocol_type().empty();
    expiry.since = simple ? OffsetExpiry::Since::commit : OffsetExpiry::Since::moment;
    expiry.moment = kept.changed();
  } else if (kept.is(GroupState::stable)) {
    if (auto subscribed = subscription_of(kept)) {
      expiry.since = OffsetExpiry::Since::commit;
      expiry.subscribed = std::move(*subscribed);
    }
  }
  kept.offsets.set_expiry(std::move(expiry));
}

void Groups::on_unused(Group& group) {
  // In a turn of its own, because the group is still in use by the caller.  Posted before the group
  // is named: if there was no memory, the next group would not be looked at either.
  if (unused_.empty()) asio::post(shard_.executor(), [this] { check_unused(); });
  unused_.push_back(group.id());
}

// --- Look-up and listing

const Groups::ById& Groups::all() const {
  shard_.assert_on_shard();
  return groups_;
}

std::size_t Groups::member_bytes() const {
  shard_.assert_on_shard();
  return members_charge_.bytes();
}

std::size_t Groups::offset_bytes() const {
  shard_.assert_on_shard();
  return offset_budget_.bytes + offset_budget_.name_bytes;
}

void Groups::drop_if_unused(GroupEntry& group) {
  shard_.assert_on_shard();
  if (group.is_unused()) on_unused(group);
}

GroupEntry* Groups::find(std::string_view id) const {
  shard_.assert_on_shard();
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

std::shared_ptr<GroupShare> Groups::share_of(std::string_view owner) {
  if (shares_.size() >= sweep_shares_at_) {
    std::erase_if(shares_, [](const auto& each) { return each.second.expired(); });
    sweep_shares_at_ = 2 * shares_.size() + spare_shares;
    std::size_t kept = 0;
    for (const auto& [name, share] : shares_) kept += bytes_of_share(name);
    shares_charge_.set(kept);
  }
  auto found = shares_.find(owner);
  if (found == shares_.end()) {
    found = shares_.emplace(owner, std::weak_ptr<GroupShare>()).first;
    shares_charge_.add(bytes_of_share(owner));
  }
  auto share = found->second.lock();
  if (!share) found->second = share = std::make_shared<GroupShare>();
  return share;
}

std::expected<Lsn, ErrorCode> Groups::commit(GroupEntry& group, std::string_view owner,
                                             GroupOffsets::Commits commits) {
  shard_.assert_on_shard();
  std::shared_ptr<GroupShare> payer;
  if (group.members().empty() || group.share().is_nobodys) payer = share_of(owner);
  try {
    const auto lsn = group.offsets.commit(std::move(commits), payer);
    if (lsn && payer) group.count_in(payer);
    return lsn;
  } catch (const std::bad_alloc&) {
    drop_if_unused(group);  // It may have been made for this.
    throw;
  }
}

GroupEntry& Groups::make(std::string_view id, std::shared_ptr<GroupShare> share) {
  auto emptied = [this, id = std::string(id)] {
    if (auto* group = find(id)) on_unused(*group);
  };
  GroupHost& host = *this;
  auto made = std::make_shared<GroupEntry>(host, shard_, offset_budget_, std::move(share),
                                           std::string(id), std::move(emptied));
  GroupEntry& group = *made;
  groups_.emplace(id, std::move(made));
  return group;
}

// The client gets an error code without words, so the log has them.
bool Groups::is_too_long(std::string_view id) {
  if (id.size() <= max_id_bytes) return false;
  lines_.names.warn(shard_.clock().mono(), "broker",
                    fmt::format("a group id of {} bytes is refused; the limit is {}: {}...",
                                id.size(), max_id_bytes, printable(id.substr(0, 100))));
  return true;
}

std::expected<GroupEntry*, ErrorCode> Groups::find_or_make(std::string_view id,
                                                           std::string_view owner) {
  shard_.assert_on_shard();
  if (is_too_long(id)) return std::unexpected(ErrorCode::invalid_group_id);
  if (auto* found = find(id)) return found;
  // Each shard has its part of what is allowed.
  const auto shards = shard_.broker_context().shard_count;
  const auto limit = (static_cast<std::size_t>(config().max_groups) + shards - 1) / shards;
  const auto left = limit - std::min(limit, groups_.size());
  auto share = share_of(owner);
  // A group that nobody has joined yet counts, too: ids are given out for nothing.
  if (share->groups >= left) {
    lines_.limits.error(
        shard_.clock().mono(), "broker",
        fmt::format(
            "shard {} has {} groups, {} of them from {}, which may have no more than it leaves "
            "free for others; the limit is {} for all shards (tarry.max.groups): new groups are "
            "refused",
            shard_.index(), groups_.size(), share->groups, printable(owner), config().max_groups));
    return std::unexpected(ErrorCode::coordinator_not_available);
  }
  // Names stay as long as offsets do, and find room beside them.
  const auto bytes_limit = static_cast<std::size_t>(config().group_offsets_bytes);
  if (GroupEntry::name_bytes(id) > offset_budget_.room_for_names(*share, bytes_limit)) {
    lines_.limits.error(
        shard_.clock().mono(), "broker",
        fmt::format(
            "group names and committed offsets take {} bytes in shard {}, {} of them for {}, which "
            "may use no more than it leaves free for others; the limit is {} "
            "(tarry.group.offsets.bytes), of which an eighth is kept for repeated commits: the new "
            "group {} is refused",
            offset_bytes(), shard_.index(), share->offset_bytes + share->name_bytes,
            printable(owner), bytes_limit, printable(id)));
    return std::unexpected(ErrorCode::coordinator_not_available);
  }
  return &make(id, std::move(share));
}

Result<> Groups::restore(const storage::OffsetStore::StoredGroup& stored) {
  GroupEntry& group = make(stored.id, nobodys_);
  if (stored.value) {
    auto record = decode_group(*stored.value);
    if (!record) {
      return fail(record.error().code,
                  fmt::format("group {}: {}", printable(stored.id), record.error().message));
    }
    if (auto restored = group.restore(std::move(*record)); !restored) return restored;
  }
  group.offsets.restore(stored.offsets);
  state_changed(group);
  drop_if_unused(group);
  return {};
}

// --- Requests

asio::awaitable<JoinAnswer> Groups::join(const protocol::JoinGroupRequest& request,
                                         Group::JoinContext context,
                                         std::shared_ptr<CancellationToken> token) {
  auto refuse = [&](ErrorCode code) {
    auto answer = refusal<JoinAnswer>(code);
    answer.member_id = request.member_id;
    return answer;
  };
  if (request.group_id.empty() || is_too_long(request.group_id))
    co_return refuse(ErrorCode::invalid_group_id);
  const milliseconds session{request.session_timeout_ms};
  if (session < config().group_min_session_timeout ||
      session > config().group_max_session_timeout) {
    co_return refuse(ErrorCode::invalid_session_timeout);
  }
  if (token->cancelled() || stopping()) co_return refuse(ErrorCode::coordinator_not_available);
  GroupEntry* group = find(request.group_id);
  if (group == nullptr) {
    // A member id that a client has is from a group that no longer exists.
    if (!request.member_id.empty()) co_return refuse(ErrorCode::unknown_member_id);
    const auto made = find_or_make(request.group_id, context.owner);
    if (!made) co_return refuse(made.error());
    group = *made;
  }
  context.share = share_of(context.owner);
  const bool had_members = !group->members().empty();
  DelayedJoin reply;
  try {
    group->join(request, context, reply);
  } catch (const std::bad_alloc&) {
    drop_if_unused(*group);  // It may have been made for this.
    throw;
  }
  const auto code = reply.has_answer() ? reply.answer()->error_code : ErrorCode::none;
  // A member, or one that is expected.  The next generation says anew whom the group counts for.
  if (had_members ? code == ErrorCode::none && group->share().is_nobodys
                  : code == ErrorCode::none || code == ErrorCode::member_id_required)
    group->count_in(context.share);
  // If the request was refused, the group may have been made for nothing.
  drop_if_unused(*group);
  CancellationToken::Attached attached(*token, reply);
  co_return co_await reply.wait(shard_.purgatory(), shard_.tick());
}

asio::awaitable<SyncAnswer> Groups::sync(const protocol::SyncGroupRequest& request,
                                         GroupAssignments assignments,
                                         std::shared_ptr<CancellationToken> token) {
  if (!is_group_id(request.group_id)) co_return refusal<SyncAnswer>(ErrorCode::invalid_group_id);
  GroupEntry* group = find(request.group_id);
  if (group == nullptr) co_return refusal<SyncAnswer>(ErrorCode::unknown_member_id);
  if (token->cancelled() || stopping()) {
    co_return refusal<SyncAnswer>(ErrorCode::coordinator_not_available);
  }
  DelayedSync reply;
  group->sync(request, std::move(assignments), reply);
  CancellationToken::Attached attached(*token, reply);
  co_return co_await reply.wait(shard_.purgatory(), shard_.tick());
}

ErrorCode Groups::heartbeat(const protocol::HeartbeatRequest& request) {
  if (!is_group_id(request.group_id)) return ErrorCode::invalid_group_id;
  GroupEntry* group = find(request.group_id);
  if (group == nullptr) return ErrorCode::unknown_member_id;
  return group->heartbeat(request.generation_id, request.member_id, request.group_instance_id);
}

std::expected<std::vector<ErrorCode>, ErrorCode> Groups::leave(
    std::string_view group_id, std::span<const Group::Leaving> members) {
  if (!is_group_id(group_id)) return std::unexpected(ErrorCode::invalid_group_id);
  GroupEntry* group = find(group_id);
  if (group == nullptr) return std::vector(members.size(), ErrorCode::unknown_member_id);
  if (group->is(GroupState::dead)) return std::unexpected(ErrorCode::coordinator_not_available);
  return group->leave(members);
}

// --- Removal

std::expected<Lsn, ErrorCode> Groups::write_removal(GroupEntry& group) {
  // Records that were stored earlier have to come before it in the journal, or a restart would
  // bring the group back.
  if (is_storing(group)) return std::unexpected(ErrorCode::coordinator_not_available);
  storage::JournalTransaction transaction;
  transaction.add(storage::GroupRemoved{group.id()});
  transaction.on_durable([this, id = group.id()] {
    if (auto applied = shard_.broker_context().offset_store->apply(storage::GroupRemoved{id});
        !applied) {
      return shard_.journal_failed(applied.error());
    }
    groups_.erase(groups_.find(id));
  });
  const auto lsn = shard_.commit(std::move(transaction));
  if (!lsn) return std::unexpected(group_error(lsn.error()));
  group.die();  // Until then nobody may come in.
  group.removal = *lsn;
  return *lsn;
}

// Until the records of those that may be removed are in the journal.
asio::awaitable<void> Groups::wait_for_records(const std::vector<std::string_view>& ids,
                                               CancellationToken& token) {
  if (storing_.empty() || token.cancelled()) co_return;
  const std::set<std::string_view> asked(ids.begin(), ids.end());
  std::uint64_t wanted = 0;
  for (std::size_t i = 0; i < storing_.size(); ++i) {
    const GroupEntry& group = *storing_[i].group;
    // They leave in the order of the line.
    if (group.is(GroupState::empty) && asked.contains(group.id())) wanted = stored_total_ + i + 1;
  }
  if (wanted == 0) co_return;
  DelayedRemoval waiting(stored_total_, wanted);
  const CancellationToken::Attached attached(token, waiting);
  co_await waiting.wait(shard_.purgatory(), shard_.tick(),
                        shard_.tick_after(config().offsets_commit_timeout), stored_waiters_);
}

asio::awaitable<std::vector<ErrorCode>> Groups::remove(std::vector<std::string_view> ids,
                                                       CancellationToken& token) {
  co_await wait_for_records(ids, token);
  std::vector<ErrorCode> codes(ids.size(), ErrorCode::none);
  std::vector<std::size_t> written;  // Their removal is in the journal, by this request or before.
  written.reserve(ids.size());
  Lsn last = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    GroupEntry* group = find(ids[i]);
    if (group == nullptr) {
      codes[i] = ErrorCode::group_id_not_found;
    } else if (group->is(GroupState::dead)) {
      // It is not there for this request, once the other's record is durable.
      codes[i] = ErrorCode::group_id_not_found;
      written.push_back(i);
      last = std::max(last, group->removal);
    } else if (!group->is(GroupState::empty)) {
      codes[i] = ErrorCode::non_empty_group;
    } else if (const auto removal = write_removal(*group); !removal) {
      codes[i] = removal.error();
    } else {
      written.push_back(i);
      last = std::max(last, *removal);
    }
  }
  if (written.empty()) co_return codes;
  const auto waited = co_await wait_for_offsets(shard_, last, delete_groups_kind, token);
  if (waited == ErrorCode::none) co_return codes;
  for (const std::size_t i : written) codes[i] = waited;
  co_return codes;
}

void Groups::check_unused() {
  std::size_t left = unused_a_turn;
  if (unused_.size() > left) {
    try {
      asio::post(shard_.executor(), [this] { check_unused(); });
    } catch (const std::bad_alloc&) {
      left = unused_.size();  // Nobody would look at the rest.
    }
  }
  for (; left > 0 && !unused_.empty(); --left) {
    const std::string id = std::move(unused_.front());
    unused_.pop_front();
    const auto found = groups_.find(id);
    if (found == groups_.end() || !found->second->is_unused()) continue;
    // Nothing of it is stored, so there is nothing to write.
    if (!found->second->was_stored()) {
      groups_.erase(found);
    } else if (!found->second->awaits_removal) {
      stored_unused_.push_back(found->second);
      found->second->awaits_removal = true;
      if (!unused_timer_.armed())
        wheel().schedule(unused_timer_, tick_after(config().offsets_retention_check));
    }
  }
}

void Groups::remove_unused() {
  bool refused = false;
  bool written = false;
  for (auto left = std::min(removed_together, stored_unused_.size()); left > 0; --left) {
    const auto group = stored_unused_.front().lock();
    stored_unused_.pop_front();
    if (group == nullptr) continue;  // A client has deleted it.
    group->awaits_removal = false;
    if (!group->is_unused()) continue;
    if (write_removal(*group)) {
      written = true;
      continue;
    }
    refused = true;
    stored_unused_.push_back(group);
    group->awaits_removal = true;
  }
  if (stored_unused_.empty()) return;
  // A removal that is refused because the disk is full is tried again.
  const bool is_in_vain = refused && !written;
  wheel().schedule(unused_timer_,
                   tick_after(is_in_vain ? config().offsets_retention_check : between_removals));
}

bool Groups::topic_deleted(const TopicId& topic, std::string& after, std::size_t groups) {
  shard_.assert_on_shard();
  std::size_t left = offsets_a_turn;
  auto at = after.empty() ? groups_.begin() : groups_.upper_bound(after);
  for (; groups > 0 && at != groups_.end(); ++at, --groups) {
    left -= at->second->offsets.topic_deleted(topic, left);
    if (left == 0) return true;  // The group may have more, and is the next one.
    after = at->first;
  }
  return at != groups_.end();
}

bool Groups::retention_changed(std::string& after, std::size_t groups) {
  shard_.assert_on_shard();
  return for_some(after, groups, [](GroupEntry& group) { group.offsets.retention_changed(); });
}

bool Groups::for_some(std::string& after, std::size_t groups,
                      const std::function<void(GroupEntry&)>& work) {
  // The empty id, which is the first, is a group's too.
  auto at = after.empty() ? groups_.begin() : groups_.upper_bound(after);
  for (; groups > 0 && at != groups_.end(); ++at, --groups) {
    after = at->first;
    work(*at->second);
  }
  return at != groups_.end();
}

void Groups::stop() {
  shard_.assert_on_shard();
  unused_timer_.cancel();
  for (auto& [id, group] : groups_) group->stop();
}

}  // namespace tarry::broker
