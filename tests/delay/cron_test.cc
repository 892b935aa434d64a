#include "delay/cron.h"

#include <doctest/doctest.h>

#include <array>
#include <random>
#include <set>

#include "base/time_text.h"
#include "delay/time_zones.h"
#include "tests/delay/system_zone.h"
#include "tests/delay/zone_files.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

using namespace std::chrono;

Cron cron(std::string_view text) {
  auto parsed = Cron::parse(text);
  REQUIRE_MESSAGE(parsed.has_value(), text, ": ", (parsed ? "" : parsed.error()));
  return *parsed;
}
std::string refusal(std::string_view text) {
  const auto parsed = Cron::parse(text);
  return parsed ? "(accepted)" : parsed.error();
}
// The first `count` times after `after`, as UTC without its date's year: "03-28 01:00:00".
std::vector<std::string> times(std::string_view expression, std::string_view after,
                               std::size_t count, std::string_view in = "UTC") {
  const Cron parsed = cron(expression);
  std::vector<std::string> found;
  std::optional<WallTime> time = moment(after);
  while (found.size() < count && (time = parsed.next(*time, zone(in))))
    found.push_back(format_time(*time).substr(5, 14));
  for (auto& each : found) each[5] = ' ';
  return found;
}
using Times = std::vector<std::string>;

std::string next(std::string_view expression, std::string_view after, std::string_view in = "UTC") {
  const auto time = cron(expression).next(moment(after), zone(in));
  return time ? format_time(*time) : "never";
}

constexpr const char* saturday = "2026-11-21T10:00:00Z";  // A Saturday.

