#include "broker/batch_intake.h"

#include <new>
#include <utility>

#include "broker/partition.h"

namespace tarry::broker {

using protocol::ErrorCode;
using Lane = BatchChecks::Lane;

void BatchIntake::add(Arrival arrival, BatchChecks::Job job) {
  Place& place = queue_.emplace_back(Place{std::move(arrival), std::move(job), {}, {}});
  if (!BatchChecks::is_short(place.job.records)) check(place, Lane::usual);
  take_what_is_ready();
}

void BatchIntake::check(Place& place, Lane lane) {
  place.state = Place::State::checking;
  checks_.run(lane, place.job,
              [self = shared_from_this(), &place, lane](BatchChecks::Checked checked) {
                self->was_checked(place, lane, std::move(checked));
              });
}

void BatchIntake::was_checked(Place& place, Lane lane, BatchChecks::Checked checked) {
  const bool may_be_larger =
      lane == Lane::usual && checked.verdict && !*checked.verdict &&
      checked.verdict->error().reason == records::Refusal::message_too_large &&
      place.job.records.size() <= place.job.limits.max_message_bytes &&
      BatchChecks::cap_of_usual_lane(place.job) < place.job.limits.max_uncompressed_bytes;
  place.state = may_be_larger ? Place::State::larger : Place::State::checked;
  // Who has retired holds no room.
  if (!may_be_larger && partition_ != nullptr) place.checked = std::move(checked);
  take_what_is_ready();
}

void BatchIntake::abandon() {
  if (partition_ == nullptr) return;  // Retired before: its batches are still answered.
  partition_ = nullptr;
  taking_ = true;
  for (Place& place : queue_) place.checked = {};
}

void BatchIntake::retire() {
  partition_ = nullptr;
  for (Place& place : queue_) place.checked = {};
  take_what_is_ready();
}

void BatchIntake::take_what_is_ready() {
  if (std::exchange(taking_, true)) return;  // Who was answered has handed in the next one.
  const auto self = shared_from_this();
  while (!queue_.empty()) {
    Place& first = queue_.front();
    if (first.state == Place::State::checking) break;
    if (partition_ != nullptr) {
      if (first.state == Place::State::here) {
        try {
          first.checked.verdict = BatchChecks::look_here(first.job);
        } catch (const std::bad_alloc&) {
        }
        first.state = Place::State::checked;
      }
      if (first.state == Place::State::larger) {
        check(first, Lane::large);
        break;
      }
    }
    Place place = std::move(first);
    queue_.pop_front();
    Appended appended;
    if (partition_ == nullptr) {
      appended.error = ErrorCode::unknown_topic_or_partition;
    } else {
      appended = partition_->take_checked(place.arrival, std::move(place.checked.verdict));
    }
    place.checked = {};  // Its room is for others before its client goes on.
    place.arrival.done(std::move(appended));
  }
  taking_ = false;
}

}  // namespace tarry::broker
