#include "delay/own_changes.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "storage/journal_transaction.h"

namespace tarry::delay {

storage::PendingRemoved OwnChanges::Move::removed() const {
  storage::PendingRemoved removed{record.partition,
                                  record.key.sequence,
                                  record.key.due,
                                  storage::RemovalReason::moved,
                                  at,
                                  record.id,
                                  -1,
                                  due};
  removed.set_first_due(record.first_due);
  removed.share = share;
  return removed;
}

storage::PendingAdded OwnChanges::Move::added() const {
  storage::PendingAdded added{record.partition, record.key.sequence, due,          record.accepted,
                              record.expires,   record.id,           record.record};
  added.set_first_due(record.first_due);
  added.principal = record.principal;
  return added;
}

storage::PendingRemoved OwnChanges::Removal::operation(const One& one) const {
  storage::PendingRemoved removed{partition, one.key.sequence, one.key.due, how, at, one.id};
  removed.set_first_due(one.first);
  removed.share = one.share;
  return removed;
}

void OwnChanges::move(std::unique_ptr<Move> move) {
  move->at = context_.time.wall();
  const PendingKey key = move->record.key;
  const TopicPartition leaves = move->record.partition;
  try {
    // From here on no delivery takes it.
    removals_.begin_move(key.sequence);
    storage::JournalTransaction transaction(storage::Reserve::keep);
    move->place.operation = transaction.add(move->removed());
    transaction.add(move->added());
    transaction.on_appended([here = move.get()](Lsn lsn) noexcept { here->place.lsn = lsn; });
    transaction.on_settled(
        [this, alive = context_.alive, move = std::move(move)](const Result<>& result) mutable {
          if (!*alive || context_.stopped) return;
          if (!result) return on_move_refused(*move, result.error());
          const TopicPartition partition = move->record.partition;
          durable_.add(partition, [this, move = std::move(move)](std::size_t& budget) {
            --budget;
            moved(*move);
            return true;
          });
        });
    context_.sink.commit(std::move(transaction));
  } catch (const std::bad_alloc&) {
    on_no_memory(key, leaves);
    throw;
  }
}

// Nothing of the change is in the journal.
void OwnChanges::on_no_memory(const PendingKey& key, const TopicPartition& partition) {
  if (!removals_.contains(key.sequence)) return;  // It had not begun, or was refused before.
  stay(key, partition);
  removals_.end(key.sequence);
  go_on();
}

void OwnChanges::on_move_refused(Move& move, const Error& error) {
  stay(move.record.key, move.record.partition);
  removals_.end(move.record.key.sequence);
  if (move.done) {
    move.done(std::unexpected(error));
  } else {
    queues_.back_off(move.record.partition);  // Nobody waits and would try again: we do.
  }
  go_on();
}

void OwnChanges::moved(Move& move) {
  if (context_.stopped) return;
  const Sequence sequence = move.record.key.sequence;
  const TopicPartition& partition = move.record.partition;
  std::optional<Location> near;
  // The topic may have been deleted since the request, and its records with it.
  const bool deleted = !context_.sink.target(partition);
  if (!deleted) {
    context_.tier.remove(move.place, move.removed());
    storage::JournalPlace next = move.place;
    ++next.operation;
    near = context_.tier.add(next, move.added());
    context_.tier.tell_counts();
  }
  ++(move.done ? context_.totals.moved_total : context_.totals.left_out_total);
  waiters_.answer(sequence,
                  fail(Errc::invalid, "it was given another due time before it was delivered"));
  context_.time.observe();
  if (near) queues_.file({move.due, sequence}, partition, *near);
  // Before others: they may cancel it, and this request is the one that came first.
  if (move.done) move.done(deleted ? Controlled{} : Controlled{ControlOutcome::done, move.due});
  removals_.end(sequence);
  go_on();
}

void OwnChanges::remove(std::unique_ptr<Removal> asked) {
  const std::shared_ptr<Removal> removal = std::move(asked);
  removal->at = context_.time.wall();
  try {
    // A removal frees more than it takes, so it may use the last room of the journal.
    storage::JournalTransaction transaction(storage::Reserve::use);
    std::optional<std::uint32_t> first;
    for (const auto& one : removal->records) {
      removals_.begin(one.key.sequence);
      const std::uint32_t at = transaction.add(removal->operation(one));
      if (!first) first = at;
    }
    removal->place.operation = first.value_or(0);
    transaction.on_appended([here = removal.get()](Lsn lsn) noexcept { here->place.lsn = lsn; });
    transaction.on_settled([this, alive = context_.alive, removal](const Result<>& result) {
      if (!*alive || context_.stopped) return;
      if (!result) return on_removal_refused(*removal, result.error());
      durable_.add(removal->partition, [this, removal](std::size_t& budget) {
        budget -= std::min(budget, removal->records.size());
        removed(*removal);
        return true;
      });
    });
    context_.sink.commit(std::move(transaction));
  } catch (const std::bad_alloc&) {
    for (const auto& one : removal->records) on_no_memory(one.key, removal->partition);
    throw;
  }
}

void OwnChanges::removed(Removal& removal) {
  if (context_.stopped) return;
  storage::JournalPlace place = removal.place;
  for (const auto& one : removal.records) {
    context_.tier.remove(place, removal.operation(one));
    ++place.operation;
  }
  context_.tier.tell_counts();
  EngineTotals& totals = context_.totals;
  auto& total = removal.how == storage::RemovalReason::expired ? totals.expired_total
                : removal.topic_gone                           ? totals.dropped_total
                                                               : totals.cancelled_total;
  total += removal.records.size();
  for (const auto& one : removal.records) waiters_.answer(one.key.sequence, Controlled{});
  end_removal(removal, Controlled{.outcome = ControlOutcome::done});
}

void OwnChanges::on_removal_refused(Removal& removal, const Error& error) {
  for (const auto& one : removal.records) stay(one.key, removal.partition);
  if (!removal.done) queues_.back_off(removal.partition);  // Nobody waits and would try again.
  end_removal(removal, std::unexpected(error));
}

void OwnChanges::end_removal(Removal& removal, const Result<Controlled>& answer) {
  for (const auto& one : removal.records) removals_.end(one.key.sequence);
  if (removal.done) removal.done(answer);
  go_on();
}

// Its change was refused.  One that is not durable yet is filed when it is.
void OwnChanges::stay(const PendingKey& key, const TopicPartition& partition) {
  if (!unapplied_.contains(key.sequence)) queues_.stay(key, partition);
}

void OwnChanges::go_on() {
  if (queues_.any_in_line()) return context_.alarm.wake();
  context_.alarm.set();
}

}  // namespace tarry::delay
