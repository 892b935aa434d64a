// The rows of ids, which clients choose: ids that begin alike, that end where another goes on, and
// bytes of any value.

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scratch.h"
#include "storage/bucket_store.h"

namespace tarry::storage {
namespace {

ScheduleEvent scheduled_as(Sequence sequence) {
  ScheduleEvent event;
  event.key.sequence = sequence;
  return event;
}

TEST_SUITE("bucket_store ids") {
  TEST_CASE(
      "ids that differ late, or end where others go on, are each found with their own event") {
    ScratchDirectory scratch;
    const auto store = BucketStore::make(scratch.path("db"), {}).value();
    const TopicPartition partition{};
    const std::string alike = "an id of more bytes than a number has-";
    std::vector<std::string> ids{alike,
                                 alike + "1",
                                 alike + "10",
                                 alike + "2",
                                 alike + std::string(1, '\0'),
                                 alike + std::string(9, '\0'),
                                 alike + std::string(9, '\0') + "x",
                                 alike + "12345678a",
                                 alike + "12345678b",
                                 alike + "\xff",
                                 alike + "\xff\xff\xff\xff\xff\xff\xff\xff\xff"};
    std::ranges::reverse(ids);
    for (const bool is_alone : {false, true}) {
      if (is_alone) ids.push_back("z");  // Now they have no byte in common.
      std::vector<ScheduleEvent> events;
      std::vector<IdChange> changes;
      for (std::size_t i = 0; i < ids.size(); ++i)
        events.push_back(scheduled_as(i + (is_alone ? 100 : 1)));
      for (std::size_t i = 0; i < ids.size(); ++i)
        changes.push_back({partition, ids[i], {&events[i], 1}});
      REQUIRE(store->write({}, changes).has_value());
      const std::vector<std::string_view> asked(ids.begin(), ids.end());
      const auto last = store->last_events(partition, asked).value();
      REQUIRE(last.size() == ids.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        CAPTURE(i);
        CHECK(last[i] == std::optional(events[i]));
      }
    }
  }

  TEST_CASE("the pending ids that begin alike are told in their order, unless too many begin so") {
    ScratchDirectory scratch;
    const auto store = BucketStore::make(scratch.path("db"), {}).value();
    const TopicPartition partition{};
    TopicPartition other;
    other.partition = 1;
    const ScheduleEvent pending = scheduled_as(1);
    ScheduleEvent ended = pending;
    ended.kind = ScheduleEvent::Kind::cancelled;
    std::vector<IdChange> changes;
    for (const std::string_view id : {"order-3", "order-1", "order", "orde", "orders", "\xff"})
      changes.push_back({partition, id, {&pending, 1}});
    changes.push_back({partition, "order-2", {&ended, 1}});
    changes.push_back({other, "order-4", {&pending, 1}});
    REQUIRE(store->write({}, changes).has_value());
    const auto told = [&](std::string_view prefix, std::size_t rows) {
      auto ids = store->pending_ids(partition, prefix, rows).value();
      return std::pair(std::move(ids), rows);
    };
    using Ids = std::vector<std::string>;
    CHECK(told("order-", 3) == std::pair(std::optional(Ids{"order-1", "order-3"}), std::size_t{0}));
    CHECK(told("order-", 2).first == std::nullopt);
    CHECK(told("order", 9) ==
          std::pair(std::optional(Ids{"order", "order-1", "order-3", "orders"}), std::size_t{4}));
    CHECK(told("\xff", 9).first == Ids{"\xff"});
    CHECK(told("order-2", 9) == std::pair(std::optional(Ids{}), std::size_t{8}));
    CHECK(told("nobody", 0).first == Ids{});
  }

  TEST_CASE("more ids than one write takes are all there, and those of one id in their order") {
    ScratchDirectory scratch;
    const auto store = BucketStore::make(scratch.path("db"), {}).value();
    const TopicPartition partition{};
    const std::string filling(4'096, 'x');
    std::vector<std::string> ids;
    for (int i = 0; i < 1'500; ++i) ids.push_back(std::to_string(i * 7 % 1'500) + filling);
    const ScheduleEvent first = scheduled_as(1), second = scheduled_as(2);
    std::vector<IdChange> changes;
    for (const auto* const event : {&first, &second})
      for (const auto& id : ids) changes.push_back({partition, id, {event, 1}});
    REQUIRE(store->write({}, changes).has_value());
    for (const auto& id : ids) {
      const auto events = store->id_events(partition, id).value();
      REQUIRE(events.size() == 2);
      CHECK(events[0] == first);
      CHECK(events[1] == second);
    }
  }
}

}  // namespace
}  // namespace tarry::storage
