#include "relay/patience.h"

#include <doctest/doctest.h>

namespace tarry::relay {

using std::chrono::milliseconds;

TEST_CASE("questions wait longer while Kafka is slow, and no longer than needed when it is not") {
  Patience patience(milliseconds(300), milliseconds(4'000));
  CHECK(patience.is_well_inside(milliseconds(100)));
  CHECK_FALSE(patience.is_well_inside(milliseconds(101)));
  // An answer that takes longer than the wait is waited for in the end.
  for (int i = 0; i < 5 && patience.wait() < milliseconds(2'000); ++i) patience.not_answered();
  CHECK(patience.wait() >= milliseconds(2'000));
  for (int i = 0; i < 5; ++i) patience.not_answered();
  CHECK(patience.wait() == milliseconds(4'000));
  patience.answered(milliseconds(350));
  CHECK(patience.wait() == milliseconds(2'100));
  CHECK(patience.is_well_inside(milliseconds(350)));
  patience.answered(milliseconds(2));
  CHECK(patience.wait() == milliseconds(300));
}

}  // namespace tarry::relay
