#include "delay/recurrence_headers.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <random>

#include "base/time_text.h"
#include "tests/delay/zone_files.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

using namespace std::chrono;

const WallTime asked_at = moment("2026-11-21T10:07:00.250Z");  // A Saturday.

using Given = std::map<std::string, std::optional<std::string>>;

struct Asked {
  std::optional<WallTime> start;
  std::optional<milliseconds> max_delay;
  WallTime at = asked_at;
};

std::expected<Recurrence, std::string> ask(const Given& given, const Asked& asked = {}) {
  RecurrenceHeaders headers;
  const std::map<std::string, std::optional<HeaderValue>*> places = {
      {"x-every", &headers.every},           {"x-cron", &headers.cron},
      {"x-cron-tz", &headers.cron_tz},       {"x-until", &headers.until},
      {"x-count", &headers.count},           {"x-expire-at", &headers.expire_at},
      {"x-schedule-action", &headers.action}};
  for (const auto& [name, value] : given)
    *places.at(name) = value ? HeaderValue(as_bytes(*value)) : HeaderValue();
  CHECK(headers.any());
  return read_recurrence(headers, asked.start, asked.at, asked.max_delay, TimeZones::of_system());
}
std::string first_due(const Given& given, const Asked& asked = {}) {
  const auto recurrence = ask(given, asked);
  return recurrence ? format_time(recurrence->run()) : recurrence.error();
}
std::string second_due(const Given& given, const Asked& asked = {}) {
  const auto recurrence = ask(given, asked);
  if (!recurrence) return recurrence.error();
  const auto planned = recurrence->plan_run(recurrence->run(), asked_at, {});
  return planned.next ? format_time(*planned.next) : "never";
}
std::string refusal(const Given& given, const Asked& asked = {}) {
  const auto recurrence = ask(given, asked);
  return recurrence ? "(accepted)" : recurrence.error();
}
std::string eight_bytes(std::uint64_t number) {
  Buffer bytes;
  append_be(bytes, number);
  return std::string(as_text(bytes));
}

