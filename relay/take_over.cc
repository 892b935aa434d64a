#include "relay/take_over.h"

#include <algorithm>

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
// An end that has not been reached for so long is asked for again.
constexpr milliseconds check_end_again{5'000};
// The same where it may be that nothing is fetched from its source yet: what was due leaves in such
// steps.
constexpr milliseconds look_at_unfetched{100};
// poll() waits for source records, and rows come through another queue, so it must not wait long.
constexpr milliseconds look_at_rows{1};
// A member that died may have left several partitions, and each of them finds its open transaction.
// When it was done twice, it is not the member that holds the log, and it may be alive.
constexpr milliseconds settle_again{5'000};
constexpr milliseconds longest_settle_again{60'000};

}  // namespace

milliseconds TakeOver::max_wait(Stage stage) {
  switch (stage) {
    case Stage::loading:
      return look_at_rows;
    case Stage::finding:
    case Stage::reading:
      return look_again;
    case Stage::owned:
      break;
  }
  return milliseconds::max();
}

void TakeOver::begin(AssignedPartition& assigned, MonoTime mono) {
  assigned.stage = Stage::finding;
  assigned.since = mono;
  assigned.stage_since = mono;
  assigned.target = assigned.rows_end = -1;
  assigned.read_until = {};
  assigned.is_warm = false;
  assigned.is_taken_over = false;
  assigned.waits = assigned.bad_source;
  assigned.bad_row.clear();
  assigned.open.reset();
}

void TakeOver::refuse_source(AssignedPartition& assigned, Offset end, Offset read, MonoTime mono) {
  assigned.bad_source = fmt::format(
      "{}: it ends at offset {}, but was read up to {}: its topic was recreated or has lost "
      "records, and new records before {} would be skipped; stop all members, set the group's "
      "offset with kafka-consumer-groups --reset-offsets, and start them",
      assigned.partition.source().text(), end, read, read);
  log_error("relay", "{}", assigned.bad_source);
  begin(assigned, mono);
}

void TakeOver::begin_all() {
  const MonoTime mono = parts_.clock.mono();
  // Reading begins anew from where the store is, which may be before what was read last.
  for (auto& [source, assigned] : parts_.assignment) parts_.cluster.stop_rows(source);
  const std::lock_guard lock(parts_.guard);
  for (auto& [source, assigned] : parts_.assignment) begin(assigned, mono);
  prepared_.clear();
}

// After a stall or an outage: what was acknowledged meanwhile may be behind what has been read.  An
// end that is being read to is kept, because it says something about the time of its question: a
// member that has a stall in each step would otherwise begin again and again, and deliver nothing.
void TakeOver::read_anew(MonoTime mono) {
  const std::lock_guard lock(parts_.guard);
  for (auto& [source, assigned] : parts_.assignment) {
    if (std::exchange(assigned.is_taken_over, false)) assigned.since = mono;
    if (assigned.stage != Stage::owned) continue;
    assigned.stage = Stage::reading;
    assigned.stage_since = mono;
    assigned.target = -1;
  }
}

void TakeOver::forget_times(MonoTime mono) {
  const std::lock_guard lock(parts_.guard);
  for (auto& [source, assigned] : parts_.assignment) {
    assigned.fetched_at = assigned.read_until = {};
    if (!assigned.takes_in()) continue;
    assigned.stage = Stage::reading;
    assigned.stage_since = mono;
    assigned.target = -1;
  }
}

void TakeOver::read_again(AssignedPartition& assigned, MonoTime mono) {
  assigned.stage = Stage::reading;
  assigned.since = assigned.stage_since = mono;
  assigned.target = -1;
  // For one that was owned unread, the fetch says nothing of the records behind what it has read.
  if (!assigned.is_unread) assigned.read_until = std::max(assigned.read_until, assigned.fetched_at);
}

void TakeOver::note_held_up(MonoTime mono) {
  const std::lock_guard lock(parts_.guard);
  for (auto& [source, assigned] : parts_.assignment) {
    assigned.resumed_at = mono;
    if (assigned.stage != Stage::owned) continue;
    // When it was fetched from last is not known.
    assigned.stage = Stage::reading;
    assigned.since = assigned.stage_since = mono;
    assigned.target = -1;
  }
}

void TakeOver::advance(MonoTime mono, WallTime now, bool is_full) {
  has_settled_ = false;
  find_all(mono);
  const auto go_on = [&](AssignedPartition& assigned) {
    if (assigned.stage == Stage::loading) load(assigned, mono, now);
    if (assigned.stage == Stage::reading) read_to_end(assigned, mono, is_full);
  };
  // Slow answers, or one in vain, end the questions of a step.  So the next round begins with the
  // first partition that was left out, or those before it would keep it from being asked about.
  auto& all = parts_.assignment;
  const auto first = left_out_ ? all.lower_bound(*left_out_) : all.begin();
  left_out_.reset();
  for (auto at = first; at != all.end(); ++at) go_on(at->second);
  for (auto at = all.begin(); at != first; ++at) go_on(at->second);
}

// The topics of each source by themselves: one of them may be wrong.
void TakeOver::prepare(MonoTime mono) {
  std::map<std::string, std::vector<Source>> topics;
  for (const auto& [source, assigned] : parts_.assignment) {
    if (assigned.may_be_found(mono) && !prepared_.contains(source))
      topics[source.topic].push_back(source);
  }
  for (const auto& [topic, sources] : topics) {
    if (parts_.questions.is_late()) return;
    const auto prepared = parts_.questions.prepare(sources);
    if (!prepared) {
      for (const auto& source : sources)
        wait_with(parts_.assignment.at(source), prepared.error().message);
    } else {
      prepared_.insert(sources.begin(), sources.end());
    }
  }
}

void TakeOver::find_all(MonoTime mono) {
  if (!parts_.progress.may_find(mono)) return;
  prepare(mono);
  if (parts_.questions.is_late()) return;
  std::vector<Source> sources;
  for (const auto& [source, assigned] : parts_.assignment) {
    if (assigned.may_be_found(mono) && prepared_.contains(source)) sources.push_back(source);
  }
  if (sources.empty()) return;
  const auto committed = parts_.questions.committed(sources);
  if (!committed) return find_failed(committed.error().message);
  if (std::string why = gone_back(sources, *committed); !why.empty())
    return find_failed(std::move(why));
  std::vector<std::pair<Source, CommittedOffset>> stable;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    AssignedPartition& assigned = parts_.assignment.at(sources[i]);
    const CommittedOffset& each = (*committed)[i];
    assigned.last_owner = each.owner;
    if (!each.is_stable) {
      // A Kafka that is slow is no reason to fence anybody.
      if (!each.is_open) assigned.stage_since = mono;
      free_log(assigned, mono);
      continue;
    }
    if (!each.next) {
      if (parts_.questions.is_late() && !stable.empty()) continue;
      // From the first transaction on there is an offset.
      const auto end = parts_.questions.state_end(sources[i]);
      if (!end) return wait_with(assigned, end.error().message);
      if (*end > 0) {
        wait_with(assigned,
                  fmt::format("{}: group {} has no committed offset of it, although {} has "
                              "rows: the group's offsets expired or were deleted; set them "
                              "with kafka-consumer-groups --reset-offsets",
                              sources[i].text(), parts_.options.rules.group,
                              parts_.options.rules.state_topic(sources[i].topic)));
        continue;
      }
    }
    stable.emplace_back(sources[i], each);
  }
  if (stable.empty() || (has_settled_ && parts_.questions.is_late())) return;
  found(stable, mono);
}

// Why the offsets cannot be believed; empty: nothing speaks against them.  All of them come from
// one coordinator, so one that is too old says that the others may be, too.  The store knows what
// was committed, also that of a member that was started again.
std::string TakeOver::gone_back(std::span<const Source> sources,
                                std::span<const CommittedOffset> committed) {
  if (parts_.options.delivery == Delivery::at_least_once) return {};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Offset known = parts_.assignment.at(sources[i]).partition.pending().place().source;
    // An offset that is not stable may still become the known one.
    const auto& told = committed[i].next;
    if (!committed[i].is_stable || !told || *told >= known) continue;
    std::string why = fmt::format(
        "{}: Kafka says that the committed offset of group {} is {}, but {} was "
        "committed before",
        sources[i].text(), parts_.options.rules.group, *told, known);
    const auto end = parts_.questions.source_end(sources[i]);
    // One that ends before it is another source with the same name.
    if (end && *end < known) continue;
    if (end) {
      why += fmt::format(
          ". If somebody has reset the group's offsets: stop all members; set this offset to {} or "
          "more, or, to deliver the records from {} on again, remove `pending` in all data "
          "directories; and start the members. If not, the group's coordinator has stale state: "
          "restart that broker",
          known, *told);
    } else {
      parts_.questions.note_in_vain();
      why += fmt::format("; whether its topic was recreated is not known: {}", end.error().message);
    }
    // Shown until it is found: the transactions of others end the reason of all.
    const std::lock_guard lock(parts_.guard);
    parts_.assignment.at(sources[i]).waits = why;
    return why;
  }
  return {};
}

