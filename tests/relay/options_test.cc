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

}  // namespace tarry::relay
