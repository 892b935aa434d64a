#include "delay/deliveries.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/log.h"
#include "delay/time_zones.h"

namespace tarry::delay {
namespace {

// The usual bytes of a delivered record in its batch beside its stored body.
constexpr std::size_t usual_overhead = 80;
constexpr std::size_t max_expected = 256u << 10;
// Missed runs of a recurring record that take as long to look at as a record to hand over.
constexpr std::size_t runs_a_record = 4;

// A log keeps the batch in memory and counts its size alone.
Buffer without_slack(Buffer batch) {
  if (batch.capacity() - batch.size() > batch.size() / 4) batch.shrink_to_fit();
  return batch;
}

}  // namespace

// On the way is less than the bounds allow, so many times; and the logs keep up with their writing.
bool Deliveries::has_room(std::size_t share) const {
  const EngineOptions& options = context_.options;
  return records_ < share * options.in_flight_records && bytes_ < share * options.in_flight_bytes &&
         unwritten_bytes() < options.unwritten_bytes;
}

void Deliveries::log_write_begins() {
  being_written_ += std::exchange(unwritten_, 0);
}

void Deliveries::log_write_ended(bool written) {
  const std::size_t bytes = std::exchange(being_written_, 0);
  if (!written) unwritten_ += bytes;
  if (!context_.stopped) context_.alarm.wake();  // There may be room again.
}

// Partitions take turns, a batch each, until the step's bounds are met.
bool Deliveries::dispatch() {
  for (const PartitionSlot slot : std::exchange(appended_, {})) {
    hand_over(slot);
    note_room(slot);
  }
  const EngineOptions& options = context_.options;
  const WallTime now = context_.time.now();
  std::size_t records = 0, bytes = 0;
  // Without room delivered() or log_write_ended() goes on.
  while (!context_.stopped && has_room(2) && queues_.any_in_line()) {
    if (records >= options.step_records || bytes >= options.step_bytes) return true;
    const auto slot = queues_.next_turn(has_room(1));
    if (!slot) return false;
    // The same, unless the clock was set back.
    const WallTime latest = std::min(now, context_.time.wall());
    deliver_from(*slot, now, latest, records, bytes);
    queues_.end_turn(*slot, latest);
  }
  return false;
}

// A batch of one partition's records while it is filled.
struct Deliveries::Filling {
  const PartitionSlot slot;
  const TopicDelay& topic;
  const WallTime now;     // Records that expire by then are dropped,
  const WallTime latest;  //   and those that are due by then leave.
  const WallTime wall;
  const std::size_t max_bytes;
  records::Codec codec = records::Codec::none;
  std::optional<records::BatchBuilder> batch{};  // Empty until it has a record.
  std::unique_ptr<Delivery> delivery = std::make_unique<Delivery>();
  std::unique_ptr<OwnChanges::Removal> expired{};  // Null: none is.
  // Recurring ones whose missed runs are left out.
  std::vector<std::unique_ptr<OwnChanges::Move>> left_out{};
  std::size_t seen = 0;
  std::size_t taken = 0;  // Off the queue, and not seen yet.
  bool full = false;

