#include "storage/segment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "batches.h"
#include "storage/index.h"
#include "tests/memory_disk.h"

TEST_SUITE_BEGIN("segment");

namespace tarry::storage {
namespace {

using std::chrono::milliseconds;

const std::string segment_directory = "logs/orders-0";

// A directory to write one segment into, batch by batch, as a flush does.
struct SegmentFixture {
  SeededRandom random{1};
  MemoryDisk disk{random};
  LogConfig config;
  SegmentState state;
  std::vector<Buffer> batches;

  explicit SegmentFixture(Offset base = 0) {
    REQUIRE(disk.make_directories(segment_directory));
    state.base = state.next = base;
  }

  std::string path(const char* suffix) const {
    return segment_path(segment_directory, state.base, suffix);
  }

  void write(const std::vector<Buffer>& more, bool close = false, bool sync = true) {
    SegmentWrite write;
    write.before = write.after = state;
    write.is_new = state.empty();
    for (const auto& batch : more) {
      const auto view = view_of(batch);
      add_batch(write.after,
                {write.after.bytes, static_cast<std::uint32_t>(batch.size()), view.base_offset(),
                 view.last_offset(), to_ms(view.max_timestamp())},
                config.index_interval_bytes, write.index, write.time_index);
      write.batches.emplace_back(batch);
      batches.push_back(batch);
    }
    if (close) close_segment(write.after, write.time_index);
    REQUIRE(write_segment(disk, segment_directory, write, sync));
    state = write.after;
  }

