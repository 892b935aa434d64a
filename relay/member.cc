#include "relay/member.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace tarry::relay {

using std::chrono::milliseconds;

namespace {

constexpr std::chrono::minutes tend_again{1};
// After a crash the store knows when it was complete: this and tend_again are far less than
// longest_unread.
constexpr std::chrono::minutes flush_again{10};
// While an order waits for its source to be read.
constexpr milliseconds look_at_orders{2};
// Each is waited for by itself, within the time of a transaction.
constexpr std::size_t careful_records = 100;

}  // namespace

Member::Member(Cluster& cluster, const Clock& clock, storage::SortedRows& store,
               MemberOptions options)
    : cluster_(cluster), clock_(clock), store_(store), options_(std::move(options)) {}

void Member::step(milliseconds longest) {
  const milliseconds wait = wait_time(longest);
  const MonoTime begun = clock_.mono();
  questions_.note_gap(begun);
  PollResult polled = cluster_.poll(wait, pause(begun));
  // What is due is counted by the time of the fetch: behind it this thread may stand still for a
  // while.  Records that came later than that have a time of their own, which is no earlier.
  const WallTime believed = clock_.wall();
  polled.at = std::min(polled.at, believed);
  const WallTime at = polled.at;
  const WallTime now = polled.drained ? at : believed;
  const MonoTime mono = clock_.mono();
  questions_.begin_turn(mono);
  // When this thread stood still in poll(), those that fetch may have too, before that time.
  if (mono - begun > wait + options_.stall) questions_.note_standstill(mono);
  // So have all when the machine was suspended, and the monotonic clock with it.
  if (clock_.take_ahead() > options_.stall) questions_.note_standstill(mono);
  const bool is_disturbed = questions_.take_standstill() || polled.disturbed;
  const bool is_held_up = polled.held_up;
  if (polled.disturbed) questions_.note_outage(mono);
  for (const auto& source : polled.lost) cluster_.stop_rows(source);
  for (const auto& source : polled.assigned) {
    // Its rows go on from where they are, unless some of them may have been missed.
    const auto* copy = warm_.find(source);
    if (copy != nullptr && (copy->is_bad || copy->is_stale || is_disturbed)) warm_.drop(source);
  }
  take_polled(std::move(polled), mono, now);
  if (is_disturbed) is_confirmed_ = false;
  if (is_disturbed) take_over_.read_anew(mono);
  if (is_held_up) take_over_.note_held_up(mono);
  follow_clock(mono, now);
  follow_copies(is_disturbed, mono);
  tend_store(mono, now);
  // Before anything else is planned: a transaction of unknown outcome may still take effect, and
  // what is pending depends on it.
  if (needs_renewal_) {
    // Planned for what may not be so any more; and the sender is replaced, too.
    sends_ahead_.give_up();
    if (!progress_.may_transact(mono)) return;
    if (const auto renewed = questions_.renew(); !renewed) return stall(renewed.error().message);
    needs_renewal_ = false;
    begin_anew();
    if (questions_.is_late()) return;
  }
  // Where each answer takes long, questions and transactions have their steps in turn.
  if (!std::exchange(was_late_, false)) {
    ask(mono, now);
    was_late_ = questions_.is_late();
  }
  if (!was_late_ && !needs_renewal_ && progress_.may_transact(mono))
    work(std::min(now, clock_.wall()), at);  // It may have been set back since the poll.
  orders_.tell_looks(assignment_, status_.is_full);
}

void Member::follow_clock(MonoTime mono, WallTime now) {
  if (clock_.take_set_back()) take_over_.forget_times(mono);
  if (!clock_.take_jump()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [source, assigned] : assignment_) {
    assigned.partition.note_jump(now);
    // Or the commit of what is open would take the jump back.
    if (assigned.open) assigned.open->earliest = now;
  }
}

// Asks Kafka for the facts that orders and take-overs need.
void Member::ask(MonoTime mono, WallTime now) {
  questions_.allow_in_vain();
  orders_.take(
      assignment_, [&](const std::set<Source>& sources) { return ends_of(sources, mono); },
      progress_.stalled(), mono);
  take_over_.advance(mono, now, status_.is_full);
}

// The producers are new ones, and what the old ones did is settled.
void Member::begin_anew() {
  take_over_.begin_all();
  const std::lock_guard lock(mutex_);
  prepared_targets_.clear();
  ++status_.renewed;
}

