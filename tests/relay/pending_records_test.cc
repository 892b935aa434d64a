// The pending records of one partition, in a store that counts what it is asked.

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "records/batch_builder.h"
#include "relay/partition.h"
#include "tests/relay/memory_rows.h"

namespace tarry::relay {
namespace {

const Source pending_source{"orders.delayed", 3};
const WallTime pending_begin = from_ms(1'800'000'000'000);

class CountingRows final : public MemoryRows {
 public:
  std::optional<std::string> get(const std::string& key) const override {
    ++gets;
    return MemoryRows::get(key);
  }
  mutable std::size_t gets = 0;
};

PendingRecord pending_at(WallTime due, std::string id = {}) {
  PendingRecord record;
  record.due = due;
  record.expires = storage::never_expires;
  record.id = std::move(id);
  record.target = "orders";
  record.body = Buffer(10, std::uint8_t{7});
  return record;
}

SourceRecord delayed_record(Offset offset, WallTime due, const std::string& id = {}) {
  SourceRecord record{offset, pending_begin, {}};
  records::append_key_value(record.body, as_bytes("k"), as_bytes("v"));
  records::append_varint(record.body, id.empty() ? 1 : 2);
  const std::string at = std::to_string(to_ms(due));
  records::append_header(record.body, "x-deliver-at", as_bytes(at));
  if (!id.empty()) records::append_header(record.body, "x-schedule-id", as_bytes(id));
  return record;
}

}  // namespace

TEST_CASE("records are taken in without a read of the store, and one with an id costs one read") {
  CountingRows store;
  const Rules rules{"relay", "", false};
  Partition partition(pending_source, rules, store);
  partition.rows_from(pending_begin, 0);
  partition.begin(0, pending_begin);
  Offset next = 0;
  const auto take = [&](const std::string& id) {
    partition.arrive(delayed_record(next, pending_begin + std::chrono::minutes(1 + next), id));
    ++next;
    const std::size_t before = store.gets;
    partition.apply(partition.plan(pending_begin, true, {}), next);
    return store.gets - before;
  };
  CHECK(take("") == 0);
  CHECK(take("") == 0);
  CHECK(take("a") == 1);
  CHECK(take("b") == 1);
  CHECK(partition.pending().size() == 4);
  CHECK(partition.pending().find_id("a") == 2);
  // In place of the one that has its id.
  CHECK(take("a") > 1);
  CHECK(partition.pending().size() == 4);
  CHECK(partition.pending().find_id("a") == 4);
}

TEST_CASE("an owner with another's rows takes records in without a read, too") {
  CountingRows store;
  const Rules rules{"relay", "", false};
  {
    PendingRecords records(store, pending_source);
    for (Offset i = 0; i < 5; ++i)
      records.put(i, pending_at(pending_begin + std::chrono::hours(1 + i)));
    records.commit({.next = 5, .source = 5, .complete_at = pending_begin});
  }
  Partition partition(pending_source, rules, store);
  REQUIRE(partition.rows_from(pending_begin, 5, 5) == 5);
  partition.begin(5, pending_begin);
  partition.arrive(delayed_record(5, pending_begin + std::chrono::hours(9)));
  const std::size_t before = store.gets;
  partition.apply(partition.plan(pending_begin, true, {}), 6);
  CHECK(store.gets == before);
  CHECK(partition.pending().size() == 6);
}

TEST_CASE("a source offset that was set back meets the row that it has left, and takes its place") {
  MemoryRows store;
  const Rules rules{"relay", "", false};
  Partition partition(pending_source, rules, store);
  partition.rows_from(pending_begin, 0);
  // Its due time was moved by an order.
  Partition before(pending_source, rules, store);
  before.begin(7, pending_begin);
  before.arrive(delayed_record(7, pending_begin + std::chrono::hours(9)));
  const Work work = before.plan(pending_begin, true, {});
  REQUIRE(work.records.size() == 1);
  REQUIRE(partition.load_row(handle_of(pending_source, 7), work.records[0].value, 0));
  partition.loaded(1, pending_begin);
  partition.begin(3, pending_begin);
  for (Offset i = 3; i < 9; ++i)
    partition.arrive(delayed_record(i, pending_begin + std::chrono::hours(1)));
  partition.apply(partition.plan(pending_begin, true, {}), 10);
  CHECK(partition.pending().size() == 6);
  std::size_t walked = 0;
  for (auto at = partition.pending().walk({}); at.valid(); at.next()) ++walked;
  CHECK(walked == 6);
}

TEST_CASE("the minutes of the records are there again, in each block and at its ends") {
  MemoryRows store;
  PendingRecords records(store, pending_source);
  const auto minute = [](int number) {
    return WallTime{std::chrono::minutes(256 * 100'000 + number)};
  };
  const std::vector<int> minutes{-1, 0, 0, 1, 255, 256, 511, 512, 5'000};
  for (std::size_t i = 0; i < minutes.size(); ++i)
    records.put(static_cast<Offset>(i), pending_at(minute(minutes[i])));
  records.put(100, pending_at(from_ms(0)));
  const RowsPlace place{.next = 9, .source = 9, .complete_at = pending_begin};
  records.commit(place);
  PendingRecords again(store, pending_source);
  CHECK(again.by_minute() == records.by_minute());
  CHECK(again.by_minute().size() == 9);
  CHECK(again.size() == 10);
  CHECK(again.bytes() == records.bytes());
  again.erase(0);
  again.erase(1);
  again.erase(8);
  again.commit(place);
  PendingRecords rest(store, pending_source);
  CHECK(rest.by_minute() == again.by_minute());
  CHECK(rest.by_minute().size() == 7);
  CHECK(rest.size() == 7);
  CHECK(rest.first() == PendingRecords::Place(from_ms(0), 100));
}

TEST_CASE("a block of minutes that ends early is damage") {
  MemoryRows store;
  {
    PendingRecords records(store, pending_source);
    records.put(1, pending_at(pending_begin));
    records.commit({.next = 1, .source = 1, .complete_at = pending_begin});
  }
  storage::SortedRows::Changes changes;
  {
    const auto at = store.walk("m", "n");
    REQUIRE(at->valid());
    changes.rows[std::string(at->key())] = std::string(4, '\1');
  }
  store.write(changes);
  CHECK_THROWS_AS(PendingRecords(store, pending_source), storage::RowsFailed);
}

}  // namespace tarry::relay
