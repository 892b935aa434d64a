// Tokens with names and roles, who may read on loopback, and the lines about what was refused.

#include "web/access_tokens.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "base/token_proof.h"
#include "tests/admin/client.h"
#include "tests/captured_log.h"

namespace tarry::admin::test {
namespace {

using web::AccessTokens;
using web::Role;

const std::string reader(32, 'r');
const std::string operator_token(32, 'o');
const std::string owner(32, 'w');

std::string lines() {
  return "# who may use the admin\n\nprometheus read " + reader + "\n  night-shift\toperate  " +
         operator_token + " \r\nalice all " + owner;
}

Admin::Headers with(const std::string& token) {
  return {{"Authorization", "Bearer " + token}};
}

TEST_SUITE("access tokens") {
  TEST_CASE("each line of admin.tokens is a holder, and a wrong one is refused by its number") {
    const auto holders = AccessTokens::parse(lines());
    REQUIRE(holders.has_value());
    REQUIRE(holders->size() == 3);
    CHECK((*holders)[0].name == "prometheus");
    CHECK((*holders)[0].role == Role::read);
    CHECK((*holders)[1].name == "night-shift");
    CHECK((*holders)[1].role == Role::operate);
    CHECK((*holders)[1].token.matches(operator_token));
    CHECK((*holders)[2].role == Role::all);
    CHECK(AccessTokens::parse("")->empty());
    for (const std::string& wrong : std::initializer_list<std::string>{
             "bob read", "bob " + reader, "bob write " + reader, "bob read short",
             "bob read " + reader + " x", "alice read " + reader, "bob read " + owner,
             "b\x01b read " + reader}) {
      CAPTURE(wrong);
      const auto refused = AccessTokens::parse("alice all " + owner + "\n" + wrong);
      REQUIRE_FALSE(refused.has_value());
      CHECK(refused.error().message.starts_with("line 2: "));
      // It goes to the log.
      CHECK(refused.error().message.find(reader) == std::string::npos);
    }
    std::string many;
    for (std::size_t i = 0; i <= AccessTokens::max_holders; ++i)
      many += "user-" + std::to_string(i) + " read " + std::to_string(i) + reader + "\n";
    CHECK_FALSE(AccessTokens::parse(many).has_value());
  }

  TEST_CASE("a role allows what it says and nothing else") {
    AdminOptions options;
    options.host = "0.0.0.0";
    Admin admin(options, {}, lines());
    broker::test::create_topic(admin.world, "t");
    const auto status = [&](const std::string& method, const std::string& path,
                            const std::string& token) {
      return admin.ask(method, path, with(token)).status;
    };
    for (const auto& token : {reader, operator_token, owner})
      CHECK(status("GET", "/topics", token) == 200);
    CHECK(status("GET", "/topics", std::string(32, 'x')) == 401);
    // There is no such record: whoever may ask is told so.
    for (const auto& [method, path] :
         {std::pair{"DELETE", "/delayed/t/x"}, {"POST", "/delayed/t/x/deliver"}}) {
      CAPTURE(path);
      CHECK(status(method, path, reader) == 403);
      for (const auto& token : {operator_token, owner}) {
        const auto answer = status(method, path, token);
        CHECK((answer == 200 || answer == 404));
      }
    }
    CHECK(status("DELETE", "/topics/t?force=true", reader) == 403);
    CHECK(status("DELETE", "/topics/t?force=true", operator_token) == 403);
    CHECK(status("DELETE", "/topics/t?force=true", owner) == 200);
  }

  TEST_CASE("every refusal and every change is a line with the name of the token's holder") {
    Admin admin({}, {}, lines());
    broker::test::create_topic(admin.world, "t");
    CapturedLog log;
    admin.ask("DELETE", "/topics/t", with(operator_token));
    CHECK(log.count("audit: night-shift with the role operate from 127.0.0.1:") == 1);
    CHECK(log.count(" on the admin: DELETE /topics/t: denied (403)") == 1);
    admin.ask("DELETE", "/topics/t");
    CHECK(log.count("audit: a client without a token from 127.0.0.1:") == 1);
    admin.ask("DELETE", "/topics/t", with(std::string(32, 'x')));
    CHECK(log.count("audit: a client with a wrong token from 127.0.0.1:") == 1);
    auto foreign = with(owner);
    foreign["Origin"] = "http://evil.example";
    admin.ask("DELETE", "/topics/t", foreign);
    CHECK(log.count("audit: alice with the role all from ") == 1);
    admin.get("/topics");
    CHECK(log.count("audit") == 4);
    admin.ask("DELETE", "/topics/t", with(owner));
    CHECK(log.count(" on the admin: DELETE /topics/t: 200") == 1);
    // Somebody who asks in a loop does not fill the log, and no token is in it.
    for (int i = 0; i < 100; ++i) admin.ask("DELETE", "/topics/t");
    CHECK(log.count("audit") < 30);
    CHECK(log.count(owner) == 0);
  }

  TEST_CASE("the admin proves that it knows the token of a named holder") {
    Admin admin({}, {}, lines());
    const std::string nonce(64, 'a');
    const auto answer = admin.get_json("/proof?nonce=" + nonce);
    const auto here = answer["address"].get<std::string>();
    CHECK(answer["proof"] == token_proof(admin.token(), nonce, here));
    const auto proofs = answer["proofs"].get<std::vector<std::string>>();
    CHECK(proofs.size() == 5);
    CHECK(std::ranges::find(proofs, token_proof(operator_token, nonce, here)) != proofs.end());
  }

  TEST_CASE("an admin.tokens that others could read, or with a wrong line, stops the start") {
    const auto refused = [](const std::string& text, mode_t mode) {
      World world;
      const auto file = world.directory() + "/data/admin.tokens";
      std::ofstream(file) << text;
      REQUIRE(::chmod(file.c_str(), mode) == 0);
      const auto tokens = AccessTokens::open(world.directory() + "/data", world.broker().random());
      REQUIRE_FALSE(tokens.has_value());
      CHECK(tokens.error().message.find(file) != std::string::npos);
      return tokens.error().message;
    };
    CHECK(refused(lines(), 0640).ends_with("so other users could read the token: chmod 600 it"));
    CHECK(refused("x\n", 0600).find("line 1: ") != std::string::npos);
    CHECK(refused(std::string(70'000, '#'), 0600).find("more than 65536 bytes") !=
          std::string::npos);
  }

  TEST_CASE("an admin.tokens of another user is refused with the command that gives it to ours") {
    World world;
    const auto file = world.directory() + "/data/admin.tokens";
    std::ofstream(file) << lines();
    REQUIRE(::chmod(file.c_str(), 0) == 0);
    // The superuser may read everything, so the test is another user meanwhile.
    constexpr uid_t some_user = 4711;
    const bool is_root = ::geteuid() == 0;
    if (is_root) REQUIRE(::seteuid(some_user) == 0);
    const auto text = web::read_secret(file, 1000);
    if (is_root) REQUIRE(::seteuid(0) == 0);
    REQUIRE_FALSE(text.has_value());
    CHECK(text.error().message.find("Permission denied; chown ") != std::string::npos);
    if (is_root) CHECK(text.error().message.ends_with("chown 4711: " + file));
  }

  TEST_CASE("with tarry.admin.loopback.reads=token local users read nothing without a token") {
    AdminOptions options;
    options.loopback_reads = false;
    Admin admin(options, {}, lines());
    for (const char* path :
         {"/delayed", "/topics", "/metrics", "/status", "/events", "/no-such-path"}) {
      CAPTURE(path);
      CHECK(admin.get(path).status == 401);
    }
    CHECK(admin.get("/healthz").status == 200);
    CHECK(admin.ask("GET", "/topics", with(reader)).status == 200);
    CHECK(admin.get_json("/session") == Json{{"reading", false}, {"token_needed_to_read", true}});
    // A name that somebody pointed here is still refused.
    auto lured = with(reader);
    lured["Host"] = "evil.example";
    CHECK(admin.ask("GET", "/topics", lured).status == 421);
  }
}

}  // namespace
}  // namespace tarry::admin::test
