// Engine: how a producer's batch is taken apart, and what becomes of its parts.

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/assert.h"
#include "base/log.h"
#include "delay/engine.h"
#include "delay/pending_record.h"
#include "records/batch_builder.h"

namespace tarry::delay {
namespace {

using Kind = Schedule::Kind;

std::unexpected<ScheduleErrors> refuse(ScheduleErrors::Kind kind, std::string message,
                                       std::string_view reason = {}) {
  return std::unexpected(ScheduleErrors{kind, std::move(message), {}, reason});
}

// Too many records of the topic are pending; nothing, if there is room for the batch.
std::optional<ScheduleErrors> above_limit(const BatchSchedules& schedules, const TopicDelay& topic,
                                          std::int64_t pending) {
  const auto more = std::ranges::count(schedules.of_records, Kind::delayed, &Schedule::kind);
  if (!topic.max_pending || more == 0 || pending + more <= *topic.max_pending) return std::nullopt;
  return refuse(ScheduleErrors::Kind::busy,
                fmt::format("the topic has {} pending records and may have {} "
                            "(tarry.delay.max.pending), but the batch has {}; try again when some "
                            "are delivered",
                            pending, *topic.max_pending, more),
                "delay_max_pending")
      .error();
}

// Those of what goes to the log instead of the batch.
records::BatchOptions options_of(const records::CheckedBatch& batch) {
  records::BatchOptions options;
  options.leader_epoch = batch.batch.leader_epoch();
  options.codec = batch.codec;
  options.producer_id = batch.batch.producer_id();
  options.producer_epoch = batch.batch.producer_epoch();
  options.base_sequence = batch.batch.base_sequence();
  options.transactional = batch.batch.is_transactional();
  return options;
}

}  // namespace

storage::PendingAdded Accepted::added_operation(const Added& added) const {
  return {partition_,
          added.key.sequence,
          added.key.due,
          arrived_,
          added.expires,
          id(added.id_at, added.id_size),
          Bytes(bytes_).subspan(added.record_at, added.record_size)};
}

storage::PendingRemoved Accepted::removed_operation(const Removed& gone) const {
  const bool delivered = gone.how == storage::RemovalReason::delivered_on_arrival;
  storage::PendingRemoved operation{
      partition_,
      gone.key.sequence,
      gone.key.due,
      gone.how,
      arrived_,
      id(gone.id_at, gone.id_size),
      delivered && base_offset_ >= 0 ? base_offset_ + gone.offset_delta : -1};
  if (gone.first != gone.key.due) operation.first_due = gone.first;
  return operation;
}

void Accepted::add_gone(const PendingKey& key, WallTime first, storage::RemovalReason how,
                        std::string_view id) {
  removed_.push_back({key, first, how, bytes_.size(), id.size()});
  append_bytes(bytes_, as_bytes(id));
}

void Accepted::add_delayed(const PendingKey& key, const Schedule& schedule, WallTime original,
                           const records::RecordView& record) {
  Added& added = added_.emplace_back();
  added.key = key;
  added.expires = schedule.expires;
  added.id_at = bytes_.size();
  added.id_size = schedule.id.size();
  append_bytes(bytes_, as_bytes(schedule.id));
  added.record_at = bytes_.size();
  append_pending_body(bytes_, original, schedule.recurrence.get(), record, plain_headers(record));
  added.record_size = bytes_.size() - added.record_at;
}

std::size_t Accepted::delayed() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(added_, [](const Added& added) { return !added.dropped; }));
}

