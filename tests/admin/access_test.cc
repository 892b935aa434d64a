// Access to the admin: the token, the Host, the Origin.

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <fmt/core.h>

#include "base/token_proof.h"
#include "tests/admin/client.h"
#include "web/token.h"

namespace tarry::admin::test {
namespace {

std::string mode_of(const std::string& path) {
  struct stat about {};
  REQUIRE(::stat(path.c_str(), &about) == 0);
  return fmt::format("{:04o}", about.st_mode & 07777);
}

TEST_SUITE("access") {
  TEST_CASE(
      "a client that asks for a proof gets one for its own connection's address, without a token") {
    Admin admin;
    const std::string nonce = std::string(32, '0') + std::string(32, 'f');
    // The name by which a client calls us makes no difference.
    const auto answer = admin.ask("GET", "/proof?nonce=" + nonce,
                                  {{"Host", "localhost:" + std::to_string(admin.port)}});
    CHECK(answer.status == 200);
    const std::string here = "127.0.0.1:" + std::to_string(admin.port);
    CHECK(answer.json()["address"] == here);
    CHECK(answer.json()["proof"] == token_proof(admin.token(), nonce, here));
    CHECK(answer.body.find(admin.token()) == std::string::npos);
  }

  TEST_CASE("a proof is given only for a nonce, not for any text that somebody wants signed") {
    Admin admin;
    for (const auto& nonce : {std::string(), std::string(63, '0'), std::string(65, '0'),
                              std::string(64, 'g'), std::string(64, 'A')})
      CHECK(admin.get("/proof?nonce=" + nonce).status == 400);
    CHECK(admin.get("/proof").status == 400);
    CHECK(admin.ask("DELETE", "/proof").status == 405);
  }

  TEST_CASE("off loopback a proof needs no token, or nobody could ask before sending it") {
    AdminOptions options;
    options.host = "0.0.0.0";
    Admin admin(options);
    CHECK(admin.get("/status").status == 401);
    const auto answer = admin.get("/proof?nonce=" + std::string(64, '0'));
    CHECK(answer.status == 200);
    CHECK(answer.json()["address"] == "127.0.0.1:" + std::to_string(admin.port));
  }

  TEST_CASE("the token is made once, readable by its owner only, and is the same after a restart") {
    Admin admin;
    CHECK(mode_of(admin.token_file()) == "0600");
    const auto text = admin.token();
    CHECK(text.size() == 64);
    CHECK(text.find_first_not_of("0123456789abcdef") == std::string::npos);
    SeededRandom other(7);
    const auto again = Token::open(admin.token_file(), other);
    REQUIRE(again.has_value());
    CHECK(again->matches(text));
    CHECK(admin.token() == text);
  }

  TEST_CASE(
      "a token file that others could read, without a token, or that is not a file is refused with "
      "its path") {
    Admin admin;
    SeededRandom random(7);
    const auto file = admin.token_file();
    const auto refused = [&](std::string_view why) {
      const auto token = Token::open(file, random);
      REQUIRE_FALSE(token.has_value());
      CHECK(token.error().message.find(file) != std::string::npos);
      CHECK_MESSAGE(token.error().message.find(why) != std::string::npos, token.error().message);
    };
    for (const mode_t mode : {0640, 0604, 0620, 0601}) {
      REQUIRE(::chmod(file.c_str(), mode) == 0);
      refused("chmod 600");
    }
    REQUIRE(::chmod(file.c_str(), 0600) == 0);
    for (const char* bad : {"", "short", "0123456789abcdef 0123456789abcdef"}) {
      std::ofstream(file, std::ios::trunc) << bad << '\n';
      refused("does not hold a token");
    }
    std::ofstream(file, std::ios::trunc) << std::string(300, 'a');
    refused("does not hold a token");
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
    refused("is not a file");
    std::filesystem::remove(file);
    std::filesystem::create_symlink("/dev/null", file);
    CHECK_FALSE(Token::open(file, random).has_value());
  }

  TEST_CASE("only the whole token matches, and Bearer is its scheme in any letters") {
    Admin admin;
    SeededRandom random(7);
    const auto token = Token::open(admin.token_file(), random);
    REQUIRE(token.has_value());
    const auto text = admin.token();
    CHECK(token->authorizes("Bearer " + text));
    CHECK(token->authorizes("bearer  " + text));
    CHECK_FALSE(token->authorizes(text));
    CHECK_FALSE(token->authorizes("Basic " + text));
    CHECK_FALSE(token->authorizes(""));
    CHECK_FALSE(token->authorizes("Bearer "));
    for (std::size_t i = 0; i < text.size(); ++i) {
      auto wrong = text;
      wrong[i] = wrong[i] == '0' ? '1' : '0';
      CHECK_FALSE(token->matches(wrong));
      CHECK_FALSE(token->matches(text.substr(0, i)));
    }
    CHECK_FALSE(token->matches(text + "0"));
  }

  TEST_CASE("on loopback reading needs no token, changing needs the right one") {
    Admin admin;
    broker::test::create_topic(admin.world, "t");
    CHECK(admin.get("/topics").status == 200);
    const auto none = admin.ask("DELETE", "/topics/t");
    CHECK(none.status == 401);
    CHECK(none.headers.at("WWW-Authenticate").starts_with("Bearer"));
    CHECK(none.error().find("admin.token") != std::string::npos);
    CHECK(admin.ask("DELETE", "/topics/t", {{"Authorization", "Bearer wrong"}}).status == 401);
    CHECK(admin.get("/topics/t").status == 200);
    CHECK(admin.remove("/topics/t").status == 200);
    CHECK(admin.get("/topics/t").status == 404);
  }

  TEST_CASE("off loopback all but the health checks need the token") {
    AdminOptions options;
    options.host = "";
    Admin admin(options);
    CHECK(admin.get("/healthz").status == 200);
    CHECK(admin.get("/readyz").status == 200);
    for (const char* path : {"/status", "/topics", "/delayed", "/metrics", "/wheel", "/nowhere"}) {
      CAPTURE(path);
      CHECK(admin.get(path).status == 401);
    }
    const Admin::Headers with_token{{"Authorization", "Bearer " + admin.token()},
                                    {"Host", "tarry.example.com:8080"}};
    CHECK(admin.ask("GET", "/status", with_token).status == 200);
  }

  TEST_CASE("a Host that is not ours gets 421: a page may not reach us by a name of its own") {
    Admin admin;
    const auto port = std::to_string(admin.port);
    for (const std::string host : {"127.0.0.1:", "localhost:", "LocalHost:", "[::1]:"})
      CHECK(admin.ask("GET", "/status", {{"Host", host + port}}).status == 200);
    for (const std::string host :
         {"evil.example.com", "evil.example.com:80", "127.0.0.1", "127.0.0.1:1", ""}) {
      CAPTURE(host);
      CHECK(admin.ask("GET", "/status", {{"Host", host}}).status == 421);
    }
    CHECK(admin.ask("GET", "/healthz", {{"Host", "127.0.0.1.evil.example:" + port}}).status == 421);
  }

  TEST_CASE("pages of other sites are refused, with the right token too; our own is not") {
    Admin admin;
    broker::test::create_topic(admin.world, "t");
    const auto with = [&](const std::string& name, const std::string& value) {
      return admin
          .ask("DELETE", "/delayed/t/x",
               {{"Authorization", "Bearer " + admin.token()}, {name, value}})
          .status;
    };
    CHECK(with("Origin", "http://elsewhere.example") == 403);
    CHECK(with("Origin", "null") == 403);
    CHECK(with("Origin", "https://" + admin.server->address()) == 403);
    CHECK(with("Origin", "http://" + admin.server->address()) == 200);
    CHECK(with("Sec-Fetch-Site", "cross-site") == 403);
    CHECK(with("Sec-Fetch-Site", "same-site") == 403);
    CHECK(with("Sec-Fetch-Site", "same-origin") == 200);
    CHECK(admin.ask("GET", "/status", {{"Origin", "http://elsewhere.example"}}).status == 403);
    CHECK(admin.ask("GET", "/status", {{"Sec-Fetch-Site", "cross-site"}}).status == 200);
  }

  TEST_CASE("names that the settings allow are answered, on loopback too; others are not") {
    AdminOptions options;
    options.allowed_hosts = {"localhost", "tarry.example.com:8443", "[::1]"};
    Admin admin(options);
    const auto status = [&](const std::string& host) {
      return admin.ask("GET", "/status", {{"Host", host}}).status;
    };
    CHECK(status("localhost:9000") == 200);
    CHECK(status("LOCALHOST") == 200);
    CHECK(status("[::1]:7") == 200);
    CHECK(status("tarry.example.com:8443") == 200);
    CHECK(status("127.0.0.1:" + std::to_string(admin.port)) == 200);
    for (const std::string host :
         {"tarry.example.com", "tarry.example.com:80", "127.0.0.1:9000", "localhost.evil.example",
          "evil.example", "evil.example:8443", "*", ""}) {
      CAPTURE(host);
      CHECK(status(host) == 421);
    }
    const auto refused = admin.ask("GET", "/status", {{"Host", "127.0.0.1:9000"}});
    CHECK(refused.error().find("tarry.admin.allowed.hosts") != std::string::npos);
  }

  TEST_CASE("a page that came by an allowed name may change something; with https it was a proxy") {
    AdminOptions options;
    options.allowed_hosts = {"tarry.example.com"};
    Admin admin(options);
    broker::test::create_topic(admin.world, "t");
    const auto with = [&](const std::string& host, const std::string& origin) {
      return admin
          .ask("DELETE", "/delayed/t/x",
               {{"Authorization", "Bearer " + admin.token()}, {"Host", host}, {"Origin", origin}})
          .status;
    };
    CHECK(with("tarry.example.com", "https://tarry.example.com") == 200);
    CHECK(with("tarry.example.com:9000", "http://tarry.example.com:9000") == 200);
    CHECK(with("tarry.example.com:9000", "http://tarry.example.com") == 403);
    CHECK(with("tarry.example.com", "https://other.example.com") == 403);
    CHECK(with(admin.server->address(), "https://" + admin.server->address()) == 403);
  }

  TEST_CASE("with a * every name is allowed") {
    AdminOptions options;
    options.allowed_hosts = {"*"};
    Admin admin(options);
    CHECK(admin.ask("GET", "/status", {{"Host", "anything.example:1"}}).status == 200);
  }

  TEST_CASE("open reads need no token off loopback, but a name that is ours or an address") {
    AdminOptions options;
    options.host = "0.0.0.0";
    options.open_reads = true;
    options.allowed_hosts = {"tarry.example.com"};
    Admin admin(options);
    broker::test::create_topic(admin.world, "t");
    const auto status = [&](const std::string& host) {
      return admin.ask("GET", "/topics", {{"Host", host}}).status;
    };
    CHECK(status("192.0.2.7:8080") == 200);
    CHECK(status("[2001:db8::7]:8080") == 200);
    CHECK(status("tarry.example.com:80") == 200);
    CHECK(status("evil.example:8080") == 421);
    CHECK(status("192.0.2.7.evil.example:8080") == 421);
    // Somebody with the token was not lured, and a health check tells nothing.
    CHECK(admin
              .ask("GET", "/topics",
                   {{"Host", "evil.example:8080"}, {"Authorization", "Bearer " + admin.token()}})
              .status == 200);
    CHECK(admin.ask("GET", "/healthz", {{"Host", "evil.example:8080"}}).status == 200);
    CHECK(admin.ask("DELETE", "/topics/t").status == 401);
    CHECK(admin.remove("/topics/t").status == 200);
  }

  TEST_CASE("the token for reading reads off loopback and changes nothing") {
    AdminOptions options;
    options.host = "0.0.0.0";
    Admin admin(options);
    broker::test::create_topic(admin.world, "t");
    const auto file = admin.world.directory() + "/data/admin.read.token";
    CHECK(mode_of(file) == "0600");
    std::string text;
    std::ifstream(file) >> text;
    CHECK(text != admin.token());
    const Admin::Headers with{{"Authorization", "Bearer " + text}};
    CHECK(admin.ask("GET", "/topics", with).status == 200);
    const auto refused = admin.ask("DELETE", "/topics/t", with);
    CHECK(refused.status == 401);
    CHECK(refused.error().starts_with(
        "this token may only read; this needs the token in admin.token"));
    CHECK(admin.ask("GET", "/topics", with).status == 200);
  }
}

}  // namespace
}  // namespace tarry::admin::test
