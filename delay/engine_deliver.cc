// Engine: how what is due leaves.

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/histogram.h"
#include "base/log.h"
#include "delay/engine.h"
#include "delay/pending_record.h"
#include "delay/time_zones.h"
#include "records/batch_builder.h"

namespace tarry::delay {
namespace {

bool leaves_later(const NearEntry* a, const NearEntry* b) {
  return b->key() < a->key();
}

}  // namespace

// Partitions take turns, a batch each, until the step's bounds are met.  True: there is more.
bool Engine::dispatch(WallTime now) {
  if (near_.is_behind()) return true;  // What leaves first may still be in the wheel.
  std::size_t records = 0, bytes = 0;
  while (!turns_.empty()) {
    if (stopped_ || in_flight_bytes_ >= options_.in_flight_bytes) return false;  // done() goes on.
    if (records >= options_.step_records || bytes >= options_.step_bytes) return true;
    const PartitionSlot slot = turns_.front();
    turns_.pop_front();
    partitions_[slot].in_turn = false;
    // A removal that was refused may have put it in turn while its batch was on its way.
    const Partition& partition = partitions_[slot];
    if (!partition.retry_at && !partition.in_flight) deliver_from(slot, now, records, bytes);
    end_turn(slot);
    release_if_idle(slot);
  }
  return false;
}

// Whether everything that may leave before it is near.
bool Engine::is_settled(const NearEntry& entry) const {
  return entry.state() == NearEntry::State::abandoned || entry.key() < tier_.settled_before();
}

void Engine::end_turn(PartitionSlot slot) {
  Partition& partition = partitions_[slot];
  if (partition.ready.empty() || is_settled(*partition.ready.front())) return take_turn(slot);
  if (!std::exchange(partition.unsettled, true)) unsettled_.push_back(slot);
}

// The first of what is ready, off the queue; null when nothing may leave.
NearEntry* Engine::take_ready(PartitionSlot slot) {
  Partition& partition = partitions_[slot];
  auto& ready = partition.ready;
  while (!ready.empty() && is_settled(*ready.front())) {
    std::pop_heap(ready.begin(), ready.end(), leaves_later);
    NearEntry* const entry = ready.back();
    ready.pop_back();
    if (entry->state() != NearEntry::State::abandoned) return entry;
    near_.erase(*entry);
    --partition.entries;
  }
  return nullptr;
}

// A batch of one partition's records while it is filled.
struct Engine::Filling {
  const PartitionSlot slot;
  const TopicDelay& topic;
  const WallTime now;     // Records that are due by then leave.
  const WallTime latest;  // The same, unless the clock was set back.
  const WallTime wall;
  const std::size_t max_bytes;
  records::BatchBuilder batch;
  std::unique_ptr<Delivery> delivery = std::make_unique<Delivery>();
  std::unique_ptr<Removal> expired{};             // Null: none is.
  std::vector<std::unique_ptr<Move>> left_out{};  // Recurring ones whose missed runs are left out.
  std::size_t seen = 0;
  bool full = false;
};

// One batch of what `slot` has ready.
void Engine::deliver_from(PartitionSlot slot, WallTime now, std::size_t& records,
                          std::size_t& bytes) {
  const Partition& partition = partitions_[slot];
  const auto topic = partition.deleted ? std::nullopt : sink_.target(partition.id);
  if (!topic) {
    drop_all(slot);
    records += options_.batch_records;
    return;
  }
  const WallTime wall = clock_.wall();
  records::BatchOptions batch_options;
  if (topic->log_append_time) batch_options.log_append_time = wall;
  Filling filling{.slot = slot,
                  .topic = *topic,
                  .now = now,
                  .latest = std::min(now, wall),
                  .wall = wall,
                  .max_bytes = std::min(topic->max_message_bytes, options_.step_bytes),
                  .batch = records::BatchBuilder(batch_options)};
  fill(filling);
  if (filling.expired) {
    filling.expired->partition = partition.id;
    filling.expired->how = storage::RemovalReason::expired;
    remove(std::move(filling.expired));
  }
  for (auto& move : filling.left_out) commit_move(std::move(move));
  records += filling.seen;
  if (!filling.batch.empty()) bytes += send(filling);
}

// Reads what is ready into the batch until it is full.
void Engine::fill(Filling& filling) {
  while (!filling.full && filling.seen < options_.batch_records) {
    NearEntry* const entry = take_ready(filling.slot);
    if (entry == nullptr) return;
    if (entry->key().due > filling.latest) {  // The clock was set back since it became ready.
      near_.set_early(*entry);
      continue;
    }
    ++filling.seen;
    add_to(filling, *entry, tier_.read(entry->key()));
  }
}

// Adds one record to the batch, or settles why it is not delivered now.
void Engine::add_to(Filling& filling, NearEntry& entry,
                    const std::optional<storage::PendingView>& record) {
  Partition& partition = partitions_[filling.slot];
  const auto put_back = [&] {
    partition.ready.push_back(&entry);
    std::push_heap(partition.ready.begin(), partition.ready.end(), leaves_later);
  };
  const auto forget = [&] {
    near_.erase(entry);
    --partition.entries;
  };
  if (!record) {  // Its topic was dropped.
    ++stats_.dropped_total;
    answer_awaiting(entry.key().sequence, Controlled{});
    forget();
    return;
  }
  if (record->expires <= filling.now) {
    if (!filling.expired) filling.expired = std::make_unique<Removal>();
    filling.expired->records.push_back({record->key, record->first, std::string(record->id)});
    forget();
    return;
  }
  const auto body = PendingRecordBody::parse(record->record);
  if (!body) {
    // Its bytes stay where they are, for the operator; the others go on.
    log_error("delay", "pending record {} cannot be delivered: {}",
              storage::encode_handle(record->handle()), body.error().message);
    ++stats_.damaged_total;
    answer_awaiting(entry.key().sequence, std::unexpected(body.error()));
    forget();
    return;
  }
  const std::size_t size = record->record.size() + delivered_overhead;
  if (!filling.batch.empty() && filling.batch.size() + size > filling.max_bytes) {
    filling.full = true;
    return put_back();
  }
  Run run{record->key.due, std::nullopt};
  if (!body->recurrence.empty() && !take_turn_of(filling, *record, body->recurrence, run))
    return forget();
  append_delivered(filling.batch,
                   delivered_time(filling.topic.timestamp, run.due, body->original, filling.wall),
                   body->record.key_value, body->record.headers.size(),
                   body->record.headers.encoded(), run.due, record->handle());
  near_.set_in_flight(entry);
  filling.delivery->entries.push_back(&entry);
  filling.delivery->again.push_back(std::move(run.again));
  filling.delivery->records.push_back({record->key, record->partition, record->accepted,
                                       record->expires, std::string(record->id), Buffer{},
                                       record->first});
}

// Sets what a recurring record's turn is; false: there is no delivery now, and what becomes of the
// record is in `filling`, or logged.
bool Engine::take_turn_of(Filling& filling, const storage::PendingView& record, Bytes recurrence,
                          Run& run) {
  auto parsed = Recurrence::parse(recurrence, TimeZones::of_system());
  if (!parsed) {
    // As with any damage: it stays where it is, for the operator.
    log_error("delay", "recurring record {} cannot be delivered: {}",
              storage::encode_handle(record.handle()), parsed.error().message);
    ++stats_.damaged_total;
    answer_awaiting(record.key.sequence, std::unexpected(parsed.error()));
    return false;
  }
  const auto turn = parsed->turn(record.key.due, running_since_, filling.topic.missed);
  if (turn.deliver) run.due = *turn.deliver;
  if (turn.left_out && turn.deliver) ++stats_.left_out_total;
  if (turn.next) {
    parsed->take(turn);
    run.again = Again{*turn.next, with_recurrence(record.record, *parsed)};
  }
  if (turn.deliver) return true;
  if (run.again) {
    storage::PendingRecord later = record.owned();
    later.record = std::move(run.again->record);
    filling.left_out.push_back(
        std::make_unique<Move>(std::move(later), run.again->due, filling.wall, nullptr));
  } else {
    if (!filling.expired) filling.expired = std::make_unique<Removal>();
    filling.expired->records.push_back({record.key, record.first, std::string(record.id)});
  }
  return false;
}

storage::PendingRemoved Engine::Delivery::gone_of(std::size_t index, Offset offset) const {
  const auto& record = records[index];
  storage::PendingRemoved gone{record.partition,
                               record.key.sequence,
                               record.key.due,
                               storage::RemovalReason::delivered,
                               at,
                               record.id,
                               offset};
  if (record.key.due != record.first_due) gone.first_due = record.first_due;
  return gone;
}

storage::PendingAdded Engine::Delivery::again_of(std::size_t index) const {
  const auto& record = records[index];
  storage::PendingAdded added{record.partition,    record.key.sequence, again[index]->due,
                              record.accepted,     record.expires,      record.id,
                              again[index]->record};
  if (added.due != record.first_due) added.first_due = record.first_due;
  return added;
}

// Hands the batch to the sink, with the removal of its records.  Returns its bytes.
std::size_t Engine::send(Filling& filling) {
  const PartitionSlot slot = filling.slot;
  Partition& partition = partitions_[slot];
  auto delivery = std::move(filling.delivery);
  Buffer buffer = filling.batch.finish();
  const std::size_t size = buffer.size();
  delivery->at = filling.wall;
  delivery->bytes = size;
  in_flight_bytes_ += size;
  Departures departures;
  departures.gone.reserve(delivery->records.size());
  for (std::size_t i = 0; i < delivery->records.size(); ++i) {
    departures.gone.push_back(delivery->gone_of(i));
    if (departures.gone.back().due > clock_.wall()) ++stats_.early_total;
    if (delivery->again[i]) departures.again.push_back(delivery->again_of(i));
  }
  TARRY_ASSERT(!partition.in_flight, "one batch of a partition is in flight");
  partition.in_flight = std::move(delivery);
  DeliveryTold told;
  told.appended = [this, alive = alive_, slot](storage::JournalPlace first) noexcept {
    if (*alive) partitions_[slot].in_flight->place = first;
  };
  told.done = [this, alive = alive_, slot](Result<Offset> result) {
    if (*alive) delivered(slot, result);
  };
  sink_.deliver(partition.id, std::move(buffer), std::move(departures), std::move(told));
  return size;
}

// Its topic is gone, and so is what waited for it.
void Engine::drop_all(PartitionSlot slot) {
  Partition& partition = partitions_[slot];
  auto removal = std::make_unique<Removal>();
  removal->partition = partition.id;
  removal->how = storage::RemovalReason::cancelled;
  removal->topic_gone = true;
  for (std::size_t i = 0; i < options_.batch_records; ++i) {
    NearEntry* const entry = take_ready(slot);
    if (entry == nullptr) break;
    const auto record = tier_.read(entry->key());
    if (record) removal->records.push_back({record->key, record->first, std::string(record->id)});
    near_.erase(*entry);
    --partition.entries;
  }
  if (!removal->records.empty()) remove(std::move(removal));
}

void Engine::delivered(PartitionSlot slot, const Result<Offset>& result) {
  if (stopped_) return;
  Partition& partition = partitions_[slot];
  TARRY_ASSERT(partition.in_flight, "what is done was in flight");
  const auto delivery = std::move(partition.in_flight);
  in_flight_bytes_ -= delivery->bytes;
  std::vector<Sequence> sequences;

  if (result) {
    TARRY_ASSERT(delivery->place, "what is durable was appended");
    storage::JournalPlace place = *delivery->place;
    const std::size_t count = delivery->entries.size();
    for (std::size_t i = 0; i < count; ++i, ++place.operation)
      tier_.remove(place, delivery->gone_of(i, *result + static_cast<Offset>(i)));
    wall_.observe(clock_);
    const MonoTime mono = clock_.mono();
    for (std::size_t i = 0; i < count; ++i) {
      NearEntry* const entry = delivery->entries[i];
      const Sequence sequence = entry->key().sequence;
      lag_us_.add(whole_microseconds(wall_.since(entry->key().due, mono)), mono);
      near_.erase(*entry);
      --partition.entries;
      if (!delivery->again[i]) {
        if (!delivery->waiters.empty()) sequences.push_back(sequence);
        continue;
      }
      ++stats_.recurred_total;
      const bool is_near = tier_.add(place, delivery->again_of(i));
      ++place.operation;
      if (is_near && !leaving_.contains(sequence))
        file({delivery->again[i]->due, sequence}, partition.id);
    }
    stats_.delivered_total += delivery->entries.size();
    partition.back_off = {};
  } else {
    ++stats_.refused_total;
    back_off(slot);
    for (NearEntry* entry : delivery->entries) {
      if (leaving_.contains(entry->key().sequence)) {
        near_.erase(*entry);  // What is behind it in the journal takes it away.
        --partition.entries;
      } else {
        enqueue(*entry);
      }
    }
  }
  take_turn(slot);
  release_if_idle(slot);
  for (auto& waiter : delivery->waiters) waiter(sequences);
  if (result && !awaiting_.empty()) {
    Offset offset = *result;
    for (const auto& record : delivery->records)
      answer_awaiting(record.key.sequence,
                      Controlled{ControlOutcome::done, record.key.due, offset++});
  }
  if (!stepping_) step();
}

void Engine::back_off(PartitionSlot slot) {
  Partition& partition = partitions_[slot];
  if (partition.retry_at) return;
  partition.back_off =
      std::clamp(2 * partition.back_off, options_.first_back_off, options_.last_back_off);
  partition.retry_at = clock_.mono() + partition.back_off;
  backing_off_.emplace(*partition.retry_at, slot);
}

}  // namespace tarry::delay
