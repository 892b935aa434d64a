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

// Bodies read at once: a batch is filled by a few reads, whatever the records' size.
constexpr std::size_t max_read_at_once = 256;

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
    take_turn(slot);
    release_if_idle(slot);
  }
  return false;
}

// The first of what is ready, off the queue; null when there is nothing.  What lies behind the
// horizon, or is held back, has others before it that are not in memory: it comes again with them.
NearEntry* Engine::take_ready(PartitionSlot slot) {
  Partition& partition = partitions_[slot];
  auto& ready = partition.ready;
  const PendingKey end = std::min(far_.horizon(), far_.held_from(slot).value_or(far_.horizon()));
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), leaves_later);
    NearEntry* const entry = ready.back();
    ready.pop_back();
    if (entry->state() != NearEntry::State::abandoned && entry->key() < end) return entry;
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
  // The entries of one read, and their keys.
  std::vector<NearEntry*> entries{};
  std::vector<PendingKey> keys{};
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
  if (!fill(filling)) return;
  if (filling.expired) {
    filling.expired->partition = partition.id;
    filling.expired->how = storage::RemovalReason::expired;
    remove(std::move(filling.expired));
  }
  for (auto& move : filling.left_out) commit_move(std::move(move));
  records += filling.seen;
  if (!filling.batch.empty()) bytes += send(filling);
}

// Reads what is ready into the batch until it is full.  False: the store has failed.
bool Engine::fill(Filling& filling) {
  Partition& partition = partitions_[filling.slot];
  while (!filling.full && filling.seen < options_.batch_records) {
    take_for_read(filling);
    const auto& entries = filling.entries;
    if (entries.empty()) break;
    filling.seen += entries.size();
    auto found = store_.read(filling.keys);
    if (!found) {
      failed(found.error());
      return false;
    }
    std::size_t read_bytes = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      read_bytes += add_to(filling, *entries[i], (*found)[i]);
    }
    if (read_bytes != 0) {
      partition.typical_bytes = (partition.typical_bytes + 3 * read_bytes / entries.size()) / 4;
    }
  }
  return true;
}

// Takes as many off the queue as will fit if they are like those before them.
void Engine::take_for_read(Filling& filling) {
  const std::size_t room = filling.max_bytes - std::min(filling.max_bytes, filling.batch.size());
  const std::size_t typical = std::max<std::size_t>(1, partitions_[filling.slot].typical_bytes);
  const std::size_t wanted = std::min({max_read_at_once, options_.batch_records - filling.seen,
                                       std::max<std::size_t>(1, room / typical)});
  filling.entries.clear();
  filling.keys.clear();
  while (filling.entries.size() < wanted) {
    NearEntry* const entry = take_ready(filling.slot);
    if (entry == nullptr) break;
    if (entry->key().due > filling.latest) {  // The clock was set back since it became ready.
      near_.set_early(*entry);
      continue;
    }
    filling.entries.push_back(entry);
    filling.keys.push_back(entry->key());
  }
}

// Adds one record to the batch, or settles why it is not delivered now.  Returns how many bytes it
// would take in a batch; 0 when that was not looked at.
std::size_t Engine::add_to(Filling& filling, NearEntry& entry,
                           std::optional<storage::PendingRecord>& record) {
  Partition& partition = partitions_[filling.slot];
  const auto put_back = [&] {
    partition.ready.push_back(&entry);
    std::push_heap(partition.ready.begin(), partition.ready.end(), leaves_later);
  };
  const auto forget = [&] {
    near_.erase(entry);
    --partition.entries;
  };
  if (filling.full) {
    put_back();
    return 0;
  }
  if (!record) {  // Its topic was dropped.
    ++stats_.dropped_total;
    answer_awaiting(entry.key().sequence, Controlled{});
    forget();
    return 0;
  }
  if (record->expires <= filling.now) {
    if (!filling.expired) filling.expired = std::make_unique<Removal>();
    filling.expired->keys.push_back(entry.key());
    filling.expired->ids.push_back(record->id);
    forget();
    return 0;
  }
  const auto parked = PendingRecordBody::parse(record->record);
  if (!parked) {
    // Its bytes stay where they are, for the operator; the others go on.
    log_error("delay", "pending record {} cannot be delivered: {}",
              storage::encode_handle(entry.key()), parked.error().message);
    ++stats_.damaged_total;
    answer_awaiting(entry.key().sequence, std::unexpected(parked.error()));
    forget();
    return 0;
  }
  const std::size_t size = record->record.size() + delivered_overhead;
  if (!filling.batch.empty() && filling.batch.size() + size > filling.max_bytes) {
    filling.full = true;
    put_back();
    return size;
  }
  Run run{record->key.due, std::nullopt};
  if (!parked->recurrence.empty() && !take_turn_of(filling, *record, parked->recurrence, run)) {
    forget();
    return 0;
  }
  append_delivered(filling.batch,
                   delivered_time(filling.topic.timestamp, run.due, parked->original, filling.wall),
                   parked->record.key_value, parked->record.headers.size(),
                   parked->record.headers.encoded(), run.due, record->first_key());
  near_.set_in_flight(entry);
  filling.delivery->entries.push_back(&entry);
  filling.delivery->again.push_back(std::move(run.again));
  record->record = {};  // It is in the batch.
  filling.delivery->records.push_back(std::move(*record));
  return size;
}

