#include <doctest/doctest.h>

#include <string>

#include "relay/prepared_targets.h"

namespace tarry::relay {

TEST_CASE("of however many targets no more than the bound are remembered, and the last half is") {
  PreparedTargets targets(8);
  const Source source{"o.delayed", 0};
  int remembered = 0;
  for (int i = 0; i < 100; ++i) {
    targets.add("t" + std::to_string(i), source);
    remembered = 0;
    for (int j = 0; j <= i; ++j)
      if (targets.contains("t" + std::to_string(j), source)) ++remembered;
    CHECK(remembered <= 8);
    for (int j = i; j >= 0 && j > i - 4; --j)
      CHECK(targets.contains("t" + std::to_string(j), source));
  }
  CHECK(remembered >= 4);
}

TEST_CASE("a target that is used is not forgotten, however many others come") {
  PreparedTargets targets(8);
  const Source source{"o.delayed", 0};
  targets.add("mine", source);
  for (int i = 0; i < 100; ++i) {
    targets.add("t" + std::to_string(i), source);
    CHECK(targets.use("mine", source));
  }
  for (int i = 0; i < 8; ++i) targets.add("u" + std::to_string(i), source);
  CHECK_FALSE(targets.use("mine", source));
}

TEST_CASE("a target is prepared for the source that delivers to it, and for no other") {
  PreparedTargets targets;
  targets.add("t", {"o.delayed", 0});
  CHECK(targets.contains("t", {"o.delayed", 0}));
  CHECK_FALSE(targets.contains("t", {"o.delayed", 1}));
  CHECK_FALSE(targets.use("t", {"p.delayed", 0}));
  targets.clear();
  CHECK_FALSE(targets.contains("t", {"o.delayed", 0}));
}

}  // namespace tarry::relay
