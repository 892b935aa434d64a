// Engine: what the owner of a pending record may do with it: cancel it, move it, deliver it now.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/time_text.h"
#include "delay/engine.h"

namespace tarry::delay {
namespace {

// Requests that wait for one record's delivery.  A client that goes away leaves its request.
constexpr std::size_t max_awaiting_one = 16;

// A record that is looked up on the disk may be another's before it is found; then it is looked up
// again, so often.
constexpr int max_tries = 8;

}  // namespace

storage::PendingRemoved Engine::Move::removed() const {
  storage::PendingRemoved removed{record.partition,
                                  record.key.sequence,
                                  record.key.due,
                                  storage::RemovalReason::moved,
                                  at,
                                  record.id,
                                  -1,
                                  due};
  if (record.key.due != record.first_due) removed.first_due = record.first_due;
  return removed;
}

storage::PendingAdded Engine::Move::added() const {
  storage::PendingAdded added{record.partition, record.key.sequence, due,          record.accepted,
                              record.expires,   record.id,           record.record};
  if (due != record.first_due) added.first_due = record.first_due;
  return added;
}

storage::PendingRemoved Engine::Removal::operation(const One& one) const {
  storage::PendingRemoved removed{partition, one.key.sequence, one.key.due, how, at, one.id};
  if (one.first != one.key.due) removed.first_due = one.first;
  return removed;
}

// --- What a name stands for

void Engine::look_id(const TopicPartition& partition, std::string id, LookedDone done) {
  look_id(partition, std::move(id), std::move(done), max_tries);
}

void Engine::look_id(const TopicPartition& partition, std::string id, LookedDone done, int tries) {
  if (stopped_) return done(fail(Errc::stopped, "the pending store has failed"));
  tier_.find_id(partition, id, [=, this, done = std::move(done)](auto events) mutable {
    if (!events) return done(std::unexpected(events.error()));
    const Found found =
        found_of(events->empty() ? std::nullopt : std::optional(std::move(events->back())), id);
    if (found.state != Found::State::pending)
      return done(Looked{std::nullopt, found.state == Found::State::delivered});
    tier_.find(found.key, [=, this, done = std::move(done)](auto record) mutable {
      if (!record) return done(std::unexpected(record.error()));
      // It has just gone, or somewhere else.
      if (!*record && tries > 0) return look_id(partition, id, std::move(done), tries - 1);
      done(Looked{std::move(*record), false});
    });
  });
}

void Engine::look_handle(std::string_view handle, LookedDone done) {
  if (stopped_) return done(fail(Errc::stopped, "the pending store has failed"));
  const auto first = storage::parse_handle(handle);
  if (!first) return done(Looked{});
  tier_.find_handle(*first, [first = *first, done = std::move(done)](auto record) mutable {
    if (!record) return done(std::unexpected(record.error()));
    // What was moved away from this key is not what is named.
    if (*record && (*record)->first_key() != first) return done(Looked{});
    done(Looked{std::move(*record), false});
  });
}

void Engine::trace(const TopicPartition& partition, std::string id, Events done) {
  if (stopped_) return done(fail(Errc::stopped, "the pending store has failed"));
  tier_.find_id(partition, id, [this, id, done = std::move(done)](auto events) mutable {
    using Kind = storage::ScheduleEvent::Kind;
    if (events && !events->empty()) {
      const auto& last = events->back();
      const bool is_pending = last.kind == Kind::scheduled || last.kind == Kind::moved;
      // The store forgets it some time later.
      if (!is_pending && last.at + options_.remember <= clock_.wall()) events->clear();
    }
    done(std::move(events));
  });
}

// --- What the owner asks for

void Engine::cancel(const TopicPartition& partition, std::string_view name, ControlDone done) {
  control(std::make_unique<Control>(Control::Kind::cancel, partition, std::string(name), NewDue{},
                                    std::move(done)));
}

void Engine::move(const TopicPartition& partition, std::string_view name, NewDue due,
                  ControlDone done) {
  control(std::make_unique<Control>(Control::Kind::move, partition, std::string(name), due,
                                    std::move(done)));
}

void Engine::deliver_now(const TopicPartition& partition, std::string_view name, ControlDone done) {
  control(std::make_unique<Control>(Control::Kind::deliver, partition, std::string(name), NewDue{},
                                    std::move(done)));
}

void Engine::control(std::unique_ptr<Control> asked) {
  if (stopped_) return asked->done(fail(Errc::stopped, "the pending store has failed"));
  if (asked->tries++ == max_tries)
    return asked->done(fail(Errc::exhausted, "the record changes too often; try again"));
  if (!asked->name.starts_with('@')) {
    if (const PendingKey* const key = arriving_id(asked->partition, asked->name)) {
      const Found found{Found::State::pending, *key, key->due, asked->name};
      return control_found(std::move(asked), found);
    }
    Control& one = *asked;
    return tier_.find_id(
        one.partition, one.name, [this, asked = std::move(asked)](auto events) mutable {
          if (!events) return asked->done(std::unexpected(events.error()));
          // A record that came meanwhile has the id now.
          if (arriving_id(asked->partition, asked->name) != nullptr)
            return control(std::move(asked));
          const Found found =
              found_of(events->empty() ? std::nullopt : std::optional(events->back()), asked->name);
          control_found(std::move(asked), found);
        });
  }
  const auto first = storage::parse_handle(asked->name);
  if (!first) return asked->done(Controlled{});
  const auto arriving = arriving_.find(first->sequence);
  if (arriving != arriving_.end()) {
    if (arriving->second.partition != asked->partition) return asked->done(Controlled{});
    const Found found{Found::State::pending, *first, first->due, arriving->second.id};
    return control_found(std::move(asked), found);
  }
  const std::string name = asked->name;
  look_handle(name, [this, asked = std::move(asked)](Result<Looked> looked) mutable {
    if (!looked) return asked->done(std::unexpected(looked.error()));
    const auto& record = looked->record;
    if (!record || record->partition != asked->partition) return asked->done(Controlled{});
    const Found found{Found::State::pending, record->key, record->first_due, record->id};
    control_found(std::move(asked), found);
  });
}

void Engine::control_found(std::unique_ptr<Control> asked, const Found& found) {
  if (found.state == Found::State::unknown) return asked->done(Controlled{});
  if (found.state == Found::State::delivered)
    return asked->done(Controlled{.outcome = ControlOutcome::already_delivered});
  if (waits(asked, found.key.sequence)) return;
  if (asked->kind == Control::Kind::cancel) {
    auto removal = std::make_unique<Removal>();
    removal->partition = asked->partition;
    removal->how = storage::RemovalReason::cancelled;
    removal->records.push_back({found.key, found.first, found.id});
    removal->done = std::move(asked->done);
    return remove(std::move(removal));
  }
  // The others need the body, which may be on the disk.
  tier_.find(found.key, [this, asked = std::move(asked), key = found.key](auto record) mutable {
    if (!record) return asked->done(std::unexpected(record.error()));
    if (waits(asked, key.sequence)) return;
    if (!*record) return control(std::move(asked));  // It has just gone, or somewhere else.
    start_move(std::move(asked), std::move(**record));
  });
}

// Whether something that is on its way decides first what becomes of the record.  Then the request
// is made again when that is known.
bool Engine::waits(std::unique_ptr<Control>& asked, Sequence sequence) {
  NearEntry* const entry = near_.find(sequence);
  if (entry != nullptr && entry->state() == NearEntry::State::in_flight) {
    partitions_[entry->partition()].in_flight->waiters.emplace_back(
        [this, sequence, asked = std::move(asked)](const std::vector<Sequence>& delivered) mutable {
          if (std::ranges::find(delivered, sequence) == delivered.end())
            return control(std::move(asked));
          asked->done(Controlled{.outcome = ControlOutcome::already_delivered});
        });
    return true;
  }
  const auto again = [this, &asked] {
    return [this, asked = std::move(asked)]() mutable { control(std::move(asked)); };
  };
  // Somebody else takes it away; the answer is ours when that is durable.
  if (const auto leaving = leaving_.find(sequence); leaving != leaving_.end()) {
    leaving->second.waiters.emplace_back(again());
    return true;
  }
  // A cancel may follow in the journal; the body, which a move needs, is in the store later.
  if (asked->kind == Control::Kind::cancel) return false;
  if (const auto arriving = arriving_.find(sequence); arriving != arriving_.end()) {
    arriving->second.waiters.emplace_back(again());
    return true;
  }
  return false;
}

// When the record is to be due, or why it cannot be then.
Result<WallTime> Engine::new_due(const Control& asked, const storage::PendingRecord& record) {
  WallTime due = record.key.due;
  if (asked.kind == Control::Kind::deliver) {
    // A record that is due already keeps its place.
    due = std::min({due, clock_.wall(), wall_.observe(clock_)});
  } else if (const auto* by = std::get_if<std::chrono::milliseconds>(&asked.due)) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(to_ms(due), by->count(), &sum))
      return fail(Errc::invalid, "the new due time cannot be stored");
    due = from_ms(sum);
  } else {
    due = std::get<WallTime>(asked.due);
  }
  if (due < first_due_allowed || due > last_due_allowed) {
    return fail(Errc::invalid,
                fmt::format("the new due time {} is not from {} to {}", format_time(due),
                            format_time(first_due_allowed), format_time(last_due_allowed)));
  }
  if (due >= record.expires) {
    return fail(Errc::invalid, fmt::format("it expires at {} (x-expire-at), before it would be due",
                                           format_time(record.expires)));
  }
  return due;
}

