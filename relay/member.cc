#include "relay/member.h"

#include <algorithm>
#include <iterator>
#include <limits>
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
constexpr milliseconds look_at_rows{1};
constexpr milliseconds settle_again{5'000};
// The most records that one page looks at under the lock.
constexpr std::size_t max_looked = 100'000;
constexpr std::size_t max_shown_bytes = 16u << 20;
// Each is waited for by itself, within the time of a transaction.
constexpr std::size_t careful_records = 100;

}  // namespace

std::string_view name_of(Stage stage) {
  switch (stage) {
    case Stage::finding:
      return "finding";
    case Stage::loading:
      return "loading";
    case Stage::reading:
      return "reading";
    case Stage::owned:
      return "owned";
  }
  return "?";
}

Member::Member(Cluster& cluster, const Clock& clock, MemberOptions options)
    : cluster_(cluster), clock_(clock), options_(std::move(options)) {}

void Member::step(milliseconds longest) {
  Polled polled = cluster_.poll(wait_time(longest), has_room());
  // The time of the plan is that of the poll: after it this thread may stand still for a while.
  const WallTime now = clock_.wall();
  const MonoTime mono = clock_.mono();
  for (const auto& source : polled.lost) cluster_.stop_rows(source);
  take_polled(std::move(polled), mono);
  if (needs_renewal_) {
    if (!transact_.may(mono)) return;
    if (const auto renewed = cluster_.renew(); !renewed) return stall(renewed.error().message);
    needs_renewal_ = false;
    take_over_all();
  }
  asked_in_vain_ = false;
  find_all(mono);
  for (auto& [source, held] : held_) {
    if (held.stage == Stage::loading) load(held, mono, now);
    if (held.stage == Stage::reading) read_to_end(held, mono);
  }
  if (!needs_renewal_ && transact_.may(mono)) work(now);
}

bool Member::has_room() const {
  std::size_t arrived = 0;
  for (const auto& [source, held] : held_) arrived += held.partition.arrived_bytes();
  return arrived < options_.arrived_bytes;
}

milliseconds Member::wait_time(milliseconds longest) const {
  const WallTime now = clock_.wall();
  const MonoTime mono = clock_.mono();
  milliseconds wait = longest;
  for (const auto& [source, held] : held_) {
    if (held.stage == Stage::loading) wait = std::min(wait, look_at_rows);
    if (held.stage == Stage::finding || held.stage == Stage::reading)
      wait = std::min(wait, look_again);
    if (held.stage != Stage::owned) continue;
    if (held.partition.arrived() > 0 && !status_.is_full) wait = milliseconds{0};
    if (const auto due = held.partition.next_due())
      wait = std::min(wait, std::max(*due - now, milliseconds{0}));
  }
  if (!transact_.may(mono))
    wait =
        std::max(wait, std::min(longest, std::chrono::ceil<milliseconds>(transact_.at() - mono)));
  return wait;
}

void Member::take_polled(Polled polled, MonoTime mono) {
  const std::lock_guard lock(mutex_);
  for (const auto& source : polled.lost) {
    if (held_.erase(source) > 0) log_info("relay", "{}: given up", source.text());
  }
  for (const auto& source : polled.assigned) {
    const auto [place, is_new] = held_.try_emplace(source, Held(Partition(source, options_.rules)));
    if (is_new) begin_take_over(place->second, mono);
    log_info("relay", "{}: assigned", source.text());
  }
  status_.is_assigned = status_.is_assigned || polled.changed;
  if (polled.changed) {
    transact_.reset();
    find_.reset();
  }
  for (auto& [source, record] : polled.records) {
    if (const auto held = held_.find(source); held != held_.end())
      held->second.partition.arrive(std::move(record));
  }
  for (const auto& end : polled.ends) {
    if (const auto held = held_.find(end.source); held != held_.end())
      held->second.read_end = std::max(held->second.read_end, end.next);
  }
  for (const auto& row : polled.rows) {
    const auto held = held_.find(row.source);
    if (held == held_.end() || held->second.stage != Stage::loading) continue;
    held->second.stage_since = mono;
    const auto loaded = held->second.partition.load_row(row.key, row.value);
    if (!loaded && loaded.error().code == Errc::unsupported) {
      held->second.waits =
          fmt::format("{}: a row of a newer tarry: {}",
                      options_.rules.state_topic(row.source.topic), loaded.error().message);
      log_error("relay", "{}", held->second.waits);
    } else if (!loaded) {
      ++status_.damaged_rows;
      log_error("relay", "{}: a row is left out: {}", options_.rules.state_topic(row.source.topic),
                loaded.error().message);
    }
  }
  for (const auto& end : polled.row_ends) {
    const auto held = held_.find(end.source);
    if (held == held_.end() || held->second.stage != Stage::loading) continue;
    if (end.next > held->second.rows_end) held->second.stage_since = mono;
    held->second.rows_end = std::max(held->second.rows_end, end.next);
  }
  const bool was_away = last_polled_ != MonoTime{} && mono - last_polled_ > options_.stall;
  last_polled_ = mono;
  if (!was_away && !polled.disturbed) return;
  for (auto& [source, held] : held_) {
    if (held.stage != Stage::owned) continue;
    held.stage = Stage::reading;
    held.since = held.stage_since = mono;
    held.target = -1;
  }
}

