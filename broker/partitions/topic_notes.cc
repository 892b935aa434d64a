#include "broker/partitions/topic_notes.h"

#include <utility>

#include "base/log.h"

namespace tarry::broker {

void TopicNote::add(const TopicNote& other) {
  refused += other.refused;
  if (other.last_refusal && (!last_refusal || last_refusal->at < other.last_refusal->at))
    last_refusal = other.last_refusal;
  slips.add(other.slips);
}

void TopicNotes::refused(const TopicPartition& partition, TopicNote::Refusal refusal) {
  if (refusal.message.size() > max_message_bytes) refusal.message.resize(max_message_bytes);
  TopicNote& note = notes_[partition.topic];
  ++note.refused;
  note.last_refusal = std::move(refusal);
}

void TopicNotes::slipped(const TopicPartition& partition, std::string_view topic_name,
                         const delay::HeaderSlips& slips) {
  if (slips.empty()) return;
  slips_total_ += slips.total();
  TopicNote& note = notes_[partition.topic];
  const bool first_here = note.slips.empty();
  note.slips.add(slips);
  if (!first_here || !slips_logged_.first(partition.topic)) return;
  const auto& slip = slips.names().front();
  log_warn("broker",
           "a record for {}-{} has a header {}, which is one letter off from {} and schedules "
           "nothing (logged once per topic; GET /topics/{} counts such headers)",
           topic_name, partition.partition, slip.name, slip.meant, topic_name);
}

const TopicNote* TopicNotes::find(const TopicId& topic) const {
  const auto found = notes_.find(topic);
  return found == notes_.end() ? nullptr : &found->second;
}

void TopicNotes::forget(const TopicId& topic) {
  notes_.erase(topic);
  slips_logged_.forget(topic);
}

}  // namespace tarry::broker
