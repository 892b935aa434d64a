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

std::unexpected<ScheduleErrors> refuse(ScheduleErrors::Kind kind, std::string message) {
  return std::unexpected(ScheduleErrors{kind, std::move(message), {}});
}

}  // namespace

storage::PendingAdded Accepted::added_operation(const Added& parked) const {
  return {partition_,
          parked.key.sequence,
          parked.key.due,
          arrived_,
          parked.expires,
          id(parked.id_at, parked.id_size),
          Bytes(bytes_).subspan(parked.record_at, parked.record_size)};
}

storage::PendingRemoved Accepted::removed_operation(const Removed& gone) const {
  const bool delivered = gone.how == storage::RemovalReason::delivered;
  return {partition_,
          gone.key.sequence,
          gone.key.due,
          gone.how,
          arrived_,
          id(gone.id_at, gone.id_size),
          delivered && base_offset_ >= 0 ? base_offset_ + gone.offset_delta : -1};
}

void Accepted::add_gone(const PendingKey& key, storage::RemovalReason how, std::string_view id) {
  removed_.push_back({key, how, bytes_.size(), id.size()});
  append_bytes(bytes_, as_bytes(id));
}

void Accepted::add_parked(const PendingKey& key, const Schedule& schedule, WallTime original,
                          const records::RecordView& record) {
  Added& parked = added_.emplace_back();
  parked.key = key;
  parked.expires = schedule.expires;
  parked.id_at = bytes_.size();
  parked.id_size = schedule.id.size();
  append_bytes(bytes_, as_bytes(schedule.id));
  parked.record_at = bytes_.size();
  append_pending_body(bytes_, original, schedule.recurrence.get(), record, plain_headers(record));
  parked.record_size = bytes_.size() - parked.record_at;
}

std::size_t Accepted::parked() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(added_, [](const Added& parked) { return !parked.dropped; }));
}

// Takes `id` from the record that has it: one that is pending, or one that this batch parks. False:
// no record has it.
Result<bool> Engine::take_id(Accepted& accepted, Intake& intake, std::string_view id,
                             storage::RemovalReason how) {
  if (const auto here = intake.parked.find(id); here != intake.parked.end()) {
    accepted.added_[here->second].dropped = true;
    intake.parked.erase(here);
    ++(how == storage::RemovalReason::cancelled ? accepted.cancelled_within_
                                                : accepted.replaced_within_);
    return true;
  }
  if (!intake.gone.insert(id).second) return false;  // A record goes once.
  const auto found = find_id(accepted.partition_, id);
  if (!found) return std::unexpected(found.error());
  if (found->state != Found::State::pending || leaving_.contains(found->key.sequence)) return false;
  accepted.add_gone(found->key, how, id);
  // A recurring one that is being delivered goes where it is now if that is refused, and where it
  // will be if not.
  if (const Again* again = again_of(found->key.sequence)) {
    accepted.add_gone({again->due, found->key.sequence}, how, id);
    accepted.removed_.back().again = true;
  }
  return true;
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
  if (sequences_left() < schedules.sequences) {
    request_sequences_if_low();
    return refuse(ScheduleErrors::Kind::busy,
                  "the broker has no sequence numbers ready for delayed records; try again");
  }

  records::BatchOptions options;
  options.leader_epoch = batch.batch.leader_epoch();
  options.codec = batch.codec;
  options.producer_id = batch.batch.producer_id();
  options.producer_epoch = batch.batch.producer_epoch();
  options.base_sequence = batch.batch.base_sequence();
  options.transactional = batch.batch.is_transactional();
  records::BatchBuilder immediate(options);

  Intake intake;
  Result<> looked_up;
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
          if (!*taken && cancels) ++accepted.unknown_cancels_;
        }
        if (schedule.kind == Kind::immediate) {
          const PendingKey key{schedule.due, next_sequence()};
          if (!schedule.id.empty()) {
            accepted.add_gone(key, storage::RemovalReason::delivered, schedule.id);
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
        if (!schedule.id.empty()) intake.parked[schedule.id] = accepted.added_.size();
        accepted.add_parked({schedule.due, next_sequence()}, schedule, original, record);
        return true;
      });
  request_sequences_if_low();
  if (!looked_up) {
    failed(looked_up.error());
    return refuse(ScheduleErrors::Kind::failed, looked_up.error().message);
  }
  accepted.kind_ = immediate.empty() ? Accepted::Kind::nothing : Accepted::Kind::rewritten;
  if (!immediate.empty()) accepted.immediate_ = immediate.finish();
  return accepted;
}

void Engine::add_to(storage::JournalTransaction& transaction, Accepted accepted, Offset base) {
  accepted.base_offset_ = base;
  // The operations view it until they are appended; then it waits to be durable.
  auto kept = std::make_unique<Accepted>(std::move(accepted));
  for (const auto& gone : kept->removed_) transaction.add(kept->removed_operation(gone));
  for (const auto& parked : kept->added_) {
    if (!parked.dropped) transaction.add(kept->added_operation(parked));
  }
  transaction.on_appended([this, here = kept.get()](Lsn) noexcept { appended(*here); });
  transaction.on_durable([this, alive = alive_, kept = std::move(kept)] {
    if (*alive) durable(*kept);
  });
}

