#include "broker/partitions/topic_notes.h"

#include <utility>

#include "base/log.h"

namespace tarry::broker {
namespace {

// Within a millisecond one refusal is noted twice: the note with its client says more.
bool is_later(const TopicNote::Refusal& one, const TopicNote::Refusal& other) {
  if (one.at != other.at) return one.at > other.at;
  return one.client && !other.client;
}

void cut_text(std::string& text, std::size_t most) {
  if (text.size() > most) text.resize(most);
}

}  // namespace

void TopicNote::add(const TopicNote& other) {
  refused += other.refused;
  if (other.last_refusal && (!last_refusal || is_later(*other.last_refusal, *last_refusal)))
    last_refusal = other.last_refusal;
  dead_letters += other.dead_letters;
  if (other.last_dead_letter &&
      (!last_dead_letter || last_dead_letter->at < other.last_dead_letter->at))
    last_dead_letter = other.last_dead_letter;
  slips.add(other.slips);
}

void TopicNotes::dead_lettered(const TopicPartition& partition, WallTime now,
                               std::span<const records::BadRecord> records) {
  if (records.empty()) return;
  dead_letters_total_ += records.size();
  TopicNote& note = notes_[partition.topic];
  note.dead_letters += records.size();
  note.last_dead_letter = {now, partition.partition, {}, records.back().message};
}

void TopicNotes::refused(const TopicPartition& partition, TopicNote::Refusal refusal) {
  // A client chooses the text, and it is kept as long as the topic.
  cut_text(refusal.message, max_message_bytes);
  TopicNote& note = notes_[partition.topic];
  ++note.refused;
  note.last_refusal = std::move(refusal);
}

void TopicNotes::refused_client(const TopicPartition& partition, TopicNote::Refusal refusal) {
  cut_text(refusal.message, max_message_bytes);
  if (refusal.client) {
    for (std::string* text :
         {&refusal.client->id, &refusal.client->principal, &refusal.client->address})
      cut_text(*text, max_client_bytes);
  }
  notes_[partition.topic].last_refusal = std::move(refusal);
}

void TopicNotes::slipped(const TopicPartition& partition, std::string_view topic_name,
                         const delay::HeaderSlips& slips) {
  if (slips.empty()) return;
  slips_total_ += slips.total();
  TopicNote& note = notes_[partition.topic];
  const bool first_here = note.slips.empty();
  note.slips.add(slips);
  // All shards share slips_logged_, so the first question spares nearly all looks at it.
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
