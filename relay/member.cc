#include "relay/member.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace tarry::relay {

using std::chrono::milliseconds;

namespace {

std::int64_t ms_between(MonoTime from, MonoTime to) {
  return std::chrono::floor<milliseconds>(to - from).count();
}

// While a partition is taken over, its logs are looked at this often.
constexpr milliseconds look_again{20};
// poll() waits for source records, and rows come through another queue, so it must not wait long.
constexpr milliseconds look_at_rows{1};
// A member that died may have left several partitions, and each of them finds its open transaction.
constexpr milliseconds settle_again{5'000};
constexpr std::chrono::minutes tend_again{1};
// After a crash the store knows when it was complete: this and tend_again are far less than
// longest_unread.
constexpr std::chrono::minutes flush_again{10};
// While an order waits for its source to be read.
constexpr milliseconds look_at_orders{2};
// Since the rows in the store were complete; tombstones stay for an hour at least.
constexpr std::chrono::minutes oldest_rest{58};
// Each is waited for by itself, within the time of a transaction.
constexpr std::size_t careful_records = 100;

}  // namespace

class Member::Asking {
 public:
  Asking(Member& member, std::string_view what) : member_(member) {
    const MonoTime mono = member_.clock_.mono();
    member_.note_gap(mono);
    set(what, mono);
  }
  ~Asking() {
    const MonoTime mono = member_.clock_.mono();
    member_.seen_at_ = mono;
    set({}, mono);
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  void set(std::string_view what, MonoTime mono) {
    const std::lock_guard lock(member_.mutex_);
    member_.asking_ = what;
    member_.asking_since_ = mono;
  }

  Member& member_;
};

Member::Member(Cluster& cluster, const Clock& clock, storage::SortedRows& store,
               MemberOptions options)
    : cluster_(cluster), clock_(clock), store_(store), options_(std::move(options)) {}

void Member::step(milliseconds longest) {
  const milliseconds wait = wait_time(longest);
  const MonoTime begun = clock_.mono();
  note_gap(begun);
  Polled polled = cluster_.poll(wait, has_room());
  // The time of the plan is that of the fetch: behind it this thread may stand still for a while.
  const WallTime now = polled.at;
  const MonoTime mono = clock_.mono();
  seen_at_ = mono;
  // When this thread stood still in poll(), those that fetch may have too, before that time.
  if (mono - begun > wait + options_.stall) {
    stood_still_ = true;
    disturbed_at_ = mono;
  }
  const bool is_disturbed = std::exchange(stood_still_, false) || polled.disturbed;
  if (polled.disturbed) disturbed_at_ = mono;
  for (const auto& source : polled.lost) cluster_.stop_rows(source);
  for (const auto& source : polled.assigned) {
    // Its rows go on from where they are, unless some of them may have been missed.
    const auto* copy = warm_.find(source);
    if (copy != nullptr && (copy->is_bad || is_disturbed)) warm_.drop(source);
  }
  take_polled(std::move(polled), mono, now);
  if (is_disturbed) read_anew(mono);
  follow_copies(is_disturbed, mono);
  tend_store(mono, now);
  // Before anything else is planned: a transaction of unknown outcome may still take effect, and
  // what is pending depends on it.
  if (needs_renewal_) {
    if (!transact_.may(mono)) return;
    if (const auto renewed = renew(); !renewed) return stall(renewed.error().message);
    needs_renewal_ = false;
    take_over_all();
    if (is_late()) return;
  }
  // Where each answer takes long, questions and transactions have their steps in turn.
  if (!std::exchange(was_late_, false)) {
    ask(mono, now);
    was_late_ = is_late();
  }
  if (!was_late_ && !needs_renewal_ && transact_.may(mono)) work(now);
  orders_.tell_looks(assignment_, status_.is_full);
}

// Asks Kafka for the facts that orders and take-overs need.
void Member::ask(MonoTime mono, WallTime now) {
  asked_in_vain_ = has_settled_ = false;
  orders_.take(
      assignment_, [&](const std::set<Source>& sources) { return ends_of(sources, mono); },
      status_.stalled, mono);
  find_all(mono);
  for (auto& [source, assigned] : assignment_) {
    if (assigned.stage == Stage::loading) load(assigned, mono, now);
    if (assigned.stage == Stage::reading) read_to_end(assigned, mono);
  }
}

bool Member::is_late() const {
  return clock_.mono() - last_polled_ >= options_.longest_turn;
}

// The producers are made under the same transactional ids: that is what settles an open
// transaction.
Result<> Member::renew() {
  const Asking asking(*this, "to register new producers");
  return cluster_.renew();
}

Transacted Member::transact(const Transaction& transaction) {
  const Asking asking(*this, "to commit a transaction");
  return cluster_.transact(transaction);
}

Result<Offset> Member::source_end(const Source& source) {
  const Asking asking(*this, "for the end of a source");
  return cluster_.source_end(source);
}

Result<Offset> Member::state_end(const Source& source) {
  const Asking asking(*this, "for the end of a state partition");
  return cluster_.state_end(source);
}

bool Member::has_room() const {
  std::size_t arrived = 0;
  for (const auto& [source, assigned] : assignment_) arrived += assigned.partition.arrived_bytes();
  return arrived < options_.arrived_bytes;
}

milliseconds Member::wait_time(milliseconds longest) const {
  const WallTime now = clock_.wall();
  const MonoTime mono = clock_.mono();
  milliseconds wait = longest;
  for (const auto& [source, assigned] : assignment_) {
    if (assigned.stage == Stage::loading) wait = std::min(wait, look_at_rows);
    if (assigned.stage == Stage::finding || assigned.stage == Stage::reading)
      wait = std::min(wait, look_again);
    if (assigned.stage != Stage::owned) continue;
    if (assigned.partition.arrived() > 0 && !status_.is_full) wait = milliseconds{0};
    const auto held = held_targets_.find(assigned.held_by);
    if (held != held_targets_.end() && !held->second.retry.may(mono)) {
      wait = std::min(wait, std::chrono::ceil<milliseconds>(held->second.retry.at() - mono));
    } else if (const auto due = assigned.partition.next_due()) {
      wait = std::min(wait, std::max(*due - now, milliseconds{0}));
    }
  }
  if (!orders_.empty()) wait = std::min(wait, look_at_orders);
  if (!transact_.may(mono))
    wait =
        std::max(wait, std::min(longest, std::chrono::ceil<milliseconds>(transact_.at() - mono)));
  return wait;
}

void Member::take_polled(Polled polled, MonoTime mono, WallTime now) {
  const std::lock_guard lock(mutex_);
  for (const auto& source : polled.lost) {
    if (assignment_.erase(source) > 0) log_info("relay", "{}: no longer owned", source.text());
  }
  for (const auto& source : polled.assigned) {
    auto copy = warm_.take(source);
    const auto [place, is_new] = assignment_.try_emplace(
        source, AssignedPartition(copy ? std::move(copy->partition)
                                       : Partition(source, options_.rules, store_)));
    AssignedPartition& assigned = place->second;
    if (is_new && copy) {
      assigned.since = assigned.stage_since = mono;
      assigned.rows_end = copy->rows_end;
      assigned.is_warm = true;
    } else if (is_new) {
      begin_take_over(assigned, mono);
    }
    log_info("relay", "{}: assigned", source.text());
  }
  status_.is_assigned = status_.is_assigned || polled.changed;
  // A call may have failed because of the old generation, so it is tried with the new one at once.
  if (polled.changed) {
    transact_.reset();
    find_.reset();
  }
  for (auto& [source, record] : polled.records) {
    if (const auto assigned = assignment_.find(source); assigned != assignment_.end())
      assigned->second.partition.arrive(std::move(record));
  }
  for (const auto& end : polled.ends) {
    if (const auto assigned = assignment_.find(end.source); assigned != assignment_.end())
      assigned->second.read_end = std::max(assigned->second.read_end, end.next);
  }
  take_rows(polled, mono, now);
  last_polled_ = mono;
}

// The time since this thread was last seen is its own: with Kafka's answers nobody waits for it.  A
// long one means that it stood still, and whatever was read for it meanwhile may have stood still
// too.
void Member::note_gap(MonoTime mono) {
  if (seen_at_ == MonoTime{} || mono - seen_at_ <= options_.stall) return;
  stood_still_ = true;
  disturbed_at_ = mono;
}

// After a stall or an outage: what was acknowledged meanwhile may be behind what has been read.
void Member::read_anew(MonoTime mono) {
  is_confirmed_ = false;
  const std::lock_guard lock(mutex_);
  for (auto& [source, assigned] : assignment_) {
    // An end that was asked for afterwards holds.
    if (assigned.stage == Stage::reading && assigned.target_asked <= disturbed_at_) {
      assigned.target = -1;
      assigned.stage_since = {};
    }
    if (assigned.stage != Stage::owned) continue;
    assigned.stage = Stage::reading;
    assigned.since = assigned.stage_since = mono;
    assigned.target = -1;
  }
}

// Rows that were read, and how far: to the store, together.
void Member::take_rows(const Polled& polled, MonoTime mono, WallTime now) {
  std::map<Source, Offset> loaded;
  for (const auto& row : polled.rows) {
    const auto assigned = assignment_.find(row.source);
    if (auto* copy = warm_.find(row.source); copy != nullptr) {
      if (copy->is_bad) continue;
      loaded.try_emplace(row.source, -1);
      copy->is_bad = !take_row(row, copy->partition);
    } else if (assigned != assignment_.end() && assigned->second.reads_rows() &&
               assigned->second.bad_row.empty()) {
      loaded.try_emplace(row.source, -1);
      assigned->second.stage_since = mono;
      if (const auto taken = take_row(row, assigned->second.partition); !taken) {
        assigned->second.bad_row = taken.error().message;
        log_error("relay", "{}", assigned->second.bad_row);
      }
    }
  }
  for (const auto& end : polled.row_ends) {
    const auto assigned = assignment_.find(end.source);
    Offset* known = nullptr;
    if (auto* copy = warm_.find(end.source); copy != nullptr) {
      known = &copy->rows_end;
    } else if (assigned != assignment_.end() && assigned->second.reads_rows()) {
      if (end.next > assigned->second.rows_end) assigned->second.stage_since = mono;
      known = &assigned->second.rows_end;
    }
    if (known == nullptr || end.next <= *known) continue;
    *known = end.next;
    loaded[end.source] = end.next;
  }
  for (const auto& [source, end] : loaded) {
    auto* copy = warm_.find(source);
    const bool is_bad = copy != nullptr ? copy->is_bad : !assignment_.at(source).bad_row.empty();
    Partition& partition = copy != nullptr ? copy->partition : assignment_.at(source).partition;
    if (is_bad) {
      partition.forget();
    } else {
      partition.loaded(end, now);
    }
  }
}

// The error: the row is of a newer version.
Result<> Member::take_row(const RowRead& row, Partition& partition) {
  const auto loaded = partition.load_row(row.key, row.value, row.offset);
  if (loaded) return {};
  const std::string topic = options_.rules.state_topic(row.source.topic);
  if (loaded.error().code == Errc::unsupported) {
    return fail(Errc::unsupported,
                fmt::format("{}: a row was written by a newer version of Tarry: {}", topic,
                            loaded.error().message));
  }
  ++status_.damaged_rows;
  log_error("relay", "{}: a damaged row is ignored: {}", topic, loaded.error().message);
  return {};
}

void Member::follow_copies(bool is_disturbed, MonoTime mono) {
  warm_.follow({.is_disturbed = is_disturbed,
                .has_room = store_.has_room(),
                .assignment = assignment_,
                .mono = mono,
                .now = clock_.wall(),
                .retry = options_.retry,
                .longest_retry = options_.longest_retry,
                .is_late = [this] { return is_late(); },
                .state_end = [this](const Source& source) { return state_end(source); }});
}

// An owner's store is complete though nothing comes; one that nobody follows is dropped when it is
// of no more use.
void Member::tend_store(MonoTime mono, WallTime now) {
  if (tended_at_ != MonoTime{} && mono - tended_at_ < tend_again) return;
  tended_at_ = mono;
  const std::lock_guard lock(mutex_);
  for (auto& [source, assigned] : assignment_)
    if (assigned.stage == Stage::owned && is_confirmed_) assigned.partition.note_complete(now);
  if (mono - flushed_at_ >= flush_again) {
    store_.flush();
    flushed_at_ = mono;
  }
  for (const auto& source : PendingRecords::older(store_, now - longest_unread)) {
    if (assignment_.contains(source) || warm_.contains(source)) continue;
    log_info("relay",
             "{}: its rows are removed from the store: other members have owned it for a long time",
             source.text());
    PendingRecords(store_, source).clear();
  }
}

void Member::begin_take_over(AssignedPartition& assigned, MonoTime mono) {
  assigned.stage = Stage::finding;
  assigned.since = mono;
  assigned.stage_since = mono;
  assigned.target = assigned.rows_end = -1;
  assigned.is_warm = false;
  assigned.waits.clear();
  assigned.bad_row.clear();
}

void Member::take_over_all() {
  const MonoTime mono = clock_.mono();
  for (auto& [source, assigned] : assignment_) cluster_.stop_rows(source);
  const std::lock_guard lock(mutex_);
  for (auto& [source, assigned] : assignment_) begin_take_over(assigned, mono);
  prepared_sources_.clear();
  prepared_targets_.clear();
  ++status_.renewed;
}

// Frees a log that waits for a transaction of the last owner.
void Member::free_log(AssignedPartition& assigned, MonoTime mono) {
  const auto stuck_after =
      assigned.stage == Stage::finding ? options_.stuck_after : options_.stuck_rows_after;
  if (mono - assigned.stage_since < stuck_after) return;
  // One in each step, however late: that the log is stuck may be what makes the others slow.
  if (has_settled_ && is_late()) return;
  assigned.stage_since = mono;
  if (assigned.last_owner.empty() || assigned.last_owner == cluster_.owner()) return;
  // Once for all partitions of that member.
  auto& settled_at = settled_at_[assigned.last_owner];
  if (settled_at != MonoTime{} && mono - settled_at < settle_again) return;
  has_settled_ = true;
  log_info("relay", "{}: a transaction of {} is open; its producers are fenced",
           assigned.partition.source().text(), assigned.last_owner);
  const auto settled = [&] {
    const Asking asking(*this, "to end the transaction of another member");
    return cluster_.settle(assigned.last_owner);
  }();
  if (!settled) log_warn("relay", "{}: {}", assigned.last_owner, settled.error().message);
  // That should have ended it.  Seen with a Kafka that was killed: it had lost the markers.
  if (settled_at != MonoTime{}) {
    const std::lock_guard lock(mutex_);
    assigned.waits = fmt::format(
        "{}: a transaction of {} stays open though its producers were fenced; see "
        "kafka-transactions find-hanging",
        assigned.partition.source().text(), assigned.last_owner);
  }
  // From its end on: it may take so long that the next step would settle again, and only that.
  settled_at = clock_.mono();
}

// The topics of each source by themselves: one of them may be wrong.
void Member::prepare(MonoTime mono) {
  std::map<std::string, std::vector<Source>> topics;
  for (const auto& [source, assigned] : assignment_) {
    if (assigned.stage == Stage::finding && assigned.find.may(mono) &&
        !prepared_sources_.contains(source))
      topics[source.topic].push_back(source);
  }
  for (const auto& [topic, sources] : topics) {
    if (is_late()) return;
    const auto prepared = [&] {
      const Asking asking(*this, "for the topics of a source");
      return cluster_.prepare(sources);
    }();
    if (!prepared) {
      for (const auto& source : sources)
        wait_with(assignment_.at(source), prepared.error().message);
    } else {
      prepared_sources_.insert(sources.begin(), sources.end());
    }
  }
}

void Member::find_all(MonoTime mono) {
  if (!find_.may(mono)) return;
  prepare(mono);
  if (is_late()) return;
  std::vector<Source> sources;
  for (const auto& [source, assigned] : assignment_) {
    if (assigned.stage == Stage::finding && assigned.find.may(mono) &&
        prepared_sources_.contains(source))
      sources.push_back(source);
  }
  if (sources.empty()) return;
  const auto committed = [&] {
    const Asking asking(*this, "for the offsets of the group");
    return cluster_.committed(sources);
  }();
  if (!committed) return find_failed(committed.error().message);
  std::vector<std::pair<Source, Committed>> stable;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    AssignedPartition& assigned = assignment_.at(sources[i]);
    const Committed& each = (*committed)[i];
    assigned.last_owner = each.owner;
    if (!each.is_stable) {
      // A Kafka that is slow is no reason to fence anybody.
      if (!each.is_open) assigned.stage_since = mono;
      free_log(assigned, mono);
      continue;
    }
    if (!each.next) {
      if (is_late() && !stable.empty()) continue;
      // From the first transaction on there is an offset.
      const auto end = state_end(sources[i]);
      if (!end) return wait_with(assigned, end.error().message);
      if (*end > 0) {
        wait_with(assigned,
                  fmt::format("{}: group {} has no committed offset of it, although {} has "
                              "rows: the group's offsets expired or were deleted; set them "
                              "with kafka-consumer-groups --reset-offsets",
                              sources[i].text(), options_.rules.group,
                              options_.rules.state_topic(sources[i].topic)));
        continue;
      }
    }
    stable.emplace_back(sources[i], each);
  }
  if (stable.empty() || (has_settled_ && is_late())) return;
  found(stable, mono);
}

// Their offsets are stable: whatever an owner before us did is committed or will never be.
void Member::found(const std::vector<std::pair<Source, Committed>>& stable, MonoTime mono) {
  Transaction transaction;
  // The same offsets once more, because this member's producers are named with them: if it dies in
  // its first transaction, the next owner knows whom to fence.
  for (const auto& [source, committed] : stable)
    transaction.offsets.push_back({source, committed.next.value_or(0)});
  const auto done = transact(transaction);
  if (done.outcome != Outcome::committed) {
    failed(done, {});
    return find_failed(done.error);
  }
  is_confirmed_ = true;
  bool is_first = true;
  for (const auto& [source, committed] : stable) {
    // At least one, or there would be no progress; the others are found again.
    if (!std::exchange(is_first, false) && is_late()) break;
    AssignedPartition& assigned = assignment_.at(source);
    // After the transaction: the last owner can write nothing behind this end.
    const auto end = state_end(source);
    if (!end) return wait_with(assigned, end.error().message);
    if (!assigned.is_warm) {
      Offset from = 0;
      {
        const std::lock_guard lock(mutex_);
        from = assigned.partition.rows_from(clock_.wall(), *end, committed.next.value_or(0));
        assigned.complete_at = assigned.partition.pending().place().complete_at;
      }
      log_info("relay", "{}: its rows are read from {} to {}; {} are pending in the store",
               source.text(), from, *end, assigned.partition.pending().size());
      if (const auto started = cluster_.start_rows(source, from); !started)
        return wait_with(assigned, started.error().message);
    }
    const std::lock_guard lock(mutex_);
    assigned.waits.clear();
    assigned.find.reset();
    assigned.stage = Stage::loading;
    assigned.stage_since = mono;
    assigned.committed = committed.next.value_or(0);
    assigned.target = *end;
  }
  find_.reset();
  transact_.reset();
  const std::lock_guard lock(mutex_);
  set_stalled({});
}

void Member::load(AssignedPartition& assigned, MonoTime mono, WallTime now) {
  if (!assigned.bad_row.empty()) {
    const std::lock_guard lock(mutex_);
    assigned.waits = assigned.bad_row;
    return;
  }
  if (assigned.rows_end < assigned.target) return free_log(assigned, mono);
  cluster_.stop_rows(assigned.partition.source());
  const std::lock_guard lock(mutex_);
  // It took so long to read the rest that tombstones may have been compacted away meanwhile.
  if (!assigned.is_warm && now - assigned.complete_at > oldest_rest) {
    log_warn("relay", "{}: reading its rows took too long; they are read again",
             assigned.partition.source().text());
    assigned.partition.forget();
    return begin_take_over(assigned, mono);
  }
  assigned.partition.begin(assigned.committed, now);
  assigned.is_warm = false;
  assigned.stage = Stage::reading;
  assigned.target = -1;
  assigned.stage_since = {};
}

void Member::read_to_end(AssignedPartition& assigned, MonoTime mono) {
  if (assigned.target < 0) {
    if (assigned.stage_since != MonoTime{} && mono - assigned.stage_since < look_again) return;
    // One whose leader is away takes a while to say nothing: no other is asked in this step.
    if (asked_in_vain_ || is_late() || !assigned.find.may(mono)) return;
    const MonoTime asked = clock_.mono();
    const auto end = source_end(assigned.partition.source());
    if (!end) return wait_with(assigned, end.error().message);
    const std::lock_guard lock(mutex_);
    assigned.waits.clear();
    assigned.find.reset();
    assigned.stage_since = mono;
    assigned.target = *end;
    assigned.target_asked = asked;
    return;
  }
  const bool was_read =
      std::max(assigned.partition.arrived_end(), assigned.read_end) >= assigned.target;
  // When no record can be taken in for lack of room, only delivery makes room.
  if (!status_.is_full && (!was_read || assigned.partition.has_arrived_before(assigned.target)))
    return;
  const std::lock_guard lock(mutex_);
  assigned.stage = Stage::owned;
  assigned.take_over_ms = ms_between(assigned.since, mono);
  log_info("relay", "{}: owned after {} ms with {} pending", assigned.partition.source().text(),
           *assigned.take_over_ms, assigned.partition.pending().size());
}

// The partitions whose records may be taken in, behind the one that was served last: a busy one
// leaves nothing for the others in its transaction.
std::vector<AssignedPartition*> Member::in_turn() {
  std::vector<AssignedPartition*> all;
  std::size_t first = 0;
  for (auto& [source, assigned] : assignment_) {
    if (assigned.stage != Stage::reading && assigned.stage != Stage::owned) continue;
    if (source <= last_served_) ++first;
    all.push_back(&assigned);
  }
  std::ranges::rotate(all, all.begin() + static_cast<std::ptrdiff_t>(first));
  return all;
}

// --- Orders.

void Member::give(std::vector<Ordered> orders) {
  if (orders_.give(std::move(orders))) cluster_.wake();
}

void Member::refuse_orders(const std::string& why) {
  orders_.refuse(why);
  orders_.refuse_waiting(why);
}

// Where these sources end.  One whose leader is away takes a while to say nothing: one of them is
// asked in a step, and those behind it are left out.
std::map<Source, Result<Offset>> Member::ends_of(const std::set<Source>& sources, MonoTime mono) {
  std::map<Source, Result<Offset>> ends;
  std::vector<Source> asked;
  for (const auto& source : sources) {
    const AssignedPartition& assigned = assignment_.at(source);
    if (assigned.ends.may(mono)) {
      asked.push_back(source);
    } else {
      ends.emplace(source, fail(Errc::io, assigned.ends_error));
    }
  }
  if (asked.empty()) return ends;
  const auto all = [&] {
    const Asking asking(*this, "for the ends of sources");
    return cluster_.source_ends(asked);
  }();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (!all && (asked_in_vain_ || is_late())) break;
    Result<Offset> end = all ? Result<Offset>((*all)[i]) : source_end(asked[i]);
    AssignedPartition& assigned = assignment_.at(asked[i]);
    if (end) {
      assigned.ends.reset();
    } else {
      asked_in_vain_ = true;
      assigned.ends.failed(mono, options_.retry, options_.longest_retry);
      assigned.ends_error = end.error().message;
    }
    ends.emplace(asked[i], std::move(end));
  }
  return ends;
}

