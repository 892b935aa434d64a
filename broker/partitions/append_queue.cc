#include "broker/partitions/append_queue.h"

#include <exception>
#include <utility>

namespace tarry::broker {

using protocol::ErrorCode;
using Lane = BatchChecks::Lane;

namespace {

Appended failed_with(ErrorCode error) {
  Appended failed;
  failed.error = error;
  return failed;
}

}  // namespace

void AppendQueue::add(Arrival arrival, BatchChecks::Job job) {
  Place& place = queue_.emplace_back(Place{std::move(arrival), std::move(job), {}, {}});
  try {
    if (!BatchChecks::is_short(place.job.records)) check(place, Lane::usual);
  } catch (...) {
    queue_.pop_back();
    throw;
  }
  append_checked();
}

void AppendQueue::check(Place& place, Lane lane) {
  place.state = Place::State::checking;
  checks_.run(lane, place.job,
              [self = shared_from_this(), &place, lane](BatchChecks::Checked checked) {
                self->was_checked(place, lane, std::move(checked));
              });
}

void AppendQueue::was_checked(Place& place, Lane lane, BatchChecks::Checked checked) {
  const bool may_be_larger =
      lane == Lane::usual && checked.verdict && !*checked.verdict &&
      checked.verdict->error().reason == records::Refusal::message_too_large &&
      place.job.records.size() <= place.job.limits.max_message_bytes &&
      BatchChecks::usual_lane_cap(place.job) < place.job.limits.max_uncompressed_bytes;
  place.state = may_be_larger ? Place::State::larger : Place::State::checked;
  // Who has retired holds no room.
  if (!may_be_larger && take_ != nullptr) place.checked = std::move(checked);
  append_checked();
}

void AppendQueue::abandon() {
  if (take_ == nullptr) return;  // Retired before: its batches are still answered.
  take_ = nullptr;
  taking_ = true;
  for (Place& place : queue_) place.checked = {};
}

void AppendQueue::retire() {
  take_ = nullptr;
  for (Place& place : queue_) place.checked = {};
  append_checked();
}

void AppendQueue::look_at(Place& first) {
  try {
    if (first.state == Place::State::larger) return check(first, Lane::large);
    first.checked.verdict = BatchChecks::check_inline(first.job);
  } catch (const std::exception&) {
    // It has no verdict, and is refused with that.
  }
  first.state = Place::State::checked;
}

Appended AppendQueue::take(Place& first) {
  try {
    if (take_ != nullptr) return take_(first.arrival, std::move(first.checked.verdict));
  } catch (const std::exception&) {
    return failed_with(ErrorCode::kafka_storage_error);
  }
  return failed_with(ErrorCode::unknown_topic_or_partition);
}

// Throws nothing: who calls it has only the last of those who are answered here.
void AppendQueue::append_checked() noexcept {
  if (std::exchange(taking_, true)) return;  // Who was answered has handed in the next one.
  const auto self = shared_from_this();
  while (!queue_.empty()) {
    Place& first = queue_.front();
    if (first.state == Place::State::checking) break;
    if (take_ != nullptr && first.state != Place::State::checked) {
      look_at(first);
      continue;
    }
    Place place = std::move(first);
    queue_.pop_front();
    Appended appended = take(place);
    place.checked = {};  // Its room is for others before its client goes on.
    place.arrival.done(std::move(appended));
  }
  taking_ = false;
}

}  // namespace tarry::broker
