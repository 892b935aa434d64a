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

}  // namespace

storage::PendingRemoved Engine::Move::removed() const {
  return {record.partition,
          record.key.sequence,
          record.key.due,
          storage::RemovalReason::moved,
          at,
          record.id,
          -1,
          due};
}

storage::PendingAdded Engine::Move::added() const {
  storage::PendingAdded added{record.partition, record.key.sequence, due,          record.accepted,
                              record.expires,   record.id,           record.record};
  if (due != record.first_due) added.first_due = record.first_due;
  return added;
}

// A handle or an id; what is leaving counts as unknown here, and who has to be sure waits for it.
Result<Engine::Found> Engine::find(const TopicPartition& partition, std::string_view name) {
  if (!name.starts_with('@')) return find_id(partition, name);
  const auto first = storage::parse_handle(name);
  if (!first) return Found{};
  const auto arriving = arriving_.find(first->sequence);
  if (arriving != arriving_.end()) {
    if (arriving->second.partition != partition) return Found{};
    return Found{Found::State::pending, *first, arriving->second.id};
  }
  const auto key = store_.current_key(*first);
  if (!key) return std::unexpected(key.error());
  const auto record = store_.get(*key);
  if (!record) return std::unexpected(record.error());
  if (!*record || (*record)->partition != partition) return Found{};
  // It may have been moved, and then its first key is not one of its names any more.
  if ((*record)->first_key() != *first) return Found{};
  return Found{Found::State::pending, *key, (*record)->id};
}

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
  const auto found = find(asked->partition, asked->name);
  if (!found) {
    failed(found.error());
    return asked->done(std::unexpected(found.error()));
  }
  if (found->state == Found::State::unknown) return asked->done(Controlled{});
  if (found->state == Found::State::delivered)
    return asked->done(Controlled{.outcome = ControlOutcome::already_delivered});
  if (waits(asked, found->key.sequence)) return;

  if (asked->kind != Control::Kind::cancel) return start_move(std::move(asked), found->key);
  auto removal = std::make_unique<Removal>();
  removal->partition = asked->partition;
  removal->how = storage::RemovalReason::cancelled;
  removal->keys.push_back(found->key);
  removal->ids.push_back(found->id);
  removal->done = std::move(asked->done);
  remove(std::move(removal));
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

void Engine::start_move(std::unique_ptr<Control> asked, PendingKey key) {
  auto record = store_.get(key);
  if (!record) {
    failed(record.error());
    return asked->done(std::unexpected(record.error()));
  }
  if (!*record) return asked->done(Controlled{});  // Its topic was deleted.
  const bool deliver = asked->kind == Control::Kind::deliver;
  const auto due = new_due(*asked, **record);
  if (!due) return asked->done(std::unexpected(due.error()));
  if (*due == key.due) {
    if (deliver) return await_delivery(key.sequence, std::move(asked));
    return asked->done(Controlled{ControlOutcome::done, *due});
  }
  commit_move(std::make_unique<Move>(std::move(**record), *due, clock_.wall(), std::move(asked)));
}

void Engine::commit_move(std::unique_ptr<Move> move) {
  begin_leaving(move->record.key);
  storage::JournalTransaction transaction(storage::Reserve::keep);
  transaction.add(move->removed());
  transaction.add(move->added());
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
    if (!deleted) {
      const std::vector<storage::Operation> operations{move.removed(), move.added()};
      if (const auto applied = store_.apply(operations); !applied) return failed(applied.error());
    }
    ++(asked ? stats_.moved_total : stats_.left_out_total);
    far_.left(from);
    answer_awaiting(from.sequence,
                    fail(Errc::invalid, "it was given another due time before it was delivered"));
    wall_.observe(clock_);
    if (!deleted) arm({move.due, from.sequence}, partition);
    // Before others: they may cancel it, and this request is the one that came first.
    if (asked && asked->kind == Control::Kind::deliver && !deleted) {
      await_delivery(from.sequence, std::move(asked));
    } else if (asked) {
      asked->done(deleted ? Controlled{} : Controlled{ControlOutcome::done, move.due});
    }
    end_leaving(from.sequence);
  }
  more_ |= !turns_.empty() || !far_.first_far_known();
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
  for (std::size_t i = 0; i < removal->keys.size(); ++i) {
    begin_leaving(removal->keys[i]);
    transaction.add(removal->operation(i));
  }
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
  } else if (!arriving_.contains(key.sequence)) {
    arm(key, partition);
  }
}

void Engine::removed(Removal& removal, const Result<>& result) {
  if (stopped_) return;
  if (result) {
    std::vector<storage::Operation> operations;
    for (std::size_t i = 0; i < removal.keys.size(); ++i) {
      operations.emplace_back(removal.operation(i));
    }
    if (const auto applied = store_.apply(operations); !applied) {
      failed(applied.error());
      return;
    }
    auto& total = removal.how == storage::RemovalReason::expired ? stats_.expired_total
                  : removal.topic_gone                           ? stats_.dropped_total
                                                                 : stats_.cancelled_total;
    total += removal.keys.size();
    for (const PendingKey& key : removal.keys) {
      far_.left(key);
      answer_awaiting(key.sequence, Controlled{});
    }
  } else {
    for (const PendingKey& key : removal.keys) put_back(key, removal.partition);
    // Nobody waits for the answer and would try again: we do.
    if (!removal.done) back_off(slot_of(removal.partition));
  }
  for (const PendingKey& key : removal.keys) end_leaving(key.sequence);
  if (removal.done) {
    if (result) {
      removal.done(Controlled{.outcome = ControlOutcome::done});
    } else {
      removal.done(std::unexpected(result.error()));
    }
  }
  more_ |= !turns_.empty() || !far_.first_far_known();
  set_alarm();
}

}  // namespace tarry::delay
