#include "relay/sends_ahead.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace tarry::relay {

using std::chrono::milliseconds;

namespace {

// What is due within this time is sent together, and what was sent is looked at again after it.
constexpr milliseconds send_together{2};

milliseconds until(MonoTime then, MonoTime now) {
  return std::max(std::chrono::ceil<milliseconds>(then - now), milliseconds{0});
}

}  // namespace

bool SendsAhead::has_open() const {
  return std::ranges::any_of(parts_.assignment,
                             [](const auto& each) { return each.second.open.has_value(); });
}

bool SendsAhead::is_open() const {
  return has_open() || flights_.has_begun();
}

bool SendsAhead::follow() {
  if (!flights_.has_begun()) return true;
  const Sending sending = parts_.cluster.sending();
  parts_.delivered(flights_.confirmed(sending.confirmed));
  if (!sending.has_failed) return true;
  TransactionResult sent;
  // It has failed, though all of it may be there now.
  static_cast<void>(end(sent));
  drop();
  return false;
}

bool SendsAhead::begin(std::span<AssignedPartition* const> works) {
  std::vector<ProducerRecord> targets;
  std::vector<WallTime> due;
  for (AssignedPartition* assigned : works) {
    Work& work = *assigned->open;
    const auto ready = std::ranges::stable_partition(work.records, [](const auto& record) {
      return record.kind != ProducerRecord::Kind::target;
    });
    for (const auto& record : ready) assigned->partition.note_sent(record.offset);
    targets.insert(targets.end(), std::make_move_iterator(ready.begin()),
                   std::make_move_iterator(ready.end()));
    work.records.erase(ready.begin(), ready.end());
    due.insert(due.end(), work.delivered_due.begin(), work.delivered_due.end());
    work.delivered_due.clear();
  }
  if (!targets.empty()) {
    const std::size_t count = targets.size();
    if (const auto begun = parts_.questions.begin_send(std::move(targets)); !begun) {
      TransactionResult sent;
      if (end(sent)) parts_.stalled(begun.error().message);
      drop();
      return false;
    }
    flights_.begun(count, std::move(due));
    begun_at_ = parts_.clock.mono();
  }
  if (open_since_ == MonoTime{}) open_since_ = parts_.clock.mono();
  return true;
}

bool SendsAhead::is_over() const {
  return parts_.clock.mono() - open_since_ >= parts_.longest;
}

bool SendsAhead::end(TransactionResult& sent) {
  if (!flights_.has_begun()) return true;
  auto [done, records] = parts_.questions.end_send();
  is_careful_ = done.is_careful;
  if (done.outcome == Outcome::committed) {
    parts_.delivered(flights_.confirmed(flights_.begun()));
    flights_.ended();
    sent = std::move(done);
    return true;
  }
  flights_.ended();
  parts_.failed(done, records);
  return false;
}

void SendsAhead::drop() {
  for (auto& [source, assigned] : parts_.assignment) assigned.open.reset();
  open_since_ = {};
  went_well_ = false;
}

void SendsAhead::give_up() {
  if (flights_.has_begun()) is_careful_ = parts_.questions.end_send().done.is_careful;
  flights_.ended();
  drop();
}

milliseconds SendsAhead::poll_wait(milliseconds wait, MonoTime mono) const {
  if (flights_.has_begun()) wait = std::max(wait, until(begun_at_ + send_together, mono));
  if (flights_.is_under_way()) wait = std::min(wait, send_together);
  if (has_open()) wait = std::min(wait, until(open_since_ + parts_.longest, mono));
  return wait;
}

bool SendsAhead::send(const std::vector<ProducerRecord>& records, TransactionResult& sent) {
  for (const auto& record : records)
    parts_.assignment.at(record.source).partition.note_sent(record.offset);
  sent = parts_.questions.send(records);
  is_careful_ = sent.is_careful || (is_careful_ && sent.outcome != Outcome::committed);
  if (sent.outcome == Outcome::committed) return true;
  parts_.failed(sent, records);
  return false;
}

}  // namespace tarry::relay