void Member::begin_take_over(Held& held, MonoTime mono) {
  held.stage = Stage::finding;
  held.since = mono;
  held.stage_since = mono;
  held.target = held.rows_end = -1;
  held.waits.clear();
  held.partition.forget();
}

void Member::take_over_all() {
  const MonoTime mono = clock_.mono();
  for (auto& [source, held] : held_) cluster_.stop_rows(source);
  const std::lock_guard lock(mutex_);
  for (auto& [source, held] : held_) begin_take_over(held, mono);
  prepared_sources_.clear();
  prepared_targets_.clear();
  ++status_.renewed;
}

// Frees a log that waits for a transaction of the last owner.
void Member::free_log(Held& held, MonoTime mono) {
  if (mono - held.stage_since < options_.stuck_after) return;
  held.stage_since = mono;
  if (held.last_owner.empty() || held.last_owner == cluster_.owner()) return;
  // Once for all partitions of that member.
  auto& settled_at = settled_at_[held.last_owner];
  if (settled_at != MonoTime{} && mono - settled_at < settle_again) return;
  settled_at = mono;
  log_info("relay", "{}: a transaction of {} is open; its producers are fenced",
           held.partition.source().text(), held.last_owner);
  if (const auto settled = cluster_.settle(held.last_owner); !settled)
    log_warn("relay", "{}: {}", held.last_owner, settled.error().message);
}

// The topics of each source by themselves: one of them may be wrong.
void Member::prepare(MonoTime mono) {
  std::map<std::string, std::vector<Source>> topics;
  for (const auto& [source, held] : held_) {
    if (held.stage == Stage::finding && held.find.may(mono) && !prepared_sources_.contains(source))
      topics[source.topic].push_back(source);
  }
  for (const auto& [topic, sources] : topics) {
    if (const auto prepared = cluster_.prepare(sources); !prepared) {
      for (const auto& source : sources) wait_with(held_.at(source), prepared.error().message);
    } else {
      prepared_sources_.insert(sources.begin(), sources.end());
    }
  }
}

void Member::find_all(MonoTime mono) {
  if (!find_.may(mono)) return;
  prepare(mono);
  std::vector<Source> sources;
  for (const auto& [source, held] : held_) {
    if (held.stage == Stage::finding && held.find.may(mono) && prepared_sources_.contains(source))
      sources.push_back(source);
  }
  if (sources.empty()) return;
  const auto committed = cluster_.committed(sources);
  if (!committed) return find_failed(committed.error().message);
  std::vector<std::pair<Source, Committed>> stable;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    Held& held = held_.at(sources[i]);
    const Committed& each = (*committed)[i];
    held.last_owner = each.owner;
    if (!each.is_stable) {
      free_log(held, mono);
      continue;
    }
    if (!each.next) {
      // From the first transaction on there is an offset.
      const auto end = cluster_.state_end(sources[i]);
      if (!end) return wait_with(held, end.error().message);
      if (*end > 0) {
        wait_with(held, fmt::format("{}: group {} has no offset of it, though {} has rows: they "
                                    "expired or were deleted; set them with kafka-consumer-groups "
                                    "--reset-offsets",
                                    sources[i].text(), options_.rules.group,
                                    options_.rules.state_topic(sources[i].topic)));
        continue;
      }
    }
    stable.emplace_back(sources[i], each);
  }
  if (!stable.empty()) found(stable, mono);
}

