// A shard's objects are used on its thread: every door asserts it, in production too.

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include <doctest/doctest.h>

#include "broker/context/connection.h"
#include "broker/context/ledger.h"
#include "broker/shard.h"
#include "tests/broker/batches.h"
#include "tests/broker/world.h"
#include "tests/death.h"

namespace tarry::broker::test {
namespace {

struct Door {
  std::string_view name;
  std::function<void(Shard&)> knock;
};

TEST_SUITE("ownership") {
  TEST_CASE("a shard that has started ends the process when another thread comes to a door") {
    World world({.shards = 1});
    Shard& shard = world.shard();
    Partitions& partitions = shard.partitions();
    Groups& groups = shard.groups();
    create_topic(world, "orders");
    Partition* orders = nullptr;
    partitions.with({shard.topics().find("orders")->id, 0}, [&](auto found) { orders = *found; });
    world.run();
    REQUIRE(orders != nullptr);
    Charge charge(shard.ledger(), nullptr);
    const Door doors[] = {
        {"partitions", [](Shard& s) { s.partitions(); }},
        {"groups", [](Shard& s) { s.groups(); }},
        {"engine", [](Shard& s) { s.engine(); }},
        {"checkpointer", [](Shard& s) { s.checkpointer(); }},
        {"wheel", [](Shard& s) { s.wheel(); }},
        {"purgatory", [](Shard& s) { s.purgatory(); }},
        {"topics", [](Shard& s) { s.topics(); }},
        {"journal", [](Shard& s) { s.journal(); }},
        {"durable_through", [](Shard& s) { s.durable_through(); }},
        {"failed", [](Shard& s) { s.has_room(); }},
        {"set_has_room", [](Shard& s) { s.set_has_room(true); }},
        {"refuses", [](Shard& s) { s.refuses({}); }},
        {"set_topic_refused", [](Shard& s) { s.set_topic_refused({}, false); }},
        {"stopping", [](Shard& s) { s.stopping(); }},
        {"Ledger::change", [&](Shard&) { charge.add(1); }},
        {"Partitions::find", [&](Shard&) { partitions.find({}); }},
        {"Partitions::with", [&](Shard&) { partitions.with({}, [](auto) {}); }},
        {"Partition::append", [&](Shard&) { orders->append({}, true, [](auto) {}); }},
        {"Partition::read", [&](Shard&) { (void)orders->read(0, 1, false); }},
        {"Partition::find_timestamp", [&](Shard&) { (void)orders->find_timestamp(0); }},
        {"Partition::delete_records", [&](Shard&) { (void)orders->delete_records(0); }},
        {"Partition::plan_flush", [&](Shard&) { (void)orders->plan_flush(); }},
        {"Topics::image", [&](Shard&) { world.broker().topics().image(); }},
        {"Groups::find", [&](Shard&) { groups.find("g"); }},
        {"commit",
         [](Shard& s) {
           storage::JournalTransaction transaction(storage::Reserve::use);
           transaction.add(storage::SequencesGiven{1});
           (void)s.commit(std::move(transaction));
         }},
    };
    for (const auto& door : doors) {
      CAPTURE(door.name);
      const std::string said = last_words([&] { std::thread(door.knock, std::ref(shard)).join(); });
      CHECK(said.find("used on another thread than its own") != std::string::npos);
      const auto name = door.name.substr(door.name.rfind(':') + 1);
      CHECK(said.find(name) != std::string::npos);
      door.knock(shard);  // On its own thread nothing is asked of anybody.
    }
  }

  TEST_CASE("a connection that is closed on another thread than its session's ends the process") {
    Connection connection("127.0.0.1:40312");
    const std::string said = last_words([&] { std::thread([&] { connection.close(); }).join(); });
    CHECK(said.find("Connection::close") != std::string::npos);
    connection.close();
  }
}

}  // namespace
}  // namespace tarry::broker::test