// The partitions that are paused in the next poll.
std::set<Source> Member::pause(MonoTime mono) {
  const std::lock_guard lock(mutex_);
  auto paused = intake_.choose(assignment_);
  for (auto& [source, assigned] : assignment_) {
    const bool is_paused = paused.contains(source);
    // Without room for records only delivery makes some, so there it goes on until the pause is
    // over.
    if (assigned.stage == Stage::owned && (is_paused ? !status_.is_full : assigned.is_paused))
      TakeOver::read_again(assigned, mono);
    if (is_paused == assigned.is_paused) continue;
    assigned.is_paused = is_paused;
    const std::size_t bytes = assigned.partition.arrived_bytes();
    if (!is_paused) {
      assigned.resumed_at = mono;
      log_debug("relay", "{}: it is read again", source.text());
    } else if (assigned.takes_in()) {
      log_debug("relay", "{}: reading is paused until transactions have taken in {} bytes",
                source.text(), bytes);
    } else {
      log_warn("relay",
               "{}: reading is paused until the take-over: {} bytes have arrived that cannot be "
               "taken in yet",
               source.text(), bytes);
    }
  }
  return paused;
}

milliseconds Member::wait_time(milliseconds longest) const {
  const WallTime now = clock_.wall();
  const MonoTime mono = clock_.mono();
  milliseconds wait = longest;
  for (const auto& [source, assigned] : assignment_) {
    wait = std::min(wait, TakeOver::max_wait(assigned.stage));
    if (!assigned.rest.may(mono)) {
      wait = std::min(wait, std::chrono::ceil<milliseconds>(assigned.rest.at() - mono));
      continue;
    }
    const std::size_t taken = assigned.open ? assigned.open->taken : 0;
    if (assigned.takes_in() && assigned.partition.arrived() > taken && !status_.is_full)
      wait = milliseconds{0};
    if (assigned.stage != Stage::owned) continue;
    const auto* held = held_targets_.find(assigned.held_by);
    if (held != nullptr && !held->retry.may(mono)) {
      wait = std::min(wait, std::chrono::ceil<milliseconds>(held->retry.at() - mono));
    } else if (const auto due = assigned.open ? assigned.partition.next_due(*assigned.open)
                                              : assigned.partition.next_due()) {
      wait = std::min(wait, std::max(*due - now, milliseconds{0}));
    }
  }
  wait = sends_ahead_.poll_wait(wait, mono);
  if (!orders_.empty()) wait = std::min(wait, look_at_orders);
  if (!progress_.may_transact(mono))
    wait = std::max(
        wait, std::min(longest, std::chrono::ceil<milliseconds>(progress_.transact_at() - mono)));
  return wait;
}

void Member::take_polled(PollResult polled, MonoTime mono, WallTime now) {
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
      // It may not have followed its partition since, which load() judges.
      assigned.complete_at = copy->complete_at;
      assigned.is_warm = true;
    } else if (is_new) {
      TakeOver::begin(assigned, mono);
    }
    log_info("relay", "{}: assigned", source.text());
  }
  for (auto& [source, assigned] : assignment_)
    assigned.partition.limit_delivered(options_.delivered_ids / assignment_.size());
  status_.is_assigned = status_.is_assigned || polled.changed;
  if (polled.changed) progress_.retry_at_once();
  for (auto& [source, record] : polled.records) {
    const auto assigned = assignment_.find(source);
    if (assigned == assignment_.end()) continue;
    assigned->second.was_fetched = true;
    assigned->second.partition.arrive(std::move(record), assigned->second.fetched_at);
  }
  for (const auto& end : polled.ends) {
    const auto assigned = assignment_.find(end.source);
    if (assigned == assignment_.end()) continue;
    assigned->second.was_fetched = true;
    const Offset read = assigned->second.partition.next();
    if (assigned->second.takes_in() && end.next < read) {
      TakeOver::refuse_source(assigned->second, end.next, read, mono);
    } else {
      assigned->second.read_end = std::max(assigned->second.read_end, end.next);
    }
  }
  for (auto& [source, assigned] : assignment_)
    if (!assigned.is_paused) assigned.fetched_at = polled.at;
  take_rows(polled, mono, now);
}

