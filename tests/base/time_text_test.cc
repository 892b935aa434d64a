#include "base/time_text.h"

#include <limits>
#include <random>

#include <doctest/doctest.h>

namespace tarry {
namespace {

std::int64_t duration_ms(std::string_view text) {
  const auto parsed = parse_duration(text);
  INFO("text: ", std::string(text));
  REQUIRE(parsed.has_value());
  return parsed->count();
}
std::int64_t time_ms(std::string_view text) {
  const auto parsed = parse_time(text);
  INFO("text: ", std::string(text));
  REQUIRE(parsed.has_value());
  return to_ms(*parsed);
}

TEST_SUITE("time_text") {
  TEST_CASE("durations are read in units, in ISO 8601 and as bare milliseconds") {
    CHECK(duration_ms("250ms") == 250);
    CHECK(duration_ms("90s") == 90'000);
    CHECK(duration_ms("30m") == 1'800'000);
    CHECK(duration_ms("1h30m") == 5'400'000);
    CHECK(duration_ms("2d") == 172'800'000);
    CHECK(duration_ms("1d2h3m4s5ms") == 93'784'005);
    CHECK(duration_ms("0") == 0);
    CHECK(duration_ms("0s") == 0);
    CHECK(duration_ms("1500") == 1500);
    CHECK(duration_ms("PT1H30M") == 5'400'000);
    CHECK(duration_ms("P1DT12H") == 129'600'000);
    CHECK(duration_ms("P2W") == 1'209'600'000);
    CHECK(duration_ms("PT0S") == 0);
    CHECK(duration_ms("PT1.5S") == 1500);
    CHECK(duration_ms("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  }

  TEST_CASE("a part of a millisecond in a duration makes it longer, never shorter") {
    CHECK(duration_ms("PT0.0001S") == 1);
    CHECK(duration_ms("PT0.9999S") == 1000);
    CHECK(duration_ms("PT0.5000000S") == 500);
  }

  TEST_CASE("an invalid duration is refused with the given text and an example") {
    for (const std::string_view text : {"",
                                        " ",
                                        "-1",
                                        "-5m",
                                        "+5",
                                        "1 h",
                                        "1h ",
                                        " 1h",
                                        "h",
                                        "ms",
                                        "1.5h",
                                        "1e3",
                                        "1w",
                                        "1y",
                                        "30m1h",
                                        "1h1h",
                                        "1h30",
                                        "1H",
                                        "5M",
                                        "30min",
                                        "0x10",
                                        "P",
                                        "PT",
                                        "P1DT",
                                        "PT1H30",
                                        "P1Y",
                                        "P1M",
                                        "PT1M1H",
                                        "P1H",
                                        "PT1D",
                                        "pt1h",
                                        "P-1D",
                                        "-PT1H",
                                        "PT.5S",
                                        "PT1.S",
                                        "PT1.5H",
                                        "PT1HT1M",
                                        "P1W1W",
                                        "9223372036854775808",
                                        "99999999999999999999999",
                                        "106751991168d",
                                        "9223372036854775807s",
                                        "2562047788015h13m",
                                        "P99999999999999W",
                                        "PT9223372036854775.808S",
                                        "1h\n",
                                        "\xff",
                                        "tomorrow"}) {
      const auto parsed = parse_duration(text);
      INFO("text: ", std::string(text));
      REQUIRE_FALSE(parsed.has_value());
      CHECK(parsed.error().code == Errc::invalid);
      CHECK(parsed.error().message.find("1h30m") != std::string::npos);
    }
    CHECK(parse_duration("soon").error().message.starts_with("\"soon\" is not a duration"));
    CHECK(parse_duration(std::string_view("1h\0", 3)).has_value() == false);
  }

  TEST_CASE("times are read as RFC 3339 with any offset and as epoch milliseconds") {
    CHECK(time_ms("0") == 0);
    CHECK(time_ms("1700000000000") == 1'700'000'000'000);
    CHECK(time_ms("1970-01-01T00:00:00Z") == 0);
    CHECK(time_ms("2026-11-21T10:00:00+01:00") == 1'795'251'600'000);
    CHECK(time_ms("2026-11-21T09:00:00Z") == 1'795'251'600'000);
    CHECK(time_ms("2026-11-21t09:00:00z") == 1'795'251'600'000);
    CHECK(time_ms("2026-11-21T09:00:00-00:00") == 1'795'251'600'000);
    CHECK(time_ms("2026-11-21T03:30:00-05:30") == 1'795'251'600'000);
    CHECK(time_ms("2026-11-22T08:59:00+23:59") == 1'795'251'600'000);
    CHECK(time_ms("2024-02-29T00:00:00.25Z") == 1'709'164'800'250);
    CHECK(time_ms("1969-12-31T23:59:59.999Z") == -1);
    CHECK(time_ms("0000-01-01T00:00:00+00:01") == -62'167'219'260'000);
    CHECK(time_ms("9999-12-31T23:59:59.999-23:59") == 253'402'387'139'999);
  }

  TEST_CASE("a part of a millisecond in a time makes it later, never earlier") {
    CHECK(time_ms("1970-01-01T00:00:00.0001Z") == 1);
    CHECK(time_ms("1970-01-01T00:00:00.000000001Z") == 1);
    CHECK(time_ms("1970-01-01T00:00:00.1230000000000Z") == 123);
    CHECK(time_ms("1970-01-01T23:59:59.9999Z") == 86'400'000);
    CHECK(time_ms("1969-12-31T23:59:59.9991Z") == 0);
  }

  TEST_CASE("a leap second is taken at the end of a month in UTC and nowhere else") {
    CHECK(time_ms("2016-12-31T23:59:60Z") == time_ms("2017-01-01T00:00:00Z"));
    CHECK(time_ms("2017-01-01T00:59:60+01:00") == time_ms("2017-01-01T00:00:00Z"));
    CHECK(time_ms("2015-06-30T23:59:60.5Z") == time_ms("2015-07-01T00:00:00.5Z"));
    CHECK_FALSE(parse_time("2016-12-31T23:59:60+01:00").has_value());
    CHECK_FALSE(parse_time("2016-12-30T23:59:60Z").has_value());
    CHECK_FALSE(parse_time("2016-12-31T23:58:60Z").has_value());
    CHECK_FALSE(parse_time("2016-12-31T23:59:61Z").has_value());
  }

  TEST_CASE("an invalid time is refused with the given text and an example") {
    for (const std::string_view text : {"",
                                        " ",
                                        "-1",
                                        "+1",
                                        "1.5",
                                        "now",
                                        "2026-11-21",
                                        "2026-11-21T10:00:00",
                                        "2026-11-21T10:00Z",
                                        "2026-11-21 10:00:00Z",
                                        "2026-11-21T10:00:00+0100",
                                        "2026-11-21T10:00:00+01",
                                        "2026-11-21T10:00:00+1:00",
                                        "2026-11-21T10:00:00+24:00",
                                        "2026-11-21T10:00:00+01:60",
                                        "2026-11-21T24:00:00Z",
                                        "2026-11-21T10:60:00Z",
                                        "2026-13-01T00:00:00Z",
                                        "2026-00-01T00:00:00Z",
                                        "2026-02-29T00:00:00Z",
                                        "2026-04-31T00:00:00Z",
                                        "2026-01-00T00:00:00Z",
                                        "26-11-21T10:00:00Z",
                                        "02026-11-21T10:00:00Z",
                                        "2026-11-21T10:00:00.Z",
                                        "2026-11-21T10:00:00,5Z",
                                        "2026-11-21T10:00:00ZZ",
                                        "2026-11-21T10:00:00Z ",
                                        "-2026-11-21T10:00:00Z",
                                        "9223372036854775808",
                                        "1e12",
                                        "2026-W47-6T10:00:00Z"}) {
      const auto parsed = parse_time(text);
      INFO("text: ", std::string(text));
      REQUIRE_FALSE(parsed.has_value());
      CHECK(parsed.error().code == Errc::invalid);
      CHECK(parsed.error().message.find("2026-11-21T10:00:00+01:00") != std::string::npos);
    }
    CHECK(parse_time("noon\n").error().message.starts_with("\"noon\\x0a\" is not a time"));
  }

  TEST_CASE("sizes are bytes or powers of 1024, and nothing else") {
    CHECK(parse_size("0").value() == 0);
    CHECK(parse_size("1048588").value() == 1'048'588);
    CHECK(parse_size("64KiB").value() == 65'536);
    CHECK(parse_size("1MiB").value() == 1'048'576);
    CHECK(parse_size("2GiB").value() == 2'147'483'648);
    CHECK(parse_size("18446744073709551615").value() == std::numeric_limits<std::uint64_t>::max());
    for (const std::string_view text :
         {"", "-1", "+1", " 1", "1 KiB", "1KB", "1k", "1K", "1kib", "1M", "1.5GiB", "KiB", "1B",
          "18446744073709551616", "17179869184GiB", "1KiB1", "0x10", "1GiBs"}) {
      INFO("text: ", std::string(text));
      REQUIRE_FALSE(parse_size(text).has_value());
      CHECK(parse_size(text).error().code == Errc::invalid);
      CHECK(parse_size(text).error().message.find("64KiB") != std::string::npos);
    }
  }

  TEST_CASE("a time is written in UTC with milliseconds") {
    CHECK(format_time(from_ms(1'795'251'600'250)) == "2026-11-21T09:00:00.250Z");
    CHECK(format_time(from_ms(-1)) == "1969-12-31T23:59:59.999Z");
    CHECK(format_time(from_ms(253'402'300'799'999)) == "9999-12-31T23:59:59.999Z");
    CHECK(format_time(from_ms(253'402'300'800'000)) == "253402300800000");
    CHECK(format_time(from_ms(std::numeric_limits<std::int64_t>::max())) == "9223372036854775807");
    CHECK(format_time(from_ms(std::numeric_limits<std::int64_t>::min())) == "-9223372036854775808");
  }

  TEST_CASE("a duration is written in the largest units that are exact") {
    using std::chrono::milliseconds;
    CHECK(format_duration(milliseconds{0}) == "0ms");
    CHECK(format_duration(milliseconds{250}) == "250ms");
    CHECK(format_duration(milliseconds{5'400'000}) == "1h30m");
    CHECK(format_duration(milliseconds{172'800'000}) == "2d");
    CHECK(format_duration(milliseconds{-90'001}) == "-1m30s1ms");
    CHECK(format_duration(milliseconds::min()) == "-106751991167d7h12m55s808ms");
  }

  TEST_CASE("a written value is read back unchanged") {
    const auto seed = std::random_device{}();
    INFO("seed: ", seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20'000; ++i) {
      // From every magnitude as often.
      const auto number = static_cast<std::int64_t>((random() >> 1) >> (random() % 63));
      const std::chrono::milliseconds duration{number};
      REQUIRE(parse_duration(format_duration(duration)).value() == duration);
      REQUIRE(parse_time(format_time(from_ms(number))).value() == from_ms(number));
    }
  }
}

}  // namespace
}  // namespace tarry
