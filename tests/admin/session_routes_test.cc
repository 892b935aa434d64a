// The sessions of browsers: what they may do, how they begin and end.

#include <doctest/doctest.h>

#include <fstream>

#include "admin/sessions.h"
#include "tests/admin/client.h"
#include "web/routes.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;

AdminOptions beyond_loopback() {
  AdminOptions options;
  options.host = "0.0.0.0";
  options.wrong_login_delay = 1ms;
  return options;
}

Answer log_in(Admin& admin, const std::string& token) {
  return admin.ask("POST", "/login", {}, Json{{"token", token}}.dump());
}

// As a browser sends it back: NAME=VALUE.
std::string cookie_of(const Answer& answer) {
  const auto& text = answer.headers.at("Set-Cookie");
  return text.substr(0, text.find(';'));
}

TEST_SUITE("sessions") {
  TEST_CASE("a login with the token gives a cookie that reads, and that scripts cannot see") {
    Admin admin(beyond_loopback());
    CHECK(admin.get("/status").status == 401);
    CHECK(admin.get_json("/session") == Json{{"reading", false}, {"token_needed_to_read", true}});
    const auto answer = log_in(admin, admin.token());
    CHECK(answer.status == 204);
    const auto& cookie = answer.headers.at("Set-Cookie");
    for (const char* part : {"; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"})
      CHECK_MESSAGE(cookie.find(part) != std::string::npos, cookie);
    CHECK(cookie.find("Secure") == std::string::npos);
    CHECK(cookie.find(admin.token()) == std::string::npos);
    const Admin::Headers with{{"Cookie", "other=1; " + cookie_of(answer) + "; last=2"}};
    CHECK(admin.ask("GET", "/status", with).status == 200);
    CHECK(admin.ask("GET", "/session", with).json()["reading"] == true);
  }

  TEST_CASE("a cookie changes nothing: pages of other sites make browsers send it") {
    Admin admin(beyond_loopback());
    broker::test::create_topic(admin.world, "t");
    const Admin::Headers with{{"Cookie", cookie_of(log_in(admin, admin.token()))}};
    for (const auto& [method, path] : {std::pair{"DELETE", "/topics/t?force=true"},
                                       {"DELETE", "/delayed/t/x"},
                                       {"POST", "/delayed/t/x/deliver"}}) {
      CAPTURE(path);
      CHECK(admin.ask(method, path, with).status == 401);
    }
    CHECK(admin.ask("GET", "/topics/t", with).status == 200);
  }

  TEST_CASE("with the token for reading a browser may log in as well") {
    Admin admin(beyond_loopback());
    std::string text;
    std::ifstream(admin.world.directory() + "/data/admin.read.token") >> text;
    const auto answer = log_in(admin, text);
    REQUIRE(answer.status == 204);
    CHECK(admin.ask("GET", "/status", {{"Cookie", cookie_of(answer)}}).status == 200);
  }

  TEST_CASE("a wrong token and bodies that are none get no cookie") {
    Admin admin(beyond_loopback());
    auto almost = admin.token();
    almost.back() = almost.back() == '0' ? '1' : '0';
    for (const auto& token : {almost, std::string(), admin.token() + "0", std::string("\n")}) {
      const auto answer = log_in(admin, token);
      CHECK(answer.status == 401);
      CHECK_FALSE(answer.headers.contains("Set-Cookie"));
    }
    const std::string token = Json(admin.token()).dump();
    for (const std::string& body :
         {std::string("x"), std::string("[]"), std::string("{}"), "{\"token\":[" + token + "]}",
          "{\"token\":" + token + ",\"more\":1}", token, "token=" + admin.token()}) {
      CAPTURE(body);
      CHECK(admin.ask("POST", "/login", {}, body).status == 400);
    }
    CHECK(admin.ask("POST", "/login").status == 400);
    CHECK(admin.ask("GET", "/login").status == 401);
  }

  TEST_CASE(
      "a body is small, because an object of many fields takes long before anybody is known") {
    Admin admin(beyond_loopback());
    std::string body = R"({"token":"wrong")";
    for (int i = 0; body.size() < 900'000; ++i) body += ",\"" + std::to_string(i) + "\":0";
    body += "}";
    for (const auto& [method, path] : {std::pair{"POST", "/login"},
                                       {"POST", "/backup"},
                                       {"PATCH", "/delayed/t/x"},
                                       {"POST", "/delayed/t/select"}}) {
      CAPTURE(path);
      const auto answer =
          admin.ask(method, path, {{"Authorization", "Bearer " + admin.token()}}, body);
      CHECK(answer.status == 413);
      CHECK(answer.body.contains("the limit for"));
    }
    CHECK(admin.ask("POST", "/login", {}, body).status == 413);
    // Blanks count, and the limit itself is allowed.
    auto whole = Json{{"token", admin.token()}}.dump();
    whole.resize(web::max_body_bytes, ' ');
    CHECK(admin.ask("POST", "/login", {}, whole).status == 204);
    CHECK(admin.ask("POST", "/login", {}, whole + " ").status == 413);
  }

  TEST_CASE("the answer to a wrong token takes its time, and does not hold up a stop") {
    AdminOptions options = beyond_loopback();
    options.wrong_login_delay = 1h;
    Admin admin(options);
    Connection connection(admin.port);
    const std::string body = R"({"token": "wrong"})";
    connection.send("POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n" + body);
    // Others are answered meanwhile, also a right token.
    CHECK(admin.get("/healthz").status == 200);
    CHECK(log_in(admin, admin.token()).status == 204);
    admin.server->stop();
    CHECK(admin.meanwhile([&] { return connection.ended(); }));
  }

  TEST_CASE("a wrong cookie counts as none, whatever it looks like") {
    Admin admin(beyond_loopback());
    const auto cookie = cookie_of(log_in(admin, admin.token()));
    const auto name = cookie.substr(0, cookie.find('='));
    auto wrong = cookie;
    wrong.back() = wrong.back() == '0' ? '1' : '0';
    for (const std::string& text :
         {wrong, cookie.substr(0, cookie.size() - 1), cookie + "0", name + "=", name, "x" + cookie,
          "a=" + cookie, std::string("=;=;;  ;="), std::string(6000, ';')}) {
      CAPTURE(text.substr(0, 100));
      CHECK(admin.ask("GET", "/status", {{"Cookie", text}}).status == 401);
    }
    CHECK(admin.ask("GET", "/status", {{"Cookie", cookie}}).status == 200);
  }

  TEST_CASE("a session ends with its logout and after twelve hours") {
    Admin admin(beyond_loopback());
    const Admin::Headers first{{"Cookie", cookie_of(log_in(admin, admin.token()))}};
    const Admin::Headers second{{"Cookie", cookie_of(log_in(admin, admin.token()))}};
    const auto ended = admin.ask("POST", "/logout", first);
    CHECK(ended.status == 204);
    CHECK(ended.headers.at("Set-Cookie").find("Max-Age=0") != std::string::npos);
    CHECK(admin.ask("GET", "/status", first).status == 401);
    CHECK(admin.ask("GET", "/status", second).status == 200);
    admin.world.clock.now_mono += 12h;
    CHECK(admin.ask("GET", "/status", second).status == 401);
  }

  TEST_CASE("there are at most 64 sessions, of which the oldest ends for a new one") {
    const auto holders =
        AccessTokens::parse("a read " + std::string(32, 'a') + "\nb read " + std::string(32, 'b'));
    REQUIRE(holders.has_value());
    const auto &a = (*holders)[0], &b = (*holders)[1];
    Sessions sessions;
    SeededRandom random(7);
    const MonoTime now{};
    const auto first = sessions.begin(random, now, a);
    const auto second = sessions.begin(random, now, b);
    for (int i = 2; i < 64; ++i) sessions.begin(random, now, a);
    CHECK(sessions.holder_of(first, now) == &a);
    sessions.begin(random, now, a);
    CHECK(sessions.holder_of(first, now) == nullptr);
    CHECK(sessions.holder_of(second, now) == &b);
    CHECK(sessions.size() == Sessions::max_sessions);
    // Sessions that are over make room first.
    const auto later = sessions.begin(random, now + Sessions::lifetime, a);
    CHECK(sessions.size() == 1);
    CHECK(sessions.holder_of(later, now + Sessions::lifetime) == &a);
    CHECK(sessions.holder_of("", now) == nullptr);
  }

  TEST_CASE("behind a proxy with TLS the cookie is sent only over TLS") {
    AdminOptions options = beyond_loopback();
    options.allowed_hosts = {"tarry.example.com"};
    Admin admin(options);
    const auto answer = admin.ask(
        "POST", "/login", {{"Host", "tarry.example.com"}, {"Origin", "https://tarry.example.com"}},
        Json{{"token", admin.token()}}.dump());
    REQUIRE(answer.status == 204);
    CHECK(answer.headers.at("Set-Cookie").ends_with("; Secure"));
  }
}

}  // namespace
}  // namespace tarry::admin::test