// Rows that were read, and how far: to the store, together.
void Member::take_rows(const PollResult& polled, MonoTime mono, WallTime now) {
  std::map<Source, Offset> loaded;
  for (const auto& row : polled.rows) {
    const auto assigned = assignment_.find(row.source);
    if (auto* copy = warm_.find(row.source); copy != nullptr) {
      if (copy->is_bad || copy->is_stale) continue;
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
      if (copy->is_bad) continue;
      if (copy->is_stale_at(now)) {
        loaded.try_emplace(end.source, -1);
        continue;
      }
      copy->complete_at = now;
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
    const bool is_bad =
        copy != nullptr ? copy->is_bad || copy->is_stale : !assignment_.at(source).bad_row.empty();
    Partition& partition = copy != nullptr ? copy->partition : assignment_.at(source).partition;
    if (is_bad) {
      partition.forget();
    } else {
      partition.loaded(end, now);
    }
  }
}

// The error: the row is of a newer version.
Result<> Member::take_row(const StateRecord& row, Partition& partition) {
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
  warm_.follow(
      {.is_disturbed = is_disturbed,
       .has_room = store_.has_room(),
       .assignment = assignment_,
       .mono = mono,
       .now = clock_.wall(),
       .retry = options_.retry,
       .longest_retry = options_.longest_retry,
       .is_late = [this] { return questions_.is_late(); },
       .state_end = [this](const Source& source) { return questions_.state_end(source); }});
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

// The partitions whose records may be taken in, from the one on whose turn it is: a busy one leaves
// nothing for those behind it in its transaction.
std::vector<AssignedPartition*> Member::in_turn() {
  std::vector<AssignedPartition*> all;
  std::size_t first = 0;
  const MonoTime mono = clock_.mono();
  for (auto& [source, assigned] : assignment_) {
    if (!assigned.takes_in() || !assigned.rest.may(mono)) continue;
    if (source < first_in_turn_) ++first;
    all.push_back(&assigned);
  }
  std::ranges::rotate(all, all.begin() + static_cast<std::ptrdiff_t>(first));
  return all;
}

// The first of a turn had all of the bound.  Of those behind it the first one that was cut short is
// next; so each comes to be the first, however much the others have to do.
void Member::pass_turn(const std::vector<AssignedPartition*>& turn,
                       const std::set<const AssignedPartition*>& cut_short) {
  if (turn.size() < 2) return;
  const auto next = std::find_if(turn.begin() + 1, turn.end(),
                                 [&](const auto* each) { return cut_short.contains(each); });
  first_in_turn_ = (next == turn.end() ? turn[1] : *next)->partition.source();
}

// --- Orders.

void Member::give(std::vector<OrderRequest> orders) {
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
  const auto all = questions_.source_ends(asked);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (!all && (questions_.asked_in_vain() || questions_.is_late())) break;
    Result<Offset> end = all ? Result<Offset>((*all)[i]) : questions_.source_end(asked[i]);
    AssignedPartition& assigned = assignment_.at(asked[i]);
    if (end) {
      assigned.ends.reset();
    } else {
      questions_.note_in_vain();
      assigned.ends.failed(mono, options_.retry, options_.longest_retry);
      assigned.ends_error = end.error().message;
    }
    ends.emplace(asked[i], std::move(end));
  }
  return ends;
}

// All that was fetched by `at` is here.
void Member::work(WallTime now, WallTime at) {
  if (!sends_ahead_.follow()) return;
  const bool is_ahead = may_run_ahead();
  if (!is_ahead && sends_ahead_.is_open()) return close_open();
  Round round = plan(now, at, is_ahead);
  if (!round.works.empty() && is_ahead) {
    std::vector<AssignedPartition*> open;
    for (const auto& [assigned, asked] : round.works) {
      open.push_back(assigned);
      for (const auto& record : assigned->open->records)
        if (record.kind == ProducerRecord::Kind::target)
          prepared_targets_.use(record.topic, record.source);
    }
    if (!sends_ahead_.begin(open)) return;
    if (!round.must_close && !sends_ahead_.is_over()) return;
    // The group may wait for the next poll, if to begin has taken long; the next step closes it.
    if (questions_.is_late()) return;
  }
  if (round.works.empty()) {
    confirm();
  } else {
    close(round.works, is_ahead);
  }
  // What has cut it short is not for a round that runs ahead.
  if (round.is_cut_short) sends_ahead_.note_round(false);
}

// The bound of a transaction, without what is open.
Limits Member::limits_left() const {
  Limits left = options_.limits;
  if (is_careful_) left.arrivals = std::min(left.arrivals, careful_records);
  if (is_careful_ || sends_ahead_.is_careful())
    left.deliveries = std::min(left.deliveries, careful_records);
  for (const auto& [source, assigned] : assignment_) {
    if (!assigned.open) continue;
    left.bytes -= std::min(left.bytes, assigned.open->bytes);
    left.arrivals -= std::min(left.arrivals, assigned.open->taken);
    left.deliveries -= std::min<std::size_t>(left.deliveries, assigned.open->counts.delivered);
  }
  return left;
}

// Adds to the open work of each partition what it has to do now.
Member::Round Member::plan(WallTime now, WallTime at, bool is_ahead) {
  Round round;
  Limits left = limits_left();
  std::size_t pending_bytes = 0;
  for (const auto& [source, assigned] : assignment_)
    pending_bytes += assigned.partition.pending().bytes();
  const bool has_room = store_.has_room();
  bool is_full = false;
  const auto held = held_targets_.waiting(clock_.mono());
  const auto turn = in_turn();
  std::set<const AssignedPartition*> cut_short;
  for (AssignedPartition* next : turn) {
    AssignedPartition& assigned = *next;
    const std::size_t own = assigned.partition.pending().bytes();
    Limits limits = left;
    limits.held_targets = &held;
    if (is_ahead) limits.prepared_targets = &prepared_targets_;
    limits.pending_bytes = has_room && options_.limits.pending_bytes > pending_bytes
                               ? own + (options_.limits.pending_bytes - pending_bytes)
                               : 0;
    if (limits.pending_bytes > own) read_unread(assigned);
    WallTime fetched = assigned.stage == Stage::owned ? at : WallTime{};
    // Where nothing can be taken in, to wait for what is in the source would end all deliveries.
    if (assigned.is_paused && limits.pending_bytes > own)
      fetched = std::min(fetched, assigned.fetched_at);
    limits.last_due = std::max(fetched, assigned.read_until);
    std::vector<WaitingOrder*> asked;
    if (assigned.may_deliver()) asked = orders_.ready_for(assigned, status_.is_full);
    std::vector<const Order*> orders;
    for (const WaitingOrder* waiting : asked) orders.push_back(&waiting->ordered.order);
    Work& each = assigned.open ? *assigned.open : assigned.open.emplace();
    const std::size_t bytes = each.bytes, taken = each.taken;
    const std::uint64_t delivered = each.counts.delivered;
    assigned.partition.extend(each, now, assigned.may_deliver(), limits, orders);
    note_held(assigned, each.held_by);
    if (each.is_cut_short) cut_short.insert(&assigned);
    is_full = is_full || (each.taken == taken && assigned.partition.arrived() > taken &&
                          left.arrivals > 0 && left.bytes > 0);
    if (each.empty()) {
      // What has failed is not wanted any more, unless the others have left no room for it.
      if (!each.is_cut_short) end_rest(assigned);
      assigned.open.reset();
      continue;
    }
    asked.resize(each.answers.size());
    left.bytes -= std::min(left.bytes, each.bytes - bytes);
    left.arrivals -= std::min(left.arrivals, each.taken - taken);
    left.deliveries -= std::min<std::size_t>(left.deliveries, each.counts.delivered - delivered);
    round.must_close = round.must_close || assigned.stage != Stage::owned;
    round.works.push_back({&assigned, std::move(asked)});
  }
  note_full(is_full, pending_bytes);
  round.is_cut_short = !cut_short.empty();
  round.must_close = round.must_close || round.is_cut_short || is_full;
  // Also when the transaction fails: a record that Kafka refuses must not keep the turn.
  if (!round.works.empty()) pass_turn(turn, cut_short);
  return round;
}

void Member::note_full(bool is_full, std::size_t pending_bytes) {
  if (is_full == status_.is_full) return;
  const std::lock_guard lock(mutex_);
  status_.is_full = is_full;
  if (is_full)
    log_error("relay",
              "pending records take {} bytes, and the disk of --data is nearly full: no more are "
              "taken in until there is room",
              pending_bytes);
}

// Commits the works, whose records are sent first if it is not in the transaction.  `was_ahead`:
// what they deliver is under way or confirmed, and they deliver nothing else.
void Member::close(std::vector<PartitionWork>& works, bool was_ahead) {
  TransactionResult sent;
  if (!sends_ahead_.end(sent) || works.empty()) return sends_ahead_.drop();
  Transaction transaction;
  for (auto& [assigned, asked] : works) {
    Work& work = *assigned->open;
    transaction.offsets.push_back({assigned->partition.source(), work.next});
    // A copy, if the transaction may have to be tried again.
    if (was_ahead) {
      std::ranges::copy(work.records, std::back_inserter(transaction.records));
    } else {
      std::ranges::move(std::exchange(work.records, {}), std::back_inserter(transaction.records));
    }
    assigned->partition.add_rows(work, transaction.records);
  }
  if (!prepare_targets(transaction.records)) return sends_ahead_.drop();
  std::vector<ProducerRecord> targets;  // That are sent already.
  if (options_.delivery == Delivery::at_least_once && !was_ahead &&
      !send_first(transaction, works, targets, sent))
    return sends_ahead_.drop();
  auto done = questions_.transact(transaction);
  std::ranges::move(sent.placed, std::back_inserter(done.placed));
  for (auto& [assigned, asked] : works) WaitingOrders::tell(asked, assigned->open->answers, done);
  is_careful_ = done.is_careful || (is_careful_ && done.outcome != Outcome::committed);
  const bool went_well = done.outcome == Outcome::committed;
  sends_ahead_.note_round(went_well);
  if (!went_well) {
    failed(done, transaction.records);
    const bool may_be_repeated = done.outcome == Outcome::aborted && !done.is_of_some() &&
                                 done.silent_sources.empty() && !done.is_careful;
    if (!was_ahead || !may_be_repeated) sends_ahead_.drop();
    return;
  }
  if (!held_targets_.empty()) {
    const std::lock_guard lock(mutex_);
    for (const auto* records : {&transaction.records, &targets})
      for (const auto& record : *records) held_targets_.taken(record.topic);
  }
  committed(works, done);
}

// --- At least once.

// Nothing unusual is to be done.  A held target that may be tried again is not prepared, so a
// record for it ends the running ahead (Partition::stops_at()); perhaps nobody wants it any more.
bool Member::may_run_ahead() const {
  return options_.delivery == Delivery::at_least_once && sends_ahead_.went_well() &&
         is_confirmed_ && !is_careful_ && !sends_ahead_.is_careful() && !status_.is_full &&
         orders_.empty() && held_targets_.waiting(clock_.mono()).empty();
}

void Member::close_open() {
  std::vector<PartitionWork> works;
  for (auto& [source, assigned] : assignment_)
    if (assigned.open) works.push_back({&assigned, {}});
  close(works, true);
}

void Member::finish() {
  if (!needs_renewal_ && sends_ahead_.is_open()) close_open();
}

// Without room only deliveries made some, so they did not wait for what is in the source.
void Member::read_unread(AssignedPartition& assigned) {
  if (assigned.stage != Stage::owned || !assigned.is_unread) return;
  const std::lock_guard lock(mutex_);
  TakeOver::read_again(assigned, clock_.mono());
}

// After a stall others may own what this member takes for its own, and nothing is to be done that
// Kafka would refuse.  So it asks: the group takes the offsets from a member that is in it.
void Member::confirm() {
  if (is_confirmed_) return;
  Transaction transaction;
  const MonoTime mono = clock_.mono();
  for (const auto& [source, assigned] : assignment_)
    if (assigned.may_deliver() && assigned.rest.may(mono))
      transaction.offsets.push_back({source, assigned.partition.next()});
  if (transaction.empty()) return;
  if (!commit(transaction)) return;
  const std::lock_guard lock(mutex_);
  progress_.made();
}

// Offsets alone.
Result<> Member::commit(const Transaction& transaction) {
  const auto done = questions_.transact(transaction);
  is_careful_ = is_careful_ || done.is_careful;
  if (done.outcome != Outcome::committed) {
    failed(done, {});
    return fail(Errc::io, done.error);
  }
  is_confirmed_ = true;
  return {};
}

void Member::committed(std::vector<PartitionWork>& works, const TransactionResult& done) {
  is_confirmed_ = true;
  for (const auto& [assigned, asked] : works) note_delivered(assigned->open->delivered_due);
  sends_ahead_.closed();
  const std::lock_guard lock(mutex_);
  progress_.made();
  ++status_.transactions;
  for (auto& [assigned, asked] : works) {
    status_.counts.add(assigned->open->counts);
    const auto rows_end = done.rows_end.find(assigned->partition.source());
    if (rows_end != done.rows_end.end()) assigned->was_silent = false;
    if (!assigned->was_silent) assigned->end_rest();
    assigned->partition.apply(std::move(*assigned->open),
                              rows_end == done.rows_end.end() ? -1 : rows_end->second);
    assigned->open.reset();
  }
}

// Records that were due at these times are seen by consumers now.
void Member::note_delivered(const std::vector<WallTime>& due) {
  if (due.empty()) return;
  const WallTime now = clock_.wall();
  const MonoTime mono = clock_.mono();
  const std::lock_guard lock(mutex_);
  for (const auto each : due) {
    if (each > now) ++status_.early;
    lag_.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, (now - each).count())), mono);
  }
}

