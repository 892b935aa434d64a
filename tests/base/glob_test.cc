// Patterns of names: every kind of element, and what is none.

#include "base/glob.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace tarry {
namespace {

TEST_SUITE_BEGIN("glob");

TEST_CASE("a pattern matches the whole text, a star any part of it and a question mark one byte") {
  CHECK(matches_glob("order-*", "order-"));
  CHECK(matches_glob("*-47?", "order-4711-471"));
  CHECK(matches_glob("a*b*c", "a-b-b-c"));
  CHECK_FALSE(matches_glob("order", "order-1"));
  CHECK_FALSE(matches_glob("order-?", "order-"));
  CHECK_FALSE(matches_glob("", "a"));
  CHECK(matches_glob("", ""));
}

TEST_CASE("a class stands for one of its bytes, a negated one for any other") {
  CHECK(matches_glob("key[12]", "key1"));
  CHECK(matches_glob("key[12]", "key2"));
  CHECK_FALSE(matches_glob("key[12]", "key3"));
  CHECK_FALSE(matches_glob("key[12]", "key12"));
  CHECK_FALSE(matches_glob("key[12]", "key[12]"));
  CHECK(matches_glob("[a-cx]*[0-9]", "b-x-7"));
  CHECK(matches_glob("[a-cx]*[0-9]", "x7"));
  CHECK_FALSE(matches_glob("[a-cx]*[0-9]", "d7"));
  for (const char* other : {"[!12]", "[^12]"}) {
    CHECK(matches_glob(other, "3"));
    CHECK_FALSE(matches_glob(other, "2"));
    CHECK_FALSE(matches_glob(other, ""));
  }
  // Bytes above 127 come after those below.
  CHECK(matches_glob("[a-\xff]", "\xc3"));
}

TEST_CASE("signs stand for themselves in a class, and so does a bracket that nothing closes") {
  CHECK(matches_glob("50[*]", "50*"));
  CHECK_FALSE(matches_glob("50[*]", "50%"));
  CHECK(matches_glob("[[]1]", "[1]"));
  CHECK(matches_glob("[]a]", "]"));
  CHECK(matches_glob("[!]a]", "b"));
  CHECK(matches_glob("[a-]", "-"));
  CHECK(matches_glob("[-a]", "-"));
  CHECK_FALSE(matches_glob("[a-]", "b"));
  CHECK(matches_glob("key[12", "key[12"));
  CHECK(matches_glob("[", "["));
  CHECK(matches_glob("[]", "[]"));
  CHECK(matches_glob("[!]", "[!]"));
  CHECK(matches_glob("*[", "a["));
}

TEST_CASE("a pattern with one match is told by its text, and matches that alone") {
  const std::vector<std::pair<std::string, std::string>> texts{{"order-4711", "order-4711"},
                                                               {"", ""},
                                                               {"50[*]", "50*"},
                                                               {"[[]1]", "[1]"},
                                                               {"[]]", "]"},
                                                               {"a[?]b[-]", "a?b-"},
                                                               {"key[12", "key[12"},
                                                               {"[!]", "[!]"}};
  for (const auto& each : texts) {
    CAPTURE(each.first);
    CHECK(only_match(each.first) == each.second);
    CHECK(matches_glob(each.first, each.second));
  }
  for (const char* several : {"*", "order-*", "a?", "[ab]", "[aa]", "[!a]", "[^]]", "x[a-b]"}) {
    CAPTURE(several);
    CHECK_FALSE(only_match(several).has_value());
  }
}

TEST_CASE("the beginning that all matches of a pattern have is what it spells out first") {
  const std::vector<std::pair<std::string, std::string>> beginnings{{"order-4*7", "order-4"},
                                                                    {"order-47", "order-47"},
                                                                    {"*", ""},
                                                                    {"", ""},
                                                                    {"?a", ""},
                                                                    {"a[*]b?", "a*b"},
                                                                    {"a[bc]d", "a"},
                                                                    {"a[!b]d", "a"},
                                                                    {"key[12*", "key[12"},
                                                                    {"[aa]b", ""}};
  for (const auto& each : beginnings) {
    CAPTURE(each.first);
    CHECK(common_beginning(each.first) == each.second);
  }
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry
