// Rules of who may read the pending records of a topic, over every request that tells of them.

#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/admin/client.h"
#include "tests/admin/pending_rule.h"
#include "tests/admin/send_delayed.h"
#include "tests/captured_log.h"

namespace tarry::admin::test {
namespace {

using broker::test::create_topic;

const std::string alice(32, 'a'), bob(32, 'b'), carol(32, 'c');
const std::string nobody;

std::string holders() {
  return "alice operate " + alice + "\nbob operate " + bob + "\ncarol read " + carol + "\n";
}

Admin::Headers bearing(const std::string& token) {
  if (token.empty()) return {};
  return {{"Authorization", "Bearer " + token}};
}

Json json_of(Admin& admin, const std::string& target, const std::string& token) {
  const auto answer = admin.ask("GET", target, bearing(token));
  REQUIRE_MESSAGE(answer.status == 200, target << ": " << answer.status << " " << answer.body);
  return answer.json();
}

std::vector<std::string> listed_ids(const Json& page) {
  std::vector<std::string> ids;
  for (const auto& record : page["records"]) ids.push_back(record["id"]);
  return ids;
}

// The last line of an answer that has several.
Json last_line_of(Admin& admin, const std::string& target, const std::string& token) {
  const std::string text = admin.meanwhile([&] {
    Connection connection(admin.port);
    std::string request = "GET " + target + " HTTP/1.1\r\nHost: " + admin.server->address();
    for (const auto& [name, value] : bearing(token)) request += "\r\n" + name + ": " + value;
    connection.send(request + "\r\n\r\n");
    connection.read_head();
    std::string last;
    for (std::string piece; !(piece = connection.read_chunk()).empty();) last = piece;
    return last;
  });
  const auto parsed = Json::parse(text, nullptr, false);
  REQUIRE_MESSAGE(!parsed.is_discarded(), target << ": " << text);
  return parsed;
}

// Two topics, and in each a record that is due in half an hour.
void schedule_two(Admin& admin) {
  create_topic(admin.world, "mail");
  create_topic(admin.world, "orders");
  send_delayed(admin, "orders", 0, "secret", "1800000", "o1");
  send_delayed(admin, "mail", 0, "v", "1800000", "m1");
}

TEST_SUITE("pending rules") {
  TEST_CASE(
      "once a rule is for the name TOPIC/pending, who reads or changes the topic's pending records "
      "needs READ on it") {
    Admin admin({}, with_rules(), holders());
    schedule_two(admin);
    std::string read_token;
    std::ifstream(admin.world.directory() + "/data/admin.read.token") >> read_token;
    const auto status = [&](const std::string& path, const std::string& token) {
      return admin.ask("GET", path, bearing(token)).status;
    };
    const std::vector<std::string> paths{"/delayed?topic=orders",
                                         "/delayed/count?topic=orders",
                                         "/delayed/count?topic=orders&by=hour",
                                         "/delayed?topic=orders&q=o1",
                                         "/delayed/orders/o1",
                                         "/delayed/orders/o1/trace"};
    for (const auto& path : paths) {
      for (const auto& token : {alice, bob, nobody}) CHECK(status(path, token) == 200);
    }
    add_rule(admin, "User:alice", "orders/pending");
    for (const auto& path : paths) {
      CAPTURE(path);
      // One with the right, one of super.users, and the tokens of the machine's operator.
      for (const auto& token : {alice, carol, admin.token(), read_token})
        CHECK(status(path, token) == 200);
      CHECK(status(path, bob) == 403);
      CHECK(status(path, nobody) == 403);
    }
    CHECK(status("/delayed/select?topic=orders", bob) == 403);
    CHECK(last_line_of(admin, "/delayed/select?topic=orders", alice)["matched"] == 1);
    CHECK(status("/delayed?topic=mail", bob) == 200);
    CHECK(status("/delayed?topic=none", bob) == 404);

    // The role allows to change them, the rule does not.
    for (const auto& [method, path, body] :
         {std::tuple{"PATCH", "/delayed/orders/o1", R"({"by":"1h"})"},
          {"DELETE", "/delayed/orders/o1", ""},
          {"POST", "/delayed/orders/o1/deliver", ""},
          {"POST", "/delayed/orders/select", R"({"id":"*","action":"cancel"})"},
          {"POST", "/delayed/orders/select", R"({"id":"*","action":"cancel","dry_run":true})"}}) {
      CAPTURE(path);
      CHECK(admin.ask(method, path, bearing(bob), body).status == 403);
    }
    CHECK(json_of(admin, "/delayed/count?topic=orders", alice)["total"] == 1);
    CHECK(admin.ask("DELETE", "/delayed/orders/o1", bearing(alice)).json()["result"] ==
          "cancelled");

    // Who has no name is User:ANONYMOUS, as a client without a login.
    add_rule(admin, "User:ANONYMOUS", "orders/pending");
    CHECK(status("/delayed?topic=orders", nobody) == 200);
    CHECK(status("/delayed?topic=orders", bob) == 403);
  }

  TEST_CASE("lists, counts and searches leave out what their reader may not read") {
    Admin admin({}, with_rules(), holders());
    schedule_two(admin);
    add_rule(admin, "User:alice", "orders/pending");
    const auto handle = json_of(admin, "/delayed/orders/o1", alice)["handle"].get<std::string>();
    for (const auto& token : {bob, nobody}) {
      for (const char* list : {"/delayed", "/delayed?id=*", "/delayed?q=1", "/delayed?limit=1"}) {
        CAPTURE(list);
        CHECK(listed_ids(json_of(admin, list, token)) == std::vector<std::string>{"m1"});
      }
      for (const std::string& search :
           {std::string("q=o1"), std::string("id=o1"), std::string("id=o*"), "q=" + handle}) {
        CAPTURE(search);
        CHECK(json_of(admin, "/delayed?" + search, token)["records"].empty());
      }
      for (const char* count : {"", "?by=hour", "?by=minute", "?from=2000-01-01T00:00:00Z"}) {
        CAPTURE(count);
        CHECK(json_of(admin, std::string("/delayed/count") + count, token)["total"] == 1);
      }
      CHECK(json_of(admin, "/delayed/trace?id=o1", token)["events"].empty());
      CHECK(json_of(admin, "/delayed/trace?id=m1", token)["events"].size() == 1);
      for (const char* more : {"", "&id=*", "&from=2000-01-01T00:00:00Z"}) {
        CAPTURE(more);
        const auto line = last_line_of(admin, std::string("/delayed/select?topic=*") + more, token);
        CHECK(line["matched"] == 1);
        CHECK(line["topics"] == Json{{"mail", 1}});
        CHECK(listed_ids(line) == std::vector<std::string>{"m1"});
      }
    }
    CHECK(json_of(admin, "/delayed", alice)["records"].size() == 2);
    CHECK(json_of(admin, "/delayed?q=" + handle, alice)["records"].size() == 1);
    CHECK(json_of(admin, "/delayed/count?by=hour", alice)["total"] == 2);
    CHECK(json_of(admin, "/delayed/trace?id=o1", alice)["events"].size() == 1);
    CHECK(last_line_of(admin, "/delayed/select?topic=*", alice)["matched"] == 2);
  }

  TEST_CASE("others have their turn while very many topics are left out") {
    constexpr std::size_t many = 1200;
    Admin admin({}, with_rules(), holders());
    std::vector<std::string> topics, rules;
    for (std::size_t i = 0; i < many; ++i) {
      topics.push_back("t" + std::to_string(i));
      rules.push_back(topics.back() + "/pending");
    }
    protocol::CreateTopicsRequest creation;
    protocol::CreateAclsRequest restriction;
    for (std::size_t i = 0; i < many; ++i) {
      creation.topics.push_back({topics[i], 1, 1, {}, {}});
      restriction.creations.push_back({2, rules[i], 3, "User:alice", "*", 3, 3});
    }
    REQUIRE(admin.world.call<protocol::CreateTopicsResponse>(creation, 7).topics.size() == many);
    REQUIRE(admin.world.call<protocol::CreateAclsResponse>(restriction, 3).results.size() == many);
    create_topic(admin.world, "mail");
    send_delayed(admin, "mail", 0, "v", "1800000", "m1");
    send_delayed(admin, "t7", 0, "v", "1800000", "o1");
    const auto steps_of = [&](const std::string& target) {
      const auto before = admin.world.shard().steps().taken();
      CHECK(admin.ask("GET", target, bearing(bob)).status == 200);
      return admin.world.shard().steps().taken() - before;
    };
    // A millisecond or so in each.
    CHECK(steps_of("/delayed/trace?id=m1") >= 3);
    // To find the topics, and to subtract what is pending in them.
    CHECK(steps_of("/delayed/count") >= 4);
    // What is left out of each page is looked for once.
    CHECK(listed_ids(json_of(admin, "/delayed", bob)) == std::vector<std::string>{"m1"});
    CHECK(json_of(admin, "/delayed/count", bob)["total"] == 1);
    CHECK(json_of(admin, "/delayed/trace?id=o1", bob)["events"].empty());
  }

  TEST_CASE("the picture of due times has what its reader may not read among the others") {
    Admin admin({}, with_rules(), holders());
    schedule_two(admin);
    add_rule(admin, "User:alice", "orders/pending");
    const auto hour_for = [&](const std::string& token) {
      const auto due = json_of(admin, "/delayed/due", token);
      CHECK(due["total"] == 2);
      return due["spans"][1];
    };
    const auto whole = hour_for(alice), part = hour_for(bob);
    REQUIRE(whole["counts"].is_object());
    CHECK(whole["counts"].contains("orders"));
    CHECK(part["counts"].size() == 1);
    CHECK(part["counts"]["mail"] == whole["counts"]["mail"]);
    CHECK(part["other"] == whole["counts"]["orders"]);
    CHECK(part["total"] == 2);
    CHECK(hour_for(nobody) == part);
  }

  TEST_CASE("only a rule for this name, or for a prefix with the slash, restricts who reads") {
    Admin admin({}, with_rules(), holders());
    schedule_two(admin);
    const auto status = [&](const std::string& token) {
      return admin.ask("GET", "/delayed/orders/o1", bearing(token)).status;
    };
    add_rule(admin, "User:alice", "*");
    add_rule(admin, "User:alice", "orders", true);
    add_rule(admin, "User:alice", "orders/cancel");
    CHECK(status(bob) == 200);
    add_rule(admin, "User:dora", "orders/", true);
    CHECK(status(bob) == 403);
    // Those for all names, and for the prefix, allow it.
    CHECK(status(alice) == 200);
  }

  TEST_CASE("a browser's session reads what the holder of its token may") {
    AdminOptions options;
    options.host = "0.0.0.0";
    Admin admin(options, with_rules(), holders());
    schedule_two(admin);
    add_rule(admin, "User:alice", "orders/pending");
    const auto status = [&](const std::string& token) {
      const auto answer = admin.ask("POST", "/login", {}, Json{{"token", token}}.dump());
      const auto& cookie = answer.headers.at("Set-Cookie");
      return admin
          .ask("GET", "/delayed/orders/o1", {{"Cookie", cookie.substr(0, cookie.find(';'))}})
          .status;
    };
    CHECK(status(alice) == 200);
    CHECK(status(admin.token()) == 200);
    CapturedLog log;
    CHECK(status(bob) == 403);
    CHECK(log.count("audit: a browser's session of bob from 127.0.0.1:") == 1);
  }

  TEST_CASE("a client that may not read is told what it lacks, and is counted and in the log") {
    Admin admin({}, with_rules(), holders());
    schedule_two(admin);
    add_rule(admin, "User:alice", "orders/pending");
    const auto refused = admin.world.shard().counters.refused_total;
    CapturedLog log;
    CHECK(admin.ask("GET", "/delayed/orders/o1", bearing(bob)).error() ==
          "User:bob may neither read nor change the pending records of orders: that needs READ on "
          "the topic name orders/pending");
    CHECK(admin.ask("GET", "/delayed?topic=orders")
              .error()
              .starts_with("User:ANONYMOUS, a client without a token, may neither read"));
    CHECK(log.count("audit: bob with the role operate from 127.0.0.1:") == 1);
    CHECK(log.count(" on the admin: GET /delayed/orders/o1: denied (403)") == 1);
    CHECK(log.count("audit: a client without a token from 127.0.0.1:") == 1);
    CHECK(admin.world.shard().counters.refused_total == refused + 2);
    // What is left out of a list was not asked for.
    admin.ask("GET", "/delayed", bearing(bob));
    CHECK(log.count("audit") == 2);
  }
}

}  // namespace
}  // namespace tarry::admin::test