bool Member::prepare_targets(const std::vector<ProducerRecord>& records) {
  for (const auto& record : records) {
    if (record.kind != ProducerRecord::Kind::target ||
        prepared_targets_.use(record.topic, record.source))
      continue;
    if (questions_.is_late()) return false;  // The prepared ones need not be again.
    const auto prepared = questions_.prepare_target(record.topic, record.source);
    if (!prepared) {
      if (prepared.error().code == Errc::invalid) {
        refuse_all_to(record.topic, prepared.error().message, records);
      } else {
        const std::lock_guard lock(mutex_);
        held_targets_.hold(record.topic, prepared.error().message, clock_.mono(), options_.retry,
                           options_.longest_retry);
      }
      return false;
    }
    prepared_targets_.add(record.topic, record.source);
  }
  return true;
}

void Member::note_held(AssignedPartition& assigned, const std::string& target) {
  if (assigned.held_by == target) return;
  const std::lock_guard lock(mutex_);
  assigned.held_by = target;
}

// There will never be such a topic: its records go to NAME.invalid.
void Member::refuse_all_to(const std::string& topic, const std::string& reason,
                           const std::vector<ProducerRecord>& records) {
  log_warn("relay", "{}: {}", topic, reason);
  const std::lock_guard lock(mutex_);
  for (const auto& record : records) {
    if (record.kind == ProducerRecord::Kind::target && record.topic == topic)
      assignment_.at(record.source).partition.refuse(record.offset, reason);
  }
}

