#include "delay/accepted_batch.h"

#include <algorithm>
#include <unordered_set>

#include "delay/pending_record.h"
#include "records/batch_builder.h"

namespace tarry::delay {
namespace {

using Asked = Schedule::Kind;

// Each record costs its shard some microseconds, and each byte that is compressed some nanoseconds.
constexpr std::int32_t few_records = 512;
constexpr std::size_t few_bytes = 128 << 10;

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

  // A record that a later record of the batch cancels or replaces is never added.
  std::vector<bool> is_dropped(schedules.of_records.size());
  std::unordered_map<std::string_view, std::size_t> delayed;
  std::unordered_set<std::string_view> taken;
  std::size_t number = 0;
  for (std::size_t i = 0; i < schedules.of_records.size() && number < schedules.ids; ++i) {
    const Schedule& schedule = schedules.of_records[i];
    if (!schedule.takes_id()) continue;
    const bool cancels = schedule.kind == Asked::cancel;
    if (const auto here = delayed.find(schedule.id); here != delayed.end()) {
      is_dropped[here->second] = true;
      delayed.erase(here);
      ++(cancels ? out.cancelled_within_ : out.replaced_within_);
      // Only the first record with an id can take it from a pending one; behind it the id is this
      // batch's.
    } else if (taken.insert(schedule.id).second) {
      out.takes_.push_back({number, out.add_id(schedule.id), schedule.id.size(), cancels});
    } else if (cancels) {
      ++out.unknown_cancels_;  // A record goes once.
    }
    if (schedule.kind == Asked::delayed) delayed[schedule.id] = i;
    ++number;
  }

  records::BatchBuilder immediate(options_of(batch, topic));
  std::vector<std::size_t> with_id;  // In added_.
  std::size_t at = 0;
  const auto take = [&](const records::RecordView& record) {
    const std::size_t index = at++;
    const Schedule& schedule = schedules.of_records[index];
    const WallTime original = batch.batch.timestamp_of(record);
    if (schedule.kind == Asked::none) {
      immediate.append_body(original, record.body);
      return true;
    }
    if (schedule.kind == Asked::immediate) {
      // It never becomes pending, but its headers name a handle, which needs a number of its own.
      const PendingKey key{schedule.due, sequences.next()};
      if (!schedule.id.empty()) {
        out.on_arrival_.push_back({key, key.due, storage::RemovalReason::delivered_on_arrival,
                                   out.add_id(schedule.id), schedule.id.size(),
                                   static_cast<std::int32_t>(index)});
      }
      const PlainHeaders headers = plain_headers(record);
      append_delivered(immediate, delivered_time(topic.timestamp, schedule.due, original, arrived),
                       record.key_value, headers.count, headers.encoded, key.due, key);
      return true;
    }
    immediate.skip();
    if (schedule.kind == Asked::expired) ++out.expired_;
    if (schedule.kind != Asked::delayed || is_dropped[index]) return true;
    const PendingKey key{schedule.due, sequences.next()};
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
                                                 plain_headers(record), batch.codec);
                           });
    out.added_.push_back({key, schedule.expires, place});
    // A short batch gives its ids to UnappliedRecords one by one; a long one is asked itself.
    if (out.is_long_ && !schedule.id.empty()) with_id.push_back(out.added_.size() - 1);
    return true;
  };
  (void)records::for_each_record(batch.records(), batch.count, take);
  for (const std::size_t index : with_id) out.by_id_[out.id_of(out.added_[index])] = index;
  out.kind_ = immediate.empty() ? Kind::nothing : Kind::rewritten;
  if (!immediate.empty()) out.immediate_ = immediate.finish();
  return out;
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

storage::PendingRemoved AcceptedBatch::removed_operation(const Removed& gone) const {
  const bool delivered = gone.how == storage::RemovalReason::delivered_on_arrival;
  storage::PendingRemoved operation{
      partition_,
      gone.key.sequence,
      gone.key.due,
      gone.how,
      arrived_,
      id_of(gone),
      delivered && base_offset_ >= 0 ? base_offset_ + gone.offset_delta : -1};
  operation.set_first_due(gone.first);
  operation.share = gone.share;
  return operation;
}

std::size_t AcceptedBatch::memory_bytes() const {
  // A node of a map, with its place in the table.
  constexpr std::size_t node_bytes = sizeof(std::pair<std::string_view, std::size_t>) + 32;
  return immediate_.capacity() + ids_.capacity() + additions_.bytes().size() +
         added_.capacity() * sizeof(Added) + removed_.capacity() * sizeof(Removed) +
         takes_.capacity() * sizeof(Take) + on_arrival_.capacity() * sizeof(Removed) +
         by_id_.size() * node_bytes;
}

std::size_t AcceptedBatch::add_id(std::string_view id) {
  const std::size_t at = ids_.size();
  append_bytes(ids_, as_bytes(id));
  return at;
}

const AcceptedBatch::Added* AcceptedBatch::find(Sequence sequence) const {
  // The tier tells of the records before it, which are applied.
  const auto from = added_.begin() + static_cast<std::ptrdiff_t>(applied_.added);
  const auto at = std::ranges::lower_bound(from, added_.end(), sequence, {},
                                           [](const Added& added) { return added.key.sequence; });
  return at != added_.end() && at->key.sequence == sequence ? &*at : nullptr;
}

std::optional<std::pair<PendingKey, storage::PendingShare>> AcceptedBatch::find_id(
    std::string_view id) const {
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return std::nullopt;
  const std::size_t at = known->second;
  if (at < added_.size()) {
    if (at < applied_.added) return std::nullopt;
    return std::pair(added_[at].key, share_of(added_[at]));
  }
  if (at - added_.size() < applied_.removed) return std::nullopt;
  const auto& removed = removed_[at - added_.size()];
  return std::pair(removed.key, removed.share);
}

}  // namespace tarry::delay