TEST_SUITE("cron") {
  TEST_CASE("five fields fire at second 0, six have the second in front") {
    CHECK(next("30 9 * * *", saturday) == "2026-11-22T09:30:00.000Z");
    CHECK(next("15 30 9 * * *", saturday) == "2026-11-22T09:30:15.000Z");
    CHECK(next("* * * * *", saturday) == "2026-11-21T10:01:00.000Z");
    CHECK(next("* * * * * *", saturday) == "2026-11-21T10:00:01.000Z");
    CHECK(next("*/10 * * * * *", saturday) == "2026-11-21T10:00:10.000Z");
  }

  TEST_CASE("the next time is after the one asked about, to the millisecond") {
    const Cron each_second = cron("* * * * * *");
    for (const std::int64_t ms : {0, 1, 500, 999}) {
      CHECK(each_second.next(moment(saturday) + milliseconds{ms}, zone("UTC")) ==
            moment(saturday) + seconds{1});
      CHECK(each_second.previous(moment(saturday) + milliseconds{ms}, zone("UTC")) ==
            (ms == 0 ? moment(saturday) - seconds{1} : moment(saturday)));
    }
    CHECK(cron("0 10 * * *").next(moment(saturday) - milliseconds{1}, zone("UTC")) ==
          moment(saturday));
    CHECK(cron("0 10 * * *").previous(moment(saturday) + milliseconds{1}, zone("UTC")) ==
          moment(saturday));
  }

  TEST_CASE("lists, ranges and steps") {
    CHECK(times("5,10,50-52 * * * *", saturday, 6) == Times{"11-21 10:05:00", "11-21 10:10:00",
                                                            "11-21 10:50:00", "11-21 10:51:00",
                                                            "11-21 10:52:00", "11-21 11:05:00"});
    CHECK(times("*/25 * * * *", saturday, 4) ==
          Times{"11-21 10:25:00", "11-21 10:50:00", "11-21 11:00:00", "11-21 11:25:00"});
    CHECK(times("10-40/15 * * * *", saturday, 3) ==
          Times{"11-21 10:10:00", "11-21 10:25:00", "11-21 10:40:00"});
    CHECK(times("45/5 * * * *", saturday, 4) ==
          Times{"11-21 10:45:00", "11-21 10:50:00", "11-21 10:55:00", "11-21 11:45:00"});
    CHECK(times("*/60 */24 * * *", saturday, 2) == Times{"11-22 00:00:00", "11-23 00:00:00"});
    CHECK(times("0 0 1 */5 *", saturday, 3) ==
          Times{"01-01 00:00:00", "06-01 00:00:00", "11-01 00:00:00"});
  }

  TEST_CASE("names are read in any case") {
    CHECK(next("0 0 1 JAN *", saturday) == "2027-01-01T00:00:00.000Z");
    CHECK(next("0 0 1 feb,Dec *", saturday) == "2026-12-01T00:00:00.000Z");
    CHECK(next("0 9 * * mon-FRI", saturday) == "2026-11-23T09:00:00.000Z");
    CHECK(next("0 9 * * Tue", saturday) == "2026-11-24T09:00:00.000Z");
  }

  TEST_CASE("7 is Sunday, and a range of days may end with it") {
    CHECK(next("0 9 * * 7", saturday) == next("0 9 * * 0", saturday));
    CHECK(next("0 9 * * 7", saturday) == "2026-11-22T09:00:00.000Z");
    for (const char* weekend : {"0 9 * * SAT-SUN", "0 9 * * 6-7", "0 9 * * 6-0", "0 9 * * 6,7"}) {
      CAPTURE(weekend);
      CHECK(times(weekend, saturday, 3) ==
            Times{"11-22 09:00:00", "11-28 09:00:00", "11-29 09:00:00"});
    }
    CHECK(times("0 9 * * 5-7/2", saturday, 2) == Times{"11-22 09:00:00", "11-27 09:00:00"});
    CHECK(times("0 9 * * 7-1", saturday, 3) ==
          Times{"11-22 09:00:00", "11-23 09:00:00", "11-29 09:00:00"});
    CHECK(times("0 9 * * 0-7", saturday, 2) == Times{"11-22 09:00:00", "11-23 09:00:00"});
    CHECK(times("0 9 * * 7/2", saturday, 2) == Times{"11-22 09:00:00", "11-29 09:00:00"});
  }

  TEST_CASE("if both day fields are restricted, either counts; otherwise both") {
    // The 13th, and every Friday.
    CHECK(times("0 0 13 * FRI", saturday, 4) ==
          Times{"11-27 00:00:00", "12-04 00:00:00", "12-11 00:00:00", "12-13 00:00:00"});
    CHECK(times("0 0 13 * *", saturday, 2) == Times{"12-13 00:00:00", "01-13 00:00:00"});
    CHECK(times("0 0 13 * ?", saturday, 2) == Times{"12-13 00:00:00", "01-13 00:00:00"});
    CHECK(times("0 0 ? * FRI", saturday, 2) == Times{"11-27 00:00:00", "12-04 00:00:00"});
    // A field that begins with * is not restricted, as in Vixie's cron: odd days that are Mondays.
    CHECK(times("0 0 */2 * MON", saturday, 3) ==
          Times{"11-23 00:00:00", "12-07 00:00:00", "12-21 00:00:00"});
    // 30 February does not exist, but Mondays do.
    CHECK(next("0 0 30 2 MON", saturday) == "2027-02-01T00:00:00.000Z");
  }

  TEST_CASE("the @ words are what crontab says they are") {
    CHECK(next("@yearly", saturday) == "2027-01-01T00:00:00.000Z");
    CHECK(next("@annually", saturday) == "2027-01-01T00:00:00.000Z");
    CHECK(next("@monthly", saturday) == "2026-12-01T00:00:00.000Z");
    CHECK(next("@weekly", saturday) == "2026-11-22T00:00:00.000Z");
    CHECK(next("@daily", saturday) == "2026-11-22T00:00:00.000Z");
    CHECK(next("@midnight", saturday) == "2026-11-22T00:00:00.000Z");
    CHECK(next(" @Hourly ", saturday) == "2026-11-21T11:00:00.000Z");
  }

  TEST_CASE("an error names the field, its value and what is allowed") {
    CHECK(refusal("61 * * * *") == "minute 61 is not in 0-59");
    CHECK(refusal("60 * * * * *") == "second 60 is not in 0-59");
    CHECK(refusal("0 24 * * *") == "hour 24 is not in 0-23");
    CHECK(refusal("0 0 0 * *") == "day of month 0 is not in 1-31");
    CHECK(refusal("0 0 32 * *") == "day of month 32 is not in 1-31");
    CHECK(refusal("0 0 1 13 *") == "month 13 is not in 1-12 or JAN-DEC");
    CHECK(refusal("0 0 1 MAI *") == "month MAI is not in 1-12 or JAN-DEC");
    CHECK(refusal("0 0 * * 8") == "day of week 8 is not in 0-7 or SUN-SAT");
    CHECK(refusal("0 0 * * MONDAY") == "day of week MONDAY is not in 0-7 or SUN-SAT");
    CHECK(refusal("0 0 L * *") == "day of month L is not in 1-31");
    CHECK(refusal("-1 * * * *") == "minute \"\" is not in 0-59");
    CHECK(refusal("5- * * * *") == "minute \"\" is not in 0-59");
    CHECK(refusal("5,,6 * * * *") == "minute \"\" is not in 0-59");
    CHECK(refusal(", * * * *") == "minute \"\" is not in 0-59");
    CHECK(refusal("1-2-3 * * * *") == "minute 2-3 is not in 0-59");
    CHECK(refusal("+5 * * * *") == "minute +5 is not in 0-59");
    CHECK(refusal("0x5 * * * *") == "minute 0x5 is not in 0-59");
    CHECK(refusal("99999999999999999999 * * * *") == "minute 99999999999999999999 is not in 0-59");
    CHECK(refusal("50-10 * * * *") == "minute 50-10 runs backwards; write two ranges");
    CHECK(refusal("0 0 * * FRI-MON") == "day of week FRI-MON runs backwards; write two ranges");
    CHECK(refusal("*/0 * * * *") == "minute step 0 is not in 1-60");
    CHECK(refusal("*/61 * * * *") == "minute step 61 is not in 1-60");
    CHECK(refusal("0 */25 * * *") == "hour step 25 is not in 1-24");
    CHECK(refusal("*/ * * * *") == "minute step \"\" is not in 1-60");
    CHECK(refusal("*/2/3 * * * *") == "minute step 2/3 is not in 1-60");
    CHECK(refusal("? * * * *") == "minute ? is allowed in the two day fields only; write *");
    CHECK(refusal("0 0 1 ? *") == "month ? is allowed in the two day fields only; write *");
    CHECK(refusal("** * * * *") == "minute ** is not in 0-59");
    CHECK(refusal("\x1b[2J * * * *") == "minute \\x1b[2J is not in 0-59");
    CHECK(refusal("@reboot") ==
          "@reboot is not known; use one of @yearly @annually @monthly @weekly @daily @midnight "
          "@hourly");
    for (const char* count : {"", " ", "*", "* * * *", "* * * * * * *", "@daily 5"}) {
      CAPTURE(count);
      CHECK(refusal(count).find(
                "fields; write 5 (minute, hour, day of month, month, day of week) or 6 "
                "(the second first)") != std::string::npos);
    }
    CHECK(refusal("* * * *").starts_with("it has 4 fields"));
    CHECK(refusal(std::string(256, '*')) == "it has 256 bytes, more than the 255 allowed");
  }

  TEST_CASE("an expression that never fires is refused, one that seldom does is not") {
    for (const char* never :
         {"0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30-31 FEB ?", "0 0 31 4 */2"}) {
      CAPTURE(never);
      CHECK(refusal(never).starts_with("it never fires: day of month "));
    }
    CHECK(refusal("0 0 30 2 *") == "it never fires: day of month 30 is in no month of 2");
    CHECK(next("0 0 29 2 *", saturday) == "2028-02-29T00:00:00.000Z");
    CHECK(next("0 0 29 2 *", "2096-03-01T00:00:00Z") == "2104-02-29T00:00:00.000Z");
    CHECK(next("0 0 31 4,5 *", saturday) == "2027-05-31T00:00:00.000Z");
    // 29 February on a Sunday.
    CHECK(next("0 0 29 2 */7", "2032-03-01T00:00:00Z") == "2060-02-29T00:00:00.000Z");
    CHECK(next("0 * 29 2 */7", "2088-03-01T00:00:00Z", "Europe/Berlin") ==
          "2128-02-28T23:00:00.000Z");
  }

  TEST_CASE("every random expression that parses fires") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    SeededRandom random(seed);
    const std::string_view letters = "0123456789*/-,? JANmonSUN";
    int accepted = 0;
    for (int i = 0; i < tries(200'000); ++i) {
      std::string text;
      for (int field = 0; field < 5; ++field) {
        if (random.below(3) == 0) {
          text += "* ";
          continue;
        }
        for (auto size = random.below(4) + 1; size > 0; --size)
          text += letters[random.below(random.below(4) == 0 ? letters.size() : 10)];
        text += ' ';
      }
      const auto parsed = Cron::parse(text);
      if (!parsed) continue;
      ++accepted;
      CAPTURE(text);
      const auto first = parsed->next(moment(saturday), zone("Europe/Berlin"));
      REQUIRE(first.has_value());
      CHECK(*first > moment(saturday));
      CHECK(parsed->previous(*first + milliseconds{1}, zone("Europe/Berlin")) == first);
      CHECK(Cron::parse(parsed->text()) == *parsed);
    }
    CHECK(accepted > tries(500));
  }

  TEST_CASE("the text has one space between fields") {
    CHECK(cron("  0\t9  * * \t MON-FRI ").text() == "0 9 * * MON-FRI");
    CHECK(cron("@Daily").text() == "@Daily");
  }

  TEST_CASE("nothing fires after the year 9999 or before the year 0") {
    CHECK(next("0 0 1 1 *", "9998-06-01T00:00:00Z") == "9999-01-01T00:00:00.000Z");
    CHECK(next("0 0 1 1 *", "9999-01-01T00:00:00Z") == "never");
    CHECK(next("0 * 1 1 *", "9999-01-02T00:00:00Z", "Europe/Berlin") == "never");
    CHECK(next("59 23 31 12 *", "9999-01-02T00:00:00Z", "America/New_York") == "never");
    CHECK(next("59 59 23 31 12 *", "9999-12-31T00:00:00Z") == "9999-12-31T23:59:59.000Z");
    CHECK(next("* * * * * *", "9999-12-31T23:59:59Z") == "never");
    const Cron hourly = cron("@hourly");
    CHECK_FALSE(hourly.next(WallTime::max(), zone("Europe/Berlin")).has_value());
    CHECK_FALSE(hourly.previous(WallTime::min(), zone("Europe/Berlin")).has_value());
    CHECK(hourly.next(WallTime::min(), zone("UTC")) == moment("0000-01-01T00:00:00Z"));
    CHECK(hourly.previous(WallTime::max(), zone("UTC")) == moment("9999-12-31T23:00:00Z"));
    CHECK(cron("0 9 1 1 *").previous(WallTime::max(), zone("Asia/Tokyo")) ==
          moment("9999-01-01T00:00:00Z"));
    CHECK_FALSE(
        cron("0 9 1 1 *").previous(moment("0000-01-01T09:00:00Z"), zone("UTC")).has_value());
  }
}

