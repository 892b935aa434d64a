#include "base/utf8.h"

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("utf8") {
  TEST_CASE("only well-formed UTF-8 is UTF-8") {
    for (const auto* good : {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                             "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"})
      CHECK(is_utf8(good));
    for (const auto* bad : {"\x80", "\xc3", "\xc0\xaf", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff", "a\xff", "\xe2\x82",
                            "\xf0\x80\x80\x80"})
      CHECK_FALSE(is_utf8(bad));
  }

  TEST_CASE(
      "a character that moves the cursor, breaks a line or reverses text is a control character") {
    for (const auto* bad :
         {"\n", "\x1b", "\x7f", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xae", "\xe2\x81\xa6"})
      CHECK(is_control_character(bad));
    for (const auto* good : {"a", "\\", "\xc2\xa0", "\xc3\x84", "\xe2\x82\x80", "\xf0\x9f\x98\x80"})
      CHECK_FALSE(is_control_character(good));
  }
}

}  // namespace
}  // namespace tarry
