// The admin's answers on connected clients, over HTTP.

#include <doctest/doctest.h>

#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;

// A connection of a shard that is served by nobody.
struct Guest {
  Guest(Admin& admin, std::size_t shard, const std::string& peer, std::string_view client_id)
      : connection(peer) {
    auto& there = admin.world.shard(shard);
    connection.use().since = admin.world.clock.mono();
    connection.count_request(client_id);
    there.clients.push_front(connection);
    ++there.counters.connections;
  }
  broker::Connection connection;
};

void wait(Admin& admin, std::chrono::milliseconds time) {
  admin.world.clock.now_wall += time;
  admin.world.clock.now_mono += time;
}

TEST_SUITE("client routes") {
  TEST_CASE(
      "/clients tells of each connection who it is and what it has sent, the youngest first") {
    Admin admin;
    CHECK(admin.get_json("/clients")["clients"].empty());
    CHECK(admin.get_json("/clients")["clients_total"] == 0);
    Guest first(admin, 0, "127.0.0.1:40312", "orders-1");
    wait(admin, 2s);
    Guest second(admin, 1, "127.0.0.1:40313", "<b>\x01\xff");
    second.connection.client_software_name = "librdkafka";
    second.connection.client_software_version = "2.3.0";
    second.connection.use().bytes_in = 1'000;
    second.connection.use().bytes_out = 70;
    second.connection.count_request("last");
    wait(admin, 1s);
    const auto body = admin.get_json("/clients");
    CHECK(body["clients_total"] == 2);
    REQUIRE(body["clients"].size() == 2);
    const auto& young = body["clients"][0];
    CHECK(young["client"] == "last");
    CHECK(young["address"] == "127.0.0.1:40313");
    CHECK(young["listener"] == "PLAINTEXT");
    CHECK(young["principal"] == "User:ANONYMOUS");
    CHECK(young["software_name"] == "librdkafka");
    CHECK(young["software_version"] == "2.3.0");
    CHECK(body["at_ms"].get<std::int64_t>() - young["connected_ms"].get<std::int64_t>() == 1'000);
    CHECK(young["requests"] == 2);
    CHECK(young["bytes_in"] == 1'000);
    CHECK(young["bytes_out"] == 70);
    CHECK(young["shard"] == 1);
    CHECK(body["clients"][1]["client"] == "orders-1");
    CHECK(body["clients"][1]["software_name"] == "");
  }

  TEST_CASE("/clients lists as many as it is asked for, and counts the others") {
    Admin admin;
    std::vector<std::unique_ptr<Guest>> guests;
    for (int i = 0; i < 300; ++i) {
      guests.push_back(
          std::make_unique<Guest>(admin, static_cast<std::size_t>(i % 2), "peer", "c"));
      wait(admin, 1ms);
    }
    const auto size = [&](const std::string& target) {
      const auto body = admin.get_json(target);
      CHECK(body["clients_total"] == 300);
      return body["clients"].size();
    };
    CHECK(size("/clients") == 200);
    CHECK(size("/clients?limit=1000") == 300);
    CHECK(size("/clients?limit=7") == 7);
    CHECK(admin.get("/clients?limit=1001").status == 400);
    CHECK(admin.get("/clients?limit=x").status == 400);
  }

  TEST_CASE(
      "a client id is stored only up to the length that a hostile client may make every connection "
      "hold") {
    Admin admin;
    Guest guest(admin, 0, "peer", std::string(30'000, 'x'));
    CHECK(admin.get_json("/clients")["clients"][0]["client"] == std::string(255, 'x'));
  }
}

}  // namespace
}  // namespace tarry::admin::test
