// Engine: how a producer's batch is taken apart, and what becomes of its parts.

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/assert.h"
#include "base/log.h"
#include "delay/engine.h"
#include "delay/parked_record.h"
#include "records/batch_builder.h"

namespace tarry::delay {
namespace {

using Kind = Schedule::Kind;

std::unexpected<ScheduleErrors> refuse(ScheduleErrors::Kind kind, std::string message) {
  return std::unexpected(ScheduleErrors{kind, std::move(message), {}});
}

}  // namespace

storage::Parked Accepted::parked_operation(const Parked& parked) const {
  return {partition_,
          parked.key.sequence,
          parked.key.due,
          arrived_,
          parked.expires,
          id(parked.id_at, parked.id_size),
          Bytes(bytes_).subspan(parked.record_at, parked.record_size)};
}

storage::Gone Accepted::gone_operation(const Gone& gone) const {
  return {partition_, gone.key.sequence, gone.key.due,
          gone.how,   arrived_,          id(gone.id_at, gone.id_size)};
}

void Accepted::add_to(storage::RecordBuilder& record) const {
  for (const Gone& gone : gone_) record.add(gone_operation(gone));
  for (const Parked& parked : parked_) {
    if (!parked.dropped) record.add(parked_operation(parked));
  }
}

std::size_t Accepted::parked() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(parked_, [](const Parked& parked) { return !parked.dropped; }));
}

