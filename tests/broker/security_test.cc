#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include <doctest/doctest.h>

#include "base/base64.h"
#include "base/scram.h"
#include "broker/security/client_address.h"
#include "broker/security/failed_logins.h"
#include "broker/security/plain_users.h"
#include "broker/security/sasl_exchange.h"
#include "broker/security/scram_exchange.h"
#include "broker/security/security_image.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

// --- PLAIN

std::string plain_token(std::string_view acts_as, std::string_view user,
                        std::string_view password) {
  return fmt::format("{}{}{}{}{}", acts_as, '\0', user, '\0', password);
}

TEST_SUITE("security") {
  TEST_CASE("a jaas line is read as Kafka writes it") {
    const auto users = parse_plain_users(
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        "username=\"broker\" password=\"secret\"\n user_alice=\"a \\\"b\\\\ c;=\" user_bob=bob;");
    REQUIRE(users.has_value());
    CHECK(users->size() == 2);
    CHECK(users->at("alice") == "a \"b\\ c;=");
    CHECK(users->at("bob") == "bob");
    for (const auto* wrong : {"Module required user_a=\"x\"", "Module required user_a;", "Module;",
                              ";", "Module required user_a=\"x;",
                              "Module required; Other required;", "Module whatever user_a=x;"})
      CHECK_FALSE(parse_plain_users(wrong).has_value());
  }

  TEST_CASE("PLAIN accepts only the right password") {
    const PlainUsers users{{"alice", "secret"}, {"empty", ""}};
    CHECK(check_plain(users, plain_token("", "alice", "secret")) == "alice");
    CHECK(check_plain(users, plain_token("alice", "alice", "secret")) == "alice");
    CHECK(check_plain(users, plain_token("bob", "alice", "secret")).empty());
    CHECK(check_plain(users, plain_token("", "alice", "secre")).empty());
    CHECK(check_plain(users, plain_token("", "alice", "")).empty());
    CHECK(check_plain(users, plain_token("", "empty", "")).empty());
    CHECK(check_plain(users, plain_token("", "nobody", "secret")).empty());
    CHECK(check_plain(users, "alice").empty());
    CHECK(check_plain(users, {}).empty());
  }

  TEST_CASE("a login holds until its credential expires or its listener's time is over") {
    const auto now = from_ms(1'000'000);
    CHECK_FALSE(login_lifetime(0ms, std::nullopt, now).has_value());
    CHECK(login_lifetime(30s, std::nullopt, now) == 30s);
    CHECK(login_lifetime(30s, now + 10s, now) == 10s);
    CHECK(login_lifetime(30s, now + 40s, now) == 30s);
    CHECK(login_lifetime(0ms, now + 40s, now) == 40s);
    CHECK(login_lifetime(0ms, now - 1s, now) == 0s);
    CHECK(login_lifetime(std::chrono::milliseconds::max(), std::nullopt, now) ==
          max_login_lifetime);
  }

  // --- SCRAM

  struct ScramClient {
    std::string bare = "n=alice,r=client";
    std::string salted;

    std::string last_message(const std::string& server_first, std::string_view nonce,
                             std::string_view binding = "biws") const {
      const auto without = fmt::format("c={},r={}", binding, nonce);
      const auto message = fmt::format("{},{},{}", bare, server_first, without);
      return fmt::format("{},p={}", without,
                         base64(scram_proof(ScramMechanism::sha256, salted, message)));
    }
  };

  const ScramCredential* no_example(std::uint64_t) {
    return nullptr;
  }

  TEST_CASE("a SCRAM exchange succeeds only with the right password and the whole nonce") {
    const auto salted = scram_salted_password(ScramMechanism::sha256, "secret", "salt", 4096);
    const auto known = scram_credential(ScramMechanism::sha256, salted, "salt", 4096);
    const auto find = [&](std::string_view name) { return name == "alice" ? &known : nullptr; };
    const auto begin = [&](ScramExchange& exchange, const std::string& first) {
      return exchange.first(first, find, no_example);
    };
    ScramClient client;
    client.salted = salted;
    {
      ScramExchange exchange(ScramMechanism::sha256, "server", "s");
      const auto first = begin(exchange, "n,," + client.bare);
      REQUIRE(first.has_value());
      CHECK(*first == "r=clientserver,s=c2FsdA==,i=4096");
      const auto last = exchange.final(client.last_message(*first, "clientserver"));
      REQUIRE(last.has_value());
      CHECK(last->starts_with("v="));
      CHECK(exchange.user() == "alice");
    }
    {
      // librdkafka before 2.6.1.
      ScramExchange exchange(ScramMechanism::sha256, "server", "s");
      const auto first = begin(exchange, "n,," + client.bare);
      CHECK(exchange.final(client.last_message(*first, "clientclientserver")).has_value());
    }
    // The client's nonce alone, another one, one that goes on (CVE-2024-56128); another binding.
    for (const auto* nonce :
         {"client", "clientother", "clientserverx", "xclientserver", "clientclientclientserver"}) {
      ScramExchange exchange(ScramMechanism::sha256, "server", "s");
      const auto first = begin(exchange, "n,," + client.bare);
      CHECK_FALSE(exchange.final(client.last_message(*first, nonce)).has_value());
    }
    {
      ScramExchange exchange(ScramMechanism::sha256, "server", "s");
      const auto first = begin(exchange, "n,," + client.bare);
      CHECK_FALSE(exchange.final(client.last_message(*first, "clientserver", "eSws")).has_value());
    }
    client.salted[0] ^= 1;
    {
      ScramExchange exchange(ScramMechanism::sha256, "server", "s");
      const auto first = begin(exchange, "n,," + client.bare);
      CHECK_FALSE(exchange.final(client.last_message(*first, "clientserver")).has_value());
    }
  }

  TEST_CASE("an unknown user gets the same salt each time, and cannot log in") {
    const auto nobody = [](std::string_view) -> const ScramCredential* { return nullptr; };
    std::string salt;
    for (int i = 0; i < 2; ++i) {
      ScramExchange exchange(ScramMechanism::sha256, "server", "secret");
      const auto first = exchange.first("n,,n=nobody,r=client", nobody, no_example);
      REQUIRE(first.has_value());
      if (i == 0) salt = *first;
      CHECK(*first == salt);
      CHECK_FALSE(exchange.final("c=biws,r=clientserver,p=" + base64(std::string(32, '\0'))));
    }
  }

  // What a client sees of a user before its password is looked at.
  struct Look {
    std::int32_t iterations = 0;
    std::size_t salt_bytes = 0;
    bool is_text = false;
    auto operator<=>(const Look&) const = default;
  };
  Look look_of(const SecurityImage& image, std::string_view user, ScramMechanism mechanism) {
    ScramExchange exchange(mechanism, "server", "secret");
    const auto first = exchange.first(
        fmt::format("n,,n={},r=client", user),
        [&](std::string_view name) { return image.find_user(name, mechanism); },
        [&](std::uint64_t number) { return image.example_user(number, mechanism); });
    REQUIRE(first.has_value());
    const auto salt_at = first->find(",s=") + 3, iterations_at = first->find(",i=") + 3;
    const auto salt = from_base64(first->substr(salt_at, iterations_at - 3 - salt_at));
    REQUIRE(salt.has_value());
    return {std::stoi(first->substr(iterations_at)), salt->size(), is_text_salt(*salt)};
  }

  TEST_CASE("the salt and the iterations of an unknown user are like those of an existing one") {
    storage::Configs rows;
    const auto add = [&](std::string_view user, ScramMechanism mechanism, std::string_view salt,
                         std::int32_t iterations) {
      rows.emplace(SecurityImage::user_key(user, mechanism),
                   SecurityImage::user_value({std::string(salt), "stored", "server", iterations}));
    };
    const auto strangers = [&] {
      const SecurityImage image(rows);
      std::set<Look> seen;
      for (int i = 0; i < 100; ++i)
        seen.insert(look_of(image, fmt::format("stranger{}", i), ScramMechanism::sha256));
      return seen;
    };
    // That of `tarry user add`.
    CHECK(strangers() == std::set<Look>{{4096, 24, false}});
    add("alice", ScramMechanism::sha256, std::string(40, '\xff'), 8192);
    add("bob", ScramMechanism::sha512, "other", 9000);
    CHECK(strangers() == std::set<Look>{{8192, 40, false}});
    // Kafka's own tool makes salts of letters and digits.
    add("carol", ScramMechanism::sha256, "0a1b2c3d4e5f6g7h8i9j0k1l2m", 4096);
    CHECK(strangers() == std::set<Look>{{8192, 40, false}, {4096, 26, true}});
    // More users that look the same change nothing for anybody.
    const auto look = [&] {
      return look_of(SecurityImage(rows), "stranger", ScramMechanism::sha256);
    };
    const auto before = look();
    for (const std::string_view name : {"aaron", "zoe"}) {
      add(name, ScramMechanism::sha256, "m2l1k0j9i8h7g6f5e4d3c2b1a0", 4096);
      add(fmt::format("{}2", name), ScramMechanism::sha256, std::string(40, '\xfe'), 8192);
    }
    CHECK(look() == before);
  }

  TEST_CASE("a first SCRAM message that is malformed is refused") {
    for (const auto* message :
         {"", "n,,", "n,,n=,r=x", "n,,n=a=b,r=x", "n,,n=alice", "p=tls-unique,,n=alice,r=x",
          "n,,r=x,n=alice", "n,a=bob,n=alice,r=x", "n,,n=alice,r=", "n,,m=x,n=alice,r=x"}) {
      ScramExchange exchange(ScramMechanism::sha512, "server", "s");
      const auto nobody = [](std::string_view) { return nullptr; };
      CHECK_FALSE(exchange.first(message, nobody, no_example).has_value());
    }
  }

  TEST_CASE("each failed login of an address is delayed twice as long, for a minute") {
    FailedLogins failed;
    MonoTime now = MonoTime{} + 1h;
    CHECK(failed.wait_of_failure("/10.0.0.2", now, 100ms) == 100ms);
    for (const auto expected : {100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 3200ms}) {
      const auto wait = failed.wait_of_failure("/10.0.0.1", now, 100ms);
      CHECK(wait == expected);
      // A client that fails in a loop delays no right password at its address.
      CHECK(failed.wait_of_success("/10.0.0.1", now, 100ms) == 0ms);
      now += wait;
    }
    CHECK(failed.wait_of_failure("/10.0.0.1", now + 61s, 100ms) == 100ms);
    CHECK(failed.wait_of_failure("/10.0.0.1", now + 62s, 0ms) == 0ms);
  }

  TEST_CASE(
      "failed logins of an address are delayed one behind the other, and a right password by less "
      "than five seconds") {
    FailedLogins failed;
    const MonoTime now = MonoTime{} + 1h;
    std::vector<std::chrono::milliseconds> waits;
    for (int i = 0; i < 400; ++i) waits.push_back(failed.wait_of_failure("/10.0.0.1", now, 100ms));
    waits.resize(7);
    CHECK(waits == std::vector{100ms, 300ms, 700ms, 1500ms, 3100ms, 6300ms, 8000ms});
    CHECK(failed.wait_of_failure("/10.0.0.1", now, 100ms) == FailedLogins::max_wait);
    CHECK(failed.wait_of_success("/10.0.0.1", now, 100ms) == 4800ms);
    CHECK(failed.wait_of_success("/10.0.0.1", now + 4800ms, 100ms) == 0ms);
    CHECK(failed.wait_of_success("/10.0.0.2", now, 100ms) == 0ms);
    CHECK(failed.wait_of_failure("/10.0.0.2", now, 100ms) == 100ms);
    // Only what is queued at that time counts, and not how many there were before.
    CHECK(failed.wait_of_failure("/10.0.0.1", now + 8s, 100ms) == 3200ms);
    CHECK(failed.wait_of_failure("/10.0.0.2", now, 10s) == 10s);
  }

  TEST_CASE("a right password waits behind a flood of failed logins, however long their delay is") {
    const MonoTime now = MonoTime{} + 1h;
    const auto wait_behind = [now](int failures, std::chrono::milliseconds base) {
      FailedLogins failed;
      for (int i = 0; i < failures; ++i) failed.wait_of_failure("/10.0.0.1", now, base);
      return failed.wait_of_success("/10.0.0.1", now, base);
    };
    for (const auto& [base, expected] :
         {std::pair{100ms, 4800ms}, {250ms, 4000ms}, {1000ms, 4000ms}, {20'000ms, 8000ms}}) {
      CAPTURE(base.count());
      CHECK(wait_behind(400, base) == expected);
    }
    CHECK(wait_behind(1, 1000ms) == 0ms);
    CHECK(wait_behind(400, 0ms) == 0ms);
  }

  TEST_CASE("the addresses of an IPv6 /64 are one, and those of IPv4 are not") {
    FailedLogins failed;
    const MonoTime now = MonoTime{} + 1h;
    const auto wait = [&](std::string_view host) {
      return failed.wait_of_failure(host, now, 100ms);
    };
    CHECK(wait("/[2001:db8::1]") == 100ms);
    CHECK(wait("/[2001:db8::ffff:0:0:7]") == 300ms);
    CHECK(wait("/[2001:db8:0:1::1]") == 100ms);
    CHECK(wait("/[::ffff:10.0.0.1]") == 100ms);
    CHECK(wait("/[::ffff:10.0.0.2]") == 100ms);
    CHECK(wait("/[fe80::1%eth0]") == 100ms);
    CHECK(wait("/10.0.0.1") == 100ms);
    CHECK(wait("/10.0.0.2") == 100ms);
  }

  TEST_CASE("among too many addresses the one whose last failure is the oldest is forgotten") {
    FailedLogins failed;
    MonoTime now = MonoTime{} + 1h;
    const auto wait = [&](int number) {
      return failed.wait_of_failure("/host" + std::to_string(number), now, 100ms);
    };
    const int most = static_cast<int>(FailedLogins::max_addresses);
    for (int i = 0; i < most; ++i) wait(i);
    now += 1s;
    CHECK(wait(0) == 200ms);
    for (int i = 0; i < 10; ++i) wait(most + i);
    CHECK(failed.addresses() == FailedLogins::max_addresses);
    CHECK(wait(0) == 600ms);
    CHECK(wait(most - 1) == 200ms);
    CHECK(wait(1) == 100ms);
  }

  // --- Rules

  AclBinding rule(std::string_view who, AclOperation operation, std::string_view name,
                  AclPermission permission = AclPermission::allow,
                  AclPattern pattern = AclPattern::literal, std::string_view host = "*") {
    return {.resource = AclResource::topic,
            .pattern = pattern,
            .operation = operation,
            .permission = permission,
            .name = std::string(name),
            .principal = std::string(who),
            .host = std::string(host)};
  }

  struct Rules {
    explicit Rules(const std::vector<AclBinding>& rules, bool allow_without = false) {
      storage::Configs rows;
      for (const auto& each : rules) rows.emplace(SecurityImage::rule_key(each), "");
      image = std::make_shared<const SecurityImage>(rows);
      terms = {.enabled = true, .super_users = {}, .allow_without_rule = allow_without};
    }
    bool allow(std::string_view who, AclOperation operation, std::string_view topic,
               std::string_view host = "10.0.0.1") const {
      return image->allows(terms, {std::string(who), std::string(host)}, operation,
                           AclResource::topic, topic);
    }
    std::shared_ptr<const SecurityImage> image;
    AuthorizerTerms terms;
  };

  TEST_CASE("a rule allows only its principal, operation, name and host") {
    const Rules rules(
        {rule("User:a", AclOperation::read, "t"), rule("User:b", AclOperation::all, "*"),
         rule("User:*", AclOperation::write, "open"),
         rule("User:c", AclOperation::write, "p.", AclPermission::allow, AclPattern::prefixed),
         rule("User:d", AclOperation::read, "t", AclPermission::allow, AclPattern::literal,
              "10.0.0.7")});
    CHECK(rules.allow("User:a", AclOperation::read, "t"));
    CHECK_FALSE(rules.allow("User:a", AclOperation::write, "t"));
    CHECK_FALSE(rules.allow("User:a", AclOperation::read, "t2"));
    CHECK_FALSE(rules.allow("User:x", AclOperation::read, "t"));
    CHECK(rules.allow("User:b", AclOperation::alter, "anything"));
    CHECK(rules.allow("User:x", AclOperation::write, "open"));
    CHECK(rules.allow("User:c", AclOperation::write, "p."));
    CHECK(rules.allow("User:c", AclOperation::write, "p.one"));
    CHECK_FALSE(rules.allow("User:c", AclOperation::write, "p"));
    CHECK(rules.allow("User:d", AclOperation::read, "t", "10.0.0.7"));
    CHECK_FALSE(rules.allow("User:d", AclOperation::read, "t", "10.0.0.8"));
  }

  TEST_CASE("a rule for an IPv6 address counts as it is written here, and as Java writes it") {
    CHECK(address_in_full("::1") == "0:0:0:0:0:0:0:1");
    CHECK(address_in_full("2001:db8::a0:0") == "2001:db8:0:0:0:0:a0:0");
    CHECK(address_in_full("fe80::1%eth0") == "fe80:0:0:0:0:0:0:1%eth0");
    CHECK(address_in_full("10.0.0.7").empty());
    CHECK(address_in_full("").empty());
    const auto from = [](std::string_view host, AclPermission permission) {
      return rule("User:a", AclOperation::read, "t", permission, AclPattern::literal, host);
    };
    const ClientIdentity client{"User:a", "2001:db8::7", address_in_full("2001:db8::7")};
    const auto may_read = [&](const std::vector<AclBinding>& given) {
      const Rules rules(given);
      const bool allowed =
          rules.image->allows(rules.terms, client, AclOperation::read, AclResource::topic, "t");
      CHECK(allowed == rules.image->allows_for_some(rules.terms, client, AclOperation::read,
                                                    AclResource::topic));
      return allowed;
    };
    CHECK(may_read({from("2001:db8::7", AclPermission::allow)}));
    CHECK(may_read({from("2001:db8:0:0:0:0:0:7", AclPermission::allow)}));
    CHECK_FALSE(may_read({from("2001:db8:0:0:0:0:0:8", AclPermission::allow)}));
    const Rules denied(
        {from("*", AclPermission::allow), from("2001:db8:0:0:0:0:0:7", AclPermission::deny)});
    CHECK_FALSE(
        denied.image->allows(denied.terms, client, AclOperation::read, AclResource::topic, "t"));
  }

  TEST_CASE("a denial overrides every permission, but only for its operation") {
    const Rules rules(
        {rule("User:a", AclOperation::all, "t"),
         rule("User:*", AclOperation::read, "t", AclPermission::deny),
         rule("User:b", AclOperation::read, "*"),
         rule("User:b", AclOperation::all, "secret", AclPermission::deny, AclPattern::prefixed)});
    CHECK_FALSE(rules.allow("User:a", AclOperation::read, "t"));
    CHECK(rules.allow("User:a", AclOperation::write, "t"));
    CHECK(rules.allow("User:a", AclOperation::describe, "t"));
    CHECK(rules.allow("User:b", AclOperation::read, "other"));
    CHECK_FALSE(rules.allow("User:b", AclOperation::describe, "secrets"));
  }

  bool allow_for_some(const Rules& rules, std::string_view who, AclOperation operation,
                      std::string_view host = "10.0.0.1") {
    return rules.image->allows_for_some(rules.terms, {std::string(who), std::string(host)},
                                        operation, AclResource::topic);
  }

  TEST_CASE("there is a topic for a client if a rule allows one, and none denies all") {
    const Rules rules(
        {rule("User:a", AclOperation::write, "t"),
         rule("User:a", AclOperation::all, "*", AclPermission::deny, AclPattern::prefixed),
         rule("User:b", AclOperation::all, "t"),
         rule("User:b", AclOperation::write, "*", AclPermission::deny),
         rule("User:c", AclOperation::all, "p.", AclPermission::allow, AclPattern::prefixed,
              "10.0.0.7"),
         rule("User:d", AclOperation::alter, "t"), rule("User:*", AclOperation::read, "open"),
         rule("User:*", AclOperation::all, "*", AclPermission::deny, AclPattern::literal,
              "10.0.0.66")});
    CHECK(allow_for_some(rules, "User:a", AclOperation::write));
    CHECK(allow_for_some(rules, "User:a", AclOperation::read));
    CHECK_FALSE(allow_for_some(rules, "User:a", AclOperation::alter));
    CHECK_FALSE(allow_for_some(rules, "User:a", AclOperation::write, "10.0.0.66"));
    CHECK_FALSE(allow_for_some(rules, "User:b", AclOperation::write));
    CHECK(allow_for_some(rules, "User:b", AclOperation::alter));
    CHECK_FALSE(allow_for_some(rules, "User:c", AclOperation::write));
    CHECK(allow_for_some(rules, "User:c", AclOperation::write, "10.0.0.7"));
    CHECK(allow_for_some(rules, "User:d", AclOperation::describe));
    CHECK_FALSE(allow_for_some(rules, "User:d", AclOperation::write));
    const Rules open({rule("User:b", AclOperation::write, "*", AclPermission::deny)}, true);
    CHECK(allow_for_some(open, "User:a", AclOperation::write));
    CHECK_FALSE(allow_for_some(open, "User:b", AclOperation::write));
  }

  TEST_CASE("whether there is a topic for a client costs little among a hundred thousand rules") {
    std::vector<AclBinding> all;
    for (int i = 0; i < 100'000; ++i) {
      const auto number = std::to_string(i);
      all.push_back(rule(i % 2 == 0 ? "User:a" : "User:" + number, AclOperation::read, number));
    }
    const Rules rules(all);
    // A look at every rule takes milliseconds of processor time, so a thousand looks take seconds.
    const auto begun = std::clock();
    int allowed = 0;
    for (int i = 0; i < 1'000; ++i)
      allowed += allow_for_some(rules, "User:a", AclOperation::write) ? 1 : 0;
    CHECK(allowed == 0);
    constexpr std::clock_t second = 1'000'000;  // As POSIX says.
    CHECK(std::clock() - begun < second);
    CHECK(allow_for_some(rules, "User:1", AclOperation::read));
  }

  TEST_CASE("prefixes of several lengths each count, and none longer than the name does") {
    const Rules rules(
        {rule("User:a", AclOperation::read, "p", AclPermission::allow, AclPattern::prefixed),
         rule("User:b", AclOperation::read, "pp.", AclPermission::allow, AclPattern::prefixed),
         rule("User:a", AclOperation::read, "ppp", AclPermission::deny, AclPattern::prefixed)});
    CHECK(rules.allow("User:a", AclOperation::read, "p"));
    CHECK(rules.allow("User:a", AclOperation::read, "pp"));
    CHECK_FALSE(rules.allow("User:a", AclOperation::read, "pppp"));
    CHECK(rules.allow("User:b", AclOperation::read, "pp.x"));
    CHECK_FALSE(rules.allow("User:b", AclOperation::read, "pp"));
    CHECK(rules.allow("User:a", AclOperation::read, std::string(32'767, 'p').replace(0, 2, "pq")));
  }

  TEST_CASE("reading, writing, deleting and altering imply describing, and nothing else does") {
    for (const auto granted : {AclOperation::read, AclOperation::write, AclOperation::remove,
                               AclOperation::alter, AclOperation::all})
      CHECK(Rules({rule("User:a", granted, "t")}).allow("User:a", AclOperation::describe, "t"));
    for (const auto granted : {AclOperation::create, AclOperation::alter_configs})
      CHECK_FALSE(
          Rules({rule("User:a", granted, "t")}).allow("User:a", AclOperation::describe, "t"));
    CHECK(Rules({rule("User:a", AclOperation::alter_configs, "t")})
              .allow("User:a", AclOperation::describe_configs, "t"));
    CHECK_FALSE(Rules({rule("User:a", AclOperation::describe, "t")})
                    .allow("User:a", AclOperation::read, "t"));
  }

  TEST_CASE(
      "scheduling and cancelling have rules of their own only by name, or by a prefix that no "
      "topic can have") {
    const auto has = [](AclBinding only, std::string_view name) {
      return Rules({std::move(only)}).image->has_rule_of_action(name);
    };
    const auto write = [](const char* name, AclPattern pattern = AclPattern::literal) {
      return rule("User:a", AclOperation::write, name, AclPermission::allow, pattern);
    };
    CHECK(has(write("t/cancel"), "t/cancel"));
    CHECK_FALSE(has(write("t/cancel"), "t/schedule"));
    CHECK_FALSE(has(write("t/cancel"), "t2/cancel"));
    CHECK_FALSE(has(write("t"), "t/cancel"));
    CHECK_FALSE(has(write("*"), "t/cancel"));
    CHECK(has(write("t/", AclPattern::prefixed), "t/cancel"));
    CHECK_FALSE(has(write("t", AclPattern::prefixed), "t/cancel"));
    CHECK_FALSE(has(write("t/cancel.", AclPattern::prefixed), "t/cancel"));
    auto of_group = write("t/cancel");
    of_group.resource = AclResource::group;
    CHECK_FALSE(has(of_group, "t/cancel"));
  }

  TEST_CASE("the topics whose pending records have a rule for reading are those of such a name") {
    const auto with = [](const char* name, AclPattern pattern = AclPattern::literal) {
      const Rules rules({rule("User:a", AclOperation::read, name, AclPermission::allow, pattern)});
      const auto& topics = rules.image->topics_with_rule_of_reading();
      // The two say the same.
      CHECK(rules.image->has_rule_of_action("t/pending") == topics.contains("t"));
      return std::vector<std::string>(topics.begin(), topics.end());
    };
    const std::vector<std::string> only_t{"t"};
    CHECK(with("t/pending") == only_t);
    for (const char* prefix : {"t/", "t/pend", "t/pending"})
      CHECK(with(prefix, AclPattern::prefixed) == only_t);
    for (const char* other : {"t", "*", "t/", "t/cancel", "t/pend", "t/pending2"})
      CHECK(with(other).empty());
    for (const char* other : {"t", "t/c", "t/pending2", "t/pending/"})
      CHECK(with(other, AclPattern::prefixed).empty());
    auto of_group = rule("User:a", AclOperation::read, "t/pending");
    of_group.resource = AclResource::group;
    CHECK(Rules({of_group}).image->topics_with_rule_of_reading().empty());
  }

  TEST_CASE("without any rule for a topic allow.everyone.if.no.acl.found decides") {
    const Rules closed({rule("User:a", AclOperation::read, "t")});
    const Rules open({rule("User:a", AclOperation::read, "t")}, true);
    CHECK_FALSE(closed.allow("User:b", AclOperation::read, "other"));
    CHECK(open.allow("User:b", AclOperation::read, "other"));
    CHECK_FALSE(open.allow("User:b", AclOperation::read, "t"));
  }

  TEST_CASE("a rule survives its stored form, and a damaged key is not a rule") {
    const auto whole =
        rule("User:CN=a,O=b", AclOperation::write, "t*", AclPermission::deny, AclPattern::prefixed);
    CHECK(AclBinding::of_key(whole.key()) == whole);
    for (std::size_t size = 0; size < whole.key().size(); ++size) {
      const auto part = AclBinding::of_key(whole.key().substr(0, size));
      if (part) CHECK(part->host.size() < whole.host.size());
    }
  }
}

}  // namespace
}  // namespace tarry::broker::test
