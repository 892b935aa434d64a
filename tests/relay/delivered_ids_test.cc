#include <doctest/doctest.h>

#include <string>

#include "relay/delivered_ids.h"

namespace tarry::relay {

TEST_CASE(
    "when the bound of delivered ids is lowered the oldest are forgotten at once, and others when "
    "they are the oldest") {
  DeliveredIds ids;
  const WallTime now = from_ms(1'800'000'000'000);
  for (int i = 0; i < 10; ++i) ids.add(std::to_string(i), now);
  ids.limit(3);
  CHECK_FALSE(ids.knows("6", now));
  CHECK(ids.knows("7", now));
  ids.add("7", now);
  ids.add("10", now);
  CHECK(ids.knows("7", now));
  CHECK_FALSE(ids.knows("8", now));
  ids.limit(0);
  CHECK(ids.knows("10", now));
  CHECK_FALSE(ids.knows("7", now));
  CHECK_FALSE(ids.knows("10", now + DeliveredIds::max_age + std::chrono::milliseconds(1)));
}

}  // namespace tarry::relay
