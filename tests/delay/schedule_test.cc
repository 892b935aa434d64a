#include "delay/schedule.h"

#include <random>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using Kind = Schedule::Kind;
using records::Codec;

std::expected<Schedule, ScheduleError> schedule_of(const std::vector<TestHeader>& headers,
                                                   const TopicDelay& topic = {}) {
  Buffer body;
  std::vector<records::HeaderView> views;
  for (const auto& header : headers) {
    records::HeaderView view{header.name, std::nullopt};
    if (header.value) view.value = as_bytes(*header.value);
    views.push_back(view);
  }
  records::append_record_body(body, as_bytes("k"), as_bytes("v"), views);
  const auto record = records::parse_record_body(body).value();
  auto schedule = read_schedule(record, topic, now, now);
  static std::string kept;  // The id's bytes end with the body.
  if (schedule) {
    kept = std::string(schedule->id);
    schedule->id = kept;
  }
  return schedule;
}

std::string refusal_of(const std::vector<TestHeader>& headers, const TopicDelay& topic = {}) {
  const auto schedule = schedule_of(headers, topic);
  return schedule ? "(accepted)" : schedule.error().message;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_SUITE("schedule") {
  TEST_CASE("x-delay counts from arrival, as text of every kind and as binary") {
    for (const std::string& text :
         std::vector<std::string>{"90000", "90s", "1m30s", "PT1M30S", "90000ms"}) {
      const auto schedule = schedule_of({{"x-delay", text}});
      REQUIRE_MESSAGE(schedule.has_value(), text);
      CHECK(schedule->kind == Kind::delayed);
      CHECK(schedule->due == now + milliseconds{90'000});
    }
    CHECK(schedule_of({{"x-delay", eight_bytes(90'000)}})->due == now + milliseconds{90'000});
  }

  TEST_CASE("x-deliver-at is epoch milliseconds, RFC 3339 or binary") {
    const WallTime due = now + milliseconds{5'000};
    CHECK(schedule_of({{"x-deliver-at", std::to_string(to_ms(due))}})->due == due);
    CHECK(schedule_of({{"x-deliver-at", eight_bytes(to_ms(due))}})->due == due);
    const auto schedule = schedule_of({{"x-deliver-at", "2031-11-21T10:00:00+01:00"}});
    REQUIRE(schedule.has_value());
    CHECK(to_ms(schedule->due) == 1'953'018'000'000 + 0);
    CHECK(schedule->kind == Kind::delayed);
  }

  TEST_CASE("a value of 8 bytes whose first byte is not 0 is text") {
    CHECK(schedule_of({{"x-delay", "00090000"}})->due == now + milliseconds{90'000});
    CHECK(schedule_of({{"x-delay", "PT1M30S"}})->due == now + milliseconds{90'000});
    CHECK(contains(refusal_of({{"x-delay", "abcdefgh"}}), "abcdefgh"));
  }

  TEST_CASE("a delay of 0 and a time in the past are immediate") {
    for (const char* none : {"0", "0ms", "PT0S"}) {
      CHECK(schedule_of({{"x-delay", none}})->kind == Kind::immediate);
    }
    CHECK(schedule_of({{"x-delay", eight_bytes(0)}})->kind == Kind::immediate);
    CHECK(schedule_of({{"x-deliver-at", "0"}})->kind == Kind::immediate);
    CHECK(schedule_of({{"x-deliver-at", std::to_string(to_ms(now))}})->kind == Kind::immediate);
    CHECK(schedule_of({{"x-deliver-at", std::to_string(to_ms(now) + 1)}})->kind == Kind::delayed);
    CHECK(schedule_of({{"x-deliver-at", "2000-01-01T00:00:00Z"}})->kind == Kind::immediate);
    // Numbers too small to be a time in seconds.
    for (const char* small : {"1", "5000", "60000", "946684799"}) {
      CHECK(schedule_of({{"x-deliver-at", small}})->kind == Kind::immediate);
    }
  }

  TEST_CASE("both x-deliver-at and x-delay are refused with both names") {
    const auto text = refusal_of({{"x-delay", "5s"}, {"x-deliver-at", "17"}});
    CHECK(contains(text, "x-delay"));
    CHECK(contains(text, "x-deliver-at"));
  }

  TEST_CASE("one of them twice is refused") {
    CHECK(contains(refusal_of({{"x-delay", "5s"}, {"x-delay", "6s"}}), "x-delay: given twice"));
    CHECK(contains(refusal_of({{"x-deliver-at", "5"}, {"x-deliver-at", "5"}}), "x-deliver-at"));
    CHECK(contains(refusal_of({{"x-delay", "5"}, {"x-schedule-id", "a"}, {"x-schedule-id", "b"}}),
                   "x-schedule-id"));
  }

  TEST_CASE("an invalid time is refused, naming header and value") {
    for (const char* bad :
         {"", "soon", "-5", "5 s", "1e3", "0x10", "99999999999999999999", "PT", "P1M"}) {
      const auto text = refusal_of({{"x-delay", bad}});
      CHECK_MESSAGE(contains(text, "x-delay"), text);
      CHECK_MESSAGE(contains(text, bad), text);
    }
    for (const char* bad : {"", "tomorrow", "2026-13-01T00:00:00Z", "2026-11-21T10:00:00"}) {
      const auto text = refusal_of({{"x-deliver-at", bad}});
      CHECK_MESSAGE(contains(text, "x-deliver-at"), text);
      CHECK_MESSAGE(contains(text, bad), text);
    }
    CHECK(contains(refusal_of({{"x-delay", std::nullopt}}), "x-delay: null"));
    CHECK(contains(refusal_of({{"x-deliver-at", std::nullopt}}), "x-deliver-at: null"));
    CHECK(contains(refusal_of({{"x-delay", "\x01\xff\n"}}), "\\x01\\xff\\x0a"));
  }

  TEST_CASE("a time beyond the end of time is refused, never wrapped") {
    CHECK(contains(refusal_of({{"x-delay", "9223372036854775807"}}), "x-delay"));
    CHECK(contains(refusal_of({{"x-deliver-at", "9223372036854775807"}}), "x-deliver-at"));
    CHECK(contains(refusal_of({{"x-delay", eight_bytes(0x00ffffffffffffff)}}),
                   "72057594037927935 (8 bytes)"));
  }

  TEST_CASE(
      "a time given in seconds, microseconds or nanoseconds is refused with the time that was "
      "meant") {
    const auto is = [](const std::string& header, const std::string& value) {
      return refusal_of({{header, value}});
    };
    CHECK(is("x-deliver-at", "1795000000") ==
          "x-deliver-at: \"1795000000\" is before the year 2000; it was probably given in seconds "
          "instead of milliseconds, and would then be 2026-11-18T11:06:40.000Z");
    CHECK(is("x-deliver-at", "1795000000123456") ==
          "x-deliver-at: \"1795000000123456\" is after the year 9999; it was probably given in "
          "microseconds instead of milliseconds, and would then be 2026-11-18T11:06:40.123Z");
    CHECK(is("x-deliver-at", "1795000000123456789") ==
          "x-deliver-at: \"1795000000123456789\" is after the year 9999; it was probably given in "
          "nanoseconds instead of milliseconds, and would then be 2026-11-18T11:06:40.123Z");
    CHECK(
        contains(is("x-deliver-at", eight_bytes(1'795'000'000)),
                 "1795000000 (8 bytes) is before the year 2000; it was probably given in seconds"));
    CHECK(contains(is("x-expire-at", "1795000000"), "would then be 2026-11-18T11:06:40.000Z"));
    CHECK(contains(is("x-expire-at", "1795000000123456"), "probably given in microseconds"));
  }

  TEST_CASE("a due time is of the years 2000 to 9999, to the millisecond") {
    const auto at = [](std::int64_t ms) {
      return refusal_of({{"x-deliver-at", std::to_string(ms)}});
    };
    CHECK(contains(at(946'684'799'999), "before the year 2000"));
    CHECK(at(946'684'800'000) == "(accepted)");
    CHECK(at(253'402'300'799'999) == "(accepted)");
    CHECK(contains(at(253'402'300'800'000), "after the year 9999"));
    // The first number that can be seconds, and the last.
    CHECK(at(946'684'799) == "(accepted)");
    CHECK(contains(at(946'684'800), "would then be 2000-01-01T00:00:00.000Z"));
    CHECK(contains(at(253'402'300'799), "would then be 9999-12-31T23:59:59.000Z"));
    CHECK(!contains(at(253'402'300'800), "probably"));
    CHECK(!contains(at(946'684'799'999'999), "probably"));
    CHECK(contains(at(946'684'800'000'000), "microseconds"));
    CHECK(refusal_of({{"x-deliver-at", "1999-12-31T23:59:59.999Z"}}) ==
          "x-deliver-at: \"1999-12-31T23:59:59.999Z\" is before the year 2000");
    CHECK(contains(refusal_of({{"x-deliver-at", "1969-12-31T23:59:59Z"}}), "before the year 2000"));

    const std::int64_t longest = 253'402'300'799'999 - to_ms(now);
    CHECK(schedule_of({{"x-delay", std::to_string(longest)}})->kind == Kind::delayed);
    CHECK(contains(refusal_of({{"x-delay", std::to_string(longest + 1)}}),
                   "leads to a due time after the year 9999"));
    TopicDelay topic;
    topic.default_delay = milliseconds{longest + 1};
    CHECK(contains(refusal_of({}, topic), "tarry.delay.ms"));
  }

  TEST_CASE("the error for a delay beyond the year 9999 shows the result in other units") {
    CHECK(
        refusal_of({{"x-delay", "604800000000000"}}) ==
        "x-delay: \"604800000000000\" leads to a due time after the year 9999; a bare number is "
        "milliseconds: as microseconds it would be due at 2046-01-17T11:06:40.000Z, as nanoseconds "
        "it would be due at 2026-11-25T11:06:40.000Z");
    CHECK(refusal_of({{"x-delay", "99999999999d"}}) ==
          "x-delay: \"99999999999d\" leads to a due time after the year 9999");
  }

  TEST_CASE(
      "an x-expire-at that was meant as a duration is refused, for it would drop the record") {
    for (const char* small : {"0", "60000", "946684799"}) {
      const auto text = refusal_of({{"x-delay", "5s"}, {"x-expire-at", small}});
      CHECK_MESSAGE(contains(text, small), text);
      CHECK_MESSAGE(contains(text, "is a time, not a duration"), text);
    }
  }

  TEST_CASE("the delay of a broker whose clock stands before the year 2000 is not refused") {
    Buffer body;
    const records::HeaderView header{"x-delay", as_bytes("5s")};
    records::append_record_body(body, as_bytes("k"), as_bytes("v"), {&header, 1});
    const auto record = records::parse_record_body(body).value();
    const auto schedule = read_schedule(record, {}, from_ms(1'000), from_ms(1'000));
    REQUIRE(schedule.has_value());
    CHECK(to_ms(schedule->due) == 6'000);
  }

  TEST_CASE("an unknown action is refused, and cancel needs an id") {
    CHECK(
        contains(refusal_of({{"x-schedule-action", "drop"}, {"x-schedule-id", "a"}}), "\"drop\""));
    CHECK(
        contains(refusal_of({{"x-schedule-action", "CANCEL"}, {"x-schedule-id", "a"}}), "CANCEL"));
    CHECK(contains(refusal_of({{"x-schedule-action", std::nullopt}}), "x-schedule-action"));
    CHECK(contains(refusal_of({{"x-schedule-action", "cancel"}}), "x-schedule-id"));
    const auto cancel = schedule_of({{"x-schedule-action", "cancel"}, {"x-schedule-id", "a"}});
    REQUIRE(cancel.has_value());
    CHECK(cancel->kind == Kind::cancel);
    CHECK(cancel->id == "a");
  }

  TEST_CASE("a cancel with a time is a contradiction and refused") {
    CHECK(contains(
        refusal_of({{"x-schedule-action", "cancel"}, {"x-schedule-id", "a"}, {"x-delay", "5s"}}),
        "x-delay"));
  }

  TEST_CASE("an id alone schedules nothing, even if it is invalid") {
    CHECK(schedule_of({{"x-schedule-id", "a"}})->kind == Kind::none);
    CHECK(schedule_of({{"x-schedule-id", "@a"}})->kind == Kind::none);
    CHECK(
        schedule_of({{"x-schedule-id", "a"}, {"x-scheduled-for", "5"}, {"x-schedule-handle", "@5"}})
            ->kind == Kind::none);
    CHECK(schedule_of({})->kind == Kind::none);
  }

  TEST_CASE("an id has 1 to 249 bytes of UTF-8 and does not begin with @") {
    const auto with = [](std::optional<std::string> id) {
      return std::vector<TestHeader>{{"x-delay", "5s"}, {"x-schedule-id", std::move(id)}};
    };
    CHECK(schedule_of(with("order 17 \xe2\x82\xac"))->id == "order 17 \xe2\x82\xac");
    CHECK(schedule_of(with(std::string(249, 'x')))->id.size() == 249);
    for (const std::string& bad :
         {std::string(), std::string(250, 'x'), std::string("@a"), std::string("\xff"),
          std::string("\xc0\x80"), std::string("\xed\xa0\x80"), std::string("a\xe2\x82")}) {
      CHECK(contains(refusal_of(with(bad)), "x-schedule-id"));
    }
    CHECK(contains(refusal_of(with(std::nullopt)), "x-schedule-id: null"));
  }

  TEST_CASE("a record that cannot be delivered before its x-expire-at is expired on arrival") {
    const auto at = [](std::int64_t offset) { return std::to_string(to_ms(now) + offset); };
    const auto good = schedule_of({{"x-delay", "5s"}, {"x-expire-at", at(5'001)}});
    REQUIRE(good.has_value());
    CHECK(good->expires == now + milliseconds{5'001});
    CHECK(schedule_of({{"x-delay", "5s"}, {"x-expire-at", at(5'000)}})->kind == Kind::expired);
    CHECK(schedule_of({{"x-delay", "5s"}, {"x-expire-at", at(1'000)}})->kind == Kind::expired);
    CHECK(schedule_of({{"x-delay", "5s"}, {"x-expire-at", at(-1'000)}})->kind == Kind::expired);
    CHECK(contains(refusal_of({{"x-delay", "5s"}, {"x-expire-at", "never"}}), "never"));
    CHECK(schedule_of({{"x-expire-at", at(5'000)}})->kind == Kind::immediate);
    CHECK(schedule_of({{"x-expire-at", at(0)}})->kind == Kind::expired);
  }

  TEST_CASE("a record that arrives after its x-expire-at is dropped on arrival") {
    CHECK(schedule_of({{"x-deliver-at", std::to_string(to_ms(now) - 5'000)},
                       {"x-expire-at", std::to_string(to_ms(now) - 1)}})
              ->kind == Kind::expired);
  }

  TEST_CASE("recurring headers schedule the first run, in any case of their names") {
    const auto every = schedule_of({{"X-Every", "10m"}, {"x-schedule-id", "id"}});
    REQUIRE(every->recurrence);
    CHECK(every->kind == Kind::delayed);
    CHECK(every->due == now + std::chrono::minutes{10});
    CHECK(every->id == "id");
    CHECK(schedule_of({{"x-every", "10m"}, {"x-delay", "1h"}})->due == now + std::chrono::hours{1});
    CHECK(schedule_of({{"x-every", "10m"}, {"x-deliver-at", "0"}})->kind == Kind::delayed);
    CHECK(schedule_of({{"x-cron", "@daily"}, {"x-cron-tz", "Europe/Berlin"}})->recurrence !=
          nullptr);
    CHECK(schedule_of({{"x-delay", "1h"}})->recurrence == nullptr);
  }

  TEST_CASE("recurring headers that cannot be understood, or not together, are refused by name") {
    for (const auto& [name, value] : {std::pair{"x-every", "soon"},
                                      {"x-every", "1ms"},
                                      {"x-cron", "61 * * * *"},
                                      {"x-cron-tz", "Europe/Berlin"},
                                      {"x-until", "1h"},
                                      {"x-count", "3"}}) {
      const auto text = refusal_of({{name, value}});
      CHECK_MESSAGE(contains(text, name), text);
    }
    CHECK(contains(refusal_of({{"x-every", "1h"}, {"X-EVERY", "2h"}}), "given twice"));
    CHECK(contains(refusal_of({{"x-every", "1h"}, {"x-cron", "@daily"}}), "x-cron"));
    CHECK(contains(refusal_of({{"x-every", "1h"}, {"x-expire-at", "2100-01-01T00:00:00Z"}}),
                   "x-expire-at"));
    CHECK(contains(
        refusal_of({{"x-every", "1h"}, {"x-schedule-action", "cancel"}, {"x-schedule-id", "a"}}),
        "x-every"));
  }

  TEST_CASE("a topic's default delay holds for records that ask for none") {
    TopicDelay topic;
    topic.default_delay = milliseconds{2'000};
    CHECK(schedule_of({}, topic)->due == now + milliseconds{2'000});
    CHECK(schedule_of({{"x-delay", "0"}}, topic)->kind == Kind::immediate);
    CHECK(schedule_of({{"x-delay", "7s"}}, topic)->due == now + milliseconds{7'000});
    CHECK(schedule_of({{"x-schedule-id", "a"}}, topic)->id == "a");
  }

  TEST_CASE("a delay beyond tarry.delay.max.ms is refused, naming both") {
    TopicDelay topic;
    topic.max_delay = milliseconds{60'000};
    CHECK(schedule_of({{"x-delay", "1m"}}, topic)->kind == Kind::delayed);
    const auto text = refusal_of({{"x-delay", "61s"}}, topic);
    CHECK(contains(text, "x-delay"));
    CHECK(contains(text, "61s"));
    CHECK(contains(text, "tarry.delay.max.ms=60000"));
    CHECK(contains(refusal_of({{"x-deliver-at", std::to_string(to_ms(now) + 60'001)}}, topic),
                   "x-deliver-at"));
  }

  TEST_CASE("headers of others with names like ours mean nothing") {
    for (const char* name :
         {"x-delays", "x-dela", "delay", "x-", "x-count-me", "xx-delay", "x_delay",
          "X\x0d"
          "delay"}) {
      CHECK(schedule_of({{name, "nonsense"}})->kind == Kind::none);
    }
  }

  TEST_CASE("header names are matched without regard to ASCII case, and refused under our names") {
    CHECK(schedule_of({{"X-Delay", "5s"}})->due == now + milliseconds{5'000});
    CHECK(schedule_of({{"X-DELIVER-AT", std::to_string(to_ms(now) + 1)}})->kind == Kind::delayed);
    const auto cancel = schedule_of({{"X-Schedule-Action", "cancel"}, {"x-Schedule-ID", "a"}});
    REQUIRE(cancel.has_value());
    CHECK(cancel->kind == Kind::cancel);
    CHECK(cancel->id == "a");
    CHECK(schedule_of({{"X-Expire-At", std::to_string(to_ms(now))}})->kind == Kind::expired);
    CHECK(refusal_of({{"X-Delay", "5s"}, {"x-delay", "6s"}}) ==
          "x-delay: given twice, as \"5s\" and as \"6s\"");
    CHECK(contains(refusal_of({{"X-Cron", "7"}}), "x-cron"));
    for (const char* name : {"X-Deliver-At", "X-DELAY", "x-Every", "X-SCHEDULED-FOR"}) {
      CHECK(is_taken_out(name));
    }
    CHECK(!is_taken_out("X-Schedule-Id"));
    CHECK(!is_taken_out("X-Delays"));
  }

  TEST_CASE("the search finds each name wherever it stands, and nothing in records without") {
    for (const char* name : {"x-deliver-at", "x-delay", "x-schedule-id", "x-schedule-action",
                             "x-expire-at", "x-every", "x-cron", "x-cron-tz", "x-until", "x-count",
                             "X-Deliver-At", "X-DELAY", "x-Schedule-Id"}) {
      for (std::size_t before = 0; before < 70; ++before) {
        const Buffer batch =
            make_batch({{std::string(before, 'x'), {{"trace", "x-"}, {name, "1"}}}}, now);
        CHECK(search_names(records::BatchView::parse(batch)->records()) == NamesFound::scheduling);
      }
    }
    // From 1: a body of six bytes looks like a name one letter off.
    for (std::size_t before = 1; before < 70; ++before) {
      const Buffer batch = make_batch({{std::string(before, '-') + "x-dela",
                                        {{"x-trace", "x-forwarded-for: x-d"}, {"x-", ""}}}},
                                      now);
      CHECK(search_names(records::BatchView::parse(batch)->records()) == NamesFound::none);
    }
    CHECK(search_names({}) == NamesFound::none);
  }

  TEST_CASE("the search and a full parse agree on random records") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::vector<std::string> names = {"x-delay",
                                            "x-dela",
                                            "x-schedule-id",
                                            "x-cron",
                                            "y",
                                            "",
                                            "X-Delay",
                                            "\x18-delay",
                                            "x\x0d"
                                            "delay"};
    for (int i = 0; i < 2'000; ++i) {
      TestRecord record{std::string(random() % 50, static_cast<char>('w' + random() % 3)), {}};
      bool expected = false;
      for (std::size_t n = random() % 4; n != 0; --n) {
        const auto& name = names[random() % names.size()];
        record.headers.push_back({name, std::string(random() % 9, '-')});
        expected |=
            name == "x-delay" || name == "x-schedule-id" || name == "x-cron" || name == "X-Delay";
      }
      const Buffer batch = make_batch({record}, now);
      CHECK((search_names(records::BatchView::parse(batch)->records()) == NamesFound::scheduling) ==
            expected);
    }
  }
}

}  // namespace
}  // namespace tarry::delay
