#include "server/config_keys.h"

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "broker/settings/topic_config.h"

namespace tarry::server {
namespace {

TEST_SUITE("config keys") {
  TEST_CASE("every key has a name of its own, a reason, a range, and a default that is allowed") {
    std::string_view last;
    for (const auto& key : config_keys()) {
      INFO("key: ", std::string(key.name));
      CHECK(key.name != last);
      last = key.name;
      CHECK(key.reason.ends_with('.'));
      CHECK_FALSE(key.allowed().empty());
      Config config;
      CHECK(key.apply(config, key.fallback).has_value());
    }
  }

  TEST_CASE("every default of a topic config is a key of the broker") {
    for (const auto& key : broker::topic_config_keys()) {
      if (!key.broker_name.empty()) CHECK(find_config_key(key.broker_name) != nullptr);
    }
  }
}

}  // namespace
}  // namespace tarry::server
