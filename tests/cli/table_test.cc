#include "cli/io/table.h"

#include <sstream>
#include <string>
#include <vector>

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

TEST_CASE("a last column of sentences goes on below itself, word by word, and is not cut") {
  const auto printed = [](std::size_t width, const std::string& text) {
    Captured out(width > 0, width);
    Table table({{"CHECK"}, {.head = "DETAIL", .wraps = true}});
    table.row({"clock", text});
    table.row({"x", "y"});
    table.print(out.output());
    return out.text();
  };
  CHECK(printed(30, "not synchronised, größer; run chrony") ==
        "CHECK  DETAIL\n"
        "clock  not synchronised,\n"
        "       größer; run chrony\n"
        "x      y\n");
  // A word that is wider than the column is broken where it has to be.
  CHECK(printed(30, std::string(30, 'a') + " b") == "CHECK  DETAIL\nclock  " +
                                                        std::string(23, 'a') + "\n       " +
                                                        std::string(7, 'a') + " b\nx      y\n");
  // Where a line would hardly have a word, and in a pipe, a row is one line.
  CHECK(printed(20, "not synchronised, größer") ==
        "CHECK  DETAIL\nclock  not synchron…\nx      y\n");
  CHECK(printed(0, "not synchronised, größer") == "clock\tnot synchronised, größer\nx\ty\n");
}

TEST_CASE("text is broken at spaces into parts of a width, and all but these spaces stays") {
  using Parts = std::vector<std::string>;
  CHECK(wrapped("", 5) == Parts{""});
  CHECK(wrapped("ab cd", 5) == Parts{"ab cd"});
  CHECK(wrapped("ab cd ef", 5) == Parts{"ab cd", "ef"});
  CHECK(wrapped("ab cde f", 5) == Parts{"ab", "cde f"});
  CHECK(wrapped("abcdefgh i", 5) == Parts{"abcde", "fgh i"});
  CHECK(wrapped(" abcdefg", 5) == Parts{" abcd", "efg"});
  CHECK(wrapped("abcde ", 5) == Parts{"abcde"});
  CHECK(wrapped("größe größe", 5) == Parts{"größe", "größe"});
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
