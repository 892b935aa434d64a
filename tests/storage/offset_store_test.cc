#include "storage/offset_store.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <set>

#include "scratch.h"
#include "storage/database.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

std::unique_ptr<Database> new_database(const ScratchDirectory& scratch) {
  auto made = Database::make(scratch.path("meta"));
  REQUIRE(made.has_value());
  return std::move(*made);
}

std::unique_ptr<Database> reopen(const ScratchDirectory& scratch,
                                 std::unique_ptr<Database> database) {
  database.reset();
  auto opened = Database::open(scratch.path("meta"));
  REQUIRE(opened.has_value());
  return std::move(*opened);
}

void say(OffsetStore& store, const Operation& operation) {
  REQUIRE(store.apply(operation).has_value());
}

CommittedOffset at(std::uint8_t topic, PartitionIndex partition, Offset offset,
                   std::string_view metadata = "") {
  return {{test_topic(topic), partition}, offset, 3, from_ms(100), never_expires, metadata};
}

// Everything that load() gives, a line a group.
std::string told(OffsetStore& store, const std::set<std::uint8_t>& removed_topics = {}) {
  std::string out;
  const auto exists = [&](const TopicId& topic) {
    for (const auto gone : removed_topics)
      if (topic == test_topic(gone)) return false;
    return true;
  };
  const auto loaded = store.load(exists, [&](const OffsetStore::StoredGroup& group) -> Result<> {
    out += fmt::format("{}={}", group.id, group.value ? as_text(*group.value) : "-");
    for (const auto& o : group.offsets) {
      out += fmt::format(" {}-{}:{}/{}/{}/{}/{}", o.partition.topic.bytes[15],
                         o.partition.partition, o.offset, o.leader_epoch, to_ms(o.committed),
                         o.expires == never_expires ? -1 : to_ms(o.expires), o.metadata);
    }
    out += "\n";
    return {};
  });
  REQUIRE(loaded.has_value());
  return out;
}