// Sets what a recurring record's turn is; false: there is no delivery now, and what becomes of the
// record is in `filling`, or logged.
bool Engine::take_turn_of(Filling& filling, storage::PendingRecord& record, Bytes recurrence,
                          Run& run) {
  auto parsed = Recurrence::parse(recurrence, TimeZones::of_system());
  if (!parsed) {
    // As with any damage: it stays where it is, for the operator.
    log_error("delay", "recurring record {} cannot be delivered: {}",
              storage::encode_handle(record.first_key()), parsed.error().message);
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
    storage::PendingRecord later = record;
    later.record = std::move(run.again->record);
    filling.left_out.push_back(
        std::make_unique<Move>(std::move(later), run.again->due, filling.wall, nullptr));
  } else {
    if (!filling.expired) filling.expired = std::make_unique<Removal>();
    filling.expired->keys.push_back(record.key);
    filling.expired->ids.push_back(record.id);
  }
  return false;
}

// The next run of a recurring record that is being delivered; null for any other.
const Engine::Again* Engine::again_of(Sequence sequence) const {
  const NearEntry* const entry = near_.find(sequence);
  if (entry == nullptr || entry->state() != NearEntry::State::in_flight) return nullptr;
  const Delivery& delivery = *partitions_[entry->partition()].in_flight;
  const auto at = std::ranges::find(delivery.entries, entry);
  const auto& again = delivery.again[static_cast<std::size_t>(at - delivery.entries.begin())];
  return again ? &*again : nullptr;
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
    const auto& record = delivery->records[i];
    departures.gone.push_back({partition.id, record.key.sequence, record.key.due,
                               storage::RemovalReason::delivered, filling.wall, record.id});
    if (record.key.due > clock_.wall()) ++stats_.early_total;
    if (delivery->again[i]) departures.again.push_back(delivery->again_of(i));
  }
  TARRY_ASSERT(!partition.in_flight, "one batch of a partition is in flight");
  partition.in_flight = std::move(delivery);
  sink_.deliver(partition.id, std::move(buffer), std::move(departures),
                [this, alive = alive_, slot](Result<Offset> result) {
                  if (*alive) delivered(slot, result);
                });
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
    removal->keys.push_back(entry->key());
    removal->ids.emplace_back();
    near_.erase(*entry);
    --partition.entries;
  }
  if (!removal->keys.empty()) remove(std::move(removal));
}

// False: the store has failed.
bool Engine::store_delivered(const Delivery& delivery, Offset base) {
  std::vector<storage::Operation> operations;
  operations.reserve(delivery.records.size());
  for (std::size_t i = 0; i < delivery.records.size(); ++i) {
    const auto& record = delivery.records[i];
    operations.emplace_back(storage::PendingRemoved{
        record.partition, record.key.sequence, record.key.due, storage::RemovalReason::delivered,
        delivery.at, record.id, base + static_cast<Offset>(i)});
    if (delivery.again[i]) operations.emplace_back(delivery.again_of(i));
  }
  const auto applied = store_.apply(operations);
  if (!applied) failed(applied.error());
  return applied.has_value();
}

void Engine::delivered(PartitionSlot slot, const Result<Offset>& result) {
  if (stopped_) return;
  Partition& partition = partitions_[slot];
  TARRY_ASSERT(partition.in_flight, "what is done was in flight");
  const auto delivery = std::move(partition.in_flight);
  in_flight_bytes_ -= delivery->bytes;
  std::vector<Sequence> sequences;

  if (result) {
    if (!store_delivered(*delivery, *result)) return;
    wall_.observe(clock_);
    const MonoTime mono = clock_.mono();
    for (std::size_t i = 0; i < delivery->entries.size(); ++i) {
      NearEntry* const entry = delivery->entries[i];
      const Sequence sequence = entry->key().sequence;
      lag_us_.add(whole_microseconds(wall_.since(entry->key().due, mono)), mono);
      near_.erase(*entry);
      --partition.entries;
      const auto leaving = leaving_.find(sequence);
      if (delivery->again[i]) {
        ++stats_.recurred_total;
        if (leaving == leaving_.end()) arm({delivery->again[i]->due, sequence}, partition.id);
        continue;
      }
      if (!delivery->waiters.empty()) sequences.push_back(sequence);
      if (leaving != leaving_.end()) leaving->second.delivered = true;
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
