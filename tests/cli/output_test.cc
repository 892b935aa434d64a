#include "cli/io/output.h"

#include <unistd.h>

#include <csignal>

#include <doctest/doctest.h>

#include "tests/cli/captured.h"

namespace tarry::cli {
TEST_SUITE_BEGIN("output");

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

TEST_CASE("a full disk is an error with status 1") {
  std::FILE* file = std::fopen("/dev/full", "w");
  REQUIRE(file != nullptr);
  Output out(file, false);
  out.line("something");
  CHECK(out.end(0) == 1);
  std::fclose(file);
}

TEST_SUITE_END();
}  // namespace tarry::cli
