#include "storage/retention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "batches.h"
#include "storage/log.h"
#include "tests/memory_disk.h"

TEST_SUITE_BEGIN("retention");

namespace tarry::storage {
namespace {

using std::chrono::milliseconds;

constexpr Offset up_to_the_end = std::numeric_limits<Offset>::max();

// Segments of 100 offsets and 1000 bytes; the n-th was last appended to at n * 1000 ms.
std::vector<SegmentState> segments(std::size_t count) {
  std::vector<SegmentState> all;
  for (std::size_t i = 0; i < count; ++i) {
    SegmentState state;
    state.base = static_cast<Offset>(i) * 100;
    state.next = state.base + 100;
    state.bytes = 1000;
    state.last_append = from_ms(static_cast<std::int64_t>(i + 1) * 1000);
    state.max_timestamp = 0;
    all.push_back(state);
  }
  return all;
}

LogConfig by_time(std::int64_t ms) {
  return {.retention_ms = milliseconds(ms), .retention_bytes = -1};
}
LogConfig by_bytes(std::int64_t bytes) {
  return {.retention_ms = milliseconds(-1), .retention_bytes = bytes};
}

TEST_CASE("a segment goes when its last append is longer ago than retention.ms") {
  const auto all = segments(4);
  const auto config = by_time(5000);
  // The first is as old as allowed at 6000, and older one millisecond later.
  CHECK(decide_retention(all, config, from_ms(6000), 0, up_to_the_end, 0).segments == 0);
  CHECK(decide_retention(all, config, from_ms(6000), 0, up_to_the_end, 0).next == from_ms(6001));
  CHECK(decide_retention(all, config, from_ms(6001), 0, up_to_the_end, 0).segments == 1);
  CHECK(decide_retention(all, config, from_ms(6001), 0, up_to_the_end, 0).next == from_ms(7001));
  CHECK(decide_retention(all, config, from_ms(8500), 0, up_to_the_end, 0).segments == 3);
  CHECK(!decide_retention(all, config, from_ms(8500), 0, up_to_the_end, 0).close_active);
}

TEST_CASE("a timestamp ahead of the append keeps a segment, one long before it does not hurry it") {
  auto all = segments(3);
  all[0].max_timestamp = 9000;
  CHECK(decide_retention(all, by_time(1000), from_ms(9999), 0, up_to_the_end, 0).segments == 0);
  CHECK(decide_retention(all, by_time(1000), from_ms(10'001), 0, up_to_the_end, 0).segments == 2);
  all[0].max_timestamp = -1;
  CHECK(decide_retention(all, by_time(1000), from_ms(1500), 0, up_to_the_end, 0).segments == 0);
}

TEST_CASE("a timestamp at the end of time does not overflow an age") {
  auto all = segments(2);
  all[0].max_timestamp = std::numeric_limits<std::int64_t>::max();
  const auto decision = decide_retention(all, by_time(1000), from_ms(99'999), 0, up_to_the_end, 0);
  CHECK(decision.segments == 0);
  CHECK(decision.next.has_value());
}

TEST_CASE("a segment behind one that stays does not go, however old it is") {
  auto all = segments(4);
  all[0].last_append = from_ms(50'000);
  CHECK(decide_retention(all, by_time(5000), from_ms(54'000), 0, up_to_the_end, 0).segments == 0);
}

TEST_CASE("an active segment that is too old is closed so that it can go, but only after all") {
  const auto all = segments(3);
  const auto decision = decide_retention(all, by_time(5000), from_ms(8001), 0, up_to_the_end, 0);
  CHECK(decision.segments == 2);
  CHECK(decision.close_active);
  CHECK(!decision.next);

  auto empty = segments(1);
  empty[0].bytes = 0;
  empty[0].next = 0;
  CHECK(!decide_retention(empty, by_time(0), from_ms(8001), 0, up_to_the_end, 0).close_active);
  CHECK(!decide_retention(empty, by_time(0), from_ms(8001), 0, up_to_the_end, 0).next);
}

TEST_CASE("nothing that reaches past the high watermark goes") {
  const auto all = segments(3);
  CHECK(decide_retention(all, by_time(0), from_ms(99'000), 0, 0, 0).segments == 0);
  CHECK(decide_retention(all, by_time(0), from_ms(99'000), 0, 99, 0).segments == 0);
  CHECK(decide_retention(all, by_time(0), from_ms(99'000), 0, 100, 0).segments == 1);
  CHECK(decide_retention(all, by_time(0), from_ms(99'000), 0, 299, 0).segments == 2);
  CHECK(!decide_retention(all, by_time(0), from_ms(99'000), 0, 299, 0).close_active);
  CHECK(decide_retention(all, by_time(0), from_ms(99'000), 0, 300, 0).close_active);
  // A segment that is held back is asked for again later, not at once and not never.
  CHECK(*decide_retention(all, by_time(0), from_ms(99'000), 0, 0, 0).next > from_ms(99'000));
}

TEST_CASE("retention.bytes takes segments as long as what is left is no smaller than it") {
  const auto all = segments(4);
  const auto go = [&](std::int64_t bytes, std::uint64_t unflushed = 0) {
    return decide_retention(all, by_bytes(bytes), from_ms(99'000), 0, up_to_the_end, unflushed)
        .segments;
  };
  CHECK(go(4000) == 0);
  CHECK(go(3001) == 0);
  CHECK(go(3000) == 1);
  CHECK(go(2001) == 1);
  CHECK(go(2001, 1) == 2);  // Bytes that are not in a segment yet count too.
  CHECK(go(0) == 3);        // The active one stays.
  CHECK(!decide_retention(all, by_bytes(0), from_ms(99'000), 0, up_to_the_end, 0).next);
}

TEST_CASE("without limits, or without cleanup by deletion, nothing goes") {
  const auto all = segments(4);
  CHECK(decide_retention(all, by_bytes(-1), from_ms(99'000), 0, up_to_the_end, 0).segments == 0);
  auto compacted = by_time(0);
  compacted.retention_bytes = 0;
  compacted.cleanup_delete = false;
  const auto decision = decide_retention(all, compacted, from_ms(99'000), 0, up_to_the_end, 0);
  CHECK(decision.segments == 0);
  CHECK(!decision.next);
}

TEST_CASE("segments below the start offset are removed, whatever the limits are") {
  const auto all = segments(3);
  const auto go = [&](Offset start) {
    return decide_retention(all, by_bytes(-1), from_ms(0), start, up_to_the_end, 0);
  };
  CHECK(go(99).segments == 0);
  CHECK(go(100).segments == 1);
  CHECK(go(250).segments == 2);
  CHECK(!go(299).close_active);
  CHECK(go(300).close_active);
}

TEST_CASE(
    "a removal does not touch the files of other segments, and makes the next segment before it "
    "takes any") {
  SeededRandom random(1);
  MemoryDisk disk(random);
  REQUIRE(disk.make_directories("logs/t-0"));
  for (const Offset base : {0, 100, 200}) {
    for (const char* suffix : {".log", ".index", ".timeindex"}) {
      REQUIRE(disk.open(segment_path("logs/t-0", base, suffix),
                        {.write = true, .create = OpenOptions::Create::must}));
    }
  }
  const auto reader = disk.open(segment_path("logs/t-0", 0, ".log"), {});
  SegmentRemoval removal(disk, "logs/t-0", TopicId{}, {0, 100}, 300);
  REQUIRE(removal.run());
  std::vector<std::string> names;
  const auto entries = disk.list("logs/t-0");
  for (const auto& entry : *entries) names.push_back(entry.name);
  CHECK(names == std::vector<std::string>{"00000000000000000200.index", "00000000000000000200.log",
                                          "00000000000000000200.timeindex",
                                          "00000000000000000300.log"});
  CHECK((*reader)->size());  // Whoever has it open reads on.
}

TEST_CASE("a removal that fails has not taken the segment that says where the log continues") {
  for (std::uint64_t nth = 1;; ++nth) {
    SeededRandom random(nth);
    MemoryDisk disk(random);
    REQUIRE(disk.make_directories("logs/t-0"));
    for (const Offset base : {0, 100}) {
      for (const char* suffix : {".log", ".index", ".timeindex"}) {
        REQUIRE(disk.open(segment_path("logs/t-0", base, suffix),
                          {.write = true, .create = OpenOptions::Create::must}));
      }
    }
    REQUIRE(disk.sync_directory("logs/t-0"));
    disk.fail_call(nth, Errc::io);
    const auto done = SegmentRemoval(disk, "logs/t-0", TopicId{}, {0, 100}, 200).run();
    disk.heal();
    disk.cut_power();
    const auto entries = disk.list("logs/t-0");
    REQUIRE(entries);
    const bool goes_on = std::ranges::any_of(
        *entries, [](const auto& entry) { return segment_base(entry.name).has_value(); });
    CHECK(goes_on);
    if (done) break;
  }
}

TEST_CASE(
    "a topic's removal takes its directory under a name that says so, and what a crash left "
    "is found by it") {
  SeededRandom random(1);
  MemoryDisk disk(random);
  const TopicId id = random.topic_id();
  const auto make = [&](const std::string& directory) {
    REQUIRE(disk.make_directories(directory));
    const auto metadata = "version: 0\ntopic_id: " + id.text() + "\n";
    REQUIRE(replace_file(disk, directory + "/partition.metadata", as_bytes(metadata)));
    REQUIRE(disk.open(directory + "/a", {.write = true, .create = OpenOptions::Create::must}));
    REQUIRE(disk.sync_directory(directory));
  };
  make("logs/orders-0");
  make("logs/orders-delete-0");
  REQUIRE(LogRemoval(disk, "logs/orders-0", id).run());
  CHECK(disk.list("logs")->size() == 1);
  REQUIRE(LogRemoval(disk, "logs/orders-0", id).run());  // Nothing there: nothing to do.

  make("logs/orders-0");
  disk.count_only("unlink");
  disk.fail_call(1, Errc::io);
  CHECK_FALSE(LogRemoval(disk, "logs/orders-0", id).run());
  disk.heal();
  CHECK(disk.list("logs")->size() == 2);
  CHECK((*disk.list("logs"))[0].name == "orders-0." + id.text() + "-delete");
  CHECK(*remove_deleted_logs(disk, "logs") == 1);
  CHECK(disk.list("logs")->size() == 1);

  // Whoever else is at it was faster, by one step or by all.
  for (const char* step : {"unlink", "rmdir"}) {
    CAPTURE(step);
    make("logs/orders-0");
    disk.count_only(step);
    disk.fail_call(1, Errc::not_found);
    const auto removed = LogRemoval(disk, "logs/orders-0", id).run();
    if (std::string_view(step) == "rmdir") CHECK(removed.has_value());
    disk.heal();
    REQUIRE(remove_deleted_logs(disk, "logs"));
    CHECK(disk.list("logs")->size() == 1);
  }

  const std::string longest = "logs/" + std::string(249, 'x') + "-31";
  make(longest);
  REQUIRE(LogRemoval(disk, longest, id).run());
  CHECK(disk.list("logs")->size() == 1);
}

TEST_CASE("a removal leaves alone the log of a topic that was given the same name since") {
  SeededRandom random(1);
  MemoryDisk disk(random);
  const TopicId before = random.topic_id(), now = random.topic_id();
  REQUIRE(Log::open(disk, "logs/orders-0", now, LogConfig{}));
  CHECK(*topic_of_log(disk, "logs/orders-0") == now);
  REQUIRE(LogRemoval(disk, "logs/orders-0", before).run());
  CHECK(*topic_of_log(disk, "logs/orders-0") == now);
  REQUIRE(LogRemoval(disk, "logs/orders-0", now).run());
  CHECK(disk.list("logs")->empty());
}

}  // namespace
}  // namespace tarry::storage

TEST_SUITE_END();
