#include "delay/deliveries.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "delay/pending_record.h"
#include "delay/time_zones.h"
#include "records/batch_builder.h"

namespace tarry::delay {

// Partitions take turns, a batch each, until the step's bounds are met.
bool Deliveries::dispatch(WallTime now) {
  if (queues_.is_behind()) return true;  // What leaves first may still be in the wheel.
  const EngineOptions& options = context_.options;
  std::size_t records = 0, bytes = 0;
  while (queues_.any_in_line()) {
    // delivered() goes on.
    if (context_.stopped || bytes_ >= options.in_flight_bytes) return false;
    if (records >= options.step_records || bytes >= options.step_bytes) return true;
    const auto slot = queues_.next_turn();
    if (!slot) return false;
    deliver_from(*slot, now, records, bytes);
    queues_.end_turn(*slot);
  }
  return false;
}

// A batch of one partition's records while it is filled.
struct Deliveries::Filling {
  const PartitionSlot slot;
  const TopicDelay& topic;
  const WallTime now;     // Records that are due by then leave.
  const WallTime latest;  // The same, unless the clock was set back.
  const WallTime wall;
  const std::size_t max_bytes;
  records::BatchBuilder batch;
  std::unique_ptr<Delivery> delivery = std::make_unique<Delivery>();
  std::unique_ptr<OwnChanges::Removal> expired{};  // Null: none is.
  // Recurring ones whose missed runs are left out.
  std::vector<std::unique_ptr<OwnChanges::Move>> left_out{};
  std::size_t seen = 0;
  bool full = false;