std::expected<Accepted, ScheduleErrors> Engine::accept(const TopicPartition& partition,
                                                       const records::CheckedBatch& batch,
                                                       const TopicDelay& topic, WallTime arrived) {
  Accepted accepted;
  accepted.partition_ = partition;
  accepted.arrived_ = arrived;
  accepted.records_ = batch.count;
  if (!topic.enable) return accepted;
  TARRY_ASSERT(batch.opened, "a topic with delays has its batches opened");
  if (topic.default_delay.count() <= 0 && (!batch.has_headers || !may_schedule(batch.records()))) {
    return accepted;
  }

  // What each record asks for, or all that is wrong.
  const WallTime believed = std::min(arrived, wall_.observe(clock_));
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(batch.count));
  ScheduleErrors errors;
  std::size_t bad = 0, scheduled = 0, sequences = 0;
  const auto read = records::for_each_record(
      batch.records(), batch.count, [&](const records::RecordView& record) {
        if (scheduled > 0 && batch.count > most_records_scheduled) return false;
        auto schedule = read_schedule(record, topic, arrived, believed);
        if (schedule && schedule->kind != Kind::none && batch.batch.is_transactional()) {
          schedule = std::unexpected<std::string>(
              "a delay, x-schedule-action or x-expire-at in a transaction is not supported");
        }
        if (!schedule) {
          if (bad++ < records::most_bad_records_told) {
            errors.records.push_back({record.offset_delta, std::move(schedule.error())});
          }
          schedules.emplace_back();
          return true;
        }
        scheduled += schedule->kind != Kind::none;
        sequences += schedule->kind == Kind::delayed || schedule->kind == Kind::immediate;
        schedules.push_back(*schedule);
        return true;
      });
  TARRY_ASSERT(read.has_value(), "a checked batch has whole records");
  if (bad != 0) {
    errors.message = errors.records.front().message;
    if (bad > 1) errors.message += fmt::format(" (and {} more records of this batch)", bad - 1);
    return std::unexpected(std::move(errors));
  }
  if (scheduled == 0) return accepted;
  if (batch.count > most_records_scheduled) {
    return refuse(ScheduleErrors::Kind::too_many,
                  fmt::format("the batch has {} records and delays some of them; the limit of such "
                              "a batch is {}: lower batch.num.messages or batch.size",
                              batch.count, most_records_scheduled));
  }

  if (stopped_) return refuse(ScheduleErrors::Kind::failed, "the pending store has failed");
  if (sequences_left() < sequences) {
    want_sequences_if_low();
    return refuse(ScheduleErrors::Kind::busy,
                  "the broker has no sequence numbers ready for delayed records; try again");
  }

  // The record that has an id which this batch uses: a pending one, or one of this batch.
  std::map<std::string_view, std::size_t> parked_here;  // Id -> index in parked_.
  std::set<std::string_view> gone_here;
  const auto take_id = [&](std::string_view id, storage::GoneHow how) -> Result<bool> {
    if (const auto here = parked_here.find(id); here != parked_here.end()) {
      accepted.parked_[here->second].dropped = true;
      parked_here.erase(here);
      ++(how == storage::GoneHow::cancelled ? accepted.cancelled_within_
                                            : accepted.replaced_within_);
      return true;
    }
    if (!gone_here.insert(id).second) return false;  // A record goes once.
    const auto found = find_id(partition, id);
    if (!found) return std::unexpected(found.error());
    if (found->state != Found::State::pending || leaving_.contains(found->key.sequence)) {
      return false;
    }
    accepted.gone_.push_back({found->key, how, accepted.bytes_.size(), id.size()});
    append_bytes(accepted.bytes_, as_bytes(id));
    return true;
  };

  records::BatchOptions options;
  options.leader_epoch = batch.batch.leader_epoch();
  options.codec = batch.codec;
  options.producer_id = batch.batch.producer_id();
  options.producer_epoch = batch.batch.producer_epoch();
  options.base_sequence = batch.batch.base_sequence();
  options.transactional = batch.batch.is_transactional();
  records::BatchBuilder immediate(options);

  Result<> world;
  std::size_t at = 0;
  (void)records::for_each_record(
      batch.records(), batch.count, [&](const records::RecordView& record) {
        const Schedule& schedule = schedules[at++];
        const WallTime original = batch.batch.timestamp_of(record);
        if (schedule.kind == Kind::none) {
          immediate.append_body(original, record.body);
          return true;
        }
        if (!schedule.id.empty() && schedule.kind != Kind::expired) {
          const auto taken =
              take_id(schedule.id, schedule.kind == Kind::cancel ? storage::GoneHow::cancelled
                                                                 : storage::GoneHow::replaced);
          if (!taken) {
            world = std::unexpected(taken.error());
            return false;
          }
          if (!*taken && schedule.kind == Kind::cancel) ++accepted.unknown_cancels_;
        }
        if (schedule.kind == Kind::immediate) {
          const PendingKey key{schedule.due, next_sequence()};
          if (!schedule.id.empty()) {
            accepted.gone_.push_back(
                {key, storage::GoneHow::delivered, accepted.bytes_.size(), schedule.id.size()});
            append_bytes(accepted.bytes_, as_bytes(schedule.id));
          }
          const PlainHeaders headers = plain_headers(record);
          append_delivered(immediate,
                           delivered_time(topic.timestamp, schedule.due, original, arrived),
                           record.key_value, headers.count, headers.encoded, key);
          return true;
        }
        immediate.skip();
        if (schedule.kind == Kind::expired) ++accepted.expired_;
        if (schedule.kind != Kind::delayed) return true;

        Accepted::Parked parked;
        parked.key = {schedule.due, next_sequence()};
        parked.expires = schedule.expires;
        parked.id_at = accepted.bytes_.size();
        parked.id_size = schedule.id.size();
        append_bytes(accepted.bytes_, as_bytes(schedule.id));
        parked.record_at = accepted.bytes_.size();
        append_parked(accepted.bytes_, original, record, plain_headers(record));
        parked.record_size = accepted.bytes_.size() - parked.record_at;
        if (!schedule.id.empty()) parked_here[schedule.id] = accepted.parked_.size();
        accepted.parked_.push_back(parked);
        return true;
      });
  want_sequences_if_low();
  if (!world) {
    failed(world.error());
    return refuse(ScheduleErrors::Kind::failed, world.error().message);
  }
  accepted.kind_ = immediate.empty() ? Accepted::Kind::nothing : Accepted::Kind::rewritten;
  if (!immediate.empty()) accepted.immediate_ = immediate.finish();
  return accepted;
}