void Member::work(WallTime now) {
  Transaction transaction;
  std::vector<Planned> works;
  Limits left = options_.limits;
  if (is_careful_) {
    left.arrivals = std::min(left.arrivals, careful_records);
    left.deliveries = std::min(left.deliveries, careful_records);
  }
  std::size_t pending_bytes = 0;
  for (const auto& [source, assigned] : assignment_)
    pending_bytes += assigned.partition.pending().bytes();
  const bool has_room = store_.has_room();
  bool is_full = false;
  const auto held = held_targets(clock_.mono());
  for (AssignedPartition* next : in_turn()) {
    AssignedPartition& assigned = *next;
    const std::size_t own = assigned.partition.pending().bytes();
    Limits limits = left;
    limits.held_targets = &held;
    limits.pending_bytes = has_room && options_.limits.pending_bytes > pending_bytes
                               ? own + (options_.limits.pending_bytes - pending_bytes)
                               : 0;
    std::vector<Waiting*> asked;
    if (assigned.stage == Stage::owned) asked = orders_.ready_for(assigned, status_.is_full);
    std::vector<const Order*> orders;
    for (const Waiting* waiting : asked) orders.push_back(&waiting->ordered.order);
    Work each = assigned.partition.plan(now, assigned.stage == Stage::owned, limits, orders);
    note_held(assigned, each.held_by);
    is_full = is_full || (each.taken == 0 && assigned.partition.arrived() > 0 &&
                          left.arrivals > 0 && left.bytes > 0);
    if (each.empty()) continue;
    asked.resize(each.answers.size());
    left.bytes -= std::min(left.bytes, each.bytes);
    left.arrivals -= std::min(left.arrivals, each.taken);
    left.deliveries -= std::min<std::size_t>(left.deliveries, each.counts.delivered);
    transaction.offsets.push_back({assigned.partition.source(), each.next});
    std::ranges::move(each.records, std::back_inserter(transaction.records));
    each.records.clear();
    works.push_back({&assigned, std::move(each), std::move(asked)});
  }
  if (is_full != status_.is_full) {
    const std::lock_guard lock(mutex_);
    status_.is_full = is_full;
    if (is_full)
      log_error("relay",
                "pending records take {} bytes, and the disk of --data is nearly full: no more are "
                "taken in until there is room",
                pending_bytes);
  }
  if (works.empty()) return confirm();
  // Also when the transaction fails: a record that Kafka refuses must not keep the turn.
  last_served_ = works.back().assigned->partition.source();
  if (!prepare_targets(transaction.records)) return;
  Transacted sent;
  std::vector<Outgoing> targets;  // That are sent already.
  if (options_.delivery == Delivery::at_least_once &&
      !send_first(transaction, works, targets, sent))
    return;
  auto done = transact(transaction);
  std::ranges::move(sent.placed, std::back_inserter(done.placed));
  for (auto& each : works) WaitingOrders::tell(each.asked, each.work.answers, done);
  if (done.outcome != Outcome::committed) return failed(done, transaction.records);
  if (!held_targets_.empty()) {
    const std::lock_guard lock(mutex_);
    for (const auto* records : {&transaction.records, &targets})
      for (const auto& record : *records) held_targets_.erase(record.topic);
  }
  committed(works, done);
}

