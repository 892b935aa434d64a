#include "cli/io/table.h"

#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "cli/io/text.h"

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

TEST_CASE("a narrow terminal gets no line that is wider than it, as long as cells can be cut") {
  const std::string id(100, 'i');
  for (const std::size_t width : {15U, 40U, 60U, 80U, 200U}) {
    CAPTURE(width);
    Captured out(true, width);
    Table table(
        {{"TOPIC", false, true, 2}, {"ID", false, true}, {"DUE"}, {"BYTES", true, false, 1}});
    table.row({"größe", id, "tomorrow", "1"});
    table.print(out.output());
    std::istringstream lines(out.text());
    std::string head, line;
    std::getline(lines, head);
    std::getline(lines, line);
    CHECK(width_of(head) <= width);
    CHECK(width_of(line) <= width);
    if (width >= 40) CHECK(line.find("tomorrow") != std::string::npos);
    CHECK((line.find("…") == std::string::npos) == (width == 200));
    CHECK((out.text().find("BYTES") != std::string::npos) == (width >= 60));
  }
}

TEST_CASE("a column that was left out stays so on the next page, and a pipe gets all of them") {
  Captured narrow(true, 10), pipe(false, 10);
  for (auto* out : {&narrow, &pipe}) {
    Table table({{"A", false, false, 1}, {"B"}});
    table.row({"aaaaaaaa", "bbbbbbbb"});
    table.print(out->output());
    table.row({"a", "b"});
    table.print(out->output());
  }
  CHECK(narrow.text() == "B\nbbbbbbbb\nb\n");
  CHECK(pipe.text() == "aaaaaaaa\tbbbbbbbb\na\tb\n");
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
