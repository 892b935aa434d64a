#include "delay/intake.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/assert.h"
#include "base/log.h"

namespace tarry::delay {
namespace {

ScheduleErrors refuse(ScheduleErrors::Kind kind, std::string message,
                      std::string_view reason = {}) {
  return {kind, std::move(message), {}, reason};
}

// The advice for a batch that would be refused however little is pending: some clients split one
// that is too large, and all would send this one again for ever.
constexpr auto send_fewer = "send smaller batches";

// Too many records of the topic are pending; nothing, if there is room for the batch.
std::optional<ScheduleErrors> above_limit(const BatchSchedules& schedules, const TopicDelay& topic,
                                          std::int64_t pending) {
  const auto more = static_cast<std::int64_t>(schedules.delayed);
  if (!topic.max_pending || more == 0 || pending + more <= *topic.max_pending) return std::nullopt;
  constexpr auto reason = "delay_max_pending";
  if (more > *topic.max_pending) {
    return refuse(ScheduleErrors::Kind::too_many,
                  fmt::format("the batch has {} delayed records, but the topic may have only {} "
                              "pending (tarry.delay.max.pending); {}",
                              more, *topic.max_pending, send_fewer),
                  reason);
  }
  return refuse(
      ScheduleErrors::Kind::busy,
      fmt::format("the topic has {} pending records, the batch would add {}, and the limit is {} "
                  "(tarry.delay.max.pending); try again later",
                  pending, more, *topic.max_pending),
      reason);
}

// A rule of the topic's own forbids it.
std::optional<ScheduleErrors> forbidden(const BatchSchedules& schedules,
                                        const PendingTerms& terms) {
  const bool schedules_any = schedules.delayed > 0 || schedules.ids > schedules.cancels;
  if (schedules_any && !terms.may_schedule) {
    return refuse(ScheduleErrors::Kind::denied,
                  "the user may not schedule or replace delayed records of this topic",
                  may_not_schedule);
  }
  if (schedules.cancels > 0 && !terms.may_cancel) {
    return refuse(ScheduleErrors::Kind::denied,
                  "the user may not cancel delayed records of this topic", may_not_cancel);
  }
  return std::nullopt;
}

// A user would have more pending than its quota allows; nothing, if the batch may be taken.
std::optional<ScheduleErrors> above_quota(const PendingTerms& terms,
                                          const storage::PendingUse& there,
                                          const storage::PendingUse& more) {
  constexpr auto reason = "user_max_pending";
  constexpr auto advice = "try again when some are delivered or cancelled";
  if (Reservation::is_above(0, more.records, terms.max_records)) {
    return refuse(
        ScheduleErrors::Kind::too_many,
        fmt::format("user {} may have {} pending records (quota pending_records), and the "
                    "batch alone adds {}; {}",
                    printable(terms.user), *terms.max_records, more.records, send_fewer),
        reason);
  }
  if (Reservation::is_above(0, more.bytes, terms.max_bytes)) {
    return refuse(ScheduleErrors::Kind::too_many,
                  fmt::format("user {} may have {} bytes of pending records (quota pending_bytes), "
                              "and the batch alone adds {}; {}",
                              printable(terms.user), *terms.max_bytes, more.bytes, send_fewer),
                  reason);
  }
  if (Reservation::is_above(there.records, more.records, terms.max_records)) {
    return refuse(
        ScheduleErrors::Kind::busy,
        fmt::format("user {} has {} pending records and may have {} (quota "
                    "pending_records), but the batch adds {}; {}",
                    printable(terms.user), there.records, *terms.max_records, more.records, advice),
        reason);
  }
  if (Reservation::is_above(there.bytes, more.bytes, terms.max_bytes)) {
    return refuse(ScheduleErrors::Kind::busy,
                  fmt::format("user {} has {} bytes of pending records and may have {} (quota "
                              "pending_bytes), which the batch would exceed; {}",
                              printable(terms.user), there.bytes, *terms.max_bytes, advice),
                  reason);
  }
  return std::nullopt;
}

const ScheduleErrors in_delivery =
    refuse(ScheduleErrors::Kind::busy,
           "a record with an id of this batch is being delivered or moved right now; try again",
           "id_in_delivery");

}  // namespace

// Takes an id from the record that has it.  `no`: no record has it.  `late`: it is being delivered.
Intake::Taken Intake::take_id(AcceptedBatch& accepted, BatchIds::Number id, const IdRows& ids) {
  const AcceptedBatch::Take& take = accepted.takes_[id];
  const auto found = find_id(accepted.partition_, accepted.ids_[id], ids, take.number);
  const Sequence sequence = found.key.sequence;
  if (found.state != Named::State::pending) return Taken::no;
  if (removals_.contains(sequence)) return removals_.stays(sequence) ? Taken::busy : Taken::no;
  PendingKey key = found.key;
  storage::PendingShare share = found.share;
  if (const auto in_flight = deliveries_.find(sequence)) {
    if (!in_flight->appended) return Taken::busy;
    if (!in_flight->again) return Taken::late;
    key = *in_flight->again;  // A recurring one goes where it is once it is delivered.
    share = in_flight->again_share;
  }
  const auto how =
      take.cancels ? storage::RemovalReason::cancelled : storage::RemovalReason::replaced;
  accepted.add_removed({key, found.first, how, id, 0, share});
  return Taken::yes;
}

Named Intake::find_id(const TopicPartition& partition, std::string_view id, const IdRows& ids,
                      std::size_t number) {
  // Without a copy of the id, which the batch has.
  if (const auto last = unapplied_.find_id(partition, id))
    return Named{Named::State::pending, last->key, last->key.due, {}, last->share};
  const auto event = context_.tier.last_event(partition, id, ids, number);
  if (!event) return {};
  // The clock says for how long one that has ended is known, and is not read for the others.
  const WallTime remembered =
      event->is_pending() ? WallTime::min() : context_.time.wall() - context_.options.remember;
  return Named::of_id({}, event, remembered);
}

void Intake::read_ids(const TopicPartition& partition, const BatchSchedules& schedules,
                      std::move_only_function<void(Result<IdRows>)> done) {
  context_.tier.read_ids(partition, schedules.ids_taken(), std::move(done));
}

// The reason why no delayed record is accepted now; empty: they are.
std::optional<ScheduleErrors> Intake::refusal(const BatchSchedules& schedules,
                                              const TopicDelay& topic, const TopicId& id,
                                              const PendingTerms& terms) {
  if (context_.stopped) return refuse(ScheduleErrors::Kind::failed, "the pending store has failed");
  if (auto denied = forbidden(schedules, terms)) return denied;
  const auto pending = context_.tier.pending_of(id) + context_.tier.coming_of(id);
  if (auto above = above_limit(schedules, topic, pending)) return above;
  // Before the batch is taken apart for nothing.  Each of its ids takes one record away at most.
  if (terms.is_limited() && schedules.delayed > schedules.ids) {
    const storage::PendingUse least{static_cast<std::int64_t>(schedules.delayed - schedules.ids),
                                    schedules.ids == 0 ? 1 : 0};
    if (auto above = above_quota(terms, account_of(terms)->use(), least)) return above;
  }
  if (schedules.sequences > 0 && context_.tier.is_full()) {
    // The step writes records to the disk, which makes room.
    context_.alarm.wake();
    return refuse(ScheduleErrors::Kind::busy,
                  "the memory for delayed records (tarry.delay.memory.bytes) is used up until some "
                  "are on the disk or delivered; try again",
                  "delay_memory_full");
  }
  if (sequences_.left() < schedules.sequences) {
    sequences_.request_if_low();
    return refuse(ScheduleErrors::Kind::busy,
                  "the broker has no sequence numbers ready for delayed records; try again",
                  "no_sequence_numbers");
  }
  return std::nullopt;
}

std::expected<AcceptedBatch, ScheduleErrors> Intake::accept(const TopicPartition& partition,
                                                            const records::CheckedBatch& batch,
                                                            const BatchSchedules& schedules,
                                                            const TopicDelay& topic,
                                                            WallTime arrived, const IdRows& ids,
                                                            const PendingTerms& terms) {
  if (!schedules.any()) {
    AcceptedBatch untouched;
    untouched.records_ = batch.count;
    return untouched;
  }
  TARRY_ASSERT(schedules.of_records.size() == static_cast<std::size_t>(batch.count),
               "each record has its schedule");
  if (auto refused = refusal(schedules, topic, partition.topic, terms))
    return std::unexpected(std::move(*refused));
  auto accepted =
      AcceptedBatch::split(partition, batch, schedules, topic, arrived,
                           sequences_.take(schedules.sequences), terms.principal, false);
  sequences_.request_if_low();
  for (BatchIds::Number id = 0; id < accepted.takes_.size(); ++id) {
    const auto& take = accepted.takes_[id];
    const Taken taken = take_id(accepted, id, ids);
    // All or nothing, because the producer sends the whole batch again.
    if (taken == Taken::busy) return std::unexpected(in_delivery);
    accepted.unknown_cancels_ += taken == Taken::no && take.cancels;
    accepted.late_cancels_ += taken == Taken::late && take.cancels;
  }
  if (auto above = reserve(accepted, terms)) return std::unexpected(std::move(*above));
  accepted.charge_ = IntakeCharge(context_.tier.coming(partition.topic), accepted.memory_bytes(),
                                  accepted.added_.size());
  return accepted;
}

Reservation::Account Intake::account_of(const PendingTerms& terms) {
  return context_.tier.account(terms.principal);
}

// Takes the room for what the batch adds; or says why there is none.
std::optional<ScheduleErrors> Intake::reserve(AcceptedBatch& accepted, const PendingTerms& terms) {
  if (!terms.is_limited()) return std::nullopt;
  const auto more = accepted.difference();
  storage::PendingUse there;
  accepted.reservation_ = Reservation::take(account_of(terms), more, terms, there);
  if (accepted.reservation_) return std::nullopt;
  return above_quota(terms, there, more);
}

// --- Long batches

void Intake::accept_in_steps(const TopicPartition& partition, const records::CheckedBatch& batch,
                             const BatchSchedules& schedules, const TopicDelay& topic,
                             WallTime arrived, IdRows ids, const PendingTerms& terms, Done done) {
  if (auto refused = refusal(schedules, topic, partition.topic, terms))
    return done(std::unexpected(std::move(*refused)));
  auto sequences = sequences_.take(schedules.sequences);
  sequences_.request_if_low();
  // How much of it there will be is known when it is taken apart.
  IntakeCharge charge(context_.tier.coming(partition.topic), batch.records().size(),
                      schedules.delayed);
  background_.run(
      [partition, &batch, &schedules, topic, arrived, sequences = std::move(sequences),
       principal = terms.principal]() mutable -> Result<AcceptedBatch> {
        return AcceptedBatch::split(partition, batch, schedules, topic, arrived,
                                    std::move(sequences), principal, true);
      },
      [this, alive = context_.alive, ids = std::move(ids), charge = std::move(charge), terms,
       done = std::move(done)](Result<AcceptedBatch> accepted) mutable {
        if (!*alive) return;
        if (!accepted) {
          return done(std::unexpected(
              refuse(ScheduleErrors::Kind::busy, accepted.error().message, "no_memory")));
        }
        accepted->discard_ = [this, alive](AcceptedBatch* dropped) {
          if (*alive) discard(std::move(*dropped));
        };
        charge.set_bytes(accepted->memory_bytes());
        accepted->charge_ = std::move(charge);
        if (accepted->takes_.empty()) {
          auto above = reserve(*accepted, terms);
          if (!above) return done(std::move(*accepted));
          return done(std::unexpected(std::move(*above)));
        }
        accepted->held_ = std::make_shared<AcceptedBatch::Held>();
        accepted->give_back_ =
            ScopeExit([this, alive, held = accepted->held_, of = accepted->partition_] {
              if (*alive) give_back(of, held);
            });
        taking_.push_back({std::move(*accepted), std::move(ids), terms, std::move(done)});
        context_.alarm.wake();
      });
}

// Takes ids of a long batch.  True: it has all that it needs, or is refused.
bool Intake::take_some(Taking& taking, std::size_t& budget,
                       std::optional<ScheduleErrors>& refused) {
  AcceptedBatch& accepted = taking.accepted;
  AcceptedBatch::Held& held = *accepted.held_;
  const auto leave = [&](Sequence sequence) {
    removals_.begin(sequence, {accepted.held_, &held.given_back});
  };
  for (; budget > 0 && taking.next < accepted.takes_.size(); --budget, ++taking.next) {
    const auto& take = accepted.takes_[taking.next];
    const Taken taken = take_id(accepted, taking.next, taking.ids);
    if (taken == Taken::busy) {
      refused = in_delivery;
      return true;
    }
    accepted.unknown_cancels_ += taken == Taken::no && take.cancels;
    accepted.late_cancels_ += taken == Taken::late && take.cancels;
    if (taken != Taken::yes) continue;
    leave(accepted.removed_.back().key.sequence);
    held.taken.push_back(accepted.removed_.back().key);
  }
  if (taking.next < accepted.takes_.size()) return false;
  if (!std::exchange(taking.is_reserved, true)) {
    refused = reserve(accepted, taking.terms);
    if (refused) return true;
    accepted.charge_.set_bytes(accepted.memory_bytes());
  }
  // Nobody knows these before the batch is appended; but then there would be no time for them.
  for (; budget > 0 && held.arrived.size() < accepted.on_arrival_.size(); --budget) {
    const Sequence sequence = accepted.on_arrival_[held.arrived.size()].key.sequence;
    leave(sequence);
    held.arrived.push_back(sequence);
  }
  return held.arrived.size() == accepted.on_arrival_.size();
}

bool Intake::step(std::size_t budget) {
  while (budget > 0 && !taking_.empty()) {
    std::optional<ScheduleErrors> refused;
    if (!take_some(taking_.front(), budget, refused)) return true;
    // It leaves the queue first, because `done` may hand in the next batch.
    Taking ended = std::move(taking_.front());
    taking_.pop_front();
    if (refused) {
      ended.done(std::unexpected(std::move(*refused)));
    } else {
      ended.done(std::move(ended.accepted));
    }
  }
  return !taking_.empty();
}

// A long batch of which nothing came, whoever refused it, or that is applied.
void Intake::discard(AcceptedBatch accepted) {
  // These end here, on this thread.
  accepted.give_back_ = {};
  accepted.charge_ = {};
  accepted.reservation_.end();
  try {
    background_.run_and_then(
        [gone = std::make_unique<AcceptedBatch>(std::move(accepted))]() mutable { gone.reset(); },
        [] {});
  } catch (const std::bad_alloc&) {
    // Then it goes here.
  }
}

// The batch that was to remove these was not appended.
void Intake::give_back(const TopicPartition& partition, std::shared_ptr<AcceptedBatch::Held> held) {
  // Until they are, nobody may take them for gone.
  held->given_back = true;
  durable_.add(partition, [this, partition, held = std::move(held)](std::size_t& budget) {
    for (; !held->arrived.empty() && budget > 0; --budget) {
      removals_.end(held->arrived.back());
      held->arrived.pop_back();
    }
    for (; !held->taken.empty() && budget > 0; --budget) {
      const PendingKey key = held->taken.back();
      held->taken.pop_back();
      if (!unapplied_.contains(key.sequence)) queues_.stay(key, partition);
      removals_.end(key.sequence);
    }
    context_.alarm.wake();
    return held->arrived.empty() && held->taken.empty();
  });
}

// --- In the journal

void Intake::add_to(storage::JournalTransaction& transaction, AcceptedBatch accepted, Offset base) {
  TARRY_ASSERT(accepted.on_arrival_.empty() || base >= 0,
               "what is due on arrival goes to the log at once");
  accepted.set_base_offset(base);
  // The operations view it until they are appended; then it waits to be durable.
  auto kept = std::make_unique<AcceptedBatch>(std::move(accepted));
  kept->place_.operation = transaction.add(kept->encoded_removals_);
  transaction.add(kept->encoded_arrivals_);
  transaction.add(kept->additions_);
  transaction.on_appended([this, here = kept.get()](Lsn lsn) noexcept {
    here->place_.lsn = lsn;
    appended(*here);
    here->give_back_.dismiss();
  });
  transaction.on_settled(
      [this, alive = context_.alive, kept = std::move(kept)](const Result<>& safe) mutable {
        if (!*alive) return;
        // The journal has failed, and nobody may look into a batch that goes.
        if (!safe) return unapplied_.end_batch(*kept);
        const TopicPartition partition = kept->partition_;
        durable_.add(partition, [this, kept = std::move(kept)](std::size_t& budget) mutable {
          return apply(*kept, budget);
        });
      });
}

// Nothing can refuse it any more.  Without memory for what it is known by, the process ends: the
// next start reads it from the journal.
void Intake::appended(const AcceptedBatch& accepted) noexcept {
  // The records that a long batch takes are leaving already, and others without ids take none.
  if (accepted.is_known_as_whole()) return unapplied_.add_batch(accepted);
  for (std::size_t i = 0; i < accepted.removals(); ++i) {
    const auto& gone = accepted.removal(i);
    removals_.begin(gone.key.sequence);
    if (gone.how == storage::RemovalReason::delivered_on_arrival)
      unapplied_.add_id(accepted.partition_, std::string(accepted.id_of(gone)), {gone.key, {}});
  }
  for (const auto& added : accepted.added_) {
    std::string id(accepted.id_of(added));
    const auto share = accepted.share_of(added);
    if (!id.empty()) unapplied_.add_id(accepted.partition_, id, {added.key, share});
    unapplied_.add(added.key.sequence, {accepted.partition_, added.key.due, std::move(id), share});
  }
}

// Durable: some of it goes to the tier.  True: all of it is there.
bool Intake::apply(AcceptedBatch& accepted, std::size_t& budget) {
  if (context_.stopped) {
    unapplied_.end_batch(accepted);  // It goes.
    return true;
  }
  EngineTotals& totals = context_.totals;
  AcceptedBatch::Applied& applied = accepted.applied_;
  // Its topic may be deleted by force.  The store has dropped it then, and may have forgotten that
  // it did.
  const TopicPartition& partition = accepted.partition_;
  const bool deleted = !context_.sink.target(partition);
  const bool is_whole = accepted.is_known_as_whole();
  const auto take = [&budget] { return budget > 0 && budget--; };

  context_.time.observe();
  storage::JournalPlace place = accepted.place_;
  place.operation += static_cast<std::uint32_t>(applied.removed + applied.added);
  for (; applied.removed < accepted.removals() && take(); ++applied.removed) {
    const auto& gone = accepted.removal(applied.removed);
    if (!deleted) {
      if (gone.share.principal == accepted.principal_)
        accepted.reservation_.is_taken_away(gone.share);
      context_.tier.remove(place, accepted.removed_operation(gone));
    }
    ++place.operation;
    totals.cancelled_total += gone.how == storage::RemovalReason::cancelled;
    totals.replaced_total += gone.how == storage::RemovalReason::replaced;
    if (gone.how != storage::RemovalReason::delivered_on_arrival && !waiters_.empty()) {
      context_.tier.tell_counts();  // A client that is answered may look at the counts.
      waiters_.answer(gone.key.sequence, Controlled{});
    }
  }
  // They are called when everything is in its place, because they may ask for any of it.
  UnappliedRecords::Waiters waiters;
  storage::PendingUse counted;
  const std::size_t added_before = applied.added;
  for (; applied.added < accepted.added_.size() && take(); ++applied.added) {
    const auto& added = accepted.added_[applied.added];
    std::optional<Location> near;
    if (!deleted) {
      near = context_.tier.add(place, accepted.added_operation(added));
      if (accepted.reservation_) counted.add({1, std::int64_t{accepted.share_of(added).bytes}});
    }
    totals.dropped_total += deleted;
    ++place.operation;
    std::ranges::move(unapplied_.take_waiters(added.key.sequence), std::back_inserter(waiters));
    if (!is_whole) {
      unapplied_.end(added.key.sequence);
      unapplied_.end_id(partition, accepted.id_of(added), added.key);
    }
    if (near && !removals_.contains(added.key.sequence)) queues_.file(added.key, partition, *near);
  }
  context_.tier.tell_counts();
  accepted.charge_.applied(applied.added - added_before);
  accepted.reservation_.is_counted(counted);
  const bool is_in = applied.added == accepted.added_.size();
  for (; is_in && applied.ended < accepted.removals() && take(); ++applied.ended) {
    const auto& gone = accepted.removal(applied.ended);
    if (!is_whole && gone.how == storage::RemovalReason::delivered_on_arrival)
      unapplied_.end_id(partition, accepted.id_of(gone), gone.key);
    removals_.end(gone.key.sequence);
  }
  const bool ended = is_in && applied.ended == accepted.removals();
  if (ended) {
    totals.cancelled_total += accepted.cancelled_within_;
    totals.replaced_total += accepted.replaced_within_;
    totals.cancel_unknown_total += accepted.unknown_cancels_;
    totals.cancel_late_total += accepted.late_cancels_;
    totals.expired_total += accepted.expired_;
    accepted.reservation_.end();
    if (is_whole) unapplied_.end_batch(accepted);
  }
  for (auto& waiter : waiters) waiter();
  if (!ended || queues_.any_in_line() || context_.tier.is_short()) {
    context_.alarm.wake();
  } else {
    context_.alarm.set();
  }
  return ended;
}

}  // namespace tarry::delay