  void expire(const storage::PendingView& record) {
    if (!expired) expired = std::make_unique<OwnChanges::Removal>();
    expired->records.push_back({record.key, record.first, std::string(record.id), record.share()});
  }
};

// One batch of what `slot` has due.
void Deliveries::deliver_from(PartitionSlot slot, WallTime now, WallTime latest,
                              std::size_t& records, std::size_t& bytes) {
  if (queues_.is_deleted(slot)) return;
  const TopicPartition& partition = queues_.partition(slot);
  const auto topic = context_.sink.target(partition);
  if (!topic) {
    drop_all(slot);
    records += context_.options.batch_records;
    return;
  }
  if (const auto fenced = fenced_.find(partition); fenced != fenced_.end()) {
    set_aside(slot, latest, fenced->second);
    records += context_.options.batch_records;
    return;
  }
  Filling filling{.slot = slot,
                  .topic = *topic,
                  .now = now,
                  .latest = latest,
                  .wall = context_.time.wall(),
                  .max_bytes = std::min(topic->max_message_bytes, context_.options.step_bytes)};
  fill(filling);
  if (filling.expired) {
    filling.expired->partition = partition;
    filling.expired->how = storage::RemovalReason::expired;
    changes_.remove(std::move(filling.expired));
  }
  for (auto& move : filling.left_out) changes_.move(std::move(move));
  // It counts as one at least, so that partitions with nothing to deliver use up the step too.
  records += std::max<std::size_t>(filling.seen, 1);
  if (filling.batch) bytes += send(filling);
}

// Reads what is due into the batch until it is full.  Records that are due one after the other lie
// anywhere in memory, so some are on their way to the processor at once.
void Deliveries::fill(Filling& filling) {
  std::array<NearEntry*, 32> taken;
  while (!filling.full && filling.seen < context_.options.batch_records) {
    const std::size_t room = std::min(taken.size(), context_.options.batch_records - filling.seen);
    const std::size_t count =
        queues_.take(filling.slot, filling.latest, std::span(taken).first(room));
    if (count == 0) return;
    const auto entries = std::span(taken).first(count);
    for (const NearEntry* entry : entries) context_.tier.prefetch_offset(entry->location());
    for (const NearEntry* entry : entries)
      context_.tier.prefetch(entry->location(), BucketTier::usual_body);
    filling.taken = count;
    for (NearEntry* entry : entries) {
      --filling.taken;
      if (entry->state() == NearEntry::State::abandoned) {
        queues_.erase(*entry);  // Its cancel was answered meanwhile.
      } else if (filling.full) {
        queues_.put_back(*entry);
      } else {
        ++filling.seen;
        add_to(filling, *entry, context_.tier.read(entry->key(), entry->location()));
      }
    }
  }
}

// Adds one record to the batch, or settles why it is not delivered now.
void Deliveries::add_to(Filling& filling, NearEntry& entry,
                        const std::optional<storage::PendingView>& record) {
  if (!record) {  // Its topic was dropped.
    ++context_.totals.dropped_total;
    waiters_.answer(entry.key().sequence, Controlled{});
    return queues_.erase(entry);
  }
  if (record->expires <= filling.now) {
    filling.expire(*record);
    return queues_.erase(entry);
  }
  PendingRecordBody body;
  if (const auto read = body.read(record->record); !read) {
    note_damaged("pending", *record, read.error());
    return queues_.erase(entry);
  }
  if (!begin_batch(filling, filling.topic.codec.value_or(body.codec), record->record.size())) {
    filling.full = true;
    return queues_.put_back(entry);
  }
  Run run{record->key.due, std::nullopt};
  if (!body.recurrence.empty() && !plan_run_of(filling, *record, body.recurrence, run))
    return queues_.erase(entry);
  append_delivered(*filling.batch,
                   delivered_time(filling.topic.timestamp, run.due, body.original, filling.wall),
                   body.record.key_value, body.record.headers.size(), body.record.headers.encoded(),
                   headers_.of(run.due, record->handle()));
  queues_.set_in_flight(entry);
  note(*filling.delivery, entry, *record, std::move(run), filling.wall);
}

// Its bytes stay where they are, for the operator; the others go on.
void Deliveries::note_damaged(std::string_view kind, const storage::PendingView& record,
                              const Error& why) {
  log_error("delay", "{} record {} cannot be delivered: {}", kind,
            storage::encode_handle(record.handle()), why.message);
  // One that was rescued comes once more, with the horizon.
  if (record.key < context_.tier.horizon()) ++context_.totals.damaged_total;
  waiters_.answer(record.key.sequence, std::unexpected(why));
}

// Whether a record fits into the batch, which begins with it if it is the first.
bool Deliveries::begin_batch(Filling& filling, records::Codec codec, std::size_t record_size) {
  if (filling.batch && !filling.batch->empty()) {
    return codec == filling.codec &&
           filling.batch->size() + record_size + delivered_overhead <= filling.max_bytes;
  }
  records::BatchOptions options;
  if (filling.topic.log_append_time) options.log_append_time = filling.wall;
  options.codec = filling.codec = codec;
  const std::size_t others = std::min(queues_.queued(filling.slot) + filling.taken,
                                      context_.options.batch_records - filling.seen);
  options.expected_size =
      std::min(records::batch_header_size + (record_size + usual_overhead) * (1 + others),
               std::min(filling.max_bytes, max_expected));
  filling.batch.emplace(options);
  filling.delivery->entries.reserve(1 + others);
  filling.delivery->gone.reserve(1 + others);
  return true;
}

// Sets what a recurring record's next run is; false: there is no delivery now, and what becomes of
// the record is in `filling`, or logged.
bool Deliveries::plan_run_of(Filling& filling, const storage::PendingView& record, Bytes recurrence,
                             Run& run) {
  auto parsed = Recurrence::parse(recurrence, TimeZones::of_system());
  if (!parsed) {
    note_damaged("recurring", record, parsed.error());
    return false;
  }
  const auto planned =
      parsed->plan_run(record.key.due, context_.time.running_since(), filling.topic.missed);
  // A batch of records that all have a thousand missed runs would hold the shard for long.
  filling.seen += planned.looked_at / runs_a_record;
  filling.full |= filling.seen >= context_.options.batch_records;
  if (planned.deliver) run.due = *planned.deliver;
  if (planned.left_out && planned.deliver) ++context_.totals.left_out_total;
  if (planned.next) {
    parsed->take(planned);
    run.again = Again{*planned.next, with_recurrence(record.record, *parsed)};
  }
  if (planned.deliver) return true;
  if (run.again) {
    storage::PendingRecord later = record.owned();
    later.record = std::move(run.again->record);
    filling.left_out.push_back(
        std::make_unique<OwnChanges::Move>(std::move(later), run.again->due, record.share()));
  } else {
    filling.expire(record);
  }
  return false;
}

// Notes the removal, and the next run, that the delivery of a record causes.
void Deliveries::note(Delivery& delivery, NearEntry& entry, const storage::PendingView& record,
                      Run run, WallTime at) {
  std::string_view id;
  if (!record.id.empty()) id = delivery.ids.emplace_back(record.id);
  auto& gone = delivery.gone.emplace_back(
      storage::PendingRemoved{record.partition, record.key.sequence, record.key.due,
                              storage::RemovalReason::delivered, at, id});
  gone.set_first_due(record.first);
  gone.share = record.share();
  delivery.expires = std::min(delivery.expires, record.expires);
  delivery.latest = std::max({delivery.latest, record.key.due, run.due});
  if (gone.due > at) ++context_.totals.early_total;
  if (run.again) {
    const Buffer& kept = delivery.again_records.emplace_back(std::move(run.again->record));
    auto& again = delivery.again.emplace_back(
        storage::PendingAdded{record.partition, record.key.sequence, run.again->due,
                              record.accepted, record.expires, id, kept});
    again.set_first_due(record.first);
    again.principal = record.principal;
    delivery.again_of.push_back(delivery.entries.size());
  }
  delivery.entries.push_back(&entry);
}

const storage::PendingAdded* Deliveries::Delivery::again_at(std::size_t index) const {
  const auto at = std::ranges::lower_bound(again_of, index);
  return at == again_of.end() || *at != index ? nullptr : &again[at - again_of.begin()];
}

// --- On the way

// The batch is on its way from now on.  Returns its bytes.
std::size_t Deliveries::send(Filling& filling) {
  if (filling.batch->empty()) return 0;
  const PartitionSlot slot = filling.slot;
  InPartition& there = in_flight_[slot];
  Delivery& delivery = *there.deliveries.emplace_back(std::move(filling.delivery));
  delivery.slot = slot;
  delivery.number = ++deliveries_;
  const std::size_t size = delivery.bytes = filling.batch->size();
  there.bytes += size;
  bytes_ += size;
  records_ += delivery.entries.size();
  queues_.begin_delivery(slot);
  pack(delivery, std::move(*filling.batch), filling.codec);
  note_room(slot);
  return size;
}

void Deliveries::pack(Delivery& delivery, records::BatchBuilder batch, records::Codec codec) {
  if (codec == records::Codec::none || batch.size() <= context_.options.compressed_inline) {
    delivery.batch = without_slack(batch.finish());
    delivery.state = Delivery::State::packed;
    return hand_over(delivery.slot);
  }
  background_.run(
      [batch = std::move(batch)]() mutable -> Result<Buffer> {
        return without_slack(batch.finish());
      },
      // By its number, because it may have been refused and be gone by then.
      [this, alive = context_.alive, slot = delivery.slot,
       number = delivery.number](Result<Buffer> packed_batch) {
        if (*alive && !context_.stopped) packed(slot, number, std::move(packed_batch));
      });
}

void Deliveries::packed(PartitionSlot slot, std::uint64_t number, Result<Buffer> batch) {
  const auto there = in_flight_.find(slot);
  if (there == in_flight_.end()) return;
  const auto at = std::ranges::find(there->second.deliveries, number,
                                    [](const auto& delivery) { return delivery->number; });
  if (at == there->second.deliveries.end()) return;  // One before it was refused.
  Delivery& delivery = **at;
  if (!batch) {
    log_warn("delay", "a delivery could not be compressed and is tried again: {}",
             batch.error().message);
    refused(delivery, batch.error());
  } else {
    context_.time.observe();  // The clock may have been set back meanwhile.
    delivery.batch = std::move(*batch);
    delivery.state = Delivery::State::packed;
    hand_over(slot);
    note_room(slot);
  }
  context_.alarm.wake();
}

// Hands over what is packed, as long as all before it is in the journal.
void Deliveries::hand_over(PartitionSlot slot) {
  // Each may be the last one that the partition had on its way.
  for (auto there = in_flight_.find(slot); there != in_flight_.end();
       there = in_flight_.find(slot)) {
    auto& deliveries = there->second.deliveries;
    const auto first = std::ranges::find_if(
        deliveries, [](const auto& delivery) { return !delivery->place.has_value(); });
    if (first == deliveries.end() || (*first)->state != Delivery::State::packed) return;
    hand_over(**first);
  }
}

void Deliveries::hand_over(Delivery& delivery) {
  const WallTime wall = context_.time.wall();
  delivery.state = Delivery::State::handed_over;
  // While the batch was compressed the clock may have been set back, or one may have expired.
  if (delivery.latest > wall || delivery.expires <= context_.time.now())
    return refused(delivery, {Errc::invalid, "the clock was set back, or a record has expired"});
  DeliveryTold told;
  told.appended = [this, alive = context_.alive, &delivery](storage::JournalPlace first) noexcept {
    if (!*alive) return;
    delivery.place = first;
    // The sink has told at once, so the loop that called it goes on by itself.
    if (handing_over_) return;
    appended_.push_back(delivery.slot);  // The next one may follow.
    context_.alarm.wake();
  };
  told.done = [this, alive = context_.alive, &delivery,
               size = delivery.batch.size()](Result<Offset> result) {
    if (!*alive || context_.stopped) return;
    if (!result) return refused(delivery, result.error());
    // A write of the logs takes what is durable, so one that began before does not have it.
    unwritten_ += size;
    durable_.add([this, &delivery, base = *result](std::size_t& budget) {
      budget -= std::min(budget, delivery.entries.size());
      delivered(delivery, base);
      return true;
    });
  };
  handing_over_ = true;
  context_.sink.deliver(queues_.partition(delivery.slot), std::move(delivery.batch),
                        {delivery.gone, delivery.again}, std::move(told));
  handing_over_ = false;
}

// Whether the partition may deliver more before any of this is done.
void Deliveries::note_room(PartitionSlot slot) {
  const auto there = in_flight_.find(slot);
  if (there == in_flight_.end()) return queues_.set_full(slot, false);
  const auto& options = context_.options;
  const auto& [deliveries, bytes] = there->second;
  const Delivery& last = *deliveries.back();
  queues_.set_full(slot, deliveries.size() >= options.partition_batches ||
                             bytes >= options.partition_bytes ||
                             (last.state == Delivery::State::handed_over && !last.place));
}

// Its topic is gone, and so is what waited for it.
void Deliveries::drop_all(PartitionSlot slot) {
  auto removal = std::make_unique<OwnChanges::Removal>();
  removal->partition = queues_.partition(slot);
  removal->how = storage::RemovalReason::cancelled;
  removal->topic_gone = true;
  for (std::size_t i = 0; i < context_.options.batch_records; ++i) {
    NearEntry* const entry = queues_.take(slot, context_.time.now());
    if (entry == nullptr) break;
    const auto record = context_.tier.read(entry->key(), entry->location());
    if (record) {
      removal->records.push_back(
          {record->key, record->first, std::string(record->id), record->share()});
    }
    queues_.erase(*entry);
  }
  if (!removal->records.empty()) changes_.remove(std::move(removal));
}

// A part of what it has due leaves memory.
void Deliveries::set_aside(PartitionSlot slot, WallTime latest, Fenced& fenced) {
  for (std::size_t i = 0; i < context_.options.batch_records; ++i) {
    NearEntry* const entry = queues_.take(slot, latest);
    if (entry == nullptr) return;
    const PendingKey key = entry->key();
    if (entry->state() != NearEntry::State::abandoned) {
      waiters_.answer(key.sequence, fail(Errc::fenced, fenced.reason));
      if (context_.tier.set_aside(key, queues_.partition(slot), entry->location()))
        ++fenced.overdue;
      fenced.first = std::min(fenced.first, key.due);
    }
    queues_.erase(*entry);
  }
}

std::optional<Error> Deliveries::out_of_service(const TopicPartition& partition) const {
  const auto fenced = fenced_.find(partition);
  if (fenced == fenced_.end()) return std::nullopt;
  return Error{Errc::fenced, fmt::format("its pending records are kept and wait for a restart: {}",
                                         fenced->second.reason)};
}

void Deliveries::topic_deleted(const TopicId& topic) {
  std::erase_if(fenced_, [&](const auto& fenced) { return fenced.first.topic == topic; });
}

// --- The outcome

// Its place among those of its partition.
std::size_t Deliveries::index_of(const Delivery& delivery) const {
  const auto& deliveries = in_flight_.at(delivery.slot).deliveries;
  const auto at =
      std::ranges::find(deliveries, &delivery, [](const auto& each) { return each.get(); });
  TARRY_ASSERT(at != deliveries.end(), "only a delivery on its way is settled");
  return static_cast<std::size_t>(at - deliveries.begin());
}

std::unique_ptr<Deliveries::Delivery> Deliveries::take_out(PartitionSlot slot, std::size_t index) {
  const auto there = in_flight_.find(slot);
  auto& deliveries = there->second.deliveries;
  auto delivery = std::move(deliveries[index]);
  deliveries.erase(deliveries.begin() + static_cast<std::ptrdiff_t>(index));
  there->second.bytes -= delivery->bytes;
  if (deliveries.empty()) in_flight_.erase(there);
  bytes_ -= delivery->bytes;
  records_ -= delivery->entries.size();
  return delivery;
}

void Deliveries::delivered(Delivery& here, Offset base) {
  if (context_.stopped) return;
  const PartitionSlot slot = here.slot;
  TARRY_ASSERT(index_of(here) == 0, "the first delivery on its way ends first");
  const auto delivery = take_out(slot, 0);
  end_records(*delivery, base);
  queues_.clear_back_off(slot);
  note_room(slot);
  queues_.end_delivery(slot);
  for (auto& [index, outcome] : delivery->waiters) outcome(delivery->again_at(index) == nullptr);
  if (!waiters_.empty()) {
    for (const auto& gone : delivery->gone)
      waiters_.answer(gone.sequence, Controlled{ControlOutcome::done, gone.due, base++});
  }
  context_.alarm.wake();
}

// They are gone, or due again.
void Deliveries::end_records(Delivery& delivery, Offset base) {
  TARRY_ASSERT(delivery.place, "a delivery is appended before it is durable");
  storage::JournalPlace place = *delivery.place;
  context_.time.observe();
  const MonoTime mono = context_.time.mono();
  constexpr std::size_t step = 8;
  const std::size_t count = delivery.entries.size();
  std::size_t first = 0;  // Of those that were due when this one was: they have one lag.
  for (std::size_t i = 0; i < count; ++i, ++place.operation) {
    if (i + 3 * step < count)
      queues_.prefetch(*delivery.entries[i + 3 * step], delivery.gone[i + 3 * step].sequence);
    if (i + 2 * step < count)
      context_.tier.prefetch_offset(delivery.entries[i + 2 * step]->location());
    if (i + step < count)
      context_.tier.prefetch(delivery.entries[i + step]->location(), BucketTier::only_key);
    storage::PendingRemoved& gone = delivery.gone[i];
    gone.offset = base + static_cast<Offset>(i);
    context_.tier.remove(place, gone, delivery.entries[i]->location());
    queues_.erase(*delivery.entries[i]);
    if (i + 1 == count || delivery.gone[i + 1].due != gone.due) {
      const std::size_t times = i + 1 - std::exchange(first, i + 1);
      lag_us_.add(whole_microseconds(context_.time.since(gone.due, mono)), mono, times);
    }
  }
  for (const auto& again : delivery.again) {
    ++context_.totals.recurred_total;
    const auto near = context_.tier.add(place, again);
    ++place.operation;
    // A request may be removing the next run already.
    if (near && !removals_.contains(again.sequence))
      queues_.file({again.due, again.sequence}, again.partition, *near);
  }
  context_.tier.tell_counts();
  context_.totals.delivered_total += count;
}

// It is where it was, and so are those behind it: none overtakes it.  One that the sink has already
// is refused too, for the journal has failed; it lives until it is told so.
void Deliveries::refused(Delivery& here, const Error& why) {
  const PartitionSlot slot = here.slot;
  const TopicPartition& partition = queues_.partition(slot);
  if (why.code == Errc::fenced && fenced_.try_emplace(partition, Fenced{why.message}).second) {
    log_error("delay", "pending records of a partition are kept and wait for a restart: {}",
              why.message);
  }
  ++context_.totals.refused_total;
  queues_.back_off(partition);
  const auto& deliveries = in_flight_.at(slot).deliveries;
  std::vector<std::unique_ptr<Delivery>> back;
  for (std::size_t at = deliveries.size(); at-- > 0 && deliveries[at].get() != &here;) {
    if (deliveries[at]->state != Delivery::State::handed_over) back.push_back(take_out(slot, at));
  }
  back.push_back(take_out(slot, index_of(here)));
  for (auto& delivery : back) put_back(*delivery);
  note_room(slot);
  for (std::size_t i = 0; i < back.size(); ++i) queues_.end_delivery(slot);
  for (auto& delivery : back) {
    for (auto& [index, outcome] : delivery->waiters) outcome(false);
  }
  // It is tried again at once when only the clock was in the way.
  if (why.code != Errc::invalid && !waiters_.empty()) waiters_.refused(partition, why);
  context_.alarm.wake();
}

void Deliveries::put_back(Delivery& delivery) {
  for (NearEntry* entry : delivery.entries) {
    if (removals_.contains(entry->key().sequence)) {
      queues_.erase(*entry);  // A later operation in the journal takes it away.
    } else {
      queues_.put_back(*entry);
    }
  }
}

// --- Records on their way

std::optional<Deliveries::Place> Deliveries::place_of(Sequence sequence) const {
  const NearEntry* const entry = queues_.find(sequence);
  if (entry == nullptr || entry->state() != NearEntry::State::in_flight) return std::nullopt;
  for (const auto& delivery : in_flight_.at(entry->partition()).deliveries) {
    const auto at = std::ranges::find(delivery->entries, entry);
    if (at == delivery->entries.end()) continue;
    return Place{delivery.get(), static_cast<std::size_t>(at - delivery->entries.begin())};
  }
  TARRY_ASSERT(false, "a record in flight belongs to a delivery");
  return std::nullopt;
}

std::optional<Deliveries::InFlight> Deliveries::find(Sequence sequence) const {
  const auto place = place_of(sequence);
  if (!place) return std::nullopt;
  InFlight found{place->delivery->place.has_value(), std::nullopt, {}};
  if (const auto* const again = place->delivery->again_at(place->index)) {
    found.again = PendingKey{again->due, sequence};
    found.again_share = again->share();
  }
  return found;
}

void Deliveries::await(Sequence sequence, Outcome outcome) {
  const auto place = place_of(sequence);
  place->delivery->waiters.emplace_back(place->index, std::move(outcome));
}

}  // namespace tarry::delay
