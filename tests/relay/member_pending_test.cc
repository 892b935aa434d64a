// Pages and counts of the pending records of a member.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tests/relay/one_member.h"

namespace tarry::relay {

TEST_CASE("pages of pending records show each once, in due order, across partitions") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}});
  one.steps(10);
  for (int i = 0; i < 10; ++i)  // Pairs of one due time, in both partitions.
    one.send({"o.delayed", i % 2}, std::to_string(i), {{"x-delay", std::to_string(90 - i / 4)}});
  one.steps(2);
  std::vector<PendingPlace> seen;
  std::optional<PendingPlace> after;
  do {
    const auto page = one.member.pending({}, after, 3);
    for (const auto& each : page.records)
      seen.push_back({each.record.due, each.source, each.offset});
    after = page.next;
  } while (after);
  CHECK(seen.size() == 10);
  CHECK(std::ranges::is_sorted(seen));
  CHECK(std::ranges::adjacent_find(seen) == seen.end());
}

TEST_CASE("a page of an exact id is found by the index, and has the records of all partitions") {
  std::vector<Source> sources;
  for (PartitionIndex i = 0; i < 4; ++i) sources.push_back({"o.delayed", i});
  OneMember one(sources);
  one.steps(10);
  for (const auto& source : sources) {
    const std::string delay = std::to_string(90 - source.partition) + "m";
    one.send(source, "x", {{"x-delay", delay}, {"x-schedule-id", "a"}});
    one.send(source, "y", {{"x-delay", delay}, {"x-schedule-id", "b*"}});
  }
  one.steps(10);
  const std::size_t walks = one.store.walks;
  PendingQuery query;
  query.id = "a";
  std::vector<PartitionIndex> seen;
  std::optional<PendingPlace> after;
  do {
    const auto page = one.member.pending(query, after, 3);
    for (const auto& each : page.records) {
      CHECK(each.record.id == "a");
      seen.push_back(each.source.partition);
    }
    after = page.next;
  } while (after);
  CHECK(seen == std::vector<PartitionIndex>{3, 2, 1, 0});
  query.partition = 2;
  query.key = "k";
  CHECK(one.member.pending(query, std::nullopt, 3).records.size() == 1);
  query.key = "other";
  CHECK(one.member.pending(query, std::nullopt, 3).records.empty());
  query = {};
  query.id = "b[*]";
  query.until = one.kafka.now + std::chrono::minutes(88);
  CHECK(one.member.pending(query, std::nullopt, 9).records.size() == 2);
  CHECK(one.store.walks == walks);
}

TEST_CASE("a page ends with large records, or when few of them are wanted, and the next goes on") {
  OneMember one;
  one.steps(10);
  for (int i = 0; i < 3; ++i)
    one.send({"o.delayed", 0}, std::string(3u << 20, 'x'), {{"x-delay", "1h"}});
  one.steps(10);
  const auto page = one.member.pending({}, std::nullopt, 100);
  CHECK(page.records.size() == 2);
  REQUIRE(page.next.has_value());
  CHECK(one.member.pending({}, page.next, 9).records.size() == 1);
}

TEST_CASE("pending records are counted by the minute, from and to any moment") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}});
  one.steps(10);
  const auto base = std::chrono::floor<std::chrono::hours>(one.kafka.now) + std::chrono::hours(5);
  for (int i = 0; i < 600; ++i)  // One each second, for ten minutes.
    one.send({"o.delayed", i % 2}, "x",
             {{"x-deliver-at", std::to_string(to_ms(base) + i * 1'000)}});
  one.steps(200);
  using std::chrono::minutes;
  using std::chrono::seconds;
  const auto by_minute = one.member.count({}, minutes(1));
  CHECK(by_minute.total == 600);
  REQUIRE(by_minute.counts.size() == 10);
  for (const auto& [from, count] : by_minute.counts) CHECK(count == 60);
  CHECK(one.member.count({}, minutes(60)).counts.size() == 1);
  PendingQuery some;
  some.from = base + seconds(30);
  some.until = base + minutes(2) + seconds(10);
  CHECK(one.member.count(some, minutes(1)).total == 100);
  CHECK(one.member.count(some, minutes(1)).counts.at(base + minutes(2)) == 10);
  some.until = base + seconds(45);
  CHECK(one.member.count(some, minutes(1)).total == 15);
  some.partition = 1;
  CHECK(one.member.count(some, minutes(1)).total == 7);
}

}  // namespace tarry::relay
