#include "cli/io/table.h"

#include <doctest/doctest.h>

#include "tests/cli/captured.h"

namespace tarry::cli {
TEST_SUITE_BEGIN("table");

TEST_CASE("a pipe gets cells with tabs between them and no head") {
  Captured out(false);
  Table table({{"NAME"}, {"BYTES", true}});
  table.row({"a", "1"});
  table.row({"long name", "12345"});
  table.print(out.output());
  CHECK(out.text() == "a\t1\nlong name\t12345\n");
}

TEST_CASE("a terminal gets a head and columns, numbers on the right") {
  Captured out(true);
  Table table({{"NAME"}, {"BYTES", true}, {"X"}});
  table.row({"größe", "1", "y"});
  table.row({"b", "1234567", ""});
  table.print(out.output());
  CHECK(out.text() ==
        "NAME     BYTES  X\n"
        "größe        1  y\n"
        "b      1234567  \n");
}

TEST_CASE("the pages of one table have one head") {
  Captured out(true);
  Table table({{"A"}});
  table.row({"1"});
  table.print(out.output());
  table.row({"2"});
  table.print(out.output());
  CHECK(out.text() == "A\n1\n2\n");
}

TEST_SUITE_END();
}  // namespace tarry::cli
