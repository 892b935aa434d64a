#include "web/arguments.h"

#include <doctest/doctest.h>

#include <string>

#include "web/question.h"

namespace tarry::web {
namespace {

using namespace std::chrono_literals;

constexpr WallTime noon{1'800'000'000'000ms};

// The message for the client; empty: nothing was refused.
template <typename Read>
std::string refused_by(const Read& read) {
  try {
    static_cast<void>(read());
  } catch (const Refused& refused) {
    CHECK(refused.status == 400);
    return refused.why;
  }
  return "";
}

}  // namespace

TEST_CASE("a time is now, a duration from now, or a time of its own") {
  CHECK(time_given("from", "now", noon) == noon);
  CHECK(time_given("from", "+1h", noon) == noon + 1h);
  CHECK(time_given("from", "-10m", noon) == noon - 10min);
  CHECK(time_given("from", "1000", noon) == WallTime(1s));
  CHECK(refused_by([] { return time_given("from", "soon", noon); }).starts_with("from: "));
}

TEST_CASE("a duration that no clock could add is refused by its value") {
  const std::string far = "+9000000000000000";
  CHECK(refused_by([&] { return time_given("to", far, noon); }).contains("a thousand years"));
  CHECK(refused_by([] {
          return new_due_in(parse_json(R"({"by": "9000000000000000"})"), noon);
        }).contains("a thousand years"));
}

TEST_CASE("a value of the wrong kind is named, and one that is nested is not written out") {
  const auto refused = [](const std::string& due) {
    return refused_by([&] { return new_due_in(parse_json("{\"due\": " + due + "}"), noon); });
  };
  CHECK(refused("true") == "due: true is neither a text nor a whole number");
  CHECK(refused("{\"a\": 1}") == "due: an object is neither a text nor a whole number");
  // As deep as it is, it would fill the stack of a thread.
  constexpr std::size_t depth = 300'000;
  CHECK(refused(std::string(depth, '[') + std::string(depth, ']')) ==
        "due: a list is neither a text nor a whole number");
}

TEST_CASE("a plus sign that came as a blank, because nobody escaped it, is a plus sign") {
  CHECK(time_given("to", " 1h", noon) == noon + 1h);
  CHECK(time_given("to", "2026-11-21T10:00:00 01:00", noon) ==
        time_given("to", "2026-11-21T10:00:00+01:00", noon));
}

TEST_CASE("a number outside its range is refused with the range and the value") {
  CHECK(number_given("limit", "1000", 1, 1000) == 1000);
  for (const char* text : {"0", "1001", "-1", "1e3", "", "99999999999999999999999"}) {
    CAPTURE(text);
    const auto why = refused_by([&] { return number_given("limit", text, 1, 1000); });
    CHECK(why.contains("a number from 1 to 1000 is expected, as in limit=1"));
  }
}

TEST_CASE("a page has no more records than its limit, nor than a page may have") {
  CHECK(page_size_given("7", 1000) == 7);
  CHECK(page_size_given("1000", 1000) == 1000);
  CHECK(page_size_given("2147483647", 1000) == 1000);
  for (const char* text : {"0", "-1", "1e3", "", "2147483648"}) {
    CAPTURE(text);
    const auto why = refused_by([&] { return page_size_given(text, 1000); });
    CHECK(why.contains("a number from 1 to 2147483647 is expected, as in limit=1"));
  }
}

TEST_CASE("an empty pattern is refused: a variable that is not set would mean everything") {
  CHECK(pattern_given("id", "a*") == "a*");
  CHECK(refused_by([] { return pattern_given("id", ""); }).starts_with("id is empty"));
}

TEST_CASE("a pattern of more than a thousand bytes is refused with its size") {
  const std::string longest(max_pattern_bytes, '*');
  CHECK(pattern_given("key", longest) == longest);
  CHECK(refused_by([&] { return pattern_given("key", longest + "*"); }) ==
        "key has 1001 bytes; the limit is 1000");
}

TEST_CASE("a body takes no other keys than those that it names") {
  const auto body = object_in(R"({"due": 5, "by": null})", {"due", "by"}, "{}");
  CHECK(word_in(body, "due") == "5");
  CHECK_FALSE(word_in(body, "by").has_value());
  CHECK(refused_by([] {
          return object_in("[1]", {"due"}, R"({"due": 1})");
        }).contains(R"(as in {"due": 1})"));
  CHECK(refused_by([] { return object_in(R"({"do": 1})", {"due"}, ""); }).contains("'do'"));
  CHECK(refused_by([] { return object_in("{", {"due"}, ""); }).contains("JSON object"));
}

TEST_CASE("a flag is true or false and nothing that looks like it") {
  CHECK(flag_in(parse_json(R"({"dry_run": true})"), "dry_run"));
  CHECK_FALSE(flag_in(parse_json("{}"), "dry_run"));
  const Json word = parse_json(R"({"dry_run": "true"})");
  CHECK(refused_by([&] { return flag_in(word, "dry_run"); }).contains("dry_run"));
  CHECK(flag_given("values", "true"));
  CHECK(refused_by([] { return flag_given("values", "yes"); }) == "values=yes: give true or false");
}

TEST_CASE("a move is to a time or by a duration, and never both") {
  const auto moved = [](const char* body) { return new_due_in(parse_json(body), noon); };
  CHECK(std::get<WallTime>(moved(R"({"due": "+1m"})")) == noon + 1min);
  CHECK(std::get<std::chrono::milliseconds>(moved(R"({"by": "-10m"})")) == -10min);
  CHECK(std::get<std::chrono::milliseconds>(moved(R"({"by": "+2h"})")) == 2h);
  CHECK(refused_by([&] { return moved(R"({"due": 1, "by": "1h"})"); }).contains("either"));
  CHECK(refused_by([&] { return moved("{}"); }).contains("either"));
  // Seconds, or a slip of the hand.
  CHECK(refused_by([&] { return moved(R"({"due": 123})"); }) ==
        "due: 1970-01-01T00:00:00.123Z is not in the years 2000 to 9999");
  CHECK(refused_by([&] { return moved(R"({"due": 946684799999})"); }).contains("2000"));
  CHECK(refused_by([&] { return moved(R"({"due": 253402300800000})"); }).contains("9999"));
  CHECK(std::get<WallTime>(moved(R"({"due": 946684800000})")) == from_ms(946'684'800'000));
  CHECK(std::get<WallTime>(moved(R"({"due": 253402300799999})")) == from_ms(253'402'300'799'999));
  CHECK(refused_by([&] { return moved(R"({"by": "soon"})"); }).starts_with("by: "));
}

}  // namespace tarry::web