// Their offsets are stable: whatever an owner before us did is committed or will never be.
void TakeOver::found(const std::vector<std::pair<Source, CommittedOffset>>& stable, MonoTime mono) {
  Transaction transaction;
  // The same offsets once more, because this member's producers are named with them: if it dies in
  // its first transaction, the next owner knows whom to fence.
  for (const auto& [source, committed] : stable)
    transaction.offsets.push_back({source, committed.next.value_or(0)});
  if (const auto done = parts_.commit(transaction); !done) return find_failed(done.error().message);
  for (const auto& [source, next] : transaction.offsets) {
    AssignedPartition& assigned = parts_.assignment.at(source);
    // A lower one was believed, and so it is from now on, also if what follows fails.  A warm copy
    // has the rows of another past, too.
    if (next < assigned.partition.pending().place().source) forget_copy(assigned);
    const std::lock_guard lock(parts_.guard);
    assigned.partition.note_committed(next);
    // That its offset is taken says nothing of its rows.
    if (!assigned.was_silent) assigned.end_rest();
  }
  bool is_first = true;
  for (const auto& [source, committed] : stable) {
    // At least one, or there would be no progress; the others are found again.
    if (!std::exchange(is_first, false) && parts_.questions.is_late()) break;
    AssignedPartition& assigned = parts_.assignment.at(source);
    // After the transaction: the last owner can write nothing behind this end.
    const auto end = parts_.questions.state_end(source);
    if (!end) return wait_with(assigned, end.error().message);
    // The topic was made again while the copy was kept.
    if (assigned.is_warm && assigned.rows_end > *end) forget_copy(assigned);
    if (!assigned.is_warm) {
      Offset from = 0;
      {
        const std::lock_guard lock(parts_.guard);
        from = assigned.partition.rows_from(parts_.clock.wall(), *end, committed.next.value_or(0));
        assigned.complete_at = assigned.partition.pending().place().complete_at;
      }
      log_info("relay", "{}: its rows are read from {} to {}; {} are pending in the store",
               source.text(), from, *end, assigned.partition.pending().size());
      if (const auto started = parts_.cluster.start_rows(source, from); !started)
        return wait_with(assigned, started.error().message);
    }
    const std::lock_guard lock(parts_.guard);
    assigned.waits.clear();
    assigned.find.reset();
    assigned.stage = Stage::loading;
    assigned.stage_since = mono;
    assigned.committed = committed.next.value_or(0);
    assigned.target = *end;
  }
  const std::lock_guard lock(parts_.guard);
  parts_.progress.found();
}