TEST_SUITE("recurrence headers") {
  TEST_CASE("x-every begins one period from asked_at, in every form of a duration") {
    for (const std::string& value :
         {std::string("15m"), std::string("PT15M"), std::string("900000"), std::string("900s"),
          eight_bytes(900'000)}) {
      CHECK(first_due({{"x-every", value}}) == "2026-11-21T10:22:00.250Z");
      CHECK(second_due({{"x-every", value}}) == "2026-11-21T10:37:00.250Z");
    }
  }

  TEST_CASE("x-every with a time begins then, and counts from then") {
    const Asked ahead{moment("2026-11-22T09:00:00Z"), {}};
    CHECK(first_due({{"x-every", "1d"}}, ahead) == "2026-11-22T09:00:00.000Z");
    CHECK(second_due({{"x-every", "1d"}}, ahead) == "2026-11-23T09:00:00.000Z");
    CHECK(first_due({{"x-every", "1h"}}, {asked_at, {}}) == "2026-11-21T10:07:00.250Z");
    CHECK(second_due({{"x-every", "1h"}}, {asked_at, {}}) == "2026-11-21T11:07:00.250Z");
  }

  TEST_CASE("a time that has passed begins asked_at and keeps the series of that time") {
    for (const char* passed :
         {"2026-11-20T09:00:00Z", "2001-01-01T09:00:00Z", "0000-01-01T09:00:00Z"}) {
      const Asked past{moment(passed), {}};
      CHECK(first_due({{"x-every", "1d"}}, past) == "2026-11-21T10:07:00.250Z");
      CHECK(second_due({{"x-every", "1d"}}, past) == "2026-11-22T09:00:00.000Z");
    }
    // If a time was exactly one period ago, the next one is a whole period ahead.
    CHECK(second_due({{"x-every", "1h"}}, {asked_at - hours{3}, {}}) == "2026-11-21T11:07:00.250Z");
    CHECK(first_due({{"x-every", "36500d"}}, {WallTime::min(), {}}) == "2026-11-21T10:07:00.250Z");
  }

  TEST_CASE("x-cron begins at its first match, in UTC without a zone") {
    CHECK(first_due({{"x-cron", "0 9 * * MON-FRI"}}) == "2026-11-23T09:00:00.000Z");
    CHECK(first_due({{"x-cron", "0 9 * * MON-FRI"}, {"x-cron-tz", "Europe/Berlin"}}) ==
          "2026-11-23T08:00:00.000Z");
    CHECK(second_due({{"x-cron", "0 9 * * MON-FRI"}, {"x-cron-tz", "Asia/Tokyo"}}) ==
          "2026-11-24T00:00:00.000Z");
  }

  TEST_CASE("x-cron with a time begins at the first match at or after it") {
    CHECK(first_due({{"x-cron", "@hourly"}}, {moment("2026-12-01T00:00:00Z"), {}}) ==
          "2026-12-01T00:00:00.000Z");
    CHECK(first_due({{"x-cron", "@hourly"}}, {moment("2026-12-01T00:00:00.001Z"), {}}) ==
          "2026-12-01T01:00:00.000Z");
    // A time that has passed counts as asked_at.
    CHECK(first_due({{"x-cron", "@hourly"}}, {moment("2001-01-01T00:00:00Z"), {}}) ==
          "2026-11-21T11:00:00.000Z");
  }

  TEST_CASE("the end is taken from x-until and x-count") {
    const auto both =
        ask({{"x-every", "1h"}, {"x-count", "10"}, {"x-until", "2027-01-01T00:00:00Z"}});
    REQUIRE(both.has_value());
    CHECK(both->text() == "every 1h, 10 of 10 left, until 2027-01-01T00:00:00.000Z");
    CHECK(ask({{"x-every", "1h"}, {"x-count", eight_bytes(7)}})->end().count == 7);
    CHECK(ask({{"x-every", "1h"}, {"x-count", "1000000000000"}})->end().count == 1'000'000'000'000);
    CHECK(ask({{"x-every", "1h"}, {"x-until", eight_bytes(1'798'761'600'000)}})->end().until ==
          moment("2027-01-01T00:00:00Z"));
    CHECK(second_due({{"x-every", "1h"}, {"x-count", "1"}}) == "never");
  }

  TEST_CASE("headers that do not go together are refused, both with their values") {
    CHECK(refusal({{"x-every", "1h"}, {"x-cron", "@daily"}}) ==
          "x-every: \"1h\" cannot be combined with x-cron: \"@daily\"; give one of them");
    CHECK(refusal({{"x-every", "1h"}, {"x-cron-tz", "UTC"}}) ==
          "x-cron-tz: \"UTC\" cannot be combined with x-every: \"1h\"; a time zone belongs to "
          "x-cron; "
          "a period is the same in all of them");
    CHECK(refusal({{"x-cron-tz", "UTC"}}) == "x-cron-tz: \"UTC\" needs an x-cron");
    CHECK(refusal({{"x-until", "17"}}) == "x-until: \"17\" needs an x-every or an x-cron");
    CHECK(refusal({{"x-count", "17"}}) == "x-count: \"17\" needs an x-every or an x-cron");
    CHECK(
        refusal({{"x-every", "1h"}, {"x-expire-at", "17"}}) ==
        "x-expire-at: \"17\" cannot be combined with x-every: \"1h\"; x-until says when recurring "
        "delivery ends");
    CHECK(refusal({{"x-cron", "@daily"}, {"x-expire-at", "17"}})
              .starts_with("x-expire-at: \"17\" cannot be"));
    CHECK(refusal({{"x-every", "1h"}, {"x-schedule-action", "cancel"}})
              .starts_with(
                  "x-schedule-action: \"cancel\" cannot be combined with x-every: \"1h\"; "));
  }

  TEST_CASE(
      "a value that cannot be understood is refused with its header, the value and the allowed "
      "form") {
    CHECK(
        refusal({{"x-every", "soon"}}).starts_with("x-every: \"soon\" is not a duration; write "));
    CHECK(refusal({{"x-every", std::nullopt}}) == "x-every: null is not a duration");
    CHECK(refusal({{"x-every", "99"}}) ==
          "x-every: \"99\" is shorter than 100ms, the shortest period");
    CHECK(refusal({{"x-every", "0"}}) ==
          "x-every: \"0\" is shorter than 100ms, the shortest period");
    CHECK(ask({{"x-every", "100"}}).has_value());
    CHECK(refusal({{"x-every", "36526d"}}) ==
          "x-every: \"36526d\" is longer than 100 years, the longest period");
    CHECK(refusal({{"x-every", "9223372036854775807"}}).find("longest period") !=
          std::string::npos);
    CHECK(refusal({{"x-cron", "61 * * * *"}}) ==
          "x-cron: \"61 * * * *\" is not a cron expression: minute 61 is not in 0-59");
    CHECK(
        refusal({{"x-cron", "0 0 30 2 *"}}) ==
        "x-cron: \"0 0 30 2 *\" is not a cron expression: it never fires: day of month 30 is in no "
        "month of 2");
    CHECK(refusal({{"x-cron", std::nullopt}}) == "x-cron: null is not a cron expression");
    CHECK(refusal({{"x-cron", "@daily"}, {"x-cron-tz", "Europe/Berln"}}) ==
          "x-cron-tz: \"Europe/Berln\" is not a time zone; did you mean Europe/Berlin?");
    CHECK(refusal({{"x-cron", "@daily"}, {"x-cron-tz", std::nullopt}}) ==
          "x-cron-tz: null is not a time zone");
    CHECK(refusal({{"x-every", "1h"}, {"x-until", "soon"}})
              .starts_with("x-until: \"soon\" is not a time"));
    for (const char* bad :
         {"0", "-1", "", "1.5", "ten", "1000000000001", "99999999999999999999", "+1", " 1"}) {
      CAPTURE(bad);
      CHECK(refusal({{"x-every", "1h"}, {"x-count", bad}}) ==
            "x-count: \"" + std::string(bad) + "\" is not a whole number from 1 to 1000000000000");
    }
    CHECK(refusal({{"x-every", "1h"}, {"x-count", std::nullopt}})
              .starts_with("x-count: null is not"));
    CHECK(refusal({{"x-every", "1h"}, {"x-count", eight_bytes(0)}}).find("is not a whole") !=
          std::string::npos);
    CHECK(refusal({{"x-every", std::string("\x1b[2J\n")}}).find('\n') == std::string::npos);
    CHECK(refusal({{"x-cron", std::string(10'000, 'x')}}).size() < 300);
  }

  TEST_CASE("an end before the first delivery is refused, one at it is not") {
    CHECK(refusal({{"x-every", "1h"}, {"x-until", "2026-11-21T11:00:00Z"}}) ==
          "x-until: \"2026-11-21T11:00:00Z\" is before the first delivery, which would be at "
          "2026-11-21T11:07:00.250Z");
    CHECK(ask({{"x-every", "1h"}, {"x-until", "2026-11-21T11:07:00.250Z"}}).has_value());
    // Seconds instead of milliseconds, and microseconds.
    CHECK(refusal({{"x-every", "1h"}, {"x-until", "1798761600"}})
              .find("is before the first delivery") != std::string::npos);
    CHECK(refusal({{"x-every", "1h"}, {"x-until", "1798761600000000"}}) ==
          "x-until: \"1798761600000000\" is after the year 9999; it is in milliseconds, not in "
          "microseconds");
    CHECK(refusal({{"x-cron", "0 0 29 2 *"}, {"x-until", "2027-06-01T00:00:00Z"}})
              .find("2028-02-29T00:00:00.000Z") != std::string::npos);
  }

  TEST_CASE("the first delivery is held to the topic's longest delay") {
    CHECK(
        refusal({{"x-every", "2h"}}, {{}, hours{1}}) ==
        "x-every: \"2h\" has its first delivery at 2026-11-21T12:07:00.250Z, further in the future "
        "than this topic's tarry.delay.max.ms=3600000 allows");
    CHECK(ask({{"x-every", "1h"}}, {{}, hours{1}}).has_value());
    CHECK(ask({{"x-every", "2h"}}, {asked_at, hours{1}}).has_value());
    CHECK(refusal({{"x-cron", "@yearly"}}, {{}, hours{24}})
              .starts_with("x-cron: \"@yearly\" has its first"));
  }

  TEST_CASE("nothing begins after the year 9999") {
    CHECK(refusal({{"x-every", "1h"}}, {last_due + milliseconds{1}, {}}) ==
          "x-every: \"1h\" would begin after the year 9999");
    CHECK(refusal({{"x-cron", "@daily"}}, {last_due, {}}) ==
          "x-cron: \"@daily\" does not fire before the year 10000");
    CHECK(refusal({{"x-every", "1h"}}, {WallTime::max(), {}}).find("9999") != std::string::npos);
    CHECK(refusal({{"x-cron", "@daily"}}, {WallTime::max(), {}}).find("10000") !=
          std::string::npos);
    CHECK(first_due({{"x-every", "1h"}}, {last_due, {}}) == "9999-12-31T23:59:59.999Z");
    // A producer's timestamp may be any number.
    for (const std::int64_t ms :
         {to_ms(last_due) - 3'599'999, to_ms(last_due), std::numeric_limits<std::int64_t>::max()}) {
      CHECK(refusal({{"x-every", "1h"}}, {{}, {}, from_ms(ms)}) ==
            "x-every: \"1h\" would begin after the year 9999");
    }
    CHECK(first_due({{"x-every", "1h"}}, {{}, {}, last_due - hours{1}}) == format_time(last_due));
  }

  TEST_CASE(
      "whatever the headers say, they are refused or begin between asked_at and the year 9999") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    SeededRandom random(seed);
    const auto pick = [&](std::initializer_list<const char*> values) {
      return std::string(*(values.begin() + random.below(values.size())));
    };
    int accepted = 0;
    for (int i = 0; i < tries(20'000); ++i) {
      Given given;
      if (random.below(2) == 0)
        given["x-every"] = pick({"1h", "100", "99", "36525d", "P1D", "x", "9999999999999999", ""});
      if (random.below(2) == 0)
        given["x-cron"] =
            pick({"@daily", "* * * * *", "0 0 29 2 *", "0 0 30 2 *", "*/7 * * * * *", "x", ""});
      if (given.empty() || random.below(4) == 0)
        given["x-cron-tz"] =
            pick({"UTC", "Europe/Berlin", "America/New_York", "Berlin", "", "\xff"});
      if (random.below(4) == 0) given["x-count"] = pick({"1", "10", "0", "x", "1000000000000"});
      if (random.below(4) == 0)
        given["x-until"] =
            pick({"2027-01-01T00:00:00Z", "253402300799999", "253402300800000", "0", "x"});
      Asked asked;
      if (random.below(2) == 0)
        asked.start = from_ms(static_cast<std::int64_t>(random.u64() >> random.below(64)));
      if (random.below(4) == 0) asked.max_delay = milliseconds{random.below(100'000'000)};
      const auto recurrence = ask(given, asked);
      if (!recurrence) {
        CHECK(recurrence.error().starts_with("x-"));
        CHECK(recurrence.error().size() < 400);
        continue;
      }
      ++accepted;
      CHECK(recurrence->run() >= asked_at);
      CHECK(recurrence->run() <= last_due);
      Buffer bytes;
      recurrence->append_to(bytes);
      CHECK(Recurrence::parse(bytes, TimeZones::of_system()).has_value());
    }
    CHECK(accepted > tries(500));
  }
}

}  // namespace
}  // namespace tarry::delay
