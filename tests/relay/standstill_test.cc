#include "relay/standstill.h"

#include <doctest/doctest.h>

namespace tarry::relay {

using std::chrono::milliseconds;

TEST_CASE("a standstill is noticed once, by whichever thread continues first") {
  const MonoTime begin{milliseconds(1'000)};
  Standstill standstill(begin);
  for (int i = 1; i <= 10; ++i) standstill.tick(begin + milliseconds(100 * i));
  CHECK(standstill.longest(begin + milliseconds(1'020)) == milliseconds(100));
  // The thread that asks goes on before the other one.
  CHECK(standstill.longest(begin + milliseconds(4'000)) == milliseconds(3'000));
  // The other one goes on, and only then is it asked.
  standstill.tick(begin + milliseconds(4'000));
  standstill.tick(begin + milliseconds(9'000));
  CHECK(standstill.longest(begin + milliseconds(9'001)) == milliseconds(5'000));
  standstill.tick(begin + milliseconds(9'100));
  CHECK(standstill.longest(begin + milliseconds(9'101)) == milliseconds(100));
}

}  // namespace tarry::relay
