#include "cli/io/line_reader.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cli/io/interrupt.h"

namespace tarry::cli {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::FILE* file = std::tmpfile();
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
  std::rewind(file);
  std::vector<std::string> lines;
  LineReader reader(::fileno(file), "a test");
  while (true) {
    const auto line = reader.next();
    REQUIRE(line.has_value());
    if (!*line) break;
    lines.emplace_back(**line);
  }
  std::fclose(file);
  return lines;
}

TEST_SUITE_BEGIN("line_reader");

TEST_CASE("every line comes once, also an empty one and a last one without its newline") {
  CHECK(lines_of("").empty());
  CHECK(lines_of("\n") == std::vector<std::string>{""});
  CHECK(lines_of("a\n\nb") == std::vector<std::string>{"a", "", "b"});
  CHECK(lines_of("a\nb\n") == std::vector<std::string>{"a", "b"});
}

TEST_CASE("lines are whole where pieces of the file end") {
  std::string text;
  std::vector<std::string> expected;
  for (std::size_t i = 0; i < 3000; ++i) {
    expected.push_back(std::string(i % 997, static_cast<char>('a' + i % 26)));
    text += expected.back() + '\n';
  }
  CHECK(lines_of(text) == expected);
}

TEST_CASE("a line past the limit is refused by its number") {
  std::FILE* file = std::tmpfile();
  std::fputs("short\n", file);
  const std::string mebibyte(1 << 20, 'x');
  for (std::size_t i = 0; i <= LineReader::max_line_bytes >> 20; ++i)
    std::fwrite(mebibyte.data(), 1, mebibyte.size(), file);
  std::fflush(file);
  std::rewind(file);
  LineReader reader(::fileno(file), "a test");
  CHECK(reader.next()->value() == "short");
  const auto line = reader.next();
  REQUIRE_FALSE(line.has_value());
  CHECK(line.error().code == Errc::too_large);
  CHECK(line.error().message.find("line 2") != std::string::npos);
  std::fclose(file);
}

TEST_CASE("while nothing comes, the owner's callback runs again and again") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  int turns = 0;
  LineReader reader(ends[0], "a test", [&] {
    if (++turns == 3) {
      REQUIRE(::write(ends[1], "late\n", 5) == 5);
      ::close(ends[1]);
    }
  });
  CHECK(reader.next()->value() == "late");
  CHECK(turns == 3);
  CHECK_FALSE(reader.next()->has_value());
  ::close(ends[0]);
}

TEST_CASE("a hangup is told once and ends nothing") {
  struct sigaction before {};
  ::sigaction(SIGHUP, nullptr, &before);
  note_hangups();
  CHECK_FALSE(take_hangup());
  for (int i = 0; i < 2; ++i) {
    std::raise(SIGHUP);
    CHECK(take_hangup());
    CHECK_FALSE(take_hangup());
  }
  CHECK_FALSE(was_interrupted());
  ::sigaction(SIGHUP, &before, nullptr);
}

TEST_CASE("a signal ends the reading and drops half a line, even when its writer is gone too") {
  struct sigaction before_int {
  }, before_term{};
  ::sigaction(SIGINT, nullptr, &before_int);
  ::sigaction(SIGTERM, nullptr, &before_term);
  for (const bool writer_goes : {false, true}) {
    end_in_order_on_signals();
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], "whole\nha", 8) == 8);
    int turns = 0;
    LineReader reader(ends[0], "a test", [&] {
      ++turns;
      if (writer_goes) ::close(ends[1]);
      std::raise(SIGINT);
    });
    CHECK(reader.next()->value() == "whole");
    CHECK(turns == 0);
    CHECK_FALSE(reader.next()->has_value());
    CHECK(turns == 1);
    CHECK(was_interrupted());
    ::close(ends[0]);
    if (!writer_goes) ::close(ends[1]);
  }
  end_in_order_on_signals();  // Not interrupted any more.
  ::sigaction(SIGINT, &before_int, nullptr);
  ::sigaction(SIGTERM, &before_term, nullptr);
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry::cli