// After a stall others may own what this member takes for its own, and nothing is to be done that
// Kafka would refuse.  So it asks: the group takes the offsets from a member that is in it.
void Member::confirm() {
  if (is_confirmed_) return;
  Transaction transaction;
  for (const auto& [source, assigned] : assignment_)
    if (assigned.stage == Stage::owned)
      transaction.offsets.push_back({source, assigned.partition.next()});
  if (transaction.empty()) return;
  const auto done = transact(transaction);
  if (done.outcome != Outcome::committed) return failed(done, {});
  is_confirmed_ = true;
  const std::lock_guard lock(mutex_);
  set_stalled({});
  transact_.reset();
}

void Member::committed(std::vector<Planned>& works, const Transacted& done) {
  const WallTime committed = clock_.wall();
  const MonoTime mono = clock_.mono();
  is_confirmed_ = true;
  const std::lock_guard lock(mutex_);
  set_stalled({});
  transact_.reset();
  is_careful_ = false;
  ++status_.transactions;
  for (auto& [assigned, each, asked] : works) {
    status_.counts.add(each.counts);
    for (const auto due : each.delivered_due) {
      if (due > committed) ++status_.early;
      lag_.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, (committed - due).count())),
               mono);
    }
    const auto rows_end = done.rows_end.find(assigned->partition.source());
    assigned->partition.apply(std::move(each),
                              rows_end == done.rows_end.end() ? -1 : rows_end->second);
  }
}

