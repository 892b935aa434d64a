#include <doctest/doctest.h>

#include "relay/options.h"

namespace tarry::relay {

TEST_CASE("a relay is never a static member of its group") {
  RelayOptions options;
  options.properties = {"session.timeout.ms=6000"};
  CHECK(check(options).has_value());
  options.properties.emplace_back("group.instance.id=a");
  const auto checked = check(options);
  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error().message.starts_with("-X group.instance.id=a: the relay cannot be"));
}

TEST_CASE("a pattern of sources with a character that no topic can have is refused, by its name") {
  RelayOptions options;
  for (const char* good : {"*", "*.delayed", "a?-b_C.9.delayed", "."}) {
    options.source = good;
    CHECK(check(options).has_value());
  }
  for (const char* bad : {"[ab].delayed", "{a,b}.delayed", "^a.*", "a b", "a\xc3\xa4"}) {
    options.source = bad;
    CHECK_FALSE(check(options).has_value());
  }
  options.source = "[ab].delayed";
  CHECK(check(options).error().message.starts_with(
      "--source [ab].delayed: a pattern may have only *"));
  CHECK(check(options).error().message.ends_with(", not ["));
}

TEST_CASE("a machine without time zones runs no member, and the reason names what to install") {
  CHECK(check_time_zones(delay::TimeZones::of_system()).has_value());
  const auto checked = check_time_zones(delay::TimeZones("/nonexistent"));
  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error().message.starts_with("/nonexistent has no time zones"));
  CHECK(checked.error().message.ends_with("install tzdata"));
}

}  // namespace tarry::relay
