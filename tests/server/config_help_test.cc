#include "server/config_help.h"

#include <cstddef>
#include <fstream>
#include <sstream>
#include <vector>

#include <doctest/doctest.h>

#include "server/config_keys.h"
#include "server/config_layers.h"
#include "server/properties_file.h"
#include "tests/test_data.h"

namespace tarry::server {
namespace {

TEST_SUITE("config help") {
  TEST_CASE("the help shows every key, and is a file that changes nothing") {
    const auto help = config_help();
    auto settings = parse_properties(help, "help");
    REQUIRE(settings.has_value());
    CHECK(settings->size() == config_keys().size());
    const auto plain = make_config({});
    const auto config = make_config(std::vector<std::vector<Setting>>{*settings});
    REQUIRE(plain.has_value());
    REQUIRE(config.has_value());
    REQUIRE(config->broker.entries.size() == plain->broker.entries.size());
    for (std::size_t i = 0; i < plain->broker.entries.size(); ++i) {
      const auto& each = config->broker.entries[i];
      INFO("key: ", each.name);
      CHECK(each.is_default);
      CHECK(each.name == plain->broker.entries[i].name);
      CHECK(each.value == plain->broker.entries[i].value);
    }
    CHECK(config->broker.topic_defaults == plain->broker.topic_defaults);
  }

  TEST_CASE("etc/tarry.properties is what --help-config prints") {
    std::ifstream committed(test_data("../etc/tarry.properties"));
    REQUIRE(committed);
    std::stringstream text;
    text << committed.rdbuf();
    CHECK_MESSAGE(text.str() == config_help(),
                  "run `tarry serve --help-config > etc/tarry.properties`");
  }
}

}  // namespace
}  // namespace tarry::server