// Takes `id` from the record that has it: one that is pending, or one that this batch delays.
// `no`: no record has it.  `late`: it is being delivered.
Result<Engine::Taken> Engine::take_id(Accepted& accepted, Intake& intake, std::string_view id,
                                      storage::RemovalReason how) {
  if (const auto here = intake.delayed.find(id); here != intake.delayed.end()) {
    accepted.added_[here->second].dropped = true;
    intake.delayed.erase(here);
    ++(how == storage::RemovalReason::cancelled ? accepted.cancelled_within_
                                                : accepted.replaced_within_);
    return Taken::yes;
  }
  if (!intake.gone.insert(id).second) return Taken::no;  // A record goes once.
  const auto found = find_id(accepted.partition_, id);
  if (!found) return std::unexpected(found.error());
  const Sequence sequence = found->key.sequence;
  if (found->state != Found::State::pending) return Taken::no;
  if (const auto leaving = leaving_.find(sequence); leaving != leaving_.end())
    return leaving->second.stays ? Taken::busy : Taken::no;
  const NearEntry* const entry = near_.find(sequence);
  if (entry == nullptr || entry->state() != NearEntry::State::in_flight) {
    accepted.add_gone(found->key, found->first, how, id);
    return Taken::yes;
  }
  const Delivery& delivery = *partitions_[entry->partition()].in_flight;
  if (!delivery.place) return Taken::busy;
  const auto at = std::ranges::find(delivery.entries, entry) - delivery.entries.begin();
  const auto& again = delivery.again[static_cast<std::size_t>(at)];
  if (!again) return Taken::late;
  // A recurring one goes where it is once it is delivered.
  accepted.add_gone({again->due, sequence}, found->first, how, id);
  return Taken::yes;
}

std::expected<Accepted, ScheduleErrors> Engine::accept(const TopicPartition& partition,
                                                       const records::CheckedBatch& batch,
                                                       const BatchSchedules& schedules,
                                                       const TopicDelay& topic, WallTime arrived) {
  Accepted accepted;
  accepted.partition_ = partition;
  accepted.arrived_ = arrived;
  accepted.records_ = batch.count;
  if (!schedules.any()) return accepted;
  TARRY_ASSERT(schedules.of_records.size() == static_cast<std::size_t>(batch.count),
               "each record has its schedule");

  if (stopped_) return refuse(ScheduleErrors::Kind::failed, "the pending store has failed");
  if (const auto above = above_limit(schedules, topic, tier_.pending_of(partition.topic)))
    return std::unexpected(*above);
  if (schedules.sequences > 0 && tier_.is_full()) {
    wake();
    return refuse(ScheduleErrors::Kind::busy,
                  "the memory for delayed records (tarry.delay.memory.bytes) is spent until some "
                  "are on the disk or delivered; try again",
                  "delay_memory_full");
  }
  if (sequences_left() < schedules.sequences) {
    request_sequences_if_low();
    return refuse(ScheduleErrors::Kind::busy,
                  "the broker has no sequence numbers ready for delayed records; try again",
                  "no_sequence_numbers");
  }

  records::BatchBuilder immediate(options_of(batch));

  Intake intake;
  Result<> looked_up;
  bool busy = false;
  std::size_t at = 0;
  (void)records::for_each_record(
      batch.records(), batch.count, [&](const records::RecordView& record) {
        const Schedule& schedule = schedules.of_records[at++];
        const WallTime original = batch.batch.timestamp_of(record);
        if (schedule.kind == Kind::none) {
          immediate.append_body(original, record.body);
          return true;
        }
        if (!schedule.id.empty() && schedule.kind != Kind::expired) {
          const bool cancels = schedule.kind == Kind::cancel;
          const auto taken = take_id(
              accepted, intake, schedule.id,
              cancels ? storage::RemovalReason::cancelled : storage::RemovalReason::replaced);
          if (!taken) {
            looked_up = std::unexpected(taken.error());
            return false;
          }
          busy = *taken == Taken::busy;
          if (busy) return false;
          if (*taken == Taken::no && cancels) ++accepted.unknown_cancels_;
          if (*taken == Taken::late && cancels) ++accepted.late_cancels_;
        }
        if (schedule.kind == Kind::immediate) {
          const PendingKey key{schedule.due, next_sequence()};
          if (!schedule.id.empty()) {
            accepted.add_gone(key, key.due, storage::RemovalReason::delivered_on_arrival,
                              schedule.id);
            accepted.removed_.back().offset_delta = static_cast<std::int32_t>(at - 1);
          }
          const PlainHeaders headers = plain_headers(record);
          append_delivered(immediate,
                           delivered_time(topic.timestamp, schedule.due, original, arrived),
                           record.key_value, headers.count, headers.encoded, key.due, key);
          return true;
        }
        immediate.skip();
        if (schedule.kind == Kind::expired) ++accepted.expired_;
        if (schedule.kind != Kind::delayed) return true;
        if (!schedule.id.empty()) intake.delayed[schedule.id] = accepted.added_.size();
        accepted.add_delayed({schedule.due, next_sequence()}, schedule, original, record);
        return true;
      });
  request_sequences_if_low();
  if (!looked_up) {
    failed(looked_up.error());
    return refuse(ScheduleErrors::Kind::failed, looked_up.error().message);
  }
  if (busy) {
    return refuse(ScheduleErrors::Kind::busy,
                  "a record with an id of this batch is just being delivered or moved; try again",
                  "id_in_delivery");
  }
  accepted.kind_ = immediate.empty() ? Accepted::Kind::nothing : Accepted::Kind::rewritten;
  if (!immediate.empty()) accepted.immediate_ = immediate.finish();
  return accepted;
}