  void expire(const storage::PendingView& record) {
    if (!expired) expired = std::make_unique<OwnChanges::Removal>();
    expired->records.push_back({record.key, record.first, std::string(record.id)});
  }
};

// One batch of what `slot` has ready.
void Deliveries::deliver_from(PartitionSlot slot, WallTime now, std::size_t& records,
                              std::size_t& bytes) {
  const TopicPartition& partition = queues_.partition(slot);
  const auto topic = queues_.is_deleted(slot) ? std::nullopt : context_.sink.target(partition);
  if (!topic) {
    drop_all(slot);
    records += context_.options.batch_records;
    return;
  }
  const WallTime wall = context_.time.wall();
  records::BatchOptions batch_options;
  if (topic->log_append_time) batch_options.log_append_time = wall;
  Filling filling{.slot = slot,
                  .topic = *topic,
                  .now = now,
                  .latest = std::min(now, wall),
                  .wall = wall,
                  .max_bytes = std::min(topic->max_message_bytes, context_.options.step_bytes),
                  .batch = records::BatchBuilder(batch_options)};
  fill(filling);
  if (filling.expired) {
    filling.expired->partition = partition;
    filling.expired->how = storage::RemovalReason::expired;
    changes_.remove(std::move(filling.expired));
  }
  for (auto& move : filling.left_out) changes_.move(std::move(move));
  records += filling.seen;
  if (!filling.batch.empty()) bytes += send(filling);
}

// Reads what is ready into the batch until it is full.
void Deliveries::fill(Filling& filling) {
  while (!filling.full && filling.seen < context_.options.batch_records) {
    NearEntry* const entry = queues_.take(filling.slot);
    if (entry == nullptr) return;
    if (entry->key().due > filling.latest) {  // The clock was set back since it became ready.
      queues_.wait(*entry);
      continue;
    }
    ++filling.seen;
    add_to(filling, *entry, context_.tier.read(entry->key()));
  }
}

// Adds one record to the batch, or settles why it is not delivered now.
void Deliveries::add_to(Filling& filling, NearEntry& entry,
                        const std::optional<storage::PendingView>& record) {
  if (!record) {  // Its topic was dropped.
    ++context_.totals.dropped_total;
    awaiting_.answer(entry.key().sequence, Controlled{});
    return queues_.erase(entry);
  }
  if (record->expires <= filling.now) {
    filling.expire(*record);
    return queues_.erase(entry);
  }
  const auto body = PendingRecordBody::parse(record->record);
  if (!body) {
    // Its bytes stay where they are, for the operator; the others go on.
    log_error("delay", "pending record {} cannot be delivered: {}",
              storage::encode_handle(record->handle()), body.error().message);
    ++context_.totals.damaged_total;
    awaiting_.answer(entry.key().sequence, std::unexpected(body.error()));
    return queues_.erase(entry);
  }
  const std::size_t size = record->record.size() + delivered_overhead;
  if (!filling.batch.empty() && filling.batch.size() + size > filling.max_bytes) {
    filling.full = true;
    return queues_.put_back(entry);
  }
  Run run{record->key.due, std::nullopt};
  if (!body->recurrence.empty() && !take_turn_of(filling, *record, body->recurrence, run))
    return queues_.erase(entry);
  append_delivered(filling.batch,
                   delivered_time(filling.topic.timestamp, run.due, body->original, filling.wall),
                   body->record.key_value, body->record.headers.size(),
                   body->record.headers.encoded(), run.due, record->handle());
  queues_.set_in_flight(entry);
  filling.delivery->entries.push_back(&entry);
  filling.delivery->again.push_back(std::move(run.again));
  filling.delivery->records.push_back({record->key, record->partition, record->accepted,
                                       record->expires, std::string(record->id), Buffer{},
                                       record->first});
}

// Sets what a recurring record's turn is; false: there is no delivery now, and what becomes of the
// record is in `filling`, or logged.
bool Deliveries::take_turn_of(Filling& filling, const storage::PendingView& record,
                              Bytes recurrence, Run& run) {
  auto parsed = Recurrence::parse(recurrence, TimeZones::of_system());
  if (!parsed) {
    // As with any damage: it stays where it is, for the operator.
    log_error("delay", "recurring record {} cannot be delivered: {}",
              storage::encode_handle(record.handle()), parsed.error().message);
    ++context_.totals.damaged_total;
    awaiting_.answer(record.key.sequence, std::unexpected(parsed.error()));
    return false;
  }
  const auto turn =
      parsed->turn(record.key.due, context_.time.running_since(), filling.topic.missed);
  if (turn.deliver) run.due = *turn.deliver;
  if (turn.left_out && turn.deliver) ++context_.totals.left_out_total;
  if (turn.next) {
    parsed->take(turn);
    run.again = Again{*turn.next, with_recurrence(record.record, *parsed)};
  }
  if (turn.deliver) return true;
  if (run.again) {
    storage::PendingRecord later = record.owned();
    later.record = std::move(run.again->record);
    filling.left_out.push_back(
        std::make_unique<OwnChanges::Move>(std::move(later), run.again->due));
  } else {
    filling.expire(record);
  }
  return false;
}

storage::PendingRemoved Deliveries::Delivery::gone_of(std::size_t index, Offset offset) const {
  const auto& record = records[index];
  storage::PendingRemoved gone{record.partition,
                               record.key.sequence,
                               record.key.due,
                               storage::RemovalReason::delivered,
                               at,
                               record.id,
                               offset};
  gone.set_first_due(record.first_due);
  return gone;
}

storage::PendingAdded Deliveries::Delivery::again_of(std::size_t index) const {
  const auto& record = records[index];
  storage::PendingAdded added{record.partition,    record.key.sequence, again[index]->due,
                              record.accepted,     record.expires,      record.id,
                              again[index]->record};
  added.set_first_due(record.first_due);
  return added;
}

// Hands the batch to the sink, with the removal of its records.  Returns its bytes.
std::size_t Deliveries::send(Filling& filling) {
  Buffer buffer = filling.batch.finish();
  const std::size_t size = buffer.size();
  auto& sent = in_flight_[filling.slot].emplace_back(std::move(filling.delivery));
  Delivery& delivery = *sent;
  delivery.slot = filling.slot;
  delivery.at = filling.wall;
  delivery.bytes = size;
  bytes_ += size;
  records_ += delivery.records.size();
  Departures departures;
  departures.gone.reserve(delivery.records.size());
  const WallTime wall = context_.time.wall();
  for (std::size_t i = 0; i < delivery.records.size(); ++i) {
    departures.gone.push_back(delivery.gone_of(i));
    if (departures.gone.back().due > wall) ++context_.totals.early_total;
    if (delivery.again[i]) departures.again.push_back(delivery.again_of(i));
  }
  queues_.begin_delivery(filling.slot);
  DeliveryTold told;
  told.appended = [alive = context_.alive, &delivery](storage::JournalPlace first) noexcept {
    if (*alive) delivery.place = first;
  };
  told.done = [this, alive = context_.alive, &delivery](Result<Offset> result) {
    if (!*alive || context_.stopped) return;
    if (!result) return refused(delivery);
    durable_.add([this, &delivery, base = *result](std::size_t&) {
      delivered(delivery, base);
      return true;
    });
  };
  context_.sink.deliver(queues_.partition(filling.slot), std::move(buffer), std::move(departures),
                        std::move(told));
  return size;
}

// Its topic is gone, and so is what waited for it.
void Deliveries::drop_all(PartitionSlot slot) {
  auto removal = std::make_unique<OwnChanges::Removal>();
  removal->partition = queues_.partition(slot);
  removal->how = storage::RemovalReason::cancelled;
  removal->topic_gone = true;
  for (std::size_t i = 0; i < context_.options.batch_records; ++i) {
    NearEntry* const entry = queues_.take(slot);
    if (entry == nullptr) break;
    const auto record = context_.tier.read(entry->key());
    if (record) removal->records.push_back({record->key, record->first, std::string(record->id)});
    queues_.erase(*entry);
  }
  if (!removal->records.empty()) changes_.remove(std::move(removal));
}

std::unique_ptr<Deliveries::Delivery> Deliveries::take_out(Delivery& here) {
  const auto there = in_flight_.find(here.slot);
  TARRY_ASSERT(there != in_flight_.end() && there->second.front().get() == &here,
               "what is settled was the first in flight");
  auto delivery = std::move(there->second.front());
  there->second.pop_front();
  if (there->second.empty()) in_flight_.erase(there);
  bytes_ -= delivery->bytes;
  records_ -= delivery->records.size();
  return delivery;
}

void Deliveries::delivered(Delivery& here, Offset base) {
  if (context_.stopped) return;
  const auto delivery = take_out(here);
  end_records(*delivery, base);
  queues_.clear_back_off(delivery->slot);
  queues_.end_delivery(delivery->slot);
  for (auto& [index, outcome] : delivery->waiters) outcome(!delivery->again[index]);
  if (!awaiting_.empty()) {
    for (const auto& record : delivery->records)
      awaiting_.answer(record.key.sequence,
                       Controlled{ControlOutcome::done, record.key.due, base++});
  }
  context_.alarm.step();
}

// They are gone, or due again.
void Deliveries::end_records(Delivery& delivery, Offset base) {
  TARRY_ASSERT(delivery.place, "what is durable was appended");
  storage::JournalPlace place = *delivery.place;
  const std::size_t count = delivery.entries.size();
  for (std::size_t i = 0; i < count; ++i, ++place.operation)
    context_.tier.remove(place, delivery.gone_of(i, base + static_cast<Offset>(i)));
  context_.time.observe();
  const MonoTime mono = context_.time.mono();
  for (std::size_t i = 0; i < count; ++i) {
    NearEntry* const entry = delivery.entries[i];
    const Sequence sequence = entry->key().sequence;
    lag_us_.add(whole_microseconds(context_.time.since(entry->key().due, mono)), mono);
    queues_.erase(*entry);
    if (!delivery.again[i]) continue;
    ++context_.totals.recurred_total;
    const bool is_near = context_.tier.add(place, delivery.again_of(i));
    ++place.operation;
    if (is_near && !leaving_.contains(sequence))
      queues_.file({delivery.again[i]->due, sequence}, delivery.records[i].partition);
  }
  context_.totals.delivered_total += count;
}

void Deliveries::refused(Delivery& here) {
  const auto delivery = take_out(here);
  ++context_.totals.refused_total;
  queues_.back_off(queues_.partition(delivery->slot));
  for (NearEntry* entry : delivery->entries) {
    if (leaving_.contains(entry->key().sequence)) {
      queues_.erase(*entry);  // What is behind it in the journal takes it away.
    } else {
      queues_.put_back(*entry);
    }
  }
  queues_.end_delivery(delivery->slot);
  for (auto& [index, outcome] : delivery->waiters) outcome(false);
  context_.alarm.step();
}

// --- What is in flight

std::optional<Deliveries::Place> Deliveries::place_of(Sequence sequence) const {
  const NearEntry* const entry = queues_.find(sequence);
  if (entry == nullptr || entry->state() != NearEntry::State::in_flight) return std::nullopt;
  for (const auto& delivery : in_flight_.at(entry->partition())) {
    const auto at = std::ranges::find(delivery->entries, entry);
    if (at == delivery->entries.end()) continue;
    return Place{delivery.get(), static_cast<std::size_t>(at - delivery->entries.begin())};
  }
  TARRY_ASSERT(false, "what is in flight is in a delivery");
  return std::nullopt;
}

std::optional<Deliveries::InFlight> Deliveries::find(Sequence sequence) const {
  const auto place = place_of(sequence);
  if (!place) return std::nullopt;
  InFlight found{place->delivery->place.has_value(), std::nullopt};
  if (const auto& again = place->delivery->again[place->index])
    found.again = PendingKey{again->due, sequence};
  return found;
}

void Deliveries::await(Sequence sequence, Outcome outcome) {
  const auto place = place_of(sequence);
  place->delivery->waiters.emplace_back(place->index, std::move(outcome));
}

}  // namespace tarry::delay