void Engine::appended(Accepted& accepted) {
  TARRY_ASSERT(!accepted.appended_, "a batch is appended once");
  accepted.appended_ = true;
  for (const auto& gone : accepted.gone_) {
    begin_leaving(gone.key);
    if (gone.how == storage::GoneHow::delivered) {
      arriving_ids_[accepted.partition_].insert_or_assign(
          std::string(accepted.id(gone.id_at, gone.id_size)), gone.key);
    }
  }
  for (const auto& parked : accepted.parked_) {
    if (parked.dropped) continue;
    std::string id(accepted.id(parked.id_at, parked.id_size));
    if (!id.empty()) arriving_ids_[accepted.partition_].insert_or_assign(id, parked.key);
    arriving_.emplace(parked.key.sequence, Arriving{accepted.partition_, std::move(id)});
  }
}

void Engine::durable(Accepted accepted) {
  if (stopped_) return;
  TARRY_ASSERT(accepted.appended_ || accepted.changes_nothing(), "appended comes before durable");
  // By force, while this was on its way.  The store has dropped its topic and may have forgotten
  // that it did.
  const bool deleted = !accepted.changes_nothing() && !sink_.target(accepted.partition_);
  if (deleted) stats_.dropped_total += accepted.parked();
  std::vector<storage::Operation> operations;
  for (const auto& gone : accepted.gone_) {
    const auto leaving = leaving_.find(gone.key.sequence);
    if (leaving != leaving_.end() && leaving->second.delivered) {
      if (gone.how == storage::GoneHow::cancelled) ++stats_.cancel_late_total;
      continue;
    }
    if (gone.how == storage::GoneHow::cancelled) ++stats_.cancelled_total;
    if (gone.how == storage::GoneHow::replaced) ++stats_.replaced_total;
    if (!deleted) operations.emplace_back(accepted.gone_operation(gone));
    far_.left(gone.key);
  }
  for (const auto& parked : accepted.parked_) {
    if (!parked.dropped && !deleted) operations.emplace_back(accepted.parked_operation(parked));
  }
  if (!operations.empty()) {
    if (const auto applied = store_.apply(operations); !applied) {
      failed(applied.error());
      return;
    }
  }
  stats_.cancelled_total += accepted.cancelled_within_;
  stats_.replaced_total += accepted.replaced_within_;
  stats_.cancel_unknown_total += accepted.unknown_cancels_;
  stats_.expired_total += accepted.expired_;
  if (accepted.changes_nothing()) return;

  wall_.observe(clock_);
  for (const auto& parked : accepted.parked_) {
    if (parked.dropped) continue;
    arriving_.erase(parked.key.sequence);
    has_arrived(accepted.partition_, accepted.id(parked.id_at, parked.id_size), parked.key);
    if (!deleted && !leaving_.contains(parked.key.sequence)) arm(parked.key, accepted.partition_);
  }
  for (const auto& gone : accepted.gone_) {
    if (gone.how == storage::GoneHow::delivered)
      has_arrived(accepted.partition_, accepted.id(gone.id_at, gone.id_size), gone.key);
    end_leaving(gone.key.sequence);
  }
  more_ |= !turns_.empty() || !far_.knows_first_far();
  set_alarm();
}

// --- Ids and sequence numbers.

// The store knows the id now; unless a later record that is arriving has taken it already.
void Engine::has_arrived(const TopicPartition& partition, std::string_view id,
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
    if (ended->how == storage::GoneHow::delivered) {
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
  sequences_wanted_ = false;
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

void Engine::want_sequences_if_low() {
  if (sequences_wanted_ || sequences_left() > last_block_size_ / 2) return;
  sequences_wanted_ = true;
  sink_.want_sequences();
}

}  // namespace tarry::delay
