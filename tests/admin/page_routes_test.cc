// The page's files: what a browser gets, and how it has to treat them.

#include <doctest/doctest.h>

#include "admin/page_files.h"
#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

TEST_SUITE("the page") {
  TEST_CASE("the document is there under /, and a policy lets nothing run but our own files") {
    Admin admin;
    const auto answer = admin.get("/");
    REQUIRE(answer.status == 200);
    CHECK(answer.headers.at("Content-Type") == "text/html; charset=utf-8");
    CHECK(answer.body.starts_with("<!doctype html>"));
    const auto& policy = answer.headers.at("Content-Security-Policy");
    for (const char* part : {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
                             "base-uri 'none'", "form-action 'none'"})
      CHECK_MESSAGE(policy.find(part) != std::string::npos, policy);
    for (const char* word : {"unsafe", "sha256", "nonce", "data:", "http", "*"})
      CHECK_MESSAGE(policy.find(word) == std::string::npos, policy);
    CHECK(answer.headers.at("X-Content-Type-Options") == "nosniff");
    CHECK(answer.headers.at("Referrer-Policy") == "no-referrer");
    CHECK(answer.headers.at("X-Frame-Options") == "DENY");
  }

  TEST_CASE("nothing in the document runs or styles by itself, or comes from elsewhere") {
    const PageFile* const document = find_page_file("index.html");
    REQUIRE(document != nullptr);
    for (const char* word : {"<style", " style=", " onclick=", " onload=", "javascript:", "http:",
                             "https:", "//cdn", "src=\"//"})
      CHECK_MESSAGE(document->content.find(word) == std::string_view::npos, word);
    for (std::size_t at = document->content.find("<script"); at != std::string_view::npos;
         at = document->content.find("<script", at + 1)) {
      const auto tag = document->content.substr(at, document->content.find('>', at) - at);
      CHECK_MESSAGE(tag.find(" src=\"/page/") != std::string_view::npos, tag);
    }
  }

  TEST_CASE("every file of the page is served with its type, and needs no token off loopback") {
    AdminOptions options;
    options.host = "0.0.0.0";
    Admin admin(options);
    REQUIRE_FALSE(page_files.empty());
    CHECK(admin.get("/").status == 200);
    for (const PageFile& file : page_files) {
      CAPTURE(file.name);
      const auto answer = admin.get("/page/" + std::string(file.name));
      CHECK(answer.status == 200);
      CHECK(answer.headers.at("Content-Type") == file.content_type);
      CHECK(answer.body == file.content);
      CHECK_FALSE(answer.headers.contains("Content-Encoding"));
    }
    CHECK(admin.get("/status").status == 401);
  }

  TEST_CASE("a browser that has a file asks whether it is still the same") {
    Admin admin;
    const auto first = admin.get("/page/chart.min.js");
    REQUIRE(first.status == 200);
    CHECK(first.headers.at("Cache-Control") == "no-cache");
    const auto tag = first.headers.at("ETag");
    const auto again = admin.ask("GET", "/page/chart.min.js", {{"If-None-Match", "\"x\", " + tag}});
    CHECK(again.status == 304);
    CHECK(again.body.empty());
    CHECK(again.headers.at("ETag") == tag);
    CHECK_FALSE(again.headers.contains("Content-Length"));
    CHECK(admin.ask("GET", "/page/chart.min.js", {{"If-None-Match", "W/\"other\""}}).status == 200);
    CHECK(admin.ask("HEAD", "/page/chart.min.js").status == 200);
  }

  TEST_CASE("a client that accepts gzip gets fewer bytes") {
    Admin admin;
    const auto with = [&](const std::string& accepted) {
      return admin.ask("GET", "/page/chart.min.js", {{"Accept-Encoding", accepted}});
    };
    const auto plain = with("identity");
    for (const char* accepted : {"gzip", "deflate, gzip, br", "gzip;q=0.5", "br,gzip"}) {
      CAPTURE(accepted);
      const auto packed = with(accepted);
      CHECK(packed.headers.at("Content-Encoding") == "gzip");
      CHECK(packed.body.size() < plain.body.size() / 2);
      CHECK(packed.body.starts_with("\x1f\x8b"));
    }
    for (const char* accepted : {"", "br", "gzip;q=0", "x-gzip", "gzipped"}) {
      CAPTURE(accepted);
      CHECK(with(accepted).body == plain.body);
    }
  }

  TEST_CASE("no other file can be read, however its name is written") {
    Admin admin;
    for (const char* path :
         {"/page/", "/page", "/page/nowhere.js", "/page/../admin.token", "/page/..%2fadmin.token",
          "/page/%2e%2e/admin.token", "/page//etc/passwd", "/page/%2fetc%2fpasswd",
          "/page/INDEX.HTML", "/page/index.html/", "/page/index.html%00.js", "/index.html"}) {
      CAPTURE(path);
      CHECK(admin.get(path).status == 404);
    }
  }

  TEST_CASE("a name cannot put a header or markup into the answer") {
    Admin admin;
    const auto answer = admin.get("/page/%0d%0aSet-Cookie:%20x=1%0d%0a%0d%0a%3Cscript%3E");
    CHECK(answer.status == 404);
    CHECK_FALSE(answer.headers.contains("Set-Cookie"));
    CHECK(answer.headers.at("Content-Type") == "application/json");
    CHECK(answer.error().find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace tarry::admin::test