// At least once: the records go to their targets before the transaction that forgets them.
bool Member::send_first(Transaction& transaction, const std::vector<PartitionWork>& works,
                        std::vector<ProducerRecord>& targets, TransactionResult& sent) {
  std::vector<ProducerRecord> others;
  for (auto& record : transaction.records)
    (record.kind == ProducerRecord::Kind::target ? targets : others).push_back(std::move(record));
  transaction.records = std::move(others);
  if (targets.empty()) return true;
  // Nothing fences what is sent: a member that stood still first asks whether it is in the group.
  if (!is_confirmed_) confirm();
  if (!is_confirmed_) return false;
  for (const auto& [assigned, asked] : works)
    WaitingOrders::note_sent(asked, assigned->open->answers);
  return sends_ahead_.send(targets, sent);
}

void Member::failed(const TransactionResult& done, const std::vector<ProducerRecord>& records) {
  {
    const std::lock_guard lock(mutex_);
    ++status_.aborted;
  }
  // One of the topics may have been deleted.  A fenced transaction has reached none of them.
  if (!done.is_fenced) prepared_targets_.clear();
  needs_renewal_ = needs_renewal_ || done.outcome == Outcome::unknown;
  for (const auto& [index, reason] : done.refused) {
    const ProducerRecord& record = records.at(index);
    const std::string why = fmt::format("{} refuses it: {}", record.topic, reason);
    const bool is_invalid = record.kind == ProducerRecord::Kind::invalid;
    // What was sent ahead may be of a partition that the group has taken since.
    const auto assigned = assignment_.find(record.source);
    if (assigned == assignment_.end()) continue;
    const std::lock_guard lock(mutex_);
    if (is_invalid) {
      assigned->second.partition.refuse_invalid(record.offset, why);
    } else {
      assigned->second.partition.refuse(record.offset, why);
    }
  }
  for (const auto& topic : done.silent_targets) {
    const std::lock_guard lock(mutex_);
    held_targets_.hold(topic, fmt::format("{} has confirmed no record in time", topic),
                       clock_.mono(), options_.silent_retry, options_.longest_silent_retry);
  }
  for (const auto& [topic, why] : done.failing_targets) {
    const std::lock_guard lock(mutex_);
    held_targets_.hold(topic, why, clock_.mono(), options_.retry, options_.longest_retry);
  }
  for (const auto& [source, why] : done.failing_sources) rest(source, why);
  const bool is_of_rows = rest_if_silent(done.silent_sources);
  if (!done.is_of_some() && !is_of_rows) stall(done.error);
}

