#include <doctest/doctest.h>

#include "relay/queue_marks.h"

namespace tarry::relay {
namespace {

WallTime moment(std::int64_t ms) {
  return from_ms(1'800'000'000'000 + ms);
}

void take_some(QueueMarks& marks, int count, std::size_t bytes = 10) {
  for (int i = 0; i < count; ++i) marks.took(bytes);
}

}  // namespace

TEST_CASE(
    "a poll that leaves records in the queue is complete up to the last mark that it reached") {
  QueueMarks marks(moment(0), {1'000, 1'000'000});
  marks.look(moment(10), 30);
  take_some(marks, 20);
  CHECK(marks.at() == moment(0));
  marks.look(moment(20), 25);  // Fifteen more have come.
  take_some(marks, 10);
  CHECK(marks.at() == moment(10));
  take_some(marks, 14);
  CHECK(marks.at() == moment(10));
  take_some(marks, 1);
  CHECK(marks.at() == moment(20));
  CHECK_FALSE(marks.take_was_full());
}

TEST_CASE("an empty queue is not full, however few records librdkafka may keep in it") {
  for (const std::size_t bound : {1u, 2u, 3u, 4u, 100'000u}) {
    const auto full = QueueMarks::QueueBound::below(bound, bound * 1'024);
    CHECK(full.records <= bound);
    QueueMarks marks(moment(0), full);
    marks.look(moment(10), 0);
    CHECK_FALSE(marks.take_was_full());
    marks.look(moment(20), bound);
    CHECK(marks.take_was_full());
  }
}

TEST_CASE("a queue that is empty is complete up to the look before") {
  QueueMarks marks(moment(0), {1'000, 1'000'000});
  marks.look(moment(10), 3);
  take_some(marks, 2);  // The third one was an event that librdkafka keeps to itself.
  marks.look(moment(11), 0);
  marks.found_nothing();
  CHECK(marks.at() == moment(11));
  marks.look(moment(20), 0);
  CHECK(marks.at() == moment(20));
}

TEST_CASE("a queue that was full says nothing of its time, for its records or for its bytes") {
  QueueMarks marks(moment(0), {100, 1'000});
  marks.look(moment(10), 100);
  CHECK(marks.take_was_full());
  take_some(marks, 100, 1);
  CHECK(marks.at() == moment(0));
  marks.look(moment(20), 10);
  take_some(marks, 10, 99);
  CHECK_FALSE(marks.take_was_full());
  CHECK(marks.at() == moment(20));
  marks.look(moment(30), 10);
  take_some(marks, 10, 100);
  CHECK(marks.take_was_full());
  CHECK(marks.at() == moment(20));
  CHECK_FALSE(marks.take_was_full());
}

TEST_CASE("marks from before the clock was set back say nothing of the time behind it") {
  QueueMarks marks(moment(0), {1'000, 1'000'000});
  marks.look(moment(5'000), 10);
  take_some(marks, 10);
  CHECK(marks.at() == moment(5'000));
  marks.look(moment(6'000), 30);
  marks.look(moment(1'000), 40);
  CHECK(marks.at() == WallTime{});
  take_some(marks, 30);
  CHECK(marks.at() == WallTime{});
  take_some(marks, 10);
  CHECK(marks.at() == moment(1'000));
}

TEST_CASE("marks have a bound, and those that are there are still reached") {
  QueueMarks marks(moment(0), {1'000'000, 1'000'000});
  for (std::size_t i = 0; i < 2 * QueueMarks::max_marks; ++i)
    marks.look(moment(static_cast<std::int64_t>(i)), 500);
  take_some(marks, 500);
  CHECK(marks.at() == moment(static_cast<std::int64_t>(QueueMarks::max_marks) - 1));
}

}  // namespace tarry::relay