TEST_SUITE("cron and summer time") {
  TEST_CASE("a named time in a skipped hour fires once, at the first moment after the gap") {
    // Berlin, 28 March 2027: 02:00 is followed by 03:00, at 01:00 UTC.
    CHECK(times("30 2 * * *", "2027-03-27T00:00:00Z", 3, "Europe/Berlin") ==
          Times{"03-27 01:30:00", "03-28 01:00:00", "03-29 00:30:00"});
    CHECK(times("*/15 2 * * *", "2027-03-27T12:00:00Z", 3, "Europe/Berlin") ==
          Times{"03-28 01:00:00", "03-29 00:00:00", "03-29 00:15:00"});
    // Once also if the moment after it is named itself.
    CHECK(times("0 2,3 * * *", "2027-03-27T12:00:00Z", 2, "Europe/Berlin") ==
          Times{"03-28 01:00:00", "03-29 00:00:00"});
    CHECK(times("30 2,3 * * *", "2027-03-27T12:00:00Z", 2, "Europe/Berlin") ==
          Times{"03-28 01:00:00", "03-28 01:30:00"});
    CHECK(times("*/15 1-3 * * *", "2027-03-28T00:30:00Z", 4, "Europe/Berlin") ==
          Times{"03-28 00:45:00", "03-28 01:00:00", "03-28 01:15:00", "03-28 01:30:00"});
  }

  TEST_CASE("a named time in an hour that comes twice fires the first time only") {
    // Berlin, 31 October 2027: 03:00 is followed by 02:00, at 01:00 UTC.
    CHECK(times("30 2 * * *", "2027-10-30T12:00:00Z", 2, "Europe/Berlin") ==
          Times{"10-31 00:30:00", "11-01 01:30:00"});
    CHECK(times("*/30 2-3 * * *", "2027-10-30T12:00:00Z", 5, "Europe/Berlin") ==
          Times{"10-31 00:00:00", "10-31 00:30:00", "10-31 02:00:00", "10-31 02:30:00",
                "11-01 01:00:00"});
    CHECK(times("0 */2 * * *", "2027-10-30T21:00:00Z", 4, "Europe/Berlin") ==
          Times{"10-30 22:00:00", "10-31 00:00:00", "10-31 03:00:00", "10-31 05:00:00"});
    // Asked in the second pass.
    CHECK(next("45 2 * * *", "2027-10-31T01:30:00Z", "Europe/Berlin") ==
          "2027-11-01T01:45:00.000Z");
  }

  TEST_CASE("an expression that names no hour continues by real time") {
    CHECK(times("*/15 * * * *", "2027-03-28T00:30:00Z", 4, "Europe/Berlin") ==
          Times{"03-28 00:45:00", "03-28 01:00:00", "03-28 01:15:00", "03-28 01:30:00"});
    CHECK(times("0 * * * *", "2027-03-27T23:30:00Z", 3, "Europe/Berlin") ==
          Times{"03-28 00:00:00", "03-28 01:00:00", "03-28 02:00:00"});
    CHECK(times("30 * * * *", "2027-03-28T00:00:00Z", 3, "Europe/Berlin") ==
          Times{"03-28 00:30:00", "03-28 01:30:00", "03-28 02:30:00"});
    CHECK(times("0 * * * *", "2027-10-30T23:30:00Z", 4, "Europe/Berlin") ==
          Times{"10-31 00:00:00", "10-31 01:00:00", "10-31 02:00:00", "10-31 03:00:00"});
    CHECK(times("*/30 0-23 * * *", "2027-10-31T00:15:00Z", 4, "Europe/Berlin") ==
          Times{"10-31 00:30:00", "10-31 01:00:00", "10-31 01:30:00", "10-31 02:00:00"});
    CHECK(times("@hourly", "2027-11-07T04:30:00Z", 3, "America/New_York") ==
          Times{"11-07 05:00:00", "11-07 06:00:00", "11-07 07:00:00"});
  }

  TEST_CASE("clocks that change by half an hour, two hours, a day, or in the south") {
    // Lord Howe, 4 October 2026: 02:00 is followed by 02:30 (15:30 UTC); 4 April 2027: by 01:30.
    CHECK(times("15 2 * * *", "2026-10-03T12:00:00Z", 2, "Australia/Lord_Howe") ==
          Times{"10-03 15:30:00", "10-04 15:15:00"});
    CHECK(times("45 1 * * *", "2027-04-03T12:00:00Z", 2, "Australia/Lord_Howe") ==
          Times{"04-03 14:45:00", "04-04 15:15:00"});
    CHECK(times("0 2 * * *", "2027-04-03T12:00:00Z", 1, "Australia/Lord_Howe") ==
          Times{"04-03 15:30:00"});
    CHECK(times("*/30 * * * *", "2027-04-03T14:00:00Z", 4, "Australia/Lord_Howe") ==
          Times{"04-03 14:30:00", "04-03 15:00:00", "04-03 15:30:00", "04-03 16:00:00"});
    // Troll: 28 March 2027, 01:00 is followed by 03:00.
    CHECK(times("30 1,2 * * *", "2027-03-28T00:00:00Z", 2, "Antarctica/Troll") ==
          Times{"03-28 01:00:00", "03-28 23:30:00"});
    // Samoa had no 30 December 2011.
    CHECK(times("0 9 * * *", "2011-12-29T12:00:00Z", 3, "Pacific/Apia") ==
          Times{"12-29 19:00:00", "12-30 10:00:00", "12-30 19:00:00"});
    CHECK(times("0 9 30 12 *", "2011-06-01T00:00:00Z", 1, "Pacific/Apia") ==
          Times{"12-30 10:00:00"});
    // Santiago begins its summer at midnight: 5 September 2027 has no 00:00.
    CHECK(times("0 0 * * *", "2027-09-04T12:00:00Z", 2, "America/Santiago") ==
          Times{"09-05 04:00:00", "09-06 03:00:00"});
    // Long after the end of every table.
    CHECK(next("30 2 * * *", "2400-03-26T00:30:00Z", "Europe/Berlin") ==
          "2400-03-26T01:00:00.000Z");
    CHECK(next("30 2 * * *", "9999-10-30T12:00:00Z", "Europe/Berlin") ==
          "9999-10-31T00:30:00.000Z");
    CHECK(next("30 2 * * *", "1983-03-26T12:00:00Z", "Europe/Berlin") ==
          "1983-03-27T01:00:00.000Z");
  }

  TEST_CASE("years without a match are passed over, and no hour that comes again with them") {
    // Sao Paulo, 18 February 2018: 00:00 is followed by 23:00 of the 17th, at 02:00 UTC.
    CHECK(times("30 * 17 2 *", "2018-02-18T01:00:00Z", 3, "America/Sao_Paulo") ==
          Times{"02-18 01:30:00", "02-18 02:30:00", "02-17 03:30:00"});
    CHECK(next("30 * 17 2 *", "2018-02-18T02:30:00Z", "America/Sao_Paulo") ==
          "2019-02-17T03:30:00.000Z");
    // The day that Samoa skipped, and the Sundays among the leap days of a century.
    CHECK(next("0 * 30 12 *", "2010-12-31T12:00:00Z", "Pacific/Apia") ==
          "2012-12-29T10:00:00.000Z");
    CHECK(next("* * 29 2 */7", "2088-03-01T06:00:00Z", "America/New_York") ==
          "2128-02-29T05:00:00.000Z");
    for (const char* in : {"Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "UTC"}) {
      CAPTURE(in);
      const Cron seldom = cron("*/30 * 29 2 */7");
      std::vector<WallTime> forwards, backwards;
      std::optional<WallTime> time = moment("1950-01-01T00:00:00Z");
      while ((time = seldom.next(*time, zone(in))) && *time < moment("2150-01-01T00:00:00Z"))
        forwards.push_back(*time);
      time = moment("2150-01-01T00:00:00Z");
      while ((time = seldom.previous(*time, zone(in))) && *time > moment("1950-01-01T00:00:00Z"))
        backwards.push_back(*time);
      CHECK(forwards.size() == 48 * 6);  // 1976, 2004, 2032, 2060, 2088 and 2128.
      CHECK(std::vector<WallTime>(backwards.rbegin(), backwards.rend()) == forwards);
    }
  }

  // An expression and the sets that it stands for.
  struct RandomCron {
    std::string text;
    std::array<std::set<unsigned>, 5> sets;
    bool either_day = false;
  };
  RandomCron random_cron(SeededRandom & random) {
    constexpr std::array<std::pair<unsigned, unsigned>, 5> bounds = {
        {{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}};
    RandomCron made;
    std::array<bool, 5> stars{};
    for (std::size_t field = 0; field < 5; ++field) {
      const auto [min, max] = bounds[field];
      // Mostly all months and days, so that something happens in the days looked at.
      stars[field] = random.below(field < 2 ? 3 : 8) != 0 && field != 0;
      if (field == 0) stars[field] = random.below(4) == 0;
      if (stars[field]) {
        const auto step =
            random.below(4) == 0 ? static_cast<unsigned>(random.below(max - min + 1)) + 1 : 1;
        for (unsigned value = min; value <= max; value += step) made.sets[field].insert(value);
        made.text += step == 1 ? "*" : "*/" + std::to_string(step);
      } else {
        std::string list;
        for (auto items = random.below(field == 1 ? 6 : 3) + 1; items > 0; --items) {
          const auto value = min + static_cast<unsigned>(random.below(max - min + 1));
          made.sets[field].insert(value);
          if (!list.empty()) list += ',';
          list += std::to_string(value);
        }
        made.text += list;
      }
      made.text += field == 4 ? "" : " ";
    }
    made.either_day = !stars[2] && !stars[4];
    return made;
  }
  bool matches(const RandomCron& cron, std::int64_t reading_minute) {
    const local_time<minutes> reading{minutes{reading_minute}};
    const auto day = floor<days>(reading);
    const year_month_day date{day};
    const auto time = (reading - day).count();
    const auto has = [&](std::size_t field, unsigned value) {
      return cron.sets[field].contains(value);
    };
    const bool by_day = has(2, static_cast<unsigned>(date.day()));
    const bool by_weekday = has(4, weekday{day}.c_encoding());
    return has(0, static_cast<unsigned>(time % 60)) && has(1, static_cast<unsigned>(time / 60)) &&
           has(3, static_cast<unsigned>(date.month())) &&
           (cron.either_day ? by_day || by_weekday : by_day && by_weekday);
  }
  // All times in [begin, end), minutes of UTC, by looking at each minute of the clock.
  std::vector<std::int64_t> slow_times(const RandomCron& cron, const TimeZone& in,
                                       std::int64_t begin, std::int64_t end) {
    const auto shown = [&](std::int64_t minute) {
      return minute +
             duration_cast<minutes>(in.period_at(sys_seconds{minutes{minute}}).offset).count();
    };
    std::set<std::int64_t> found;
    if (cron.sets[1].size() == 24) {
      for (auto minute = begin; minute < end; ++minute) {
        if (matches(cron, shown(minute))) found.insert(minute);
      }
    } else {
      // Each minute that any clock could show is named; it counts when the clock first gets there.
      auto minute = begin - 3 * 1440;
      for (auto reading = shown(minute); minute < end; ++reading) {
        while (shown(minute) < reading) ++minute;
        if (matches(cron, reading) && minute >= begin && minute < end) found.insert(minute);
      }
    }
    return {found.begin(), found.end()};
  }

  TEST_CASE("forwards and backwards the times are those found by looking at each minute") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    SeededRandom random(seed);
    struct Window {
      const char *zone, *begin;
      int days;
    };
    const std::vector<Window> windows = {{"Europe/Berlin", "2027-03-26T00:00:00Z", 5},
                                         {"Europe/Berlin", "2051-10-27T00:00:00Z", 5},
                                         {"America/New_York", "2027-11-05T00:00:00Z", 5},
                                         {"Australia/Lord_Howe", "2026-10-02T00:00:00Z", 4},
                                         {"Australia/Lord_Howe", "2027-04-02T00:00:00Z", 4},
                                         {"Antarctica/Troll", "2027-03-27T00:00:00Z", 4},
                                         {"Antarctica/Troll", "2027-10-29T00:00:00Z", 4},
                                         {"Pacific/Apia", "2011-12-28T00:00:00Z", 5},
                                         {"Africa/Casablanca", "2030-01-01T00:00:00Z", 20},
                                         {"America/Santiago", "2027-09-03T00:00:00Z", 4},
                                         {"Asia/Kolkata", "2028-02-27T00:00:00Z", 5},
                                         {"UTC", "2028-02-27T00:00:00Z", 40}};
    for (int run = 0; run < tries(150); ++run) {
      const Window& window = windows[static_cast<std::size_t>(run) % windows.size()];
      const auto made = random_cron(random);
      CAPTURE(made.text);
      CAPTURE(window.zone);
      const auto parsed = Cron::parse(made.text);
      if (!parsed) continue;  // It never fires.
      const TimeZone& in = zone(window.zone);
      const auto begin = floor<minutes>(moment(window.begin)).time_since_epoch().count();
      const auto end = begin + window.days * 1440;
      const auto expected = slow_times(made, in, begin, end);

      std::vector<std::int64_t> forwards, backwards;
      const WallTime first = sys_time<minutes>{minutes{begin}},
                     last = sys_time<minutes>{minutes{end}};
      for (auto time = parsed->next(first - milliseconds{1}, in); time && *time < last;
           time = parsed->next(*time, in)) {
        REQUIRE(time->time_since_epoch() % minutes{1} == milliseconds{0});
        forwards.push_back(floor<minutes>(*time).time_since_epoch().count());
      }
      for (auto time = parsed->previous(last, in); time && *time >= first;
           time = parsed->previous(*time, in))
        backwards.insert(backwards.begin(), floor<minutes>(*time).time_since_epoch().count());
      REQUIRE(forwards == expected);
      REQUIRE(backwards == expected);
      // From anywhere, not only from one of its times.
      for (int i = 0; i < 50; ++i) {
        const auto anywhere = first + milliseconds{static_cast<std::int64_t>(random.below(
                                          static_cast<std::uint64_t>((last - first).count())))};
        const auto minute = floor<minutes>(anywhere).time_since_epoch().count();
        const auto later = std::upper_bound(expected.begin(), expected.end(), minute);
        if (later != expected.end())
          REQUIRE(parsed->next(anywhere, in) == sys_time<minutes>{minutes{*later}});
        if (later != expected.begin() && anywhere != sys_time<minutes>{minutes{minute}})
          REQUIRE(parsed->previous(anywhere, in) == sys_time<minutes>{minutes{*std::prev(later)}});
      }
    }
  }
}

}  // namespace
}  // namespace tarry::delay
