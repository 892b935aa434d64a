// The summary of `tarry produce` for records that were accepted without an offset.

#include "cli/schedule_summary.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/time_text.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using Fate = ScheduleSummary::Fate;

const WallTime sent_at = *parse_time("2026-11-21T10:00:00.100Z");

std::vector<ConfigEntry> configs_of(const ConfigList& set) {
  std::vector<ConfigEntry> configs{{"retention.ms", "604800000", "default"},
                                   {"tarry.delay.enable", "true", "default"},
                                   {"tarry.delay.invalid", "refuse", "default"},
                                   {"tarry.delay.max.ms", "-1", "default"},
                                   {"tarry.delay.ms", "0", "default"}};
  for (auto& config : configs)
    for (const auto& [name, value] : set)
      if (config.name == name) config.value = value;
  return configs;
}

// Records that were answered at these times after the first of them was sent.
ScheduleSummary answered(const RecordHeaders& headers,
                         const std::vector<std::chrono::milliseconds>& after = {20ms},
                         const ConfigList& configs = {}) {
  ScheduleSummary summary("orders", headers, configs_of(configs), sent_at);
  for (const auto time : after) summary.add(sent_at + time);
  return summary;
}

using Lines = std::vector<std::string>;

TEST_SUITE_BEGIN("schedule summary");

TEST_CASE("a record with an id is found by its id, and a given time is printed unchanged") {
  const auto summary =
      answered({{"x-deliver-at", "2026-12-24T18:00:00+01:00"}, {"x-schedule-id", "order-4711"}});
  CHECK(summary.accepted(1) == "1 record accepted, to be delivered later");
  CHECK(summary.lines() ==
        Lines{"due 2026-12-24T17:00:00.000Z", "to find it: tarry delayed get orders order-4711"});
  CHECK(summary.fate() == Fate::delayed);
  CHECK(summary.explanation().due == *parse_time("2026-12-24T17:00:00Z"));
  CHECK_FALSE(summary.is_estimated());
}

TEST_CASE(
    "a delay counts from an arrival that is not known exactly, so its due time is printed as "
    "about") {
  const auto summary = answered({{"X-Delay", "30m"}, {"x-schedule-id", "a"}});
  CHECK(summary.lines()[0] == "due about 2026-11-21T10:30:00.120Z");
  CHECK(summary.is_estimated());
  // Also if the answer came within the millisecond.
  CHECK(answered({{"x-delay", "30m"}}, {0ms}).lines()[0] == "due about 2026-11-21T10:30:00.100Z");
}

TEST_CASE("a record without an id is found in a list of its time, whatever the clocks differ by") {
  CHECK(answered({{"x-delay", "30m"}}).lines()[1] ==
        "to find it: tarry delayed list orders --from 2026-11-21T10:29:59.000Z --to "
        "2026-11-21T10:30:02.000Z");
  CHECK(answered({{"x-deliver-at", "2026-12-24T17:00:00.999Z"}}).lines()[1] ==
        "to find it: tarry delayed list orders --from 2026-12-24T17:00:00.000Z --to "
        "2026-12-24T17:00:01.000Z");
}

TEST_CASE("a thousand records have one due line, from the first that was sent to the last answer") {
  std::vector<std::chrono::milliseconds> times;
  for (int i = 0; i < 1000; ++i) times.push_back(5ms + i * 3ms);
  const auto delayed = answered({{"x-delay", "1h"}}, times);
  CHECK(delayed.accepted(1000) == "1000 records accepted, to be delivered later");
  CHECK(delayed.lines() ==
        Lines{"due between 2026-11-21T11:00:00.100Z and 2026-11-21T11:00:03.102Z",
              "to find them: tarry delayed list orders --from 2026-11-21T10:59:59.000Z --to "
              "2026-11-21T11:00:05.000Z"});
  const auto at_one_time = answered({{"x-deliver-at", "2026-12-24T17:00:00Z"}}, times);
  CHECK(at_one_time.lines()[0] == "due 2026-12-24T17:00:00.000Z");
}

TEST_CASE("records that were answered after their due time still count as delayed") {
  const auto summary = answered({{"x-deliver-at", "2026-11-21T10:00:00.110Z"}});
  CHECK(summary.fate() == Fate::delayed);
  CHECK(summary.lines()[0] == "due 2026-11-21T10:00:00.110Z");
}

