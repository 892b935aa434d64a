// A shard's objects are used on its thread: every door asserts it, in production too.

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include "broker/context/connection.h"
#include "broker/context/ledger.h"
#include "broker/groups/groups.h"
#include "broker/shard.h"
#include "purgatory/delayed_operation.h"
#include "purgatory/purgatory.h"
#include "tests/broker/batches.h"
#include "tests/broker/world.h"
#include "tests/death.h"

namespace tarry::broker::test {
namespace {

struct Door {
  std::string_view name;
  std::function<void(Shard&)> knock;
};

// Waits until it is cancelled.
class UnsatisfiedWait final : public purgatory::DelayedOperation {
 public:
  UnsatisfiedWait() : DelayedOperation(delete_groups_kind) {}

 private:
  bool is_satisfied() override { return false; }
  void on_complete(purgatory::Outcome) override {}
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
    Ledger& ledger = shard.ledger();
    Charge charge(ledger, nullptr);
    delay::Engine& engine = shard.engine();
    GroupEntry* const group = groups.find_or_make("orderers", "User:alice").value();
    purgatory::Purgatory& delayed = shard.purgatory();
    UnsatisfiedWait waiting;
    waiting.start(delayed, shard.tick(), purgatory::no_deadline, {});
    const Door doors[] = {
        {"partitions", [](Shard& s) { s.partitions(); }},
        {"groups", [](Shard& s) { s.groups(); }},
        {"engine", [](Shard& s) { s.engine(); }},
        {"checkpointer", [](Shard& s) { s.checkpointer(); }},
        {"wheel", [](Shard& s) { s.wheel(); }},
        {"purgatory", [](Shard& s) { s.purgatory(); }},
        {"topics", [](Shard& s) { s.topics(); }},
        {"journal", [](Shard& s) { s.journal(); }},
        {"start_journal_round", [](Shard& s) { s.start_journal_round(); }},
        {"retry_journal_space", [](Shard& s) { s.retry_journal_space(); }},
        {"durable_through", [](Shard& s) { s.durable_through(); }},
        {"has_room", [](Shard& s) { s.has_room(); }},
        {"set_has_room", [](Shard& s) { s.set_has_room(true); }},
        {"refuses", [](Shard& s) { s.refuses({}); }},
        {"set_topic_refused", [](Shard& s) { s.set_topic_refused({}, false); }},
        {"stopping", [](Shard& s) { s.stopping(); }},
        {"Ledger::change", [&](Shard&) { charge.add(1); }},
        {"Ledger::used", [&](Shard&) { ledger.used(); }},
        {"Ledger::room", [&](Shard&) { ledger.room(); }},
        {"Ledger::is_full", [&](Shard&) { ledger.is_full(); }},
        {"SharedViews", [&](Shard&) { SharedViews views(ledger, {}); }},
        {"Partitions::all", [&](Shard&) { partitions.all(); }},
        {"Partitions::walk",
         [&](Shard&) {
           Partitions::Walk walk;
           partitions.walk(walk, 1, [](const Partition&) { return std::size_t{0}; });
         }},
        {"Partitions::out_of_service", [&](Shard&) { partitions.out_of_service(1); }},
        {"Partitions::remove_retired", [&](Shard&) { partitions.remove_retired(); }},
        {"Partitions::find", [&](Shard&) { partitions.find({}); }},
        {"Partitions::with", [&](Shard&) { partitions.with({}, [](auto) {}); }},
        {"Partition::high_watermark", [&](Shard&) { orders->high_watermark(); }},
        {"Partition::log_start", [&](Shard&) { orders->log_start(); }},
        {"Partition::log_end", [&](Shard&) { orders->log_end(); }},
        {"Partition::fenced", [&](Shard&) { orders->fenced(); }},
        {"Partition::retired", [&](Shard&) { orders->retired(); }},
        {"Partition::is_dirty", [&](Shard&) { orders->is_dirty(); }},
        {"Partition::trim_tail", [&](Shard&) { orders->trim_tail(1 << 20); }},
        {"Partition::producer_changes", [&](Shard&) { (void)orders->producer_changes(0); }},
        {"Partition::append", [&](Shard&) { orders->append({}, true, [](auto) {}); }},
        {"Partition::read", [&](Shard&) { (void)orders->read(0, 1, false); }},
        {"Partition::find_timestamp", [&](Shard&) { (void)orders->find_timestamp(0); }},
        {"Partition::delete_records", [&](Shard&) { (void)orders->delete_records(0); }},
        {"Partition::plan_flush", [&](Shard&) { (void)orders->plan_flush(); }},
        {"Topics::image", [&](Shard&) { world.broker().topics().image(); }},
        {"Groups::find", [&](Shard&) { groups.find("g"); }},
        {"Groups::all", [&](Shard&) { groups.all(); }},
        {"Groups::offset_bytes", [&](Shard&) { groups.offset_bytes(); }},
        {"GroupOffsets::all", [&](Shard&) { group->offsets.all(); }},
        {"GroupOffsets::remove", [&](Shard&) { (void)group->offsets.remove({}); }},
        {"GroupOffsets::topic_deleted", [&](Shard&) { group->offsets.topic_deleted({}, 1); }},
        {"Engine::believed", [&](Shard&) { engine.believed({}); }},
        {"Engine::arriving_of", [&](Shard&) { engine.arriving_of({}); }},
        {"Engine::stats", [&](Shard&) { (void)engine.stats(); }},
        {"Engine::topic_deleted", [&](Shard&) { engine.topic_deleted({}); }},
        {"Purgatory::run_completions", [&](Shard& s) { delayed.run_completions(s.tick()); }},
        {"DelayedOperation::cancel", [&](Shard&) { waiting.cancel(); }},
        {"Purgatory::cancel_all", [&](Shard&) { delayed.cancel_all(); }},
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

  TEST_CASE("a connection that is used on another thread than its session's ends the process") {
    Connection connection("127.0.0.1:40312");
    const std::pair<std::string_view, std::function<void()>> doors[] = {
        {"Connection::use", [&] { connection.use().bytes_in = 1; }},
        {"Connection::count_request", [&] { connection.count_request("a client"); }},
        {"Connection::set_principal_id", [&] { connection.set_principal_id({}); }},
        {"Connection::logged_in", [&] { connection.logged_in("alice", "PLAIN", {}, {}); }},
        {"Connection::note_shard", [&] { connection.note_shard(nullptr); }},
        {"Connection::close", [&] { connection.close(); }},
    };
    for (const auto& door : doors) {
      CAPTURE(door.first);
      const std::string said = last_words([&] { std::thread(door.second).join(); });
      CHECK(said.find(door.first) != std::string::npos);
      door.second();
    }
  }
}

}  // namespace
}  // namespace tarry::broker::test
