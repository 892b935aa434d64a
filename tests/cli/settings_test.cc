#include "cli/kafka/settings.h"

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/storage/scratch.h"

namespace tarry::cli {

TEST_SUITE("client properties") {
  TEST_CASE("@FILE stands for the properties of its lines, at its place") {
    const storage::ScratchDirectory scratch;
    const auto file = scratch.path("client.properties");
    std::ofstream(file) << "# a login\n\n  sasl.username = alice\r\nsasl.password=a=b c\n";
    const auto all = expand_properties({"acks=1", "@" + file, "acks=all"});
    REQUIRE(all);
    CHECK(*all == std::vector<std::string>{"acks=1", "sasl.username=alice", "sasl.password=a=b c",
                                           "acks=all"});
    CHECK(check_property("@" + file));
  }

  TEST_CASE(
      "an error about a file of properties names the line or the key, and shows no password") {
    const storage::ScratchDirectory scratch;
    const auto file = scratch.path("client.properties");
    std::ofstream(file) << "acks=1\nsecret\n";
    const auto malformed = expand_properties({"@" + file});
    REQUIRE(!malformed);
    CHECK(malformed.error().message.contains("client.properties: line 2: "));
    CHECK(!malformed.error().message.contains("secret"));
    std::ofstream(file) << "sasl.pasword=secret\n";
    const auto unknown = check_property("@" + file);
    REQUIRE(!unknown);
    CHECK(unknown.error().message.contains("sasl.pasword"));
    CHECK(!unknown.error().message.contains("secret"));
    CHECK(!expand_properties({"@" + scratch.path("missing")}));
  }
}

}  // namespace tarry::cli