// A state partition without a leader is found out when it is taken over again.  One that still
// confirms nothing after that, for want of copies, would hold up all others time and again.
bool Member::rest_if_silent(const std::set<Source>& sources) {
  bool has_rested = false;
  for (const auto& source : sources) {
    {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(assignment_.at(source).was_silent, true)) continue;
    }
    rest(source,
         fmt::format("{} has confirmed no row in time", options_.rules.state_topic(source.topic)));
    has_rested = true;
  }
  return has_rested;
}

void Member::rest(const Source& source, const std::string& why) {
  const std::lock_guard lock(mutex_);
  AssignedPartition& assigned = assignment_.at(source);
  const MonoTime mono = clock_.mono();
  if (assigned.rests.empty()) assigned.rests_since = mono;
  if (assigned.rests != why) log_error("relay", "{} waits: {}", source.text(), why);
  assigned.rests = why;
  assigned.open.reset();
  assigned.rest.failed(mono, options_.silent_retry, options_.longest_silent_retry);
}

void Member::end_rest(AssignedPartition& assigned) {
  if (assigned.rests.empty()) return;
  const std::lock_guard lock(mutex_);
  assigned.end_rest();
}

void Member::stall(std::string why) {
  const std::lock_guard lock(mutex_);
  progress_.transact_failed(std::move(why), clock_.mono());
}

