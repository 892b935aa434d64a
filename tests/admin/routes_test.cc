// The admin's routes, and how other requests are refused.

#include <doctest/doctest.h>

#include "tests/admin/client.h"
#include "web/target.h"

namespace tarry::admin::test {
namespace {

TEST_SUITE("routes") {
  TEST_CASE("a path that is not there gets 404, whatever it looks like") {
    Admin admin;
    for (const char* path :
         {"/nowhere", "/status/", "//status", "/STATUS", "/status/x", "/../status", "/topics/a/b",
          "/delayed/t", "/etc/passwd", "/%73tatus%00", "/topics//"}) {
      CAPTURE(path);
      const auto answer = admin.get(path);
      CHECK(answer.status == 404);
      CHECK_FALSE(answer.error().empty());
    }
    CHECK(admin.get("/%73tatus").status == 200);
  }

  TEST_CASE("the answer to an unknown path names every path that a person can type") {
    Admin admin;
    const auto error = admin.get("/nowhere").error();
    const auto list = error.substr(error.find("the paths are ") + 14) + ", ";
    for (const char* path :
         {"/",        "/session",     "/login",         "/logout",        "/healthz",
          "/readyz",  "/proof",       "/status",        "/wheel",         "/purgatory",
          "/metrics", "/topics",      "/groups",        "/clients",       "/delayed",
          "/events",  "/delayed/due", "/delayed/count", "/delayed/trace", "/delayed/select",
          "/backup"}) {
      CAPTURE(path);
      CHECK((", " + list).find(std::string(", ") + path + ", ") != std::string::npos);
    }
    CHECK(error.find("NAME") == std::string::npos);
  }

  TEST_CASE("the answer to a path with an id whose / is not escaped says how to write it") {
    Admin admin;
    const std::string hint = "write a / in a name or an id as %2F; the paths are ";
    CHECK(admin.ask("DELETE", "/delayed/t/order/4711").error().contains(hint));
    CHECK(admin.get("/delayed/t/a/b/trace").error().contains(hint));
    CHECK_FALSE(admin.get("/nowhere").error().contains("%2F"));
  }

  TEST_CASE("a method that a path does not have gets 405 and those that it has") {
    Admin admin;
    const auto posted = admin.ask("POST", "/status");
    CHECK(posted.status == 405);
    CHECK(posted.headers.at("Allow") == "GET, HEAD");
    CHECK(admin.ask("PUT", "/topics/t").headers.at("Allow") == "GET, HEAD, DELETE");
    for (const char* method : {"TRACE", "CONNECT", "OPTIONS", "PATCH", "BREW", "get"}) {
      CAPTURE(method);
      CHECK(admin.ask(method, "/status").status == 405);
    }
  }

  TEST_CASE("broken escapes and bytes that are not UTF-8 get 400 and are named") {
    Admin admin;
    for (const char* path : {"/%", "/%4", "/%zz", "/topics/%ff", "/topics/%c0%af",
                             "/topics/%ed%a0%80", "/status?a=%", "/status?%e0%80=1"}) {
      CAPTURE(path);
      CHECK(admin.get(path).status == 400);
    }
  }

  TEST_CASE("input that an answer repeats is text, never markup or a log line") {
    Admin admin;
    const auto answer = admin.get("/topics/%3Cimg%20src=x%0D%0AX-Bad:%201%3E");
    CHECK(answer.status == 404);
    CHECK(answer.headers.at("Content-Type") == "application/json");
    CHECK_FALSE(answer.headers.contains("X-Bad"));
    CHECK(answer.error().find('\n') == std::string::npos);
  }

  TEST_CASE("a target is cut at its slashes first and decoded then") {
    const auto target = parse_target("/delayed/t/a%2Fb%20c?x=1+2&y=%26%3D&z&&w=");
    REQUIRE(target.has_value());
    CHECK(target->path == std::vector<std::string>{"delayed", "t", "a/b c"});
    CHECK(target->query.at("x") == "1 2");
    CHECK(target->query.at("y") == "&=");
    CHECK(target->query.at("z").empty());
    CHECK(target->query.at("w").empty());
    CHECK(parse_target("/")->path == std::vector<std::string>{""});
    CHECK(parse_target("/?a=b")->path == std::vector<std::string>{""});
    for (const char* bad : {"", "x", "*", "http://x/", "/a b", "/a#b", "/a\x7f", "/?a=1&a=2"}) {
      CAPTURE(bad);
      CHECK_FALSE(parse_target(bad).has_value());
    }
  }
}

}  // namespace
}  // namespace tarry::admin::test
