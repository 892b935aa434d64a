#include "delay/unapplied_records.h"

#include <algorithm>

namespace tarry::delay {

void UnappliedRecords::end_id(const TopicPartition& partition, std::string_view id,
                              const PendingKey& key) {
  const auto ids = ids_.find(partition);
  if (ids == ids_.end()) return;
  const auto known = ids->second.find(id);
  // A later record may have the id by now.
  if (known != ids->second.end() && known->second.key == key) ids->second.erase(known);
  if (ids->second.empty()) ids_.erase(ids);
}

std::optional<UnappliedRecords::Record> UnappliedRecords::find(Sequence sequence) const {
  if (const auto found = records_.find(sequence); found != records_.end()) return found->second;
  for (const AcceptedBatch* batch : batches_) {
    if (const auto* const added = batch->find(sequence))
      return Record{batch->partition_, added->key.due, std::string(batch->id_of(*added)),
                    batch->share_of(*added)};
  }
  return std::nullopt;
}

bool UnappliedRecords::contains(Sequence sequence) const {
  return records_.contains(sequence) ||
         std::ranges::any_of(batches_,
                             [&](const AcceptedBatch* batch) { return batch->find(sequence); });
}

std::optional<UnappliedRecords::Last> UnappliedRecords::find_id(const TopicPartition& partition,
                                                                std::string_view id) const {
  std::optional<Last> last;
  if (const auto ids = ids_.find(partition); ids != ids_.end()) {
    const auto found = ids->second.find(id);
    if (found != ids->second.end()) last = found->second;
  }
  // One of them may have come before or after it: the later one has the larger sequence number,
  // because those of a partition are accepted one after the other.
  if (with_ids_.empty()) return last;
  const BatchIds::Hash hash = BatchIds::hash_of(id);
  for (const AcceptedBatch* batch : with_ids_) {
    if (batch->partition_ != partition) continue;
    const auto found = batch->find_id(hash, id);
    if (found && (!last || last->key.sequence < found->first.sequence))
      last = Last{found->first, found->second};
  }
  return last;
}

std::size_t UnappliedRecords::size() const {
  std::size_t count = records_.size();
  for (const AcceptedBatch* batch : batches_) count += batch->added_.size() - batch->applied_.added;
  return count;
}

std::size_t UnappliedRecords::count_of(const TopicId& topic) const {
  auto count = static_cast<std::size_t>(std::ranges::count_if(
      records_, [&](const auto& record) { return record.second.partition.topic == topic; }));
  for (const AcceptedBatch* batch : batches_) {
    if (batch->partition_.topic == topic) count += batch->added_.size() - batch->applied_.added;
  }
  return count;
}

}  // namespace tarry::delay