bool Member::prepare_targets(const std::vector<Outgoing>& records) {
  for (const auto& record : records) {
    const std::pair target(record.topic, record.source);
    if (record.kind != Outgoing::Kind::target || prepared_targets_.contains(target)) continue;
    if (is_late()) return false;  // The prepared ones need not be again.
    const auto prepared = [&] {
      const Asking asking(*this, "for a target topic");
      return cluster_.prepare_target(record.topic, record.source);
    }();
    if (!prepared) {
      if (prepared.error().code == Errc::invalid) {
        refuse_all_to(record.topic, prepared.error().message, records);
      } else {
        hold_target(record.topic, prepared.error().message, options_.retry, options_.longest_retry);
      }
      return false;
    }
    prepared_targets_.insert(target);
  }
  return true;
}

// The next plan leaves out what is due behind a record for it.
void Member::hold_target(const std::string& topic, std::string why, milliseconds first,
                         milliseconds longest) {
  const MonoTime mono = clock_.mono();
  const std::lock_guard lock(mutex_);
  const auto [held, is_new] = held_targets_.try_emplace(topic);
  if (is_new) held->second.since = mono;
  if (held->second.why != why) log_error("relay", "records for {} wait: {}", topic, why);
  held->second.why = std::move(why);
  held->second.retry.failed(mono, first, longest);
}

