#include "cli/io/text.h"

#include <doctest/doctest.h>

namespace tarry::cli {
TEST_SUITE_BEGIN("text");

TEST_CASE("a cell is one line without tabs, whatever comes, and keeps its letters") {
  CHECK(cell("größe €") == "größe €");
  CHECK(cell("a\tb\nc\\") == "a\\tb\\nc\\\\");
  CHECK(cell(std::string_view("\0\x1b[2J\x7f", 6)) == "\\x00\\x1b[2J\\x7f");
  CHECK(cell("\xff\xc3") == "\\xff\\xc3");
  CHECK(cell("\xc2\x9b") == "\\xc2\\x9b");           // A control character of two bytes.
  CHECK(cell("\xe2\x80\xae") == "\\xe2\\x80\\xae");  // Turns the text around.
  CHECK(width_of("größe €") == 7);
}

TEST_CASE("a text that is cut says so, and no character of it is half") {
  CHECK(shortened("größe", 5) == "größe");
  CHECK(shortened("größe", 4) == "grö…");
  CHECK(shortened("größe", 1) == "…");
  CHECK(shortened("größe", 0) == "größe");
  CHECK(shortened("", 3).empty());
}

TEST_SUITE_END();
}  // namespace tarry::cli