// Their offsets are stable: whatever an owner before us did is committed or will never be.
void Member::found(const std::vector<std::pair<Source, Committed>>& stable, MonoTime mono) {
  Transaction transaction;
  for (const auto& [source, committed] : stable)
    transaction.offsets.push_back({source, committed.next.value_or(0)});
  const auto done = cluster_.transact(transaction);
  if (done.outcome != Outcome::committed) {
    failed(done, {});
    return find_failed(done.error);
  }
  for (const auto& [source, committed] : stable) {
    Held& held = held_.at(source);
    const auto end = cluster_.state_end(source);
    if (!end) return wait_with(held, end.error().message);
    if (const auto started = cluster_.start_rows(source); !started)
      return wait_with(held, started.error().message);
    const std::lock_guard lock(mutex_);
    held.waits.clear();
    held.find.reset();
    held.stage = Stage::loading;
    held.stage_since = mono;
    held.committed = committed.next.value_or(0);
    held.target = *end;
  }
  find_.reset();
  transact_.reset();
  const std::lock_guard lock(mutex_);
  status_.stalled.clear();
}

void Member::load(Held& held, MonoTime mono, WallTime now) {
  if (!held.waits.empty()) return;
  if (held.rows_end < held.target) return free_log(held, mono);
  cluster_.stop_rows(held.partition.source());
  const std::lock_guard lock(mutex_);
  held.partition.begin(held.committed, now);
  held.stage = Stage::reading;
  held.target = -1;
  held.stage_since = {};
}

void Member::read_to_end(Held& held, MonoTime mono) {
  if (held.target < 0) {
    if (held.stage_since != MonoTime{} && mono - held.stage_since < look_again) return;
    // One whose leader is away takes a while to say nothing: no other is asked in this step.
    if (asked_in_vain_ || !held.find.may(mono)) return;
    const auto end = cluster_.source_end(held.partition.source());
    if (!end) return wait_with(held, end.error().message);
    const std::lock_guard lock(mutex_);
    held.waits.clear();
    held.find.reset();
    held.stage_since = mono;
    held.target = *end;
    return;
  }
  const bool was_read = std::max(held.partition.arrived_end(), held.read_end) >= held.target;
  // When no record can be taken in for lack of memory, only delivery makes room.
  if (!status_.is_full && (!was_read || held.partition.has_arrived_before(held.target))) return;
  const std::lock_guard lock(mutex_);
  held.stage = Stage::owned;
  held.took_ms = ms_between(held.since, mono);
  log_info("relay", "{}: owned after {} ms with {} pending", held.partition.source().text(),
           *held.took_ms, held.partition.pending().size());
}

// The partitions whose records may be taken in, behind the one that was served last: a busy one
// leaves nothing for the others in its transaction.
std::vector<Member::Held*> Member::in_turn() {
  std::vector<Held*> all;
  std::size_t first = 0;
  for (auto& [source, held] : held_) {
    if (held.stage != Stage::reading && held.stage != Stage::owned) continue;
    if (source <= last_served_) ++first;
    all.push_back(&held);
  }
  std::ranges::rotate(all, all.begin() + static_cast<std::ptrdiff_t>(first));
  return all;
}