std::set<std::string> Member::held_targets(MonoTime mono) const {
  std::set<std::string> held;
  for (const auto& [topic, each] : held_targets_)
    if (!each.retry.may(mono)) held.insert(topic);
  return held;
}

void Member::note_held(AssignedPartition& assigned, const std::string& target) {
  if (assigned.held_by == target) return;
  const std::lock_guard lock(mutex_);
  assigned.held_by = target;
}

// There will never be such a topic: its records go to NAME.invalid.
void Member::refuse_all_to(const std::string& topic, const std::string& reason,
                           const std::vector<Outgoing>& records) {
  log_warn("relay", "{}: {}", topic, reason);
  const std::lock_guard lock(mutex_);
  for (const auto& record : records) {
    if (record.kind == Outgoing::Kind::target && record.topic == topic)
      assignment_.at(record.source).partition.refuse(record.offset, reason);
  }
}

// At least once: the records go to their targets before the transaction that forgets them.
bool Member::send_first(Transaction& transaction, const std::vector<Planned>& works,
                        std::vector<Outgoing>& targets, Transacted& sent) {
  std::vector<Outgoing> others;
  for (auto& record : transaction.records)
    (record.kind == Outgoing::Kind::target ? targets : others).push_back(std::move(record));
  transaction.records = std::move(others);
  if (targets.empty()) return true;
  // Nothing fences what is sent: a member that stood still first asks whether it is in the group.
  if (!is_confirmed_) confirm();
  if (!is_confirmed_) return false;
  for (const auto& each : works) WaitingOrders::note_sent(each.asked, each.work.answers);
  {
    const Asking asking(*this, "to take records");
    sent = cluster_.send(targets);
  }
  if (sent.outcome == Outcome::committed) return true;
  failed(sent, targets);
  return false;
}