void Engine::start_move(std::unique_ptr<Control> asked, storage::PendingRecord record) {
  const bool deliver = asked->kind == Control::Kind::deliver;
  const auto due = new_due(*asked, record);
  if (!due) return asked->done(std::unexpected(due.error()));
  if (*due == record.key.due) {
    if (deliver) return await_delivery(record.key.sequence, std::move(asked));
    return asked->done(Controlled{ControlOutcome::done, *due});
  }
  commit_move(std::make_unique<Move>(std::move(record), *due, clock_.wall(), std::move(asked)));
}

void Engine::commit_move(std::unique_ptr<Move> move) {
  begin_leaving(move->record.key);
  leaving_[move->record.key.sequence].stays = true;
  storage::JournalTransaction transaction(storage::Reserve::keep);
  move->place.operation = transaction.add(move->removed());
  transaction.add(move->added());
  transaction.on_appended([here = move.get()](Lsn lsn) noexcept { here->place.lsn = lsn; });
  transaction.on_settled([this, alive = alive_, move = std::move(move)](const Result<>& result) {
    if (*alive) moved(*move, result);
  });
  sink_.commit(std::move(transaction));
}

void Engine::moved(Move& move, const Result<>& result) {
  if (stopped_) return;
  const PendingKey from = move.record.key;
  const TopicPartition partition = move.record.partition;
  const bool deleted = !sink_.target(partition);
  auto asked = std::move(move.asked);
  if (!result) {
    put_back(from, partition);
    end_leaving(from.sequence);
    if (asked) {
      asked->done(std::unexpected(result.error()));
    } else {
      back_off(slot_of(partition));  // Nobody waits for the answer and would try again: we do.
    }
  } else {
    bool is_near = false;
    if (!deleted) {
      tier_.remove(move.place, move.removed());
      storage::JournalPlace next = move.place;
      ++next.operation;
      is_near = tier_.add(next, move.added());
    }
    ++(asked ? stats_.moved_total : stats_.left_out_total);
    answer_awaiting(from.sequence,
                    fail(Errc::invalid, "it was given another due time before it was delivered"));
    wall_.observe(clock_);
    if (is_near) file({move.due, from.sequence}, partition);
    // Before others: they may cancel it, and this request is the one that came first.
    if (asked && asked->kind == Control::Kind::deliver && !deleted) {
      await_delivery(from.sequence, std::move(asked));
    } else if (asked) {
      asked->done(deleted ? Controlled{} : Controlled{ControlOutcome::done, move.due});
    }
    end_leaving(from.sequence);
  }
  more_ |= !turns_.empty();
  set_alarm();
}