void Engine::add_to(storage::JournalTransaction& transaction, Accepted accepted, Offset base) {
  accepted.base_offset_ = base;
  // The operations view it until they are appended; then it waits to be durable.
  auto kept = std::make_unique<Accepted>(std::move(accepted));
  std::optional<std::uint32_t> first;
  const auto add = [&](const auto& operation) {
    const std::uint32_t at = transaction.add(operation);
    if (!first) first = at;
  };
  for (const auto& gone : kept->removed_) add(kept->removed_operation(gone));
  for (const auto& added : kept->added_) {
    if (!added.dropped) add(kept->added_operation(added));
  }
  kept->place_.operation = first.value_or(0);
  transaction.on_appended([this, here = kept.get()](Lsn lsn) noexcept {
    here->place_.lsn = lsn;
    appended(*here);
  });
  transaction.on_durable([this, alive = alive_, kept = std::move(kept)] {
    if (*alive) durable(*kept);
  });
}

// Nothing can refuse it any more.  Without memory for what it is known by, the process ends: the
// next start reads it from the journal.
void Engine::appended(const Accepted& accepted) noexcept {
  for (const auto& gone : accepted.removed_) {
    begin_leaving(gone.key);
    if (gone.how == storage::RemovalReason::delivered_on_arrival) {
      arriving_ids_[accepted.partition_].insert_or_assign(
          std::string(accepted.id(gone.id_at, gone.id_size)), gone.key);
    }
  }
  for (const auto& added : accepted.added_) {
    if (added.dropped) continue;
    std::string id(accepted.id(added.id_at, added.id_size));
    if (!id.empty()) arriving_ids_[accepted.partition_].insert_or_assign(id, added.key);
    arriving_.emplace(added.key.sequence, Arriving{accepted.partition_, std::move(id)});
  }
}

