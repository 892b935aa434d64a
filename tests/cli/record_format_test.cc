#include "cli/record_format.h"
#include "base/json.h"

#include <doctest/doctest.h>

namespace tarry::cli {
namespace {

ConsumedRecord record() {
  ConsumedRecord record;
  record.partition = 3;
  record.offset = 42;
  record.timestamp = 1'700'000'000'000;
  record.key = "k";
  record.value = "value";
  record.headers = {{"a", "1"}, {"b", std::nullopt}};
  return record;
}

std::string formatted(std::string_view format, const ConsumedRecord& record) {
  const auto parsed = RecordFormat::parse(format);
  REQUIRE(parsed.has_value());
  std::string text;
  parsed->append(record, "orders", text);
  return text;
}

TEST_SUITE_BEGIN("record_format");

TEST_CASE("every letter prints what kcat prints for it") {
  CHECK(formatted("%t %p %o %k %s %T %h", record()) ==
        "orders 3 42 k value 1700000000000 a=1,b=NULL");
  CHECK(formatted("%K:%k,%S:%s;%%", record()) == "1:k,5:value;%");
}

TEST_CASE("escapes become bytes") {
  CHECK(formatted("a\\n\\t\\r\\\\\\x41\\x0a", record()) == "a\n\t\r\\A\n");
  CHECK(formatted("", record()) == "");
  CHECK(unescaped("%s\\t\\x3a\\\\n") == "%s\t:\\n");
  for (const auto* wrong : {"\\q", "\\", "\\x4", "a\\xzz"})
    CHECK_FALSE(unescaped(wrong).has_value());
}

TEST_CASE("a null value prints nothing and has the length -1") {
  ConsumedRecord empty;
  CHECK(formatted("[%k|%K|%s|%S|%h|%T]", empty) == "[|-1||-1||-1]");
  empty.value = "";
  CHECK(formatted("%S", empty) == "0");
}

TEST_CASE("an unknown letter, and a missing one, are refused with the reason") {
  for (const auto* wrong : {"%q", "%", "x%", "\\q", "\\", "\\x4", "\\xzz", "%s\\x"}) {
    const auto parsed = RecordFormat::parse(wrong);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().message.find("known are %t") != std::string::npos);
  }
}

TEST_CASE("JSON has text as text, other bytes in base64 with a flag, and null as null") {
  auto given = record();
  given.value = "\xff\x01";
  const auto json = parse_json(json_of(given, "orders"));
  CHECK(json["topic"] == "orders");
  CHECK(json["partition"] == 3);
  CHECK(json["offset"] == 42);
  CHECK(json["timestamp"] == 1'700'000'000'000);
  CHECK(json["key"] == "k");
  CHECK_FALSE(json.contains("key_base64"));
  CHECK(json["value"] == "/wE=");
  CHECK(json["value_base64"] == true);
  CHECK(json["headers"][0] == Json{{"name", "a"}, {"value", "1"}});
  CHECK(json["headers"][1]["value"].is_null());
  given.key = std::nullopt;
  CHECK(parse_json(json_of(given, "orders"))["key"].is_null());
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry::cli
