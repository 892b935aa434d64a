#pragma once

// add_rule(): who may read, in a broker behind an admin whose rules count (with_rules()).

#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include "protocol/error_code.h"
#include "protocol/messages/create_acls.h"
#include "tests/admin/client.h"

namespace tarry::admin::test {

// What has no rule is everybody's; carol may do everything.
inline broker::test::WorldOptions with_rules() {
  return {.configure = [](broker::BrokerConfig& config) {
    config.authorizer.enabled = true;
    config.authorizer.super_users = {"User:carol"};
    config.authorizer.allow_without_rule = true;
  }};
}

// Allows `principal` to READ the topic name, or all that begin so.
inline void add_rule(Admin& admin, const std::string& principal, const std::string& name,
                     bool is_prefix = false) {
  // Kafka's numbers: of a topic, literal or prefixed, READ, allow.
  const std::int8_t pattern = is_prefix ? 4 : 3;
  protocol::CreateAclsRequest request;
  request.creations.push_back({2, name, pattern, principal, "*", 3, 3});
  const auto made = admin.world.call<protocol::CreateAclsResponse>(request, 3);
  REQUIRE(made.results.at(0).error_code == protocol::ErrorCode::none);
}

}  // namespace tarry::admin::test