  Buffer all() const {
    Buffer bytes;
    for (const auto& batch : batches) append_bytes(bytes, batch);
    return bytes;
  }
};

TEST_CASE("a segment's files are named by its base offset, in 20 digits") {
  CHECK(segment_path("logs/t-0", 1042, ".log") == "logs/t-0/00000000000000001042.log");
  CHECK(segment_base("00000000000000001042.log") == 1042);
  CHECK(segment_base("09223372036854775807.log") == std::numeric_limits<Offset>::max());
  for (const char* name :
       {"00000000000000001042.index", "1042.log", "0000000000000000104x.log", "", ".log",
        "-0000000000000001042.log", "99999999999999999999.log", "000000000000000010420.log"}) {
    CHECK_FALSE(segment_base(name));
  }
}

TEST_CASE("the log is the batches one behind the other, whatever the pieces they were written in") {
  SegmentFixture fixture;
  SeededRandom random(7);
  Offset next = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<Buffer> more;
    for (auto n = random.below(4) + 1; n > 0; --n)
      more.push_back(make_batch(next++, {{1000, random.below(round % 10 == 0 ? 900'000 : 6000)}}));
    fixture.write(more);
    REQUIRE(fixture.disk.contents(fixture.path(".log")) == fixture.all());
  }
}

TEST_CASE(
    "an index entry stands for the first batch that begins more than index.interval.bytes "
    "behind the last one") {
  // Batches of 1000 bytes at the positions 0, 1000 ...; offsets 10, 11 ...; times 5, 4, 9, 9, 12
  // ...
  SegmentFixture fixture(10);
  fixture.config.index_interval_bytes = 1999;
  const std::int64_t times[] = {5, 4, 9, 9, 12, 3, 3, 3};
  std::vector<Buffer> more;
  for (std::size_t i = 0; i < 8; ++i) {
    more.push_back(make_batch_of(1000, 10 + static_cast<Offset>(i), times[i]));
    REQUIRE(more.back().size() == 1000);
  }
  fixture.write(more);

  // The third batch has 2000 bytes before it, the fifth 2000 since then, the seventh again.
  CHECK(fixture.disk.contents(fixture.path(".index")) == Buffer{0, 0, 0, 2, 0, 0, 0x07, 0xd0,
                                                                0, 0, 0, 4, 0, 0, 0x0f, 0xa0,
                                                                0, 0, 0, 6, 0, 0, 0x17, 0x70});
  // The largest so far, at these moments: 9 (offset 12), 12 (offset 14), 12 again: no entry.
  const Buffer expected{0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 4};
  CHECK(fixture.disk.contents(fixture.path(".timeindex")) == expected);
  CHECK(fixture.state.index_entries == 3);
  CHECK(fixture.state.time_entries == 2);

  // With one byte more of an interval it takes three batches.
  SegmentFixture wider(10);
  wider.config.index_interval_bytes = 2000;
  wider.write(more);
  CHECK(wider.disk.contents(wider.path(".index")) ==
        Buffer{0, 0, 0, 3, 0, 0, 0x0b, 0xb8, 0, 0, 0, 6, 0, 0, 0x17, 0x70});
}

TEST_CASE(
    "closing adds the largest timestamp if no entry has it yet, and none for records without") {
  SegmentFixture fixture;
  fixture.write({make_batch(0, {{50}, {70}, {60}})}, true);
  CHECK(fixture.disk.contents(fixture.path(".timeindex")) ==
        Buffer{0, 0, 0, 0, 0, 0, 0, 70, 0, 0, 0, 2});
  fixture.write({}, true);
  CHECK(fixture.disk.contents(fixture.path(".timeindex")).size() == 12);

  SegmentFixture without;
  SegmentWrite write;
  write.is_new = true;
  add_batch(write.after, {0, 100, 0, 0, -1}, 4096, write.index, write.time_index);
  close_segment(write.after, write.time_index);
  CHECK(write.time_index.empty());
}

TEST_CASE("a segment rolls for its size, its age, a full index and offsets that do not fit") {
  LogConfig config{.segment_bytes = 1000,
                   .segment_ms = milliseconds(500),
                   .segment_index_bytes = 48,
                   .index_interval_bytes = 4096};
  SegmentState state;
  state.base = 100;
  state.bytes = 600;
  state.first_append = from_ms(10'000);
  const auto now = from_ms(10'100);
  CHECK_FALSE(must_roll(state, config, 400, 110, now));
  CHECK(must_roll(state, config, 401, 110, now));

  CHECK_FALSE(must_roll(state, config, 1, 110, from_ms(10'500)));
  CHECK(must_roll(state, config, 1, 110, from_ms(10'501)));

  constexpr Offset most = std::numeric_limits<std::int32_t>::max();
  CHECK_FALSE(must_roll(state, config, 1, 100 + most, now));
  CHECK(must_roll(state, config, 1, 100 + most + 1, now));

  state.index_entries = 5;
  CHECK_FALSE(must_roll(state, config, 1, 110, now));
  state.index_entries = 6;
  CHECK(must_roll(state, config, 1, 110, now));
  state.index_entries = 0;
  state.time_entries = 2;
  CHECK_FALSE(must_roll(state, config, 1, 110, now));
  state.time_entries = 3;  // The fourth is for closing.
  CHECK(must_roll(state, config, 1, 110, now));

  state = {};  // An empty one takes whatever comes first.
  CHECK_FALSE(must_roll(state, config, 5000, 0, from_ms(99'999)));
}

TEST_CASE("a loaded segment goes on exactly as the one that was written") {
  SegmentFixture fixture(42);
  fixture.config.index_interval_bytes = 500;
  SegmentFixture whole(42);
  whole.config = fixture.config;
  SeededRandom random(3);
  Offset next = 42;
  for (int i = 0; i < 60; ++i) {
    const auto batch =
        make_batch(next++, {{static_cast<std::int64_t>(random.below(1000)), random.below(400)}});
    fixture.write({batch});
    whole.write({batch});
    const auto loaded = load_active_segment(fixture.disk, segment_directory, 42, fixture.config);
    REQUIRE(loaded);
    REQUIRE(!loaded->damage);
    const auto before = fixture.state;
    fixture.state = loaded->state;
    REQUIRE(fixture.state.next == before.next);
    REQUIRE(fixture.state.bytes == before.bytes);
    REQUIRE(fixture.state.bytes_since_entry == before.bytes_since_entry);
    REQUIRE(fixture.state.max_timestamp == before.max_timestamp);
    REQUIRE(fixture.state.max_timestamp_offset == before.max_timestamp_offset);
  }
  for (const char* suffix : {".log", ".index", ".timeindex"})
    CHECK(fixture.disk.contents(fixture.path(suffix)) == whole.disk.contents(whole.path(suffix)));
}

TEST_CASE("a closed segment is known by its sizes and its last time entry, or by its batches") {
  SegmentFixture fixture;
  fixture.write({make_batch(0, {{50}, {70}, {60}}), make_batch(3, {{65}})}, true);
  const auto loaded = load_closed_segment(fixture.disk, segment_directory, 0, 4);
  REQUIRE(loaded);
  CHECK(loaded->bytes == fixture.state.bytes);
  CHECK(loaded->max_timestamp == 70);
  CHECK(loaded->max_timestamp_offset == 2);
  CHECK(loaded->next == 4);

  REQUIRE(fixture.disk.remove(fixture.path(".timeindex")));
  REQUIRE(fixture.disk.remove(fixture.path(".index")));
  const auto bare = load_closed_segment(fixture.disk, segment_directory, 0, 4);
  REQUIRE(bare);
  CHECK(bare->max_timestamp == 70);
  CHECK(bare->max_timestamp_offset == 2);
}

TEST_CASE(
    "a segment that was cut anywhere in its last batch ends at the one before, and says why") {
  SegmentFixture fixture;
  fixture.config.index_interval_bytes = 100;
  fixture.write({make_batch(0, {{1}, {2}}), make_batch(2, {{3, 100}}), make_batch(3, {{4, 100}})});
  const Buffer bytes = fixture.all();
  const auto good = static_cast<std::uint32_t>(bytes.size() - fixture.batches.back().size());
  for (std::size_t size = bytes.size() - 1; size > good; --size) {
    auto log = fixture.disk.open(fixture.path(".log"), {.write = true});
    REQUIRE((*log)->truncate(size));
    const auto loaded = load_active_segment(fixture.disk, segment_directory, 0, fixture.config);
    REQUIRE(loaded);
    REQUIRE(loaded->damage);
    REQUIRE(loaded->damage->position == good);
    REQUIRE(loaded->damage->message.contains("00000000000000000000.log"));
    REQUIRE(loaded->state.next == 3);
    REQUIRE(loaded->state.bytes == good);
  }
  // Nothing but batches is cut off.
  CHECK(fixture.disk.contents(fixture.path(".log")).size() == good + 1);
}

TEST_CASE("a flipped bit anywhere in the last batch is found") {
  SegmentFixture fixture;
  fixture.write({make_batch(0, {{1}, {2}}), make_batch(2, {{3}})});
  const Buffer bytes = fixture.all();
  const std::size_t good = fixture.batches.front().size();
  for (std::size_t bit = good * 8; bit < bytes.size() * 8; ++bit) {
    const std::size_t at = bit / 8;
    // Leader epoch: not covered by the checksum, nobody believes it.
    if (at - good >= 12 && at - good < 16) continue;
    const Buffer flipped{static_cast<std::uint8_t>(bytes[at] ^ (1u << (bit % 8)))};
    fixture.disk.poke(fixture.path(".log"), at, flipped);
    const auto loaded = load_active_segment(fixture.disk, segment_directory, 0, fixture.config);
    REQUIRE(loaded);
    // The base offset has no checksum either: only a smaller one is seen to be wrong.
    if (at - good >= 8) {
      REQUIRE(loaded->damage);
      REQUIRE(loaded->state.next == 2);
    }
    fixture.disk.poke(fixture.path(".log"), at, Bytes{bytes}.subspan(at, 1));
  }
}

TEST_CASE("zeros up to the end of a block are left by a killed process, and are not damage") {
  SegmentFixture fixture;
  fixture.write({make_batch(0, {{1}, {2}})});
  auto log = fixture.disk.open(fixture.path(".log"), {.write = true});
  REQUIRE((*log)->truncate(block_bytes));
  const auto loaded = load_active_segment(fixture.disk, segment_directory, 0, fixture.config);
  REQUIRE(loaded);
  CHECK(!loaded->damage);
  CHECK(loaded->state.bytes == fixture.state.bytes);
  // The next write cuts them off.
  fixture.write({make_batch(2, {{3}})});
  CHECK(fixture.disk.contents(fixture.path(".log")) == fixture.all());

  REQUIRE((*log)->truncate(fixture.state.bytes + block_bytes));
  CHECK(load_active_segment(fixture.disk, segment_directory, 0, fixture.config)->damage);
}

TEST_CASE("index files that are lost or not true are made again") {
  SegmentFixture fixture;
  fixture.config.index_interval_bytes = 100;
  std::vector<Buffer> more;
  for (Offset i = 0; i < 20; ++i) more.push_back(make_batch(i, {{100 + i, 60}}));
  fixture.write(more);
  const auto index = fixture.disk.contents(fixture.path(".index"));
  const auto times = fixture.disk.contents(fixture.path(".timeindex"));
  REQUIRE(index.size() > 16);

  const auto check = [&] {
    const auto loaded = load_active_segment(fixture.disk, segment_directory, 0, fixture.config);
    REQUIRE(loaded);
    CHECK(!loaded->damage);
    CHECK(loaded->state.next == 20);
    CHECK(loaded->state.max_timestamp == 119);
  };
  const Buffer wrong{0, 0, 0, 1};
  fixture.disk.poke(fixture.path(".index"), index.size() - 4, wrong);
  check();
  CHECK(fixture.disk.contents(fixture.path(".index")) == index);
  fixture.disk.poke(fixture.path(".index"), index.size(), Buffer{0, 0, 1, 1, 0x7f, 0, 0, 0});
  check();
  CHECK(fixture.disk.contents(fixture.path(".index")) == index);
  fixture.disk.poke(fixture.path(".timeindex"), times.size(),
                    Buffer{0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0});
  check();
  CHECK(fixture.disk.contents(fixture.path(".timeindex")) == times);
  CHECK(fixture.disk.contents(fixture.path(".index")) == index);
}

TEST_CASE(
    "a segment is cut at every border of batches, whatever stands behind it, and nowhere else") {
  for (const bool garbage : {false, true}) {
    for (Offset cut = 100; cut <= 124; ++cut) {
      SegmentFixture fixture(100);
      fixture.config.index_interval_bytes = 150;
      for (Offset base = 100; base < 124; base += 3)
        fixture.write({make_batch(base, {{base * 2, 40}, {base, 40}, {-1}})});
      if (garbage) {  // From the border on nothing is what it was.
        const auto kept = static_cast<std::size_t>((cut - 100) / 3);
        std::size_t at = 0;
        for (std::size_t i = 0; i < kept; ++i) at += fixture.batches[i].size();
        Buffer junk(fixture.state.bytes - at + 100);
        for (auto& byte : junk) byte = static_cast<std::uint8_t>(fixture.random.u64());
        fixture.disk.poke(fixture.path(".log"), at, junk);
        std::size_t entries = 0;
        const auto index = fixture.disk.contents(fixture.path(".index"));
        while (entries < index.size() && index_entry_at(index.data() + entries, 100).position < at)
          entries += 8;
        junk.resize(64);
        fixture.disk.poke(fixture.path(".index"), entries, junk);
      }
      const auto state = cut_segment(fixture.disk, segment_directory, 100, cut, fixture.config);
      if ((cut - 100) % 3 != 0) {
        REQUIRE_FALSE(state);
        REQUIRE(state.error().code == Errc::corrupt);
        continue;
      }
      REQUIRE(state);
      REQUIRE(state->next == cut);

      SegmentFixture expected(100);
      expected.config = fixture.config;
      for (Offset base = 100; base < cut; base += 3)
        expected.write({make_batch(base, {{base * 2, 40}, {base, 40}, {-1}})});
      REQUIRE(state->bytes == expected.state.bytes);
      REQUIRE(state->bytes_since_entry == expected.state.bytes_since_entry);
      REQUIRE(state->max_timestamp == expected.state.max_timestamp);
      if (cut == 100) continue;  // Its files are there and empty.
      for (const char* suffix : {".log", ".index", ".timeindex"}) {
        REQUIRE(fixture.disk.contents(fixture.path(suffix)) ==
                expected.disk.contents(expected.path(suffix)));
      }
    }
  }
}

TEST_CASE("a segment that ends before the cut is refused and keeps its bytes") {
  SegmentFixture fixture;
  fixture.write({make_batch(0, {{1}, {2}}), make_batch(2, {{3}})});
  CHECK(cut_segment(fixture.disk, segment_directory, 0, 4, fixture.config).error().code ==
        Errc::corrupt);
  CHECK(fixture.disk.contents(fixture.path(".log")) == fixture.all());
  // The same is refused when the file is damaged before that.
  fixture.disk.poke(fixture.path(".log"), 30, Buffer{0xff});
  CHECK(cut_segment(fixture.disk, segment_directory, 0, 3, fixture.config).error().code ==
        Errc::corrupt);
  CHECK(fixture.disk.contents(fixture.path(".log")).size() == fixture.all().size());
}

TEST_CASE("missing bytes below the written end are found before more is written") {
  SegmentFixture fixture;
  fixture.write({make_batch(0, {{1}, {2}})});
  auto log = fixture.disk.open(fixture.path(".log"), {.write = true});
  REQUIRE((*log)->truncate(10));
  SegmentWrite write;
  write.before = write.after = fixture.state;
  write.batches.emplace_back(make_batch(2, {{3}}));
  CHECK(write_segment(fixture.disk, segment_directory, write, true).error().code == Errc::corrupt);
}

TEST_CASE("a scanner names file and position of bytes that are not a batch") {
  SegmentFixture fixture;
  fixture.write({make_batch(0, {{1}, {2}}), make_batch(2, {{3}})});
  const auto first = fixture.batches.front().size();
  const auto file = fixture.disk.open(fixture.path(".log"), {.direct = true});
  SegmentScanner scanner(**file, 0, fixture.state.bytes);
  CHECK((*scanner.next())->last == 1);
  CHECK(scanner.position() == first);
  CHECK((*scanner.next())->first == 2);
  CHECK(*scanner.next() == std::nullopt);
  // In the middle of a batch, and past the file's end.
  for (const std::uint64_t at : {std::uint64_t{1}, std::uint64_t{first - 1}}) {
    SegmentScanner lost(**file, at, fixture.state.bytes);
    const auto place = lost.next();
    REQUIRE_FALSE(place);
    CHECK(place.error().code == Errc::corrupt);
    CHECK(place.error().message.contains("00000000000000000000.log"));
  }
  SegmentScanner beyond(**file, fixture.state.bytes, fixture.state.bytes + 1000);
  CHECK(beyond.next().error().code == Errc::corrupt);
}

}  // namespace
}  // namespace tarry::storage

TEST_SUITE_END();
