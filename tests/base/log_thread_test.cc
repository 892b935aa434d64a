#include "base/log_thread.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "base/log.h"
#include "base/log_format.h"

namespace tarry {
namespace {

using namespace std::chrono_literals;

// A pipe whose reading end is the test.
struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reading = ends[0], writing = ends[1];
    ::fcntl(writing, F_SETPIPE_SZ, 4096);
  }
  ~Pipe() {
    ::close(reading);
    ::close(writing);
  }
  // Reads until `word` has come, or all that is there.
  std::string read_until(std::string_view word) {
    std::string text;
    pollfd readable{reading, POLLIN, 0};
    while (text.find(word) == text.npos && ::poll(&readable, 1, 20'000) == 1) {
      char buffer[4096];
      const auto got = ::read(reading, buffer, sizeof buffer);
      REQUIRE(got > 0);
      text.append(buffer, static_cast<std::size_t>(got));
    }
    INFO(text);
    CHECK(text.find(word) != text.npos);
    return text;
  }
  int reading, writing;
};

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
  return found;
}

// Restores the text format, which all other tests expect.
struct JsonLog {
  JsonLog() { set_log_format(LogFormat::json); }
  ~JsonLog() { set_log_format(LogFormat::text); }
};

TEST_SUITE("log thread") {
  TEST_CASE("lines are written whole and in order, and all of them are there after a flush") {
    Pipe pipe;
    LogThread log(pipe.writing);
    log_warn("base", "first");
    write_to_stderr("second\n");
    log_warn("base", "third");
    REQUIRE(flush_log(20s));
    const auto text = pipe.read_until("third\n");
    CHECK(text.find(" W base: first\nsecond\\x0a\n") != text.npos);
    CHECK(count(text, "\n") == 3);
  }

  TEST_CASE("every line in JSON is one object, whatever the message holds") {
    Pipe pipe;
    LogThread log(pipe.writing);
    const JsonLog json;
    log_warn("base", "a \"quoted\" C:\\path of \xc3\x84rger\n and \xff");
    write_to_stderr("tarry: no such file");
    REQUIRE(flush_log(20s));
    const auto text = pipe.read_until("no such file\"}\n");
    CHECK(count(text, "\n") == 2);
    CHECK(text.starts_with("{\"time\":\"2"));
    CHECK(text.find("\"level\":\"warn\",\"component\":\"base\",\"message\":"
                    "\"a \\\"quoted\\\" C:\\\\path of \xc3\x84rger\\\\x0a and \\\\xff\"}\n") !=
          text.npos);
    CHECK(
        text.find("\"level\":\"error\",\"component\":\"tarry\",\"message\":\"no such file\"}\n") !=
        text.npos);
  }

  TEST_CASE(
      "no thread that logs waits for a pipe that nobody reads, and dropped lines are counted where "
      "they are missing") {
    Pipe pipe;
    LogThread log(pipe.writing, 10'000);
    constexpr std::size_t lines = 2000;
    const std::string line(70, 'x');
    // It would never come back from here if it waited.
    for (std::size_t i = 0; i < lines; ++i) log_warn("base", "{}", line);
    CHECK_FALSE(flush_log(1ms));
    // It is caught up with now and then: each gap has its own notice.
    std::string text;
    std::size_t written = 0, dropped = 0;
    while (written + dropped < lines) {
      text += pipe.read_until("\n");
      written = count(text.substr(0, text.rfind('\n') + 1), line);
      dropped = 0;
      constexpr std::string_view notice = "log: ";
      for (auto at = text.find(notice); at != text.npos; at = text.find(notice, at + 1)) {
        if (text.find('\n', at) != text.npos)
          dropped += std::stoul(text.substr(at + notice.size()));
      }
    }
    CHECK(written + dropped == lines);
    CHECK(dropped > 0);
    log_warn("base", "and now there is room");
    pipe.read_until("and now there is room\n");
    CHECK(flush_log(20s));
  }

  TEST_CASE("it ends in bounded time when nobody reads, and writes all when somebody does") {
    Pipe unread;
    {
      LogThread log(unread.writing);
      for (int i = 0; i < 1000; ++i) log_warn("base", "a line");
    }  // It would never come back from here if it waited.
    const std::string unread_text = unread.read_until("a line");
    std::string text;
    Pipe pipe;
    std::optional<LogThread> log(pipe.writing);
    for (int i = 0; i < 1000; ++i) log_warn("base", "line number {}", i);
    std::thread reader([&] { text = pipe.read_until("line number 999\n"); });
    log.reset();
    reader.join();
    CHECK(count(text, "\n") == 1000);
    // The thread that was left behind still writes: not to a pipe that has its descriptor next.
    std::string left = unread_text;
    while (count(left, "\n") < 1000) left += unread.read_until("\n");
  }

  TEST_CASE("a descriptor that takes nothing loses lines, and says so once it takes them again") {
    Pipe pipe;
    ::fcntl(pipe.writing, F_SETFL, O_NONBLOCK);  // As some supervisors leave it.
    const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    const int descriptor = ::dup(full);
    LogThread log(descriptor);
    log_warn("base", "lost");
    REQUIRE(flush_log(20s));
    REQUIRE(::dup2(pipe.writing, descriptor) == descriptor);
    log_warn("base", "kept");
    const auto text = pipe.read_until("kept\n");
    CHECK(text.find("log: 1 log lines were dropped here") < text.find("kept"));
    CHECK(count(text, "lost") == 0);
    REQUIRE(flush_log(20s));
    ::close(full);
    ::close(descriptor);
  }

  TEST_CASE("no control character gets into a line, whoever wrote it; other UTF-8 stays") {
    Pipe pipe;
    LogThread log(pipe.writing);
    log_warn("base", "topic {}",
             "a\n2026 E forged \x1b[2J\x7f \xc2\x9b \x9b \xc3\x84rger \xe2\x82\x80");
    const auto text = pipe.read_until("\n");
    CHECK(
        text.ends_with("topic a\\x0a2026 E forged \\x1b[2J\\x7f \\xc2\\x9b \\x9b \xc3\x84rger "
                       "\xe2\x82\x80\n"));
  }
}

}  // namespace
}  // namespace tarry
