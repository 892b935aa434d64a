#include "delay/delivery_waiters.h"

#include <utility>

namespace tarry::delay {
namespace {

// Requests that wait for one record's delivery.  A client that goes away leaves its request.
constexpr std::size_t max_awaiting_one = 16;

}  // namespace

void DeliveryWaiters::add(Sequence sequence, const TopicId& topic, ControlDone done) {
  Record& record = records_[sequence];
  if (record.waiting.size() >= max_awaiting_one)
    return done(fail(Errc::exhausted, "too many requests wait for the record's delivery"));
  record.topic = topic;
  record.waiting.push_back(std::move(done));
}

void DeliveryWaiters::answer(Sequence sequence, const Result<Controlled>& answer) {
  // Taken out first, because an answer may lead to a new request for the same record.
  auto record = records_.extract(sequence);
  if (record.empty()) return;
  for (auto& done : record.mapped().waiting) done(answer);
}

void DeliveryWaiters::topic_deleted(const TopicId& topic) {
  std::vector<Sequence> awaited;
  // Collected first, because answer() changes the map.
  for (const auto& [sequence, record] : records_) {
    if (record.topic == topic) awaited.push_back(sequence);
  }
  for (const Sequence sequence : awaited) answer(sequence, Controlled{});
}

}  // namespace tarry::delay
