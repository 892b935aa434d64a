#include "broker/partitions/topic_notes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace tarry::broker {
namespace {

// Within a millisecond one refusal is noted twice: the note with its client says more.
bool is_later(const TopicNote::Refusal& one, const TopicNote::Refusal& other) {
  if (one.at != other.at) return one.at > other.at;
  return one.client && !other.client;
}

// Without the port, which is another one for each connection.
std::string_view host_of(std::string_view address) {
  return address.substr(0, address.rfind(':'));
}

bool is_same_sender(const TopicNote::Refusal& one, const TopicNote::Refusal& other) {
  if (one.client.has_value() != other.client.has_value() || one.message != other.message)
    return false;
  return !one.client ||
         (one.client->id == other.client->id && one.client->principal == other.client->principal &&
          host_of(one.client->address) == host_of(other.client->address));
}

void cut_text(std::string& text, std::size_t max_bytes) {
  if (text.size() > max_bytes) text.resize(max_bytes);
}

}  // namespace

void TopicNote::add(const TopicNote& other) {
  refused += other.refused;
  if (other.last_refusal && (!last_refusal || is_later(*other.last_refusal, *last_refusal)))
    last_refusal = other.last_refusal;
  for (const auto& sender : other.refused_senders) {
    const auto known = std::ranges::find_if(refused_senders, [&sender](const RefusedSender& each) {
      return is_same_sender(each.last, sender.last);
    });
    if (known == refused_senders.end()) {
      refused_senders.push_back(sender);
      continue;
    }
    known->batches += sender.batches;
    if (is_later(sender.last, known->last)) known->last = sender.last;
  }
  std::ranges::stable_sort(refused_senders, [](const RefusedSender& one, const RefusedSender& two) {
    return one.last.at > two.last.at;
  });
  if (refused_senders.size() > max_senders) refused_senders.resize(max_senders);
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
  note_sender(partition.topic, refusal);
  notes_[partition.topic].last_refusal = std::move(refusal);
}

void TopicNotes::note_sender(const TopicId& topic, const TopicNote::Refusal& refusal) {
  const auto known = std::ranges::find_if(senders_, [&](const Sender& each) {
    return each.topic == topic && is_same_sender(each.refused.last, refusal);
  });
  if (known != senders_.end()) {
    known->refused.last = refusal;
    ++known->refused.batches;
    senders_.splice(senders_.begin(), senders_, known);
    return;
  }
  senders_.push_front({topic, {refusal, 1}});
  const auto of_topic = [&topic](const Sender& each) { return each.topic == topic; };
  if (std::ranges::count_if(senders_, of_topic) > std::ptrdiff_t{TopicNote::max_senders}) {
    const auto oldest = std::find_if(senders_.rbegin(), senders_.rend(), of_topic);
    senders_.erase(std::next(oldest).base());
  } else if (senders_.size() > max_senders) {
    senders_.pop_back();
  }
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

std::optional<TopicNote> TopicNotes::copy(const TopicId& topic) const {
  const TopicNote* const note = find(topic);
  if (note == nullptr) return std::nullopt;
  std::optional<TopicNote> copied = *note;
  for (const auto& sender : senders_)
    if (sender.topic == topic) copied->refused_senders.push_back(sender.refused);
  return copied;
}

void TopicNotes::forget(const TopicId& topic) {
  notes_.erase(topic);
  senders_.remove_if([&topic](const Sender& each) { return each.topic == topic; });
  slips_logged_.forget(topic);
}

}  // namespace tarry::broker