// Why a partition does not go on, and since when; empty: nothing keeps it.
std::pair<std::string, MonoTime> Member::what_holds(const AssignedPartition& assigned) const {
  if (!assigned.waits.empty()) return {assigned.waits, assigned.since};
  if (!assigned.rests.empty()) return {assigned.rests, assigned.rests_since};
  const auto* held = held_targets_.find(assigned.held_by);
  if (held == nullptr) return {};
  return {held->why, held->since};
}

MemberStatus Member::status() const {
  const std::lock_guard lock(mutex_);
  const MonoTime mono = clock_.mono();
  MemberStatus status = status_;
  status.stalled = progress_.stalled();
  for (const auto& [source, assigned] : assignment_) {
    auto [why, since] = what_holds(assigned);
    if (status.stalled.empty() && !why.empty()) {
      status.stalled = why;
      status.stalled_for = std::chrono::floor<std::chrono::seconds>(mono - since);
    }
    status.partitions.push_back({source, assigned.stage, assigned.partition.pending().size(),
                                 assigned.partition.arrived(), assigned.partition.next(),
                                 assigned.partition.next_due(), assigned.take_over_ms,
                                 assigned.is_paused, std::move(why)});
    if (assigned.is_paused) ++status.paused;
    if (assigned.is_taken_over) ++status.owned;
    status.pending_bytes += assigned.partition.pending().bytes();
  }
  status.standby = warm_.complete();
  status.standby_bytes = warm_.bytes();
  if (const auto since = progress_.stalled_since())
    status.stalled_for = std::chrono::floor<std::chrono::seconds>(mono - *since);
  if (const auto asked = questions_.asked(); asked && mono - asked->since >= options_.shown_after) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(mono - asked->since);
    status.stalled_for = std::max(status.stalled_for, seconds);
    if (status.stalled.empty())
      status.stalled = fmt::format("Kafka was asked {} and has not answered for {} s", asked->what,
                                   seconds.count());
  }
  status.lag = lag_.distribution(mono);
  return status;
}

bool Member::may_deliver() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(assignment_,
                             [](const auto& each) { return each.second.may_deliver(); });
}

bool Member::is_ready() const {
  const std::lock_guard lock(mutex_);
  return status_.is_assigned && std::ranges::all_of(assignment_, [](const auto& each) {
           return each.second.is_taken_over;
         });
}

}  // namespace tarry::relay