void Engine::durable(const Accepted& accepted) {
  if (stopped_) return;
  stats_.cancelled_total += accepted.cancelled_within_;
  stats_.replaced_total += accepted.replaced_within_;
  stats_.cancel_unknown_total += accepted.unknown_cancels_;
  stats_.cancel_late_total += accepted.late_cancels_;
  stats_.expired_total += accepted.expired_;
  if (accepted.is_empty()) return;
  // By force, while this was on its way.  The store has dropped its topic and may have forgotten
  // that it did.
  const bool deleted = !sink_.target(accepted.partition_);
  if (deleted) stats_.dropped_total += accepted.delayed();

  wall_.observe(clock_);
  storage::JournalPlace place = accepted.place_;
  for (const auto& gone : accepted.removed_) {
    if (!deleted) tier_.remove(place, accepted.removed_operation(gone));
    ++place.operation;
    if (gone.how == storage::RemovalReason::cancelled) ++stats_.cancelled_total;
    if (gone.how == storage::RemovalReason::replaced) ++stats_.replaced_total;
    if (gone.how != storage::RemovalReason::delivered_on_arrival)
      answer_awaiting(gone.key.sequence, Controlled{});
  }
  std::vector<std::move_only_function<void()>> waiters;
  for (const auto& added : accepted.added_) {
    if (added.dropped) continue;
    const bool is_near = !deleted && tier_.add(place, accepted.added_operation(added));
    ++place.operation;
    auto arriving = arriving_.extract(added.key.sequence);
    std::ranges::move(arriving.mapped().waiters, std::back_inserter(waiters));
    note_arriving(accepted.partition_, accepted.id(added.id_at, added.id_size), added.key);
    if (is_near && !leaving_.contains(added.key.sequence)) file(added.key, accepted.partition_);
  }
  for (const auto& gone : accepted.removed_) {
    if (gone.how == storage::RemovalReason::delivered_on_arrival)
      note_arriving(accepted.partition_, accepted.id(gone.id_at, gone.id_size), gone.key);
    end_leaving(gone.key.sequence);
  }
  for (auto& waiter : waiters) waiter();
  more_ |= !turns_.empty() || tier_.is_short();
  set_alarm();
}

// --- Ids and sequence numbers.

// The store knows the id now; unless a later record that is arriving has taken it already.
void Engine::note_arriving(const TopicPartition& partition, std::string_view id,
                           const PendingKey& key) {
  const auto ids = arriving_ids_.find(partition);
  if (ids == arriving_ids_.end()) return;
  const auto known = ids->second.find(id);
  if (known != ids->second.end() && known->second == key) ids->second.erase(known);
  if (ids->second.empty()) arriving_ids_.erase(ids);
}

// The record that has the id in the journal, and not yet in the tier; null: there is none.
const PendingKey* Engine::arriving_id(const TopicPartition& partition, std::string_view id) const {
  const auto ids = arriving_ids_.find(partition);
  if (ids == arriving_ids_.end()) return nullptr;
  const auto found = ids->second.find(id);
  return found == ids->second.end() ? nullptr : &found->second;
}

// The state of an id of which the tier knows this as the last event.
Engine::Found Engine::found_of(const std::optional<storage::ScheduleEvent>& last,
                               std::string_view id) const {
  using Event = storage::ScheduleEvent::Kind;
  if (!last) return {};
  if (last->kind == Event::scheduled || last->kind == Event::moved)
    return {Found::State::pending, last->key, last->first, std::string(id)};
  if (last->kind != Event::delivered || last->at + options_.remember <= clock_.wall()) return {};
  return {Found::State::delivered, last->key, last->first, std::string(id)};
}

Result<Engine::Found> Engine::find_id(const TopicPartition& partition, std::string_view id) {
  if (const PendingKey* const key = arriving_id(partition, id))
    return Found{Found::State::pending, *key, key->due, std::string(id)};
  const auto last = tier_.last_event(partition, id);
  if (!last) return std::unexpected(last.error());
  return found_of(*last, id);
}

void Engine::give_sequences(Sequence first, Sequence end) {
  TARRY_ASSERT(first < end, "a block has sequence numbers");
  TARRY_ASSERT(blocks_.empty() || blocks_.back().end <= first, "blocks come in rising order");
  blocks_.push_back({first, end});
  last_block_size_ = end - first;
  sequences_requested_ = false;
}

std::uint64_t Engine::sequences_left() const {
  std::uint64_t left = 0;
  for (const Block& block : blocks_) left += block.end - block.next;
  return left;
}

Sequence Engine::next_sequence() {
  Block& block = blocks_.front();
  const Sequence sequence = block.next++;
  if (block.next == block.end) blocks_.pop_front();
  return sequence;
}

void Engine::request_sequences_if_low() {
  if (sequences_requested_ || sequences_left() > last_block_size_ / 2) return;
  sequences_requested_ = true;
  sink_.request_sequences();
}

}  // namespace tarry::delay