void Member::failed(const Transacted& done, const std::vector<Outgoing>& records) {
  {
    const std::lock_guard lock(mutex_);
    ++status_.aborted;
  }
  // One of the topics may have been deleted.  A fenced transaction has reached none of them.
  if (!done.is_fenced) prepared_targets_.clear();
  is_careful_ = is_careful_ || done.is_careful;
  needs_renewal_ = needs_renewal_ || done.outcome == Outcome::unknown;
  for (const auto& [index, reason] : done.refused) {
    const Outgoing& record = records.at(index);
    const std::string why = fmt::format("{} refuses it: {}", record.topic, reason);
    const bool is_invalid = record.kind == Outgoing::Kind::invalid;
    const std::lock_guard lock(mutex_);
    Partition& partition = assignment_.at(record.source).partition;
    if (is_invalid) {
      partition.refuse_invalid(record.offset, why);
    } else {
      partition.refuse(record.offset, why);
    }
  }
  for (const auto& topic : done.silent_targets)
    hold_target(topic, fmt::format("{} has confirmed no record in time", topic),
                options_.silent_retry, options_.longest_silent_retry);
  if (done.refused.empty() && done.silent_targets.empty()) stall(done.error);
}

void Member::stall(std::string why) {
  const std::lock_guard lock(mutex_);
  if (status_.stalled != why) log_warn("relay", "no progress: {}", why);
  set_stalled(std::move(why));
  transact_.failed(clock_.mono(), options_.retry, options_.longest_transact_retry);
}

