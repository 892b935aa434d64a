#include "delay/control.h"

#include <algorithm>
#include <utility>

#include "delay/moved_due.h"

namespace tarry::delay {
namespace {

// A record that is looked up on the disk may be another's before it is found; then it is looked up
// again, so often.
constexpr int max_tries = 8;

std::unexpected<Error> changes_too_often() {
  return fail(Errc::invalid, "the record changes too often; try again");
}

}  // namespace

// Later the pool and the journal take nothing more, and an answer might never come.
std::optional<Error> Control::stopped() const {
  if (context_.stopped) return Error{Errc::stopped, "the pending store has failed"};
  return waiters_.stopped();
}

// --- Looking up names

// The record that has the id, or had it, if it is arriving or leaving.
std::optional<Sequence> Control::changing(const TopicPartition& partition, std::string_view id,
                                          const Named& found) const {
  const auto last = unapplied_.find_id(partition, id);
  if (last && is_changing(last->key.sequence)) return last->key.sequence;
  if (found.state == Named::State::pending && is_changing(found.key.sequence))
    return found.key.sequence;
  return std::nullopt;
}

// Calls `again` when it is known what becomes of it.
void Control::await_change(Sequence sequence, std::move_only_function<void()> again) {
  if (removals_.contains(sequence)) return removals_.await(sequence, std::move(again));
  unapplied_.await(sequence, std::move(again));
}

void Control::look_id(const TopicPartition& partition, std::string id, LookedDone done) {
  look_id(partition, std::move(id), std::move(done), max_tries);
}

void Control::look_id(const TopicPartition& partition, std::string id, LookedDone done, int tries) {
  if (auto why = stopped()) return done(std::unexpected(*why));
  if (auto error = deliveries_.out_of_service(partition)) return done(std::unexpected(*error));
  if (tries == 0) return done(changes_too_often());
  context_.tier.find_id(partition, id, [=, this, done = std::move(done)](auto events) mutable {
    if (!events) return done(std::unexpected(events.error()));
    const Named found = named(id, *events);
    if (const auto awaited = changing(partition, id, found)) {
      return await_change(*awaited, [=, this, done = std::move(done)]() mutable {
        look_id(partition, id, std::move(done), tries - 1);
      });
    }
    if (found.state != Named::State::pending)
      return done(Looked{std::nullopt, found.state == Named::State::delivered});
    context_.tier.find(found.key, [=, this, done = std::move(done)](auto record) mutable {
      if (!record) return done(std::unexpected(record.error()));
      // It has just gone, or somewhere else.
      if (!*record) return look_id(partition, id, std::move(done), tries - 1);
      done(Looked{std::move(*record), false});
    });
  });
}

void Control::look_handle(std::string_view handle, LookedDone done) {
  const auto first = storage::parse_handle(handle);
  if (!first) return done(Looked{});
  auto told = [this, done = std::move(done)](Result<Looked> looked) mutable {
    const auto& fenced = deliveries_.fenced();
    // It may be one that was set aside: a handle does not say whose it is.
    if (looked && !looked->record && !fenced.empty())
      looked = std::unexpected(*deliveries_.out_of_service(fenced.begin()->first));
    done(std::move(looked));
  };
  look_handle(*first, std::move(told), max_tries);
}

void Control::look_handle(const PendingKey& handle, LookedDone done, int tries) {
  if (auto why = stopped()) return done(std::unexpected(*why));
  if (tries == 0) return done(changes_too_often());
  if (is_changing(handle.sequence)) {
    return await_change(handle.sequence, [=, this, done = std::move(done)]() mutable {
      look_handle(handle, std::move(done), tries - 1);
    });
  }
  context_.tier.find_handle(handle, [handle, done = std::move(done)](auto record) mutable {
    if (!record) return done(std::unexpected(record.error()));
    // A record that was moved away from this key is not the named one.
    if (*record && (*record)->first_key() != handle) return done(Looked{});
    done(Looked{std::move(*record), false});
  });
}

void Control::trace(const TopicPartition& partition, std::string id, BucketTier::Events done) {
  trace(partition, std::move(id), std::move(done), max_tries);
}

void Control::trace(const TopicPartition& partition, std::string id, BucketTier::Events done,
                    int tries) {
  if (auto why = stopped()) return done(std::unexpected(*why));
  if (tries == 0) return done(changes_too_often());
  context_.tier.find_id(partition, id, [=, this, done = std::move(done)](auto events) mutable {
    if (!events) return done(std::move(events));
    if (const auto awaited = changing(partition, id, named(id, *events))) {
      return await_change(*awaited, [=, this, done = std::move(done)]() mutable {
        trace(partition, id, std::move(done), tries - 1);
      });
    }
    if (!events->empty()) {
      const auto& last = events->back();
      // The store forgets it some time later.
      if (!last.is_pending() && last.at <= remembered()) events->clear();
    }
    done(std::move(events));
  });
}

// --- The owner's requests

void Control::cancel(const TopicPartition& partition, std::string_view name, ControlDone done) {
  control(std::make_unique<Request>(Request::Kind::cancel, partition, std::string(name), NewDue{},
                                    std::move(done)));
}

void Control::move(const TopicPartition& partition, std::string_view name, NewDue due,
                   ControlDone done) {
  control(std::make_unique<Request>(Request::Kind::move, partition, std::string(name), due,
                                    std::move(done)));
}

void Control::deliver_now(const TopicPartition& partition, std::string_view name,
                          ControlDone done) {
  control(std::make_unique<Request>(Request::Kind::deliver, partition, std::string(name), NewDue{},
                                    std::move(done)));
}

void Control::control(std::unique_ptr<Request> asked) {
  if (auto why = stopped()) return asked->done(std::unexpected(*why));
  if (auto error = deliveries_.out_of_service(asked->partition))
    return asked->done(std::unexpected(*error));
  if (asked->tries++ == max_tries) return asked->done(changes_too_often());
  if (!asked->name.starts_with('@')) {
    // The journal has it already, the tier has not.
    if (const auto last = unapplied_.find_id(asked->partition, asked->name)) {
      const Named found{Named::State::pending, last->key, last->key.due, asked->name, last->share};
      return control_found(std::move(asked), found);
    }
    // A reference, because the call that reads these fields takes `asked` itself.
    Request& one = *asked;
    return context_.tier.find_id(one.partition, one.name,
                                 [this, asked = std::move(asked)](auto events) mutable {
                                   if (!events) return asked->done(std::unexpected(events.error()));
                                   // A record that came meanwhile has the id now.
                                   if (unapplied_.find_id(asked->partition, asked->name))
                                     return control(std::move(asked));
                                   const Named found = named(asked->name, *events);
                                   control_found(std::move(asked), found);
                                 });
  }
  const auto first = storage::parse_handle(asked->name);
  if (!first) return asked->done(Controlled{});
  if (const auto arriving = unapplied_.find(first->sequence)) {
    // A handle that somebody made up names no record, although its number is one's.
    if (arriving->partition != asked->partition || arriving->due != first->due)
      return asked->done(Controlled{});
    const Named found{Named::State::pending, *first, first->due, arriving->id, arriving->share};
    return control_found(std::move(asked), found);
  }
  auto take = [this, asked = std::move(asked)](Result<Looked> looked) mutable {
    if (!looked) return asked->done(std::unexpected(looked.error()));
    const auto& record = looked->record;
    if (!record || record->partition != asked->partition) return asked->done(Controlled{});
    const Named found{Named::State::pending, record->key, record->first_due, record->id,
                      record->share()};
    control_found(std::move(asked), found);
  };
  look_handle(*first, std::move(take), max_tries);
}

void Control::control_found(std::unique_ptr<Request> asked, const Named& found) {
  if (found.state == Named::State::unknown) return asked->done(Controlled{});
  if (found.state == Named::State::delivered)
    return asked->done(Controlled{.outcome = ControlOutcome::already_delivered});
  if (waits(asked, found.key.sequence)) return;
  if (asked->kind == Request::Kind::cancel) {
    auto removal = std::make_unique<OwnChanges::Removal>();
    removal->partition = asked->partition;
    removal->how = storage::RemovalReason::cancelled;
    removal->records.push_back({found.key, found.first, found.id, found.share});
    removal->done = std::move(asked->done);
    return changes_.remove(std::move(removal));
  }
  // The others need the body, which may be on the disk.
  context_.tier.find(found.key,
                     [this, asked = std::move(asked), key = found.key](auto record) mutable {
                       if (!record) return asked->done(std::unexpected(record.error()));
                       // It may have begun to leave while the disk was read.
                       if (waits(asked, key.sequence)) return;
                       if (!*record)
                         return control(std::move(asked));  // It has just gone, or somewhere else.
                       start_move(std::move(asked), std::move(**record));
                     });
}

// Whether something that is on its way decides first what becomes of the record.  Then the request
// is made again when that is known.
bool Control::waits(std::unique_ptr<Request>& asked, Sequence sequence) {
  if (deliveries_.find(sequence)) {
    deliveries_.await(sequence, [this, asked = std::move(asked)](bool gone) mutable {
      if (!gone) return control(std::move(asked));
      asked->done(Controlled{.outcome = ControlOutcome::already_delivered});
    });
    return true;
  }
  const auto again = [this, &asked] {
    return [this, asked = std::move(asked)]() mutable { control(std::move(asked)); };
  };
  // Somebody else takes it away; the answer is ours when that is durable.
  if (removals_.contains(sequence)) {
    removals_.await(sequence, again());
    return true;
  }
  // A cancel may follow in the journal; the body, which a move needs, is in the store later.
  if (asked->kind == Request::Kind::cancel) return false;
  if (unapplied_.contains(sequence)) {
    unapplied_.await(sequence, again());
    return true;
  }
  return false;
}

// When the record is to be due, or why it cannot be then.
Result<WallTime> Control::new_due(const Request& asked, const storage::PendingRecord& record) {
  NewDue change = asked.due;
  // A record that is due already keeps its place.
  // A delivery asks both clocks, and either may be behind the other.
  const WallTime at_once =
      std::min({record.key.due, context_.time.wall(), context_.time.observe()});
  if (asked.kind == Request::Kind::deliver) change = at_once;
  const auto due = moved_due(record.key.due, change, record.expires);
  // A record that its owner makes due in the past would count as late since then.
  return due ? std::max(*due, at_once) : due;
}

void Control::start_move(std::unique_ptr<Request> asked, storage::PendingRecord record) {
  const bool deliver = asked->kind == Request::Kind::deliver;
  const auto due = new_due(*asked, record);
  if (!due) return asked->done(std::unexpected(due.error()));
  if (*due == record.key.due) {
    if (deliver) return await_delivery(record.key.sequence, std::move(asked));
    return asked->done(Controlled{ControlOutcome::done, *due});
  }
  const auto share = record.share();
  auto move = std::make_unique<OwnChanges::Move>(std::move(record), *due, share);
  const Sequence sequence = move->record.key.sequence;
  move->done = [this, deliver, sequence,
                asked = std::move(asked)](Result<Controlled> told) mutable {
    if (deliver && told && told->outcome == ControlOutcome::done)
      return await_delivery(sequence, std::move(asked));
    asked->done(std::move(told));
  };
  changes_.move(std::move(move));
}

void Control::await_delivery(Sequence sequence, std::unique_ptr<Request> asked) {
  waiters_.add(sequence, asked->partition, std::move(asked->done));
}

Named Control::named(std::string_view id, const std::vector<storage::ScheduleEvent>& events) const {
  if (events.empty()) return {};
  return Named::of_id(id, events.back(), remembered());
}

}  // namespace tarry::delay
