#include "cli/local_time.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/time_text.h"
#include "cli/pending_note.h"
#include "cli/time_word.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;

class TimeZone {
 public:
  explicit TimeZone(const char* name) {
    if (const char* set = std::getenv("TZ")) before_ = set;
    ::setenv("TZ", name, 1);
    ::tzset();
  }
  ~TimeZone() {
    before_.empty() ? ::unsetenv("TZ") : ::setenv("TZ", before_.c_str(), 1);
    ::tzset();
  }
  TimeZone(const TimeZone&) = delete;
  TimeZone& operator=(const TimeZone&) = delete;

 private:
  std::string before_;
};

TEST_SUITE_BEGIN("local time");

TEST_CASE("a terminal shows the machine's time zone, a pipe UTC, and both can be typed again") {
  const TimeZone zone("CET-1CEST,M3.5.0,M10.5.0/3");
  const WallTime at = *parse_time("2026-11-21T10:00:00.250Z");
  CHECK(shown_time(at, true) == "2026-11-21T11:00:00.250+01:00");
  CHECK(shown_time(at, false) == "2026-11-21T10:00:00.250Z");
  CHECK(local_time(at, false) == "2026-11-21T11:00:00+01:00");
  CHECK(parse_time(local_time(at, true)) == at);
  CHECK(local_time(WallTime::max(), true) == format_time(WallTime::max()));
}

TEST_CASE("a time may be typed with a blank, without seconds and with +0100, and stays exact") {
  const WallTime at = *parse_time("2026-12-24T17:00:00Z");
  for (const char* word :
       {"2026-12-24 18:00:00+01:00", "2026-12-24T18:00+01:00", "2026-12-24T18:00:00+0100",
        "2026-12-24 18:00+0100", "2026-12-24 17:00Z", "2026-12-24T12:00-0500"}) {
    CAPTURE(word);
    CHECK(parse_time_word(word) == at);
  }
  CHECK(parse_time_word("2026-12-24T17:00:00.250+0000") == at + 250ms);
  // Half a minute, and a date with too many digits, are no times that somebody meant.
  CHECK(!parse_time_word("2026-12-24T18:00.5Z"));
  CHECK(!parse_time_word("2026-12-24T18:00:00+01000"));
}

TEST_CASE("the error for a time names the part that is missing or that no clock shows") {
  for (const auto& [word, said] : std::vector<std::pair<std::string, std::string>>{
           {"2026-12-24T18:00:00", "it has no offset: add Z or +01:00"},
           {"2026-12-24T18:00", "it has no offset"},
           {"2026-12-24 18:00:00.5", "it has no offset"},
           {"2026-12-24", "it has no time of day"},
           {"2026-02-30T10:00:00Z", "2026-02 has 28 days"},
           {"2026-13-01T10:00:00Z", "no month 13"},
           {"2026-12-24T25:00:00Z", "no hour 25"},
           {"2026-12-24T18:60Z", "no minute 60"},
           {"1h", "\"1h\" is a duration, not a time; write +1h"},
           {"noon", "\"noon\" is not a time; write 2026-11-21T10:00:00+01:00"}}) {
    const auto time = parse_time_word(word);
    REQUIRE(!time);
    CAPTURE(time.error().message);
    CHECK(time.error().message.contains(said));
    CHECK(time.error().message.contains(word));
  }
}

TEST_CASE("a rough duration has the two largest units, and from ten minutes on no seconds") {
  CHECK(rough_duration(32 * 24h + 8h + 59min) == "32d8h");
  CHECK(rough_duration(29min + 59s) == "29m");
  CHECK(rough_duration(3min + 20s) == "3m20s");
  CHECK(rough_duration(2h) == "2h");
  CHECK(rough_duration(7s + 900ms) == "7s");
  CHECK(rough_duration(999ms) == "0s");
  CHECK(rough_duration(-90s) == "-1m30s");
  CHECK(rough_duration(std::chrono::milliseconds::min()).starts_with("-106751991167d"));
  CHECK(rough_distance(29min) == "in 29m");
  CHECK(rough_distance(-7s) == "7s ago");
}

TEST_CASE("the note on pending records has the time until the next one, or says that it is due") {
  const WallTime now = *parse_time("2026-11-21T10:00:00Z");
  CHECK(pending_text(3, now + 29min + 10s, now) == "3 pending, next in 29m");
  CHECK(pending_text(12'345, now, now) == "12 345 pending, next is due now");
  CHECK(pending_text(1, std::nullopt, now) == "1 pending");
  CHECK(pending_text(0, now, now).empty());
}

TEST_CASE("the note about an id in other partitions leaves out the one that its record went to") {
  CHECK(elsewhere_text("shop", "a", {}, 1).empty());
  CHECK(elsewhere_text("shop", "a", {1}, 1).empty());
  const auto one = elsewhere_text("shop", "a", {0, 1}, 1);
  CHECK(one.starts_with("a: this went to partition 1, and the id is pending in partition 0 too"));
  // Without a partition it would cancel the record that was just sent, too.
  CHECK(one.ends_with("`tarry delayed cancel shop a -p 0` cancels that one"));
  const auto several = elsewhere_text("shop", "a", {2, 0}, 1);
  CHECK(several.contains("partitions 0, 2 too"));
  CHECK(several.ends_with("`tarry delayed cancel shop a -p 0` cancels the first of these"));
}

TEST_CASE("a time may count from now, in the words in which the commands print it") {
  const auto after = [](const char* word) { return *parse_time_word(word) - wall_now(); };
  for (const auto& [word, expected] :
       std::initializer_list<std::pair<const char*, std::chrono::milliseconds>>{
           {"now", 0s},
           {"+1h", 1h},
           {"in 1h", 1h},
           {"in 32d8h", 776h},
           {"-10m", -10min},
           {"10m ago", -10min}}) {
    CAPTURE(word);
    CHECK(after(word) <= expected);
    CHECK(after(word) > expected - 10s);
  }
  for (const char* word : {"in", "in ", "in soon", "ago", " ago", "1h", "in -1h ago", "in +1h"}) {
    CAPTURE(word);
    CHECK((!parse_time_word(word) || word == std::string("1h")));
  }
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry::cli
