#include "server/tls_settings.h"
#include "server/principal_rules.h"

#include <optional>
#include <string>

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

std::optional<std::string> mapped(const char* rules, const char* name) {
  const auto parsed = PrincipalRules::parse(rules);
  REQUIRE(parsed.has_value());
  return parsed->apply(name);
}

TEST_SUITE("TLS settings") {
  TEST_CASE("the first principal rule that matches the whole name counts") {
    const char* name = "CN=Alice,OU=ops,O=Example";
    CHECK(mapped("DEFAULT", name) == name);
    CHECK(mapped("RULE:^CN=(.*?),.*$/$1/", name) == "Alice");
    CHECK(mapped("RULE:^CN=(.*?),.*$/$1/L", name) == "alice");
    CHECK(mapped("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", name) == "ALICE@OPS");
    CHECK(mapped("RULE:^CN=(.*?),OU=dev.*$/$1/, RULE:CN=([^,]+).*/$1/L , DEFAULT", name) ==
          "alice");
    // Part of a name is not the name.
    CHECK(mapped("RULE:CN=Alice/admin/,DEFAULT", name) == name);
    CHECK(mapped("RULE:CN=Alice/admin/", name) == std::nullopt);
    CHECK(mapped("RULE:CN=a\\/b/c/", "CN=a/b") == "c");
  }

  TEST_CASE("a name that no authority would sign matches no rule") {
    CHECK(mapped("DEFAULT", std::string(100'000, 'a').c_str()) == std::nullopt);
  }

  TEST_CASE("ciphers may have the standards' names or OpenSSL's") {
    const auto suites = parse_cipher_suites(
        "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,ECDHE-RSA-AES128-GCM-SHA256");
    REQUIRE(suites.has_value());
    CHECK(suites->of_tls_1_3 == "TLS_AES_256_GCM_SHA384");
    CHECK(suites->of_tls_1_2 == "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256");
    CHECK_FALSE(parse_cipher_suites("ALL:!aNULL").has_value());
    CHECK_FALSE(parse_cipher_suites(",").has_value());
  }
}

}  // namespace
}  // namespace tarry::server
