#include "delay/moved_due.h"

#include <doctest/doctest.h>

#include <limits>

#include "delay/schedule.h"

namespace tarry::delay {

TEST_CASE("a record is moved to a time or by one, within what is allowed and before it expires") {
  using std::chrono::milliseconds;
  const WallTime due = from_ms(1'800'000'000'000);
  const WallTime expires = due + milliseconds(1'000);
  CHECK(moved_due(due, milliseconds(-5), expires) == due - milliseconds(5));
  CHECK(moved_due(due, due + milliseconds(999), expires) == due + milliseconds(999));
  const auto error = [&](const NewDue& change) {
    const auto moved = moved_due(due, change, expires);
    REQUIRE_FALSE(moved.has_value());
    CHECK(moved.error().code == Errc::invalid);
    return moved.error().message;
  };
  CHECK(error(milliseconds(1'000)).starts_with("the record expires at 2027-01-15T08:00:01"));
  CHECK(error(first_due_allowed - milliseconds(1)).contains("is not between"));
  CHECK(error(last_due_allowed + milliseconds(1)).contains("is not between"));
  CHECK(error(milliseconds(std::numeric_limits<std::int64_t>::max())).contains("cannot be stored"));
}

}  // namespace tarry::delay