TEST_SUITE("offset store") {
  TEST_CASE("groups and offsets are given back together, whichever of the two a group has") {
    ScratchDirectory scratch;
    auto meta = new_database(scratch);
    OffsetStore store(*meta);
    const std::string value = "state";
    say(store, GroupStored{"only-state", as_bytes(value)});
    say(store, GroupStored{"both", as_bytes(value)});
    say(store, OffsetsCommitted{"both", {at(2, 1, 20, "m2"), at(1, 0, 10, "m1")}});
    say(store, OffsetsCommitted{"simple", {at(1, 0, 7)}});
    // A group's id is any bytes: one may begin as another's key goes on.
    say(store, OffsetsCommitted{"both\x01", {at(1, 0, 8)}});
    say(store, OffsetsCommitted{"", {at(1, 0, 9)}});
    CommittedOffset timed = at(1, 1, 11, "t");
    timed.expires = from_ms(500);
    say(store, OffsetsCommitted{"simple", {timed}});
    const std::string expected =
        "=- 1-0:9/3/100/-1/\n"
        "both=state 1-0:10/3/100/-1/m1 2-1:20/3/100/-1/m2\n"
        "both\x01=- 1-0:8/3/100/-1/\n"
        "simple=- 1-0:7/3/100/-1/ 1-1:11/3/100/500/t\n"
        "only-state=state\n";
    CHECK(told(store) == expected);
    REQUIRE(meta->flush().has_value());
    meta = reopen(scratch, std::move(meta));
    OffsetStore again(*meta);
    CHECK(told(again) == expected);
  }

  TEST_CASE("a prepared group has its record once, and is stored as any other") {
    ScratchDirectory scratch;
    auto meta = new_database(scratch);
    OffsetStore store(*meta);
    say(store, GroupStored{"wide", as_bytes("before")});
    for (const std::size_t bytes : {0U, 1U, 200U, 100'000U}) {
      const std::string value(bytes, 'v');
      const auto prepared = store.prepare({"wide", as_bytes(value)});
      CHECK(as_text(prepared->value()) == value);
      REQUIRE(store.apply(*prepared).has_value());
      CHECK(told(store) == "wide=" + value + "\n");
      // The journal may read it still.
      CHECK(as_text(prepared->value()) == value);
    }
    REQUIRE(meta->flush().has_value());
    meta = reopen(scratch, std::move(meta));
    OffsetStore again(*meta);
    CHECK(told(again) == "wide=" + std::string(100'000, 'v') + "\n");
  }

  TEST_CASE("a removed group takes its offsets along and nobody else's") {
    ScratchDirectory scratch;
    auto meta = new_database(scratch);
    OffsetStore store(*meta);
    for (const auto* id : {"g", "ga", "h", "\xff\xff"}) {
      say(store, GroupStored{id, as_bytes(std::string_view("v"))});
      say(store, OffsetsCommitted{id, {at(1, 0, 1)}});
    }
    say(store, GroupRemoved{"g"});
    say(store, GroupRemoved{"\xff\xff"});
    CHECK(told(store) == "h=v 1-0:1/3/100/-1/\nga=v 1-0:1/3/100/-1/\n");
    say(store, OffsetsRemoved{"h", {{test_topic(1), 0}, {test_topic(5), 5}}});
    CHECK(told(store) == "h=v\nga=v 1-0:1/3/100/-1/\n");
  }

  TEST_CASE("offsets of a topic that is gone are dropped at the next start, for good") {
    ScratchDirectory scratch;
    auto meta = new_database(scratch);
    OffsetStore store(*meta);
    say(store, OffsetsCommitted{"a", {at(1, 0, 1), at(2, 0, 2)}});
    say(store, OffsetsCommitted{"b", {at(2, 0, 2)}});
    CHECK(told(store, {2}) == "a=- 1-0:1/3/100/-1/\n");
    CHECK(told(store) == "a=- 1-0:1/3/100/-1/\n");
  }

  TEST_CASE("a row that does not fit its format is refused and names the database") {
    ScratchDirectory scratch;
    auto meta = new_database(scratch);
    OffsetStore store(*meta);
    rocksdb::WriteBatch batch;
    batch.Put(meta->rocks().family(meta_family::offsets), "short", "value");
    REQUIRE(meta->rocks().write(batch).has_value());
    const auto loaded = store.load([](const TopicId&) { return true; },
                                   [](const OffsetStore::StoredGroup&) { return Result<>(); });
    REQUIRE_FALSE(loaded.has_value());
    CHECK(loaded.error().code == Errc::corrupt);
    CHECK(loaded.error().message.find("meta") != std::string::npos);
  }

  TEST_CASE("replaying from any point of the past ends where it ended before") {
    ScratchDirectory scratch;
    auto meta = new_database(scratch);
    OffsetStore store(*meta);
    SeededRandom random(7);
    // The texts that the operations view.
    const std::vector<std::string> names{"a", "b", "c"};
    const std::vector<std::string> values{"v0", "v1", "v2", "v3"};
    const auto any = [&](const std::vector<std::string>& of) -> const std::string& {
      return of[random.u64() % of.size()];
    };
    std::vector<Operation> past;
    for (int i = 0; i < 300; ++i) {
      const auto partition = static_cast<PartitionIndex>(random.u64() % 3);
      const auto topic = static_cast<std::uint8_t>(1 + random.u64() % 2);
      switch (random.u64() % 6) {
        case 0:
          past.push_back(GroupStored{any(names), as_bytes(any(values))});
          break;
        case 1:
          past.push_back(GroupRemoved{any(names)});
          break;
        case 2:
          past.push_back(OffsetsRemoved{any(names), {{test_topic(topic), partition}}});
          break;
        default:
          past.push_back(OffsetsCommitted{any(names), {at(topic, partition, i, any(values))}});
      }
    }
    for (const auto& operation : past) say(store, operation);
    const std::string expected = told(store);
    for (int round = 0; round < 20; ++round) {
      // A replay that a crash cut short, and the whole one after it.
      const std::size_t from = random.u64() % past.size();
      const std::size_t until = from + random.u64() % (past.size() - from);
      for (std::size_t i = from; i < until; ++i) say(store, past[i]);
      for (std::size_t i = from; i < past.size(); ++i) say(store, past[i]);
      CHECK(told(store) == expected);
    }
  }
}

}  // namespace
}  // namespace tarry::storage
