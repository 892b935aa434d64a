#include "server/properties_file.h"
#include "tests/server/contains.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

std::vector<Setting> settings_in(std::string_view text) {
  auto settings = parse_properties(text, "x.properties");
  REQUIRE(settings.has_value());
  return *settings;
}
// The key and value of a file's only line.
std::pair<std::string, std::string> line(std::string_view text) {
  const auto settings = settings_in(text);
  REQUIRE(settings.size() == 1);
  return {settings[0].key, settings[0].value};
}

TEST_SUITE("properties file") {
  TEST_CASE("comments and empty lines are skipped, and lines count from one") {
    const auto settings = settings_in("# a\n! b\n\n   # c\n\t\nkey=value\r\nother=1");
    REQUIRE(settings.size() == 2);
    CHECK(settings[0].where == "x.properties:6");
    CHECK(settings[1].where == "x.properties:7");
    CHECK(settings_in("").empty());
  }

  TEST_CASE("key and value are separated by =, : or blanks, and blanks around them do not count") {
    const auto expected = std::pair<std::string, std::string>("a.b", "c d");
    for (const auto* text : {"a.b=c d", "a.b:c d", "a.b c d", "  a.b = c d  ", "a.b\t:\tc d\t",
                             "a.b   =c d", "a.b\fc d"}) {
      INFO("line: ", text);
      CHECK(line(text) == expected);
    }
    CHECK(line("a==b").second == "=b");
    CHECK(line("a = : b").second == ": b");
    CHECK(line("a").second == "");
    CHECK(line("=b").first == "");
  }

  TEST_CASE("a backslash at a line's end joins the next line without its leading blanks") {
    const auto settings = settings_in("list=one,\\\n   two,\\\r\n\tthree\nnext=1\\\\\nlast=2");
    REQUIRE(settings.size() == 3);
    CHECK(settings[0].value == "one,two,three");
    CHECK(settings[1].value == "1\\");
    CHECK(settings[1].where == "x.properties:4");
    CHECK(settings[2].value == "2");
    CHECK(line("a=b\\").second == "b");
    CHECK(line("a=b\\\n# c").second == "b# c");
  }

  TEST_CASE("escapes stand for what they name, and an escaped separator belongs to the key") {
    CHECK(line("a\\=b\\:c\\ d=e").first == "a=b:c d");
    CHECK(line("a=\\t\\n\\r\\f\\\\\\q").second == "\t\n\r\f\\q");
    CHECK(line("a=\\u0041\\u00e9\\u20ac").second == "A\xc3\xa9\xe2\x82\xac");
    CHECK(line("a=\\ud83d\\ude00").second == "\xf0\x9f\x98\x80");
    CHECK(line("a=\\ b\\ ").second == " b ");
    CHECK(line("a=\xc3\xa9").second == "\xc3\xa9");
  }

  TEST_CASE("an escape that names no character is refused with its line") {
    for (const auto* text :
         {"a=\\u12", "a=\\u12g4", "a=\\ud83d", "a=\\ude00", "a=\\ud83d\\u0041"}) {
      INFO("line: ", text);
      const auto settings = parse_properties(std::string("\n") + text, "x");
      REQUIRE_FALSE(settings.has_value());
      CHECK(contains(settings.error().message, "x:2: "));
    }
  }

  TEST_CASE("a missing file, or a directory, is refused by its path") {
    CHECK(contains(read_properties("/nowhere/x.properties").error().message,
                   "/nowhere/x.properties"));
    CHECK_FALSE(read_properties("/").has_value());
  }

  TEST_CASE("a file of more than 1 MiB is refused") {
    char path[] = "/tmp/tarry-config-test-XXXXXX";
    const int descriptor = ::mkstemp(path);
    REQUIRE(descriptor >= 0);
    ::close(descriptor);
    std::ofstream(path) << std::string((1 << 20) + 1, '#');
    const auto settings = read_properties(path);
    std::remove(path);
    REQUIRE_FALSE(settings.has_value());
    CHECK(contains(settings.error().message, "1048576 bytes"));
  }
}

}  // namespace
}  // namespace tarry::server