// Its rows are read as if no copy had been kept.
void TakeOver::forget_copy(AssignedPartition& assigned) {
  parts_.cluster.stop_rows(assigned.partition.source());
  const std::lock_guard lock(parts_.guard);
  assigned.is_warm = false;
  assigned.rows_end = -1;
  assigned.bad_row.clear();
}

void TakeOver::load(AssignedPartition& assigned, MonoTime mono, WallTime now) {
  if (!assigned.bad_row.empty()) {
    const std::lock_guard lock(parts_.guard);
    assigned.waits = assigned.bad_row;
    return;
  }
  if (assigned.rows_end < assigned.target) return free_log(assigned, mono);
  parts_.cluster.stop_rows(assigned.partition.source());
  const std::lock_guard lock(parts_.guard);
  // It took so long to read the rest that tombstones may have been compacted away meanwhile.
  if (now - assigned.complete_at > longest_read) {
    log_warn("relay", "{}: reading its rows took too long; they are read again",
             assigned.partition.source().text());
    assigned.partition.forget();
    return begin(assigned, mono);
  }
  // A new assignment asks for its end after the committed offset, so a lower end is an error.
  if (assigned.partition.next() < 0 && assigned.read_end >= 0 &&
      assigned.read_end < assigned.committed)
    return refuse_source(assigned, assigned.read_end, assigned.committed, mono);
  assigned.partition.begin(assigned.committed, now);
  assigned.is_warm = false;
  assigned.stage = Stage::reading;
  assigned.target = -1;
  assigned.stage_since = {};
}

// Frees a log that waits for a transaction of the last owner.
void TakeOver::free_log(AssignedPartition& assigned, MonoTime mono) {
  const auto stuck_after = assigned.stage == Stage::finding ? parts_.options.stuck_after
                                                            : parts_.options.stuck_rows_after;
  if (mono - assigned.stage_since < stuck_after) return;
  // One in each step, however late: that the log is stuck may be what makes the others slow.
  if (has_settled_ && parts_.questions.is_late()) return;
  assigned.stage_since = mono;
  if (assigned.last_owner.empty() || assigned.last_owner == parts_.cluster.owner()) return;
  // Once for all partitions of that member.
  auto& settled = settled_[assigned.last_owner];
  // A log that was stuck since would have used its turn.
  if (mono - settled.at() > longest_settle_again) settled.reset();
  if (!settled.may(mono)) return;
  const bool is_first = settled.at() == MonoTime{};
  has_settled_ = true;
  log_info("relay", "{}: a transaction of {} is open; its producers are fenced",
           assigned.partition.source().text(), assigned.last_owner);
  const auto done = parts_.questions.settle(assigned.last_owner);
  if (!done) log_warn("relay", "{}: {}", assigned.last_owner, done.error().message);
  // That should have ended it.  Seen with a Kafka that was killed: it had lost the markers.
  if (!is_first) {
    const std::lock_guard lock(parts_.guard);
    assigned.waits = fmt::format(
        "{}: a transaction of {} stays open though its producers were fenced; see "
        "kafka-transactions.sh find-hanging",
        assigned.partition.source().text(), assigned.last_owner);
  }
  // From its end on: it may take so long that the next step would settle again, and only that.
  settled.failed(parts_.clock.mono(), settle_again, longest_settle_again);
}

void TakeOver::read_to_end(AssignedPartition& assigned, MonoTime mono, bool is_full) {
  const bool was_read = assigned.target >= 0 && assigned.has_taken(assigned.target);
  // When no record can be taken in for lack of room, only delivery makes room.
  if (!was_read && !(is_full && assigned.target >= 0)) return ask_end(assigned, mono);
  {
    const std::lock_guard lock(parts_.guard);
    // A question that failed meanwhile is answered by what has arrived.
    assigned.waits.clear();
    assigned.find.reset();
    // Another stall or outage meanwhile takes nothing from what is known of the time before the
    // question.
    if (was_read) assigned.read_until = std::max(assigned.read_until, assigned.target_at);
    const bool is_calm = was_read && assigned.target_asked >= parts_.questions.disturbed_at();
    const bool is_sure = is_calm && is_fetched(assigned, assigned.target_asked);
    if (is_calm || is_full) taken_over(assigned, mono);
    assigned.is_unread = !is_sure;
    if (is_sure || is_full) {
      assigned.stage = Stage::owned;
      return;
    }
    assigned.target = -1;
    assigned.stage_since = is_fetched(assigned, mono) ? MonoTime{} : mono;
  }
  ask_end(assigned, mono);
}