// Nothing can refuse it any more.  Without memory for what it is known by, the process ends: the
// next start reads it from the journal.
void Engine::appended(const Accepted& accepted) noexcept {
  for (const auto& gone : accepted.removed_) {
    begin_leaving(gone.key);
    if (gone.how == storage::RemovalReason::delivered) {
      arriving_ids_[accepted.partition_].insert_or_assign(
          std::string(accepted.id(gone.id_at, gone.id_size)), gone.key);
    }
  }
  for (const auto& parked : accepted.added_) {
    if (parked.dropped) continue;
    std::string id(accepted.id(parked.id_at, parked.id_size));
    if (!id.empty()) arriving_ids_[accepted.partition_].insert_or_assign(id, parked.key);
    arriving_.emplace(parked.key.sequence, Arriving{accepted.partition_, std::move(id)});
  }
}

void Engine::durable(const Accepted& accepted) {
  if (stopped_) return;
  // By force, while this was on its way.  The store has dropped its topic and may have forgotten
  // that it did.
  const bool deleted = !accepted.is_empty() && !sink_.target(accepted.partition_);
  if (deleted) stats_.dropped_total += accepted.parked();
  store_accepted(accepted, deleted);
  if (stopped_) return;
  stats_.cancelled_total += accepted.cancelled_within_;
  stats_.replaced_total += accepted.replaced_within_;
  stats_.cancel_unknown_total += accepted.unknown_cancels_;
  stats_.expired_total += accepted.expired_;
  if (accepted.is_empty()) return;

  wall_.observe(clock_);
  std::vector<std::move_only_function<void()>> waiters;
  for (const auto& parked : accepted.added_) {
    if (parked.dropped) continue;
    auto arriving = arriving_.extract(parked.key.sequence);
    std::ranges::move(arriving.mapped().waiters, std::back_inserter(waiters));
    note_arriving(accepted.partition_, accepted.id(parked.id_at, parked.id_size), parked.key);
    if (!deleted && !leaving_.contains(parked.key.sequence)) arm(parked.key, accepted.partition_);
  }
  for (const auto& gone : accepted.removed_) {
    if (gone.how == storage::RemovalReason::delivered)
      note_arriving(accepted.partition_, accepted.id(gone.id_at, gone.id_size), gone.key);
    end_leaving(gone.key.sequence);
  }
  for (auto& waiter : waiters) waiter();
  more_ |= !turns_.empty() || !far_.first_far_known();
  set_alarm();
}

// Into the store, in one write: what went first, then what is parked.
void Engine::store_accepted(const Accepted& accepted, bool deleted) {
  std::vector<storage::Operation> operations;
  for (const auto& gone : accepted.removed_) {
    const auto leaving = leaving_.find(gone.key.sequence);
    if (gone.again) {
      if (!deleted) operations.emplace_back(accepted.removed_operation(gone));
      far_.left(gone.key);
      continue;
    }
    if (leaving != leaving_.end() && leaving->second.delivered) {
      if (gone.how == storage::RemovalReason::cancelled) ++stats_.cancel_late_total;
      continue;
    }
    if (gone.how == storage::RemovalReason::cancelled) ++stats_.cancelled_total;
    if (gone.how == storage::RemovalReason::replaced) ++stats_.replaced_total;
    if (!deleted) operations.emplace_back(accepted.removed_operation(gone));
    far_.left(gone.key);
    answer_awaiting(gone.key.sequence, Controlled{});
  }
  for (const auto& parked : accepted.added_) {
    if (!parked.dropped && !deleted) operations.emplace_back(accepted.added_operation(parked));
  }
  if (operations.empty()) return;
  if (const auto applied = store_.apply(operations); !applied) failed(applied.error());
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

Result<Engine::Found> Engine::find_id(const TopicPartition& partition, std::string_view id) {
  if (const auto ids = arriving_ids_.find(partition); ids != arriving_ids_.end()) {
    if (const auto found = ids->second.find(id); found != ids->second.end()) {
      return Found{Found::State::pending, found->second, std::string(id)};
    }
  }
  const auto state = store_.find_id(partition, id, clock_.wall());
  if (!state) return std::unexpected(state.error());
  if (const auto* pending = std::get_if<storage::IdPending>(&*state)) {
    return Found{Found::State::pending, pending->key, std::string(id)};
  }
  if (const auto* ended = std::get_if<storage::IdEnded>(&*state)) {
    if (ended->how == storage::RemovalReason::delivered) {
      return Found{Found::State::delivered, ended->key, std::string(id)};
    }
  }
  return Found{};
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
