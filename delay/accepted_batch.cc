#include "delay/accepted_batch.h"

#include <algorithm>
#include <limits>

#include "delay/pending_record.h"
#include "records/batch_builder.h"

namespace tarry::delay {
namespace {

using Asked = Schedule::Kind;

// Each record costs its shard some microseconds, and each byte that is compressed some nanoseconds.
constexpr std::int32_t few_records = 512;
constexpr std::size_t few_bytes = 128 << 10;
// The bytes of an added record's operation in the journal beside those that it had in the batch.
constexpr std::size_t usual_fields = 80;

// The options of the batch that goes to the log instead of the producer's.
records::BatchOptions options_of(const records::CheckedBatch& batch, const TopicDelay& topic) {
  records::BatchOptions options;
  options.leader_epoch = batch.batch.leader_epoch();
  options.codec = topic.codec.value_or(batch.codec);
  options.producer_id = batch.batch.producer_id();
  options.producer_epoch = batch.batch.producer_epoch();
  options.base_sequence = batch.batch.base_sequence();
  options.transactional = batch.batch.is_transactional();
  return options;
}

}  // namespace

bool AcceptedBatch::is_long(const records::CheckedBatch& batch, const BatchSchedules& schedules,
                            const TopicDelay& topic) {
  if (!schedules.any()) return false;
  const bool packs = topic.codec.value_or(batch.codec) != records::Codec::none;
  return batch.count > few_records || (packs && batch.records().size() > few_bytes);
}

AcceptedBatch AcceptedBatch::split(const TopicPartition& partition,
                                   const records::CheckedBatch& batch,
                                   const BatchSchedules& schedules, const TopicDelay& topic,
                                   WallTime arrived, SequenceRun sequences, PrincipalId principal,
                                   bool is_long) {
  AcceptedBatch out;
  out.partition_ = partition;
  out.principal_ = principal;
  out.arrived_ = arrived;
  out.records_ = batch.count;
  out.is_long_ = is_long;
  out.added_.reserve(schedules.delayed);
  const std::size_t usual_record =
      batch.records().size() / static_cast<std::size_t>(std::max(batch.count, 1));
  out.additions_.reserve(schedules.delayed * (usual_fields + usual_record));

  std::vector<bool> is_dropped(schedules.of_records.size());
  const std::vector<BatchIds::Number> ids = out.take_ids(schedules, is_dropped);
  if (is_long) out.last_of_ids_.resize(out.ids_.size());
  // A short batch with ids gives them to UnappliedRecords one by one; a long one is asked itself.
  const auto note_last = [&out](BatchIds::Number id, LastOfId::In in, std::size_t size) {
    if (out.is_long_) out.last_of_ids_[id] = {in, static_cast<std::uint32_t>(size - 1)};
  };

  records::BatchBuilder immediate(options_of(batch, topic));
  std::size_t at = 0, with_id = 0;
  PlainHeaders headers;  // The record's, in one piece of memory for all of them.
  DeliveredHeaders ours;
  const auto take = [&](const records::RecordView& record) {
    const std::size_t index = at++;
    const Schedule& schedule = schedules.of_records[index];
    const BatchIds::Number id = schedule.takes_id() ? ids[with_id++] : 0;
    const WallTime original = batch.batch.timestamp_of(record);
    if (schedule.kind == Asked::none) {
      immediate.append_body(original, record.body);
      return true;
    }
    if (schedule.kind == Asked::immediate) {
      // It never becomes pending, but its headers name a handle, which needs a number of its own.
      const PendingKey key{schedule.due, sequences.next()};
      if (!schedule.id.empty()) {
        out.add_on_arrival({key, key.due, storage::RemovalReason::delivered_on_arrival, id,
                            static_cast<std::int32_t>(index)});
        note_last(id, LastOfId::In::on_arrival, out.on_arrival_.size());
      }
      plain_headers(record, headers);
      append_delivered(immediate, delivered_time(topic.timestamp, schedule.due, original, arrived),
                       record.key_value, headers.count, headers.encoded, ours.of(key.due, key));
      return true;
    }
    immediate.skip();
    if (schedule.kind == Asked::expired) ++out.expired_;
    if (schedule.kind != Asked::delayed || is_dropped[index]) return true;
    const PendingKey key{schedule.due, sequences.next()};
    plain_headers(record, headers);
    const auto place =
        out.additions_.add({partition,
                            key.sequence,
                            key.due,
                            arrived,
                            schedule.expires,
                            schedule.id,
                            {},
                            {},
                            principal},
                           [&](Buffer& to) {
                             append_pending_body(to, original, schedule.recurrence.get(), record,
                                                 headers, batch.codec);
                           });
    if (schedule.recurrence != nullptr)
      out.largest_recurring_ = std::max<std::size_t>(out.largest_recurring_, place.record_size);
    out.added_.push_back({key, schedule.expires, place});
    if (!schedule.id.empty()) note_last(id, LastOfId::In::added, out.added_.size());
    return true;
  };
  (void)records::for_each_record(batch.records(), batch.count, take);
  out.kind_ = immediate.empty() ? Kind::nothing : Kind::rewritten;
  if (!immediate.empty()) out.immediate_ = immediate.finish();
  return out;
}

std::vector<BatchIds::Number> AcceptedBatch::take_ids(const BatchSchedules& schedules,
                                                      std::vector<bool>& is_dropped) {
  constexpr auto none = std::numeric_limits<std::size_t>::max();
  ids_ = BatchIds(schedules.ids);
  std::vector<BatchIds::Number> numbers;
  numbers.reserve(schedules.ids);
  std::vector<std::size_t> delayed;  // By id: the record that has it so far.
  for (std::size_t i = 0; i < is_dropped.size() && numbers.size() < schedules.ids; ++i) {
    const Schedule& schedule = schedules.of_records[i];
    if (!schedule.takes_id()) continue;
    const bool cancels = schedule.kind == Asked::cancel;
    const auto [id, is_new] = ids_.add(schedule.id);
    if (is_new) {
      // Only the first record with an id can take it from a pending one; behind it the id is this
      // batch's.
      takes_.push_back({numbers.size(), cancels});
      delayed.push_back(none);
    } else if (delayed[id] != none) {
      is_dropped[delayed[id]] = true;
      delayed[id] = none;
      ++(cancels ? cancelled_within_ : replaced_within_);
    } else if (cancels) {
      ++unknown_cancels_;  // A record goes once.
    }
    if (schedule.kind == Asked::delayed) delayed[id] = i;
    numbers.push_back(id);
  }
  return numbers;
}

storage::PendingAdded AcceptedBatch::added_operation(const Added& added) const {
  return {partition_,
          added.key.sequence,
          added.key.due,
          arrived_,
          added.expires,
          id_of(added),
          additions_.bytes().subspan(added.place.record, added.place.record_size),
          std::nullopt,
          principal_};
}

storage::PendingUse AcceptedBatch::difference() const {
  storage::PendingUse use;
  for (const auto& added : added_) use.add({1, share_of(added).bytes});
  for (const auto& gone : removed_) {
    // A replaced record may be another principal's.
    if (gone.share.principal == principal_) use.add({-1, -std::int64_t{gone.share.bytes}});
  }
  return use;
}

void AcceptedBatch::add_removed(const Removed& gone) {
  removed_.push_back(gone);
  encoded_removals_.add(removed_operation(gone));
}

void AcceptedBatch::add_on_arrival(const Removed& gone) {
  on_arrival_.push_back(gone);
  on_arrival_.back().encoded_end = encoded_arrivals_.add(removed_operation(gone));
}

void AcceptedBatch::set_base_offset(Offset base) {
  base_offset_ = base;
  // Some nanoseconds for each: everything else was encoded where the batch was taken apart.
  for (const Removed& gone : on_arrival_)
    encoded_arrivals_.set_offset(gone.encoded_end, base + gone.offset_delta);
}

storage::PendingRemoved AcceptedBatch::removed_operation(const Removed& gone) const {
  const bool delivered = gone.how == storage::RemovalReason::delivered_on_arrival;
  storage::PendingRemoved operation{partition_,
                                    gone.key.sequence,
                                    gone.key.due,
                                    gone.how,
                                    arrived_,
                                    id_of(gone),
                                    delivered ? base_offset_ + gone.offset_delta : -1};
  operation.set_first_due(gone.first);
  operation.share = gone.share;
  return operation;
}

std::size_t AcceptedBatch::memory_bytes() const {
  return immediate_.capacity() + ids_.memory_bytes() + additions_.memory_bytes() +
         added_.capacity() * sizeof(Added) + removed_.capacity() * sizeof(Removed) +
         takes_.capacity() * sizeof(Take) + on_arrival_.capacity() * sizeof(Removed) +
         encoded_removals_.memory_bytes() + encoded_arrivals_.memory_bytes() +
         last_of_ids_.capacity() * sizeof(LastOfId);
}

const AcceptedBatch::Added* AcceptedBatch::find(Sequence sequence) const {
  // The tier tells of the records before it, which are applied.
  const auto from = added_.begin() + static_cast<std::ptrdiff_t>(applied_.added);
  const auto at = std::ranges::lower_bound(from, added_.end(), sequence, {},
                                           [](const Added& added) { return added.key.sequence; });
  return at != added_.end() && at->key.sequence == sequence ? &*at : nullptr;
}

std::optional<std::pair<PendingKey, storage::PendingShare>> AcceptedBatch::find_id(
    BatchIds::Hash hash, std::string_view id) const {
  const auto number = ids_.find(hash, id);
  if (!number) return std::nullopt;
  const LastOfId& last = last_of_ids_[*number];
  switch (last.in) {
    case LastOfId::In::none:
      break;
    case LastOfId::In::added:
      if (last.at < applied_.added) break;
      return std::pair(added_[last.at].key, share_of(added_[last.at]));
    case LastOfId::In::on_arrival:
      if (removed_.size() + last.at < applied_.removed) break;
      return std::pair(on_arrival_[last.at].key, storage::PendingShare{});
  }
  return std::nullopt;
}

}  // namespace tarry::delay
