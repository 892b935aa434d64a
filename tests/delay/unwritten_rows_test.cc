#include "delay/unwritten_rows.h"

#include <doctest/doctest.h>

#include "tests/given.h"

namespace tarry::delay {
namespace {

storage::ScheduleEvent event_at(std::int64_t ms) {
  storage::ScheduleEvent event;
  event.at = from_ms(ms);
  return event;
}

TEST_SUITE("unwritten rows") {
  TEST_CASE("a request that asks the store passes over what is written, and over nothing else") {
    const TopicPartition partition{};
    QueuedBackground background;
    UnwrittenRows rows(background);
    rows.tell(partition, "written", event_at(1));
    (void)rows.begin_write();
    rows.written();
    rows.tell(partition, "writing", event_at(2));
    (void)rows.begin_write();
    rows.tell(partition, "new", event_at(3));

    const auto asked = rows.since_stored();
    CHECK(rows.last(partition, "written", rows.since().number) != nullptr);
    CHECK(rows.last(partition, "written", asked.number) == nullptr);
    CHECK(rows.last(partition, "writing", asked.number) != nullptr);
    CHECK(rows.last(partition, "new", asked.number) != nullptr);

    // What was not in the store yet stays until the request ends, written or not.
    rows.written();
    (void)rows.begin_write();
    rows.written();
    rows.forget_unneeded(0);
    CHECK(rows.last(partition, "writing", asked.number) != nullptr);
    CHECK(rows.last(partition, "new", asked.number) != nullptr);
  }
}

}  // namespace
}  // namespace tarry::delay
