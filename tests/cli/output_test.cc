#include "cli/output.h"

#include <unistd.h>

#include <csignal>

#include <doctest/doctest.h>

#include "tests/cli/captured.h"

namespace tarry::cli {
TEST_SUITE_BEGIN("output");

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

TEST_CASE("a reader that goes away ends a command as done, before anything is written too") {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::FILE* file = ::fdopen(ends[1], "w");
  Output out(file, false);
  out.flush();
  CHECK_FALSE(out.is_over());
  ::close(ends[0]);
  out.flush();
  CHECK(out.is_over());
  CHECK(out.end(0) == 0);
  CHECK(out.end(1) == 1);
  std::fclose(file);
}

TEST_CASE("a full disk is told, with status 1") {
  std::FILE* file = std::fopen("/dev/full", "w");
  REQUIRE(file != nullptr);
  Output out(file, false);
  out.line("something");
  CHECK(out.end(0) == 1);
  std::fclose(file);
}

TEST_CASE("numbers as people read them") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1234567) == "1 234 567");
  CHECK(size_text(1023) == "1023 B");
  CHECK(size_text(1536) == "1.5 KiB");
  CHECK(size_text(std::uint64_t{5} << 30) == "5.0 GiB");
  CHECK(counted(1, "record", "records") == "1 record");
  CHECK(counted(0, "record", "records") == "0 records");
}

TEST_SUITE_END();
}  // namespace tarry::cli