void Member::work(WallTime now) {
  Transaction transaction;
  std::vector<std::pair<Held*, Work>> works;
  Limits left = options_.limits;
  if (is_careful_) {
    left.arrivals = std::min(left.arrivals, careful_records);
    left.deliveries = std::min(left.deliveries, careful_records);
  }
  std::size_t pending_bytes = 0;
  for (const auto& [source, held] : held_) pending_bytes += held.partition.pending().bytes();
  bool is_full = false;
  for (Held* each_held : in_turn()) {
    Held& held = *each_held;
    const std::size_t own = held.partition.pending().bytes();
    Limits limits = left;
    limits.pending_bytes = options_.limits.pending_bytes > pending_bytes
                               ? own + (options_.limits.pending_bytes - pending_bytes)
                               : 0;
    Work each = held.partition.plan(now, held.stage == Stage::owned, limits);
    is_full = is_full || (each.taken == 0 && held.partition.arrived() > 0 && left.arrivals > 0 &&
                          left.bytes > 0);
    if (each.empty()) continue;
    left.bytes -= std::min(left.bytes, each.bytes);
    left.arrivals -= std::min(left.arrivals, each.taken);
    left.deliveries -= std::min<std::size_t>(left.deliveries, each.counts.delivered);
    transaction.offsets.push_back({held.partition.source(), each.next});
    std::ranges::move(each.records, std::back_inserter(transaction.records));
    each.records.clear();
    works.emplace_back(&held, std::move(each));
  }
  if (is_full != status_.is_full) {
    const std::lock_guard lock(mutex_);
    status_.is_full = is_full;
    if (is_full)
      log_error("relay",
                "pending records take {} bytes of memory; --memory allows {}: no more are taken in "
                "until some are delivered",
                pending_bytes, options_.limits.pending_bytes);
  }
  if (works.empty()) return;
  last_served_ = works.back().first->partition.source();
  if (!prepare_targets(transaction.records)) return;
  if (options_.delivery == Delivery::at_least_once && !send_first(transaction)) return;
  const auto done = cluster_.transact(transaction);
  if (done.outcome != Outcome::committed) return failed(done, transaction.records);
  const WallTime committed = clock_.wall();
  const MonoTime mono = clock_.mono();
  const std::lock_guard lock(mutex_);
  status_.stalled.clear();
  transact_.reset();
  is_careful_ = false;
  ++status_.transactions;
  for (auto& [held, each] : works) {
    status_.counts.add(each.counts);
    for (const auto due : each.delivered_due) {
      if (due > committed) ++status_.early;
      lag_.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, (committed - due).count())),
               mono);
    }
    held->partition.apply(std::move(each));
  }
}

bool Member::prepare_targets(const std::vector<Outgoing>& records) {
  for (const auto& record : records) {
    const std::pair target(record.topic, record.source);
    if (record.kind != Outgoing::Kind::target || prepared_targets_.contains(target)) continue;
    if (const auto prepared = cluster_.prepare_target(record.topic, record.source); !prepared) {
      if (prepared.error().code == Errc::invalid) {
        refuse_all_to(record.topic, prepared.error().message, records);
      } else {
        stall(prepared.error().message);
      }
      return false;
    }
    prepared_targets_.insert(target);
  }
  return true;
}

// There will never be such a topic: its records go to NAME.invalid.
void Member::refuse_all_to(const std::string& topic, const std::string& reason,
                           const std::vector<Outgoing>& records) {
  log_warn("relay", "{}: {}", topic, reason);
  const std::lock_guard lock(mutex_);
  for (const auto& record : records) {
    if (record.kind == Outgoing::Kind::target && record.topic == topic)
      held_.at(record.source).partition.refuse(record.offset, reason);
  }
}

// At least once: the records go to their targets before the transaction that forgets them.
bool Member::send_first(Transaction& transaction) {
  std::vector<Outgoing> targets, others;
  for (auto& record : transaction.records)
    (record.kind == Outgoing::Kind::target ? targets : others).push_back(std::move(record));
  transaction.records = std::move(others);
  if (targets.empty()) return true;
  const auto sent = cluster_.send(targets);
  if (sent.outcome == Outcome::committed) return true;
  failed(sent, targets);
  return false;
}

void Member::failed(const Transacted& done, const std::vector<Outgoing>& records) {
  {
    const std::lock_guard lock(mutex_);
    ++status_.aborted;
  }
  if (!done.is_fenced) prepared_targets_.clear();  // One of them may have been deleted.
  is_careful_ = is_careful_ || done.is_careful;
  needs_renewal_ = needs_renewal_ || done.outcome == Outcome::unknown;
  for (const auto& [index, reason] : done.refused) {
    const Outgoing& record = records.at(index);
    const std::string why = fmt::format("{} refuses it: {}", record.topic, reason);
    const bool is_invalid = record.kind == Outgoing::Kind::invalid;
    // Not even the error alone.
    if (is_invalid && !record.key && !record.value && record.headers.size() == 1) return stall(why);
    const std::lock_guard lock(mutex_);
    Partition& partition = held_.at(record.source).partition;
    if (is_invalid) {
      partition.refuse_invalid(record.offset, why);
    } else {
      partition.refuse(record.offset, why);
    }
  }
  if (done.refused.empty()) stall(done.error);
}