TEST_CASE("a clock that is set back while records are sent does not turn the bounds round") {
  CHECK(answered({{"x-delay", "1h"}}, {20ms, -5s}).lines()[0] ==
        "due between 2026-11-21T10:59:55.100Z and 2026-11-21T11:00:00.120Z");
}

TEST_CASE("a recurring record has its first due time and its rule") {
  const auto every = answered({{"x-every", "1h"}, {"x-count", "3"}, {"x-schedule-id", "a"}});
  CHECK(every.lines()[0] ==
        "first due about 2026-11-21T11:00:00.120Z; recurring: every 1h, 3 of 3 left");
  const auto cron = answered({{"x-cron", "0 9 * * MON-FRI"}, {"x-cron-tz", "Europe/Berlin"}});
  CHECK(cron.lines()[0] ==
        "first due 2026-11-23T08:00:00.000Z; recurring: cron 0 9 * * MON-FRI Europe/Berlin");
}

TEST_CASE("a cron time that passes between sending and answer leaves two due times") {
  const auto summary = answered({{"x-cron", "* * * * * *"}}, {100ms, 1100ms});
  CHECK(summary.lines()[0] ==
        "first due between 2026-11-21T10:00:01.000Z and 2026-11-21T10:00:02.000Z; recurring: cron "
        "* * * * * * UTC");
}

TEST_CASE("the topic's default delay counts, and without its configs no due time is printed") {
  CHECK(answered({{"other", std::nullopt}}, {20ms}, {{"tarry.delay.ms", "60000"}}).lines()[0] ==
        "due about 2026-11-21T10:01:00.120Z");
  ScheduleSummary unknown("orders", {{"other", "1"}}, {}, sent_at);
  unknown.add(sent_at + 20ms);
  CHECK(unknown.accepted(1) == "1 record accepted, to be delivered later");
  CHECK(unknown.lines() == Lines{"to find it: tarry delayed list orders"});
}

TEST_CASE("a record that will never be delivered has no due time, and is reported separately") {
  const auto cancelled = answered({{"x-schedule-action", "cancel"}, {"x-schedule-id", "a"}});
  CHECK(cancelled.accepted(1) == "1 cancellation accepted");
  CHECK(cancelled.lines().empty());
  CHECK(cancelled.fate() == Fate::cancellation);

  const auto expired = answered({{"x-delay", "1h"}, {"x-expire-at", "2026-11-21T10:30:00Z"}});
  CHECK(expired.accepted(2) ==
        "2 records accepted, 1 of them never to be delivered: it expires before its due time");
  CHECK(expired.lines().empty());

  const auto letters =
      answered({{"x-delay", "2h"}}, {20ms, 30ms},
               {{"tarry.delay.invalid", "dead-letter"}, {"tarry.delay.max.ms", "3600000"}});
  CHECK(letters.accepted(2).starts_with(
      "2 records accepted, as dead letters to orders.invalid: x-delay"));
  CHECK(letters.lines().empty());
  CHECK(letters.fate() == Fate::dead_letter);
}

TEST_CASE("an id is one word of the command, or is not in it") {
  const auto found = [](const std::string& id) {
    return answered({{"x-deliver-at", "2026-12-24T17:00:00Z"}, {"x-schedule-id", id}}).lines()[1];
  };
  CHECK(found("a/b:c") == "to find it: tarry delayed get orders a/b:c");
  CHECK(found("two words") == "to find it: tarry delayed get orders 'two words'");
  CHECK(found("it's $HOME") == "to find it: tarry delayed get orders 'it'\\''s $HOME'");
  CHECK(found("-5") == "to find it: tarry delayed get orders -- -5");
  CHECK(found("Bücher") == "to find it: tarry delayed get orders 'Bücher'");
  CHECK(found("two\nlines").starts_with("to find it: tarry delayed list orders --from "));
}

TEST_CASE("the command that finds a record names the broker as produce was told, before the id") {
  const auto found = [](const RecordHeaders& headers) {
    ScheduleSummary summary("orders", headers, {}, sent_at, " -b localhost:19092");
    summary.add(sent_at + 20ms);
    return summary.lines().back();
  };
  CHECK(found({{"x-delay", "1h"}, {"x-schedule-id", "-5"}}) ==
        "to find it: tarry delayed get orders -b localhost:19092 -- -5");
  CHECK(found({{"x-delay", "1h"}})
            .starts_with("to find it: tarry delayed list orders -b localhost:19092 --from "));
}

TEST_SUITE_END();

}  // namespace
}  // namespace tarry::cli
