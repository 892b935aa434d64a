#include "base/ascii_case.h"

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("ascii case") {
  TEST_CASE("letters are equal in either case, and no other two characters are") {
    for (int a = 0; a < 256; ++a) {
      for (int b = 0; b < 256; ++b) {
        const char left = static_cast<char>(a), right = static_cast<char>(b);
        const bool letters = (a | 0x20) >= 'a' && (a | 0x20) <= 'z' && (a | 0x20) == (b | 0x20);
        if (equals_ignoring_case({&left, 1}, {&right, 1}) != (a == b || letters))
          FAIL_CHECK(a << " and " << b);
      }
    }
    CHECK(equals_ignoring_case("X-Deliver-AT", "x-deliver-at"));
    CHECK(!equals_ignoring_case("x-delay", "x-delays"));
    CHECK(equals_ignoring_case("", ""));
  }
}

}  // namespace
}  // namespace tarry