void Member::stall(std::string why) {
  const std::lock_guard lock(mutex_);
  if (status_.stalled != why) log_warn("relay", "no progress: {}", why);
  status_.stalled = std::move(why);
  transact_.failed(clock_.mono(), options_);
}

// Nothing is taken over further for a while; what is owned goes on.
void Member::find_failed(std::string why) {
  const std::lock_guard lock(mutex_);
  if (status_.stalled != why) log_warn("relay", "nothing is taken over: {}", why);
  status_.stalled = std::move(why);
  find_.failed(clock_.mono(), options_);
}

// The others go on without it.
void Member::wait_with(Held& held, std::string why) {
  const std::lock_guard lock(mutex_);
  if (held.waits != why) log_error("relay", "{} waits: {}", held.partition.source().text(), why);
  held.waits = std::move(why);
  held.find.failed(clock_.mono(), options_);
  asked_in_vain_ = true;
}

MemberStatus Member::status() const {
  const std::lock_guard lock(mutex_);
  MemberStatus status = status_;
  for (const auto& [source, held] : held_) {
    status.partitions.push_back({source, held.stage, held.partition.pending().size(),
                                 held.partition.arrived(), held.partition.next(),
                                 held.partition.next_due(), held.took_ms});
    if (held.stage == Stage::owned) ++status.owned;
    if (status.stalled.empty()) status.stalled = held.waits;
    status.pending_bytes += held.partition.pending().bytes();
  }
  status.lag = lag_.distribution(clock_.mono()).recent;
  return status;
}

bool Member::is_ready() const {
  const std::lock_guard lock(mutex_);
  return status_.is_assigned && std::ranges::all_of(held_, [](const auto& each) {
           return each.second.stage == Stage::owned;
         });
}

PendingPage Member::pending(const Wanted& wanted, const std::optional<PendingPlace>& after,
                            std::size_t limit) const {
  using Places = PendingRecords::ByDue;
  using Offsets = std::numeric_limits<Offset>;
  PendingPage page;
  const std::lock_guard lock(mutex_);
  // The next one of each partition.
  std::map<PendingPlace, Places::const_iterator> next;
  for (const auto& [source, held] : held_) {
    const Places& places = held.partition.pending().by_due();
    auto first = places.begin();
    if (after && source == after->source) first = places.upper_bound({after->due, after->offset});
    if (after && source < after->source) first = places.upper_bound({after->due, Offsets::max()});
    if (after && source > after->source) first = places.lower_bound({after->due, Offsets::min()});
    if (first != places.end()) next[{first->first, source, first->second}] = first;
  }
  std::size_t looked = 0, bytes = 0;
  while (!next.empty()) {
    auto [place, at] = std::move(*next.begin());
    next.erase(next.begin());
    const PendingRecords& pending = held_.at(place.source).partition.pending();
    const Pending& record = *pending.find(place.offset);
    if (wanted(place.source, place.offset, record)) {
      bytes += record.bytes();
      page.records.push_back({place.source, place.offset, record});
    }
    if (page.records.size() >= limit || ++looked >= max_looked || bytes >= max_shown_bytes) {
      page.next = place;
      break;
    }
    if (++at != pending.by_due().end()) next[{at->first, place.source, at->second}] = at;
  }
  return page;
}

std::size_t Member::count(const Wanted& wanted) const {
  const std::lock_guard lock(mutex_);
  std::size_t all = 0;
  for (const auto& [source, held] : held_) {
    const auto& pending = held.partition.pending();
    for (const auto& [due, offset] : pending.by_due())
      if (wanted(source, offset, *pending.find(offset))) ++all;
  }
  return all;
}

}  // namespace tarry::relay