// Whether it was surely fetched from at this moment; from then on it goes on.  With a new
// assignment only records that have come show it: librdkafka first asks for the group's offset,
// which may take any time.
bool TakeOver::is_fetched(const AssignedPartition& assigned, MonoTime at) const {
  if (assigned.is_paused || !assigned.was_fetched) return false;
  return assigned.resumed_at == MonoTime{} ||
         at - assigned.resumed_at >= parts_.options.first_fetch;
}

// Under the guard.
void TakeOver::taken_over(AssignedPartition& assigned, MonoTime mono) {
  if (std::exchange(assigned.is_taken_over, true)) return;
  const auto took = ms_between(assigned.since, mono);
  assigned.take_over_ms = took;
  log_info("relay", "{}: taken over after {} ms with {} pending",
           assigned.partition.source().text(), took, assigned.partition.pending().size());
}

// Why an end is not reached: a producer's transaction that is open in the source hides what is
// behind it, also what was acknowledged.  Empty: it is not that.
std::string TakeOver::hidden_by_transaction(const AssignedPartition& assigned) {
  if (assigned.target < 0) return {};
  const Source& source = assigned.partition.source();
  const auto stable = parts_.questions.stable_source_end(source);
  if (!stable || *stable >= assigned.target) return {};
  return fmt::format(
      "{}: a producer's transaction is open at offset {}, so later records cannot be read; see "
      "kafka-transactions.sh find-hanging",
      source.text(), *stable);
}

// Asks where the source has to be read to; and now and then again, because Kafka may have gone back
// in an outage, and an end that is not there any more would be waited for in vain.
void TakeOver::ask_end(AssignedPartition& assigned, MonoTime mono) {
  const auto look = is_fetched(assigned, mono) ? look_again : look_at_unfetched;
  const auto wait = assigned.target < 0 ? look : check_end_again;
  if (assigned.stage_since != MonoTime{} && mono - assigned.stage_since < wait) return;
  if (!assigned.find.may(mono)) return;
  // One whose leader is away takes a while to say nothing: no other is asked in this step.
  if (parts_.questions.asked_in_vain() || parts_.questions.is_late()) {
    if (!left_out_) left_out_ = assigned.partition.source();
    return;
  }
  const MonoTime asked = parts_.clock.mono();
  const WallTime at = parts_.clock.wall();
  const auto end = parts_.questions.source_end(assigned.partition.source());
  if (!end) return wait_with(assigned, end.error().message);
  std::string hidden = hidden_by_transaction(assigned);
  if (!hidden.empty() && assigned.waits != hidden) log_warn("relay", "{}", hidden);
  const std::lock_guard lock(parts_.guard);
  assigned.waits = std::move(hidden);
  assigned.find.reset();
  assigned.stage_since = mono;
  // A later end would be moved on and on where records come without a pause.
  if (assigned.target >= 0 && *end >= assigned.target) return;
  assigned.target = *end;
  assigned.target_asked = asked;
  assigned.target_at = at;
}

// The others go on without it.
void TakeOver::wait_with(AssignedPartition& assigned, std::string why) {
  const std::lock_guard lock(parts_.guard);
  if (assigned.waits != why)
    log_error("relay", "{} waits: {}", assigned.partition.source().text(), why);
  assigned.waits = std::move(why);
  assigned.find.failed(parts_.clock.mono(), parts_.options.retry, parts_.options.longest_retry);
  parts_.questions.note_in_vain();
}

void TakeOver::find_failed(std::string why) {
  const std::lock_guard lock(parts_.guard);
  parts_.progress.find_failed(std::move(why), parts_.clock.mono());
}

}  // namespace tarry::relay
