#include "delay/header_aliases.h"

#include <doctest/doctest.h>

#include "delay/schedule.h"
#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

// The process's aliases while it lives.
struct Aliased {
  explicit Aliased(std::string_view text) {
    auto parsed = HeaderAliases::parse(text);
    REQUIRE_MESSAGE(parsed.has_value(), parsed.error().message);
    set_header_aliases(std::move(*parsed));
  }
  ~Aliased() { set_header_aliases({}); }
};

std::string parse_error(std::string_view text) {
  const auto parsed = HeaderAliases::parse(text);
  return parsed ? "(accepted)" : parsed.error().message;
}

bool says(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Buffer record_with(std::string_view header, std::string_view value) {
  Buffer body;
  records::append_record_body(body, as_bytes("k"), as_bytes("v"),
                              std::vector<records::HeaderView>{{header, as_bytes(value)}});
  return body;
}

std::expected<Schedule, ScheduleError> schedule_by(std::string_view header,
                                                   std::string_view value) {
  const auto body = record_with(header, value);
  return read_schedule(records::parse_record_body(body).value(), {}, now, now);
}

TEST_SUITE("header aliases") {
  TEST_CASE("a header with an alias schedules like the original, in any case") {
    const Aliased aliases("x-deliver-at=delay-until, X-Delay = postpone,x-delay=later");
    for (const char* name : {"postpone", "Postpone", "later", "x-delay"}) {
      CAPTURE(name);
      const auto schedule = schedule_by(name, "90s");
      REQUIRE(schedule.has_value());
      CHECK(schedule->kind == Schedule::Kind::delayed);
      CHECK(schedule->due == now + std::chrono::seconds{90});
      CHECK(search_names(record_with(name, "90s")) == NamesFound::scheduling);
    }
    CHECK(schedule_by("delay-until", "2031-11-21T10:00:00Z")->kind == Schedule::Kind::delayed);
    CHECK(schedule_by("postponed", "90s")->kind == Schedule::Kind::none);
    CHECK(search_names(record_with("postponed", "90s")) == NamesFound::none);
  }

  TEST_CASE("without aliases no other name schedules") {
    CHECK(schedule_by("postpone", "90s")->kind == Schedule::Kind::none);
    CHECK(search_names(record_with("postpone", "90s")) == NamesFound::none);
    CHECK_FALSE(is_taken_out("postpone"));
  }

  TEST_CASE("delivery removes an alias where it removes the original") {
    const Aliased aliases("x-delay=postpone,x-schedule-id=job-id");
    CHECK(is_taken_out("Postpone"));
    CHECK_FALSE(is_taken_out("job-id"));  // As x-schedule-id.
  }

  TEST_CASE(
      "an error names the header that the producer sent, and the original that it stands for") {
    const Aliased aliases("x-delay=postpone");
    const auto schedule = schedule_by("postpone", "soon");
    REQUIRE_FALSE(schedule.has_value());
    CHECK(says(schedule.error().message, "soon"));
    CHECK(says(schedule.error().message, "(postpone stands for x-delay)"));
    CHECK_FALSE(says(schedule_by("x-delay", "soon").error().message, "stands for"));
  }

  TEST_CASE("an alias and its original in one record are the same header twice") {
    const Aliased aliases("x-delay=postpone");
    Buffer body;
    records::append_record_body(body, as_bytes("k"), as_bytes("v"),
                                std::vector<records::HeaderView>{{"x-delay", as_bytes("1s")},
                                                                 {"postpone", as_bytes("2s")}});
    const auto schedule = read_schedule(records::parse_record_body(body).value(), {}, now, now);
    REQUIRE_FALSE(schedule.has_value());
    CHECK(schedule.error().reason == reason::given_twice);
  }

  TEST_CASE("an alias that is one letter off from one of our names is not a slip") {
    CHECK(nearly_named("x-delays") == "x-delay");
    const Aliased aliases("x-delay=x-delays");
    CHECK(nearly_named("x-delays").empty());
  }

  TEST_CASE("an impossible alias is refused with the pair and the allowed form") {
    CHECK(parse_error("") == "(accepted)");
    CHECK(says(parse_error("delay-until"), "ORIGINAL=ALIAS"));
    CHECK(
        says(parse_error("x-later=delay-until"), "x-later=delay-until does not begin with one of"));
    CHECK(says(parse_error("x-scheduled-for=due"), "does not begin with one of"));
    CHECK(says(parse_error("x-delay="), "x-delay= needs an alias"));
    CHECK(says(parse_error("x-delay=a b"), "needs an alias"));
    CHECK(says(parse_error("x-delay=" + std::string(64, 'a')), "needs an alias"));
    CHECK(parse_error("x-delay=" + std::string(63, 'a')) == "(accepted)");
    CHECK(says(parse_error("x-delay=X-Until"), "Tarry's own"));
    CHECK(says(parse_error("x-delay=x-schedule-handle"), "Tarry's own"));
    CHECK(
        says(parse_error("x-delay=later,x-deliver-at=Later"), "a second time, first for x-delay"));
    std::string many;
    for (int i = 0; i < 64; ++i) many += "x-delay=a" + std::to_string(i) + ",";
    CHECK(parse_error(many) == "(accepted)");
    CHECK(says(parse_error(many + "x-delay=b"), "64"));
  }
}

}  // namespace
}  // namespace tarry::delay
