#include "delay/delivery_waiters.h"

#include <utility>

#include <fmt/core.h>

namespace tarry::delay {
namespace {

// Requests that wait for one record's delivery.  A client that goes away leaves its request.
constexpr std::size_t max_awaiting_one = 16;

}  // namespace

void DeliveryWaiters::add(Sequence sequence, const TopicPartition& partition, ControlDone done) {
  if (stopped_) return done(std::unexpected(*stopped_));
  Record& record = records_[sequence];
  if (record.waiting.size() >= max_awaiting_one)
    return done(fail(Errc::exhausted, "too many requests wait for the record's delivery"));
  record.partition = partition;
  record.waiting.push_back(std::move(done));
}

void DeliveryWaiters::answer(Sequence sequence, const Result<Controlled>& answer) {
  // Taken out first, because an answer may lead to a new request for the same record.
  auto record = records_.extract(sequence);
  if (record.empty()) return;
  for (auto& done : record.mapped().waiting) done(answer);
}

// Collected before any of them is answered, because answer() changes the map.
template <typename Belongs>
std::vector<Sequence> DeliveryWaiters::awaited(const Belongs& belongs) const {
  std::vector<Sequence> found;
  for (const auto& [sequence, record] : records_) {
    if (belongs(record.partition)) found.push_back(sequence);
  }
  return found;
}

void DeliveryWaiters::refused(const TopicPartition& partition, const Error& why) {
  const Errc code = why.code == Errc::fenced ? Errc::fenced : Errc::exhausted;
  const auto text = fmt::format("not delivered yet: {}; it stays pending and due now", why.message);
  for (const Sequence sequence : awaited([&](const auto& its) { return its == partition; }))
    answer(sequence, fail(code, text));
}

void DeliveryWaiters::stop(const Error& why) {
  stopped_ = why;
  for (const Sequence sequence : awaited([](const auto&) { return true; }))
    answer(sequence, std::unexpected(why));
}

void DeliveryWaiters::topic_deleted(const TopicId& topic) {
  for (const Sequence sequence : awaited([&](const auto& its) { return its.topic == topic; }))
    answer(sequence, Controlled{});
}

}  // namespace tarry::delay
