#include "broker/partitions/append_queue.h"

#include <exception>
#include <utility>

namespace tarry::broker {

using protocol::ErrorCode;
using Lane = BatchChecks::Lane;

namespace {

// One turn takes this many scheduled records of batches that are ready: some milliseconds.
constexpr std::size_t records_a_turn = 1'024;

Appended failed_with(ErrorCode error) {
  Appended failed;
  failed.error = error;
  return failed;
}

}  // namespace

void AppendQueue::add(Arrival arrival, BatchChecks::Job job) {
  Place& place = queue_.emplace_back(Place{.arrival = std::move(arrival), .job = std::move(job)});
  try {
    if (!BatchChecks::is_short(place.job)) {
      check(place, Lane::usual);
    } else {
      place.checked.verdict = BatchChecks::check_inline(place.job);
      read_ids(place);
    }
  } catch (...) {
    // Taken out again, because the caller tells the client of the failure.
    queue_.pop_back();
    throw;
  }
  append_checked();
}

void AppendQueue::add_checked(Arrival arrival, BatchChecks::Job job, BatchChecks::Verdict verdict) {
  Place& place = queue_.emplace_back(Place{.arrival = std::move(arrival), .job = std::move(job)});
  place.checked.verdict = std::move(verdict);
  try {
    read_ids(place);
  } catch (...) {
    queue_.pop_back();
    throw;
  }
  append_checked();
}

// Called for a batch that is checked.
void AppendQueue::read_ids(Place& place) {
  // First, so that a failure below leaves the batch to be answered.
  place.state = Place::State::checked;
  const auto& verdict = place.checked.verdict;
  if (!is_taking() || !verdict || !*verdict || !(*verdict)->schedules) return;
  if ((*verdict)->schedules->ids == 0) return;
  place.state = Place::State::reading;
  steps_->read_ids(*(*verdict)->schedules,
                   [self = shared_from_this(), &place](Result<IdRows> rows) {
                     place.ids = std::move(rows);
                     place.state = Place::State::checked;
                     self->append_checked();
                   });
}

void AppendQueue::check(Place& place, Lane lane) {
  place.state = Place::State::checking;
  checks_.run(lane, place.job,
              [self = shared_from_this(), &place, lane](BatchChecks::Checked checked) {
                self->was_checked(place, lane, std::move(checked));
              });
}

void AppendQueue::was_checked(Place& place, Lane lane, BatchChecks::Checked checked) {
  // A batch that was too large for the usual lane may not be too large for the topic.
  const bool may_be_larger =
      lane == Lane::usual && checked.verdict && !*checked.verdict &&
      checked.verdict->error().reason == records::Refusal::message_too_large &&
      // Not if it is the packed size that is too large, which no lane changes.
      place.job.records.size() <= place.job.limits.max_message_bytes &&
      BatchChecks::usual_lane_cap(place.job) < place.job.limits.max_uncompressed_bytes;
  place.state = may_be_larger ? Place::State::larger : Place::State::checked;
  // A retired partition holds no room.
  if (!may_be_larger && is_taking()) {
    place.checked = std::move(checked);
    try {
      read_ids(place);
    } catch (const std::exception&) {
      place.ids = fail(Errc::exhausted, "the broker has too little memory");
      place.state = Place::State::checked;
    }
  }
  append_checked();
}

void AppendQueue::abandon() {
  if (!is_taking()) return;  // Retired before: its batches are still answered.
  steps_.reset();
  // From here on append_checked() has nothing to do.
  taking_ = true;
  forget_checked();
}

// A partition that takes nothing any more holds no room, except for batches that the pool is
// reading.
void AppendQueue::forget_checked() {
  for (Place& place : queue_) {
    if (place.state == Place::State::reading || place.state == Place::State::splitting) continue;
    place.letters.reset();
    place.parts.reset();
    place.checked = {};
  }
}

void AppendQueue::retire() {
  steps_.reset();
  forget_checked();
  append_checked();
}

void AppendQueue::check_larger(Place& first) {
  try {
    check(first, Lane::large);
  } catch (const std::exception&) {
    first.state = Place::State::checked;  // It has no verdict, and is refused with that.
  }
}

// Whether the first one has to wait for its dead letters; a batch that is refused has none.
bool AppendQueue::begin_to_write(Place& first) {
  if (!first.parts || !*first.parts) return false;
  try {
    first.letters = steps_->dead_letters(first.arrival, first.checked.verdict);
    if (!first.letters) return false;
    write_next(first);
  } catch (const std::exception&) {
    first.letters_written = fail(Errc::exhausted, "the broker has too little memory");
    return false;
  }
  return true;
}

void AppendQueue::write_next(Place& first) {
  steps_->write(first.letters->next(), [self = shared_from_this(), &first](Result<> result) {
    self->was_written(first, std::move(result));
  });
  first.state = Place::State::writing;
}

void AppendQueue::was_written(Place& first, Result<> result) {
  first.letters_written = std::move(result);
  first.state = Place::State::written;
  try {
    // This piece is durable; the next one follows.
    if (is_taking() && first.letters_written && !first.letters->empty()) return write_next(first);
  } catch (const std::exception&) {
    first.letters_written = fail(Errc::exhausted, "the broker has too little memory");
  }
  append_checked();
}

void AppendQueue::split(Place& first) {
  first.state = Place::State::splitting;
  try {
    steps_->split(first.arrival, first.checked.verdict, std::move(first.ids),
                  [self = shared_from_this(), &first](Parts parts) {
                    if (self->is_taking()) first.parts = std::move(parts);
                    first.state = Place::State::split;
                    self->append_checked();
                  });
  } catch (const std::exception&) {
    first.checked.verdict.reset();  // It is refused with that.
    first.state = Place::State::split;
  }
}

Appended AppendQueue::take(Place& first) {
  try {
    if (is_taking())
      return steps_->take(first.arrival, std::move(first.checked.verdict), std::move(first.parts),
                          first.letters_written);
  } catch (const std::exception&) {
    return failed_with(ErrorCode::kafka_storage_error);
  }
  return failed_with(ErrorCode::unknown_topic_or_partition);
}

std::size_t AppendQueue::scheduled_records(const Place& place) const {
  const auto& verdict = place.checked.verdict;
  const bool any =
      is_taking() && verdict && *verdict && (*verdict)->schedules && (*verdict)->schedules->any();
  return any ? static_cast<std::size_t>((*verdict)->batch.count) : 0;
}

// False: there was no memory for it, and this turn does the work.
bool AppendQueue::go_on_later() {
  try {
    post_([self = shared_from_this()] {
      self->posted_ = false;
      self->append_checked();
    });
  } catch (const std::exception&) {
    return false;
  }
  return posted_ = true;
}

// Throws nothing: who calls it has only the last of those who are answered here.
void AppendQueue::append_checked() noexcept {
  using State = Place::State;
  // A requester that was answered in here may have handed in the next one.
  if (posted_ || std::exchange(taking_, true)) return;
  const auto self = shared_from_this();
  std::size_t records = 0;
  while (!queue_.empty()) {
    if (records >= records_a_turn && go_on_later()) break;
    Place& first = queue_.front();
    const bool is_away = first.state == State::checking || first.state == State::reading ||
                         first.state == State::writing || first.state == State::splitting;
    if (is_away) break;
    if (is_taking() && first.state == State::larger) {
      // Only the first one: there is room for one such batch, and the others wait behind it anyway.
      check_larger(first);
      continue;
    }
    if (is_taking() && first.state == State::checked) {
      split(first);
      continue;
    }
    if (is_taking() && first.state == State::split && begin_to_write(first)) break;
    records += scheduled_records(first);
    first.letters.reset();  // They view what moves.
    // Out of the queue before it is answered: its client may hand in the next batch at once.
    Place place = std::move(first);
    queue_.pop_front();
    Appended appended = take(place);
    place.parts.reset();
    place.checked = {};  // Its room is for others before its client goes on.
    place.arrival.done(std::move(appended));
  }
  taking_ = false;
}

}  // namespace tarry::broker
