// ShardContext::commit: who is told what of a transaction, and when.

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "storage/journal_transaction.h"
#include "tests/broker/world.h"

namespace tarry::broker::test {
namespace {

using Strings = std::vector<std::string>;

// A transaction of two parts that note what they are told.
storage::JournalTransaction noting(Strings& told, storage::ProducerIdsGiven operation) {
  storage::JournalTransaction transaction;
  transaction.add(operation);
  for (const char* part : {"first", "second"}) {
    transaction.on_appended(
        [&told, part](Lsn) noexcept { told.push_back(std::string(part) + " appended"); });
    transaction.on_settled([&told, part](const Result<>& safe) {
      told.push_back(std::string(part) + (safe ? " durable" : " refused"));
    });
  }
  return transaction;
}

}  // namespace

TEST_SUITE("broker: commit") {
  TEST_CASE(
      "the parts of a transaction are notified in their order, before the requests that wait for "
      "it") {
    World world({.shards = 1});
    Shard& shard = world.shard();
    Strings told;
    const auto lsn = shard.commit(noting(told, {5000}));
    REQUIRE(lsn.has_value());
    CHECK(told == Strings{"first appended", "second appended"});
    CHECK(shard.durable_through() <= *lsn);
    world.run();
    CHECK(told == Strings{"first appended", "second appended", "first durable", "second durable"});
    CHECK(shard.durable_through() > *lsn);
  }

  TEST_CASE("transactions are settled in the order in which they were committed") {
    World world({.shards = 1});
    Strings told;
    for (const char* name : {"a", "b", "c"}) {
      storage::JournalTransaction transaction;
      transaction.add(storage::ProducerIdsGiven{5000});
      transaction.on_durable([&told, name] { told.emplace_back(name); });
      REQUIRE(world.shard().commit(std::move(transaction)));
    }
    world.run();
    CHECK(told == Strings{"a", "b", "c"});
  }

  TEST_CASE(
      "a transaction that the journal refuses is settled with the error inside commit, and never "
      "appended") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.journal_file_bytes = 64 << 10;
                   config.journal_max_bytes = 40 << 20;
                 }});
    Strings told;
    auto transaction = noting(told, {5000});
    const Buffer large(24 << 20);
    transaction.add(storage::GroupStored{"g", large});
    transaction.on_durable([&told] { told.emplace_back("durable all the same"); });
    const auto lsn = world.shard().commit(std::move(transaction));
    REQUIRE_FALSE(lsn.has_value());
    CHECK(lsn.error().code == Errc::too_large);
    CHECK(told == Strings{"first refused", "second refused"});
    world.run();
    CHECK(told.size() == 2);
  }

  TEST_CASE("a transaction that waits only for its write is settled before it is synced") {
    World world({.shards = 1});
    Shard& shard = world.shard();
    bool settled = false;
    storage::JournalTransaction transaction(storage::Reserve::keep, storage::Durability::os);
    transaction.add(storage::ProducerIdsGiven{5000});
    transaction.on_durable([&] { settled = true; });
    const auto lsn = shard.commit(std::move(transaction));
    REQUIRE(lsn.has_value());
    world.run();
    CHECK(settled);
    CHECK(shard.written_through() > *lsn);
    CHECK(shard.durable_through() <= *lsn);
  }
}

}  // namespace tarry::broker::test