void Engine::await_delivery(Sequence sequence, std::unique_ptr<Control> asked) {
  auto& waiting = awaiting_[sequence];
  if (waiting.size() >= max_awaiting_one)
    return asked->done(fail(Errc::exhausted, "too many requests wait for its delivery"));
  waiting.push_back(std::move(asked));
}

// Those that wait for the record to be delivered are told what became of it instead.
void Engine::answer_awaiting(Sequence sequence, const Result<Controlled>& answer) {
  auto waiting = awaiting_.extract(sequence);
  if (waiting.empty()) return;
  for (auto& asked : waiting.mapped()) asked->done(answer);
}

void Engine::remove(std::unique_ptr<Removal> removal) {
  removal->at = clock_.wall();
  storage::JournalTransaction transaction(storage::Reserve::use);
  std::optional<std::uint32_t> first;
  for (const auto& one : removal->records) {
    begin_leaving(one.key);
    const std::uint32_t at = transaction.add(removal->operation(one));
    if (!first) first = at;
  }
  removal->place.operation = first.value_or(0);
  transaction.on_appended([here = removal.get()](Lsn lsn) noexcept { here->place.lsn = lsn; });
  transaction.on_settled(
      [this, alive = alive_, removal = std::move(removal)](const Result<>& result) {
        if (*alive) removed(*removal, result);
      });
  sink_.commit(std::move(transaction));
}

// Its removal was refused: it is where it was.
void Engine::put_back(const PendingKey& key, const TopicPartition& partition) {
  NearEntry* const entry = near_.find(key.sequence);
  if (entry != nullptr && entry->state() == NearEntry::State::abandoned) {
    near_.set_ready(*entry);  // Its partition's queue has it still.
    take_turn(entry->partition());
  } else if (!arriving_.contains(key.sequence) && key < tier_.horizon()) {
    file(key, partition);
  }
}

void Engine::removed(Removal& removal, const Result<>& result) {
  if (stopped_) return;
  if (result) {
    storage::JournalPlace place = removal.place;
    for (const auto& one : removal.records) {
      tier_.remove(place, removal.operation(one));
      ++place.operation;
    }
    auto& total = removal.how == storage::RemovalReason::expired ? stats_.expired_total
                  : removal.topic_gone                           ? stats_.dropped_total
                                                                 : stats_.cancelled_total;
    total += removal.records.size();
    for (const auto& one : removal.records) answer_awaiting(one.key.sequence, Controlled{});
  } else {
    for (const auto& one : removal.records) put_back(one.key, removal.partition);
    // Nobody waits for the answer and would try again: we do.
    if (!removal.done) back_off(slot_of(removal.partition));
  }
  for (const auto& one : removal.records) end_leaving(one.key.sequence);
  if (removal.done) {
    if (result) {
      removal.done(Controlled{.outcome = ControlOutcome::done});
    } else {
      removal.done(std::unexpected(result.error()));
    }
  }
  more_ |= !turns_.empty();
  set_alarm();
}

}  // namespace tarry::delay