// Under the lock.
void Member::set_stalled(std::string why) {
  if (why.empty()) {
    stalled_since_.reset();
  } else if (!stalled_since_) {
    stalled_since_ = clock_.mono();
  }
  status_.stalled = std::move(why);
}

// Nothing is taken over further for a while; what is owned goes on.  The reason is the group's or
// its coordinator's, so that the other partitions would fail for it too.
void Member::find_failed(std::string why) {
  const std::lock_guard lock(mutex_);
  if (status_.stalled != why) log_warn("relay", "no partition can be taken over: {}", why);
  set_stalled(std::move(why));
  find_.failed(clock_.mono(), options_.retry, options_.longest_transact_retry);
}

// The others go on without it.
void Member::wait_with(AssignedPartition& assigned, std::string why) {
  const std::lock_guard lock(mutex_);
  if (assigned.waits != why)
    log_error("relay", "{} waits: {}", assigned.partition.source().text(), why);
  assigned.waits = std::move(why);
  assigned.find.failed(clock_.mono(), options_.retry, options_.longest_retry);
  asked_in_vain_ = true;
}

MemberStatus Member::status() const {
  const std::lock_guard lock(mutex_);
  MemberStatus status = status_;
  for (const auto& [source, assigned] : assignment_) {
    status.partitions.push_back({source, assigned.stage, assigned.partition.pending().size(),
                                 assigned.partition.arrived(), assigned.partition.next(),
                                 assigned.partition.next_due(), assigned.take_over_ms});
    if (assigned.stage == Stage::owned) ++status.owned;
    if (status.stalled.empty() && !assigned.waits.empty()) {
      status.stalled = assigned.waits;
      status.stalled_for = std::chrono::floor<std::chrono::seconds>(clock_.mono() - assigned.since);
    }
    const auto held = held_targets_.find(assigned.held_by);
    if (status.stalled.empty() && held != held_targets_.end()) {
      status.stalled = held->second.why;
      status.stalled_for =
          std::chrono::floor<std::chrono::seconds>(clock_.mono() - held->second.since);
    }
    status.pending_bytes += assigned.partition.pending().bytes();
  }
  status.standby = warm_.complete();
  status.standby_bytes = warm_.bytes();
  const MonoTime mono = clock_.mono();
  if (stalled_since_)
    status.stalled_for = std::chrono::floor<std::chrono::seconds>(mono - *stalled_since_);
  if (const auto asked_for = mono - asking_since_;
      !asking_.empty() && asked_for >= options_.shown_after) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(asked_for);
    status.stalled_for = std::max(status.stalled_for, seconds);
    if (status.stalled.empty())
      status.stalled =
          fmt::format("Kafka was asked {} and has not answered for {} s", asking_, seconds.count());
  }
  status.lag = lag_.distribution(mono);
  return status;
}

bool Member::is_ready() const {
  const std::lock_guard lock(mutex_);
  return status_.is_assigned && std::ranges::all_of(assignment_, [](const auto& each) {
           return each.second.stage == Stage::owned;
         });
}

}  // namespace tarry::relay
