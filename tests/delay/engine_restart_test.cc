#include "delay/engine.h"

#include <chrono>
#include <string>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

TEST_SUITE("restart") {
  TEST_CASE("overdue records are delivered immediately, in order, none twice") {
    TestHost host;
    Strings expected;
    for (int i = 0; i < 3'000; ++i) {
      host.schedule(orders, std::to_string(i), std::to_string(1'000 + i) + "ms");
      expected.push_back(std::to_string(i));
    }
    host.settle();
    host.crash(0, milliseconds{60'000});
    host.settle();
    CHECK(host.values(orders) == expected);
    host.crash();
    host.pass(milliseconds{60'000});
    CHECK(host.values(orders) == expected);
  }

  TEST_CASE("a delivery that was durable and not reported is not repeated") {
    TestHost host;
    host.schedule(orders, "a", "1s");
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    CHECK(host.appended_and_waiting() == 1);
    SUBCASE("it was durable") {
      host.crash(1);
    }
    SUBCASE("it was not") {
      host.crash();
    }
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"a"});
  }
}

}  // namespace
}  // namespace tarry::delay
