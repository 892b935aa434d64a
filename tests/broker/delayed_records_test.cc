// The views of pending records for people.

#include "broker/views/delayed_records.h"

#include <doctest/doctest.h>

#include <tuple>
#include <vector>

namespace tarry::broker::test {
namespace {

using storage::ScheduleEvent;
using EventKind = ScheduleEvent::Kind;

// An event of the record `sequence`, which was due at `first` when it came.
ScheduleEvent event(EventKind kind, int at, int due, Sequence sequence, int first,
                    Offset offset = -1) {
  return {kind, from_ms(at), {from_ms(due), sequence}, from_ms(first), offset};
}

using Told = std::vector<std::tuple<EventKind, int, int, Offset>>;
Told told(const std::vector<ScheduleEvent>& events) {
  Told out;
  for (const auto& one : folded(3, events)) {
    CHECK(one.partition == 3);
    out.emplace_back(one.kind, static_cast<int>(to_ms(one.at)), static_cast<int>(to_ms(one.due)),
                     one.offset);
  }
  return out;
}

TEST_SUITE("delayed records") {
  TEST_CASE("a trace tells of a replacement and of a move once, with the new due time") {
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::replaced, 20, 500, 1, 500),
                event(EventKind::scheduled, 21, 700, 2, 700),
                event(EventKind::moved, 30, 700, 2, 700),
                event(EventKind::scheduled, 21, 900, 2, 700),
                event(EventKind::delivered, 900, 900, 2, 700, 42)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::replaced, 21, 700, -1},
               {EventKind::moved, 30, 900, -1},
               {EventKind::delivered, 900, 900, 42}});
  }

  TEST_CASE("a record that is moved back to its first due time was moved") {
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::moved, 20, 500, 1, 500),
                event(EventKind::scheduled, 10, 900, 1, 500),
                event(EventKind::moved, 30, 900, 1, 500),
                event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::cancelled, 40, 500, 1, 500)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::moved, 20, 900, -1},
               {EventKind::moved, 30, 500, -1},
               {EventKind::cancelled, 40, 500, -1}});
  }

  TEST_CASE("the next times of a recurring record are no events, its deliveries are") {
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::delivered, 500, 500, 1, 500, 7),
                event(EventKind::scheduled, 10, 600, 1, 500),
                event(EventKind::delivered, 600, 600, 1, 500, 8)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::delivered, 500, 500, 7},
               {EventKind::delivered, 600, 600, 8}});
    // Also when its delivery is too long ago to be remembered.
    CHECK(told({event(EventKind::scheduled, 10, 600, 1, 500),
                event(EventKind::delivered, 600, 600, 1, 500, 8)}) ==
          Told{{EventKind::delivered, 600, 600, 8}});
  }

  TEST_CASE("an id that is given again after its end is scheduled again") {
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::cancelled, 20, 500, 1, 500),
                event(EventKind::scheduled, 30, 800, 2, 800)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::cancelled, 20, 500, -1},
               {EventKind::scheduled, 30, 800, -1}});
    // By a record that is due at once.
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::replaced, 20, 500, 1, 500),
                event(EventKind::delivered, 20, 20, 2, 20, 9)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::replaced, 20, 500, -1},
               {EventKind::delivered, 20, 20, 9}});
  }
}

}  // namespace
}  // namespace tarry::broker::test
