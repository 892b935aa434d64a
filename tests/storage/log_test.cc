#include "storage/log.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "batches.h"
#include "storage/index.h"
#include "tests/memory_disk.h"

TEST_SUITE_BEGIN("log");

namespace tarry::storage {
namespace {

using std::chrono::milliseconds;

const std::string directory = "logs/orders-0";
constexpr Offset everything = std::numeric_limits<Offset>::max();
constexpr std::size_t any_size = std::numeric_limits<std::size_t>::max();

Result<std::vector<SharedBytes>> batches_of(LogRead read) {
  if (auto* disk = std::get_if<DiskRead>(&read)) return disk->run();
  if (auto* memory = std::get_if<std::vector<SharedBytes>>(&read)) return std::move(*memory);
  return fail(Errc::not_found, "out of range");
}
Buffer bytes_of(const std::vector<SharedBytes>& batches) {
  Buffer bytes;
  for (const auto& batch : batches) append_bytes(bytes, batch.view());
  return bytes;
}

// A log and, beside it, all batches that it should have.
struct LogFixture {
  SeededRandom random;
  MemoryDisk disk{random};
  TopicId topic;
  LogConfig config{.retention_ms = milliseconds(-1)};
  std::unique_ptr<Log> log;
  std::vector<Buffer> batches;  // In offset order, from the first that may still be there.
  WallTime now = from_ms(1'000'000);

  explicit LogFixture(std::uint64_t seed = 1) : random(seed), topic(random.topic_id()) {}

  std::optional<SegmentDamage> open() {
    log.reset();
    disk.set_time(now);
    auto opened = Log::open(disk, directory, topic, config);
    if (!opened) FAIL(opened.error().message);
    log = std::make_unique<Log>(std::move(opened->log));
    return opened->damage;
  }

  void append(const std::vector<TestRecord>& records, records::Codec codec = records::Codec::none) {
    append_batch(make_batch(log->end_offset(), records, codec));
  }
  void append_batch(Buffer batch) {
    const auto view = view_of(batch);
    batches.push_back(batch);
    const auto first = view.base_offset();
    const auto last = view.last_offset();
    const auto max_timestamp = to_ms(view.max_timestamp());
    log->append(SharedBytes(std::move(batch)), first, last, max_timestamp, now);
  }

  Result<FlushDone> try_flush(bool sync = true, Offset below = everything,
                              std::size_t max_bytes = any_size) {
    auto flush = log->plan_flush(below, max_bytes);
    REQUIRE(flush);
    disk.set_time(now);
    auto done = flush->run(sync);
    if (done) {
      log->flushed(*done);
    } else {
      log->flush_failed(done.error());
    }
    return done;
  }
  void flush(bool sync = true) { REQUIRE(try_flush(sync)); }
  void flush_and_forget() {
    flush();
    log->trim_tail(0);
    REQUIRE(log->tail_bytes() == 0);
  }

  // The bytes that a read should return: whole batches from the one that contains `from`.
  Buffer expected(Offset from, Offset below = everything, std::size_t max_bytes = any_size,
                  bool at_least_one = true) const {
    Buffer bytes;
    for (const auto& batch : batches) {
      const auto view = view_of(batch);
      if (view.last_offset() < from) continue;
      if (view.last_offset() >= below) break;
      if (bytes.size() + batch.size() > max_bytes && !(bytes.empty() && at_least_one)) break;
      append_bytes(bytes, batch);
    }
    return bytes;
  }
  // All from `from` on, by as many reads as it takes.
  Buffer read_all(Offset from, std::size_t max_bytes = 1 << 20) {
    Buffer bytes;
    while (from < log->end_offset()) {
      const auto batches_read = batches_of(log->read(from, everything, max_bytes, true));
      if (!batches_read) FAIL(batches_read.error().message);
      REQUIRE(!batches_read->empty());
      for (const auto& run : *batches_read) {
        Bytes rest = run.view();
        while (!rest.empty()) {
          const auto batch = records::next_batch(rest);
          REQUIRE(batch);
          from = batch->next_offset();
          append_bytes(bytes, batch->bytes());
          rest = rest.subspan(batch->size());
        }
      }
    }
    return bytes;
  }

  std::vector<std::string> files() {
    std::vector<std::string> names;
    const auto entries = disk.list(directory);
    REQUIRE(entries);
    for (const auto& entry : *entries) names.push_back(entry.name);
    return names;
  }
  std::vector<Offset> segments() {
    std::vector<Offset> bases;
    for (const auto& name : files())
      if (const auto base = segment_base(name)) bases.push_back(*base);
    return bases;
  }
};

TEST_CASE("a new log has a directory that names its topic id, and no segment before a flush") {
  LogFixture f;
  REQUIRE(!f.open());
  CHECK(f.log->start_offset() == 0);
  CHECK(f.log->end_offset() == 0);
  CHECK(f.files() == std::vector<std::string>{"partition.metadata"});
  CHECK(as_text(f.disk.contents(directory + "/partition.metadata")) ==
        "version: 0\ntopic_id: " + f.topic.text() + "\n");
  // The name too survives a power cut.
  f.disk.cut_power();
  CHECK(f.files() == std::vector<std::string>{"partition.metadata"});
  REQUIRE(!f.open());
  CHECK(!f.log->plan_flush(everything));
}

TEST_CASE("a crash at any call of a log's creation leaves a directory that opens") {
  for (std::uint64_t nth = 1;; ++nth) {
    LogFixture f(nth);
    f.disk.crash_call(nth);
    bool crashed = false;
    try {
      f.open();
    } catch (const MemoryDisk::PowerCut&) {
      crashed = true;
    }
    f.disk.heal();
    if (nth % 2 == 0) {
      f.disk.kill();
    } else {
      f.disk.cut_power();
    }
    REQUIRE(!f.open());
    f.append({{1}});
    f.flush_and_forget();
    REQUIRE(f.read_all(0) == f.expected(0));
    if (!crashed) break;
  }
}

TEST_CASE("a directory of another topic id is refused, and so are segments of nobody") {
  LogFixture f;
  f.open();
  f.append({{1}});
  f.flush();
  SeededRandom other(99);
  const auto refused = Log::open(f.disk, directory, other.topic_id(), f.config);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::corrupt);
  CHECK(refused.error().message.contains(f.topic.text()));
  REQUIRE(f.disk.remove(directory + "/partition.metadata"));
  CHECK(Log::open(f.disk, directory, f.topic, f.config).error().code == Errc::corrupt);
}

TEST_CASE("every offset reads as the batch that contains it, in memory and on disk") {
  for (const bool on_disk : {false, true}) {
    LogFixture f;
    f.config.index_interval_bytes = 200;
    f.config.segment_bytes = 1000;
    f.open();
    for (int i = 0; i < 30; ++i) {
      f.append({{1}, {2}, {-1}, {3}});  // A hole inside,
      f.append({{4}, {-1}, {-1}});      // at the end,
      f.append({{-1}, {5, 50}});        // at the beginning.
    }
    if (on_disk) f.flush_and_forget();
    for (Offset from = 0; from < f.log->end_offset(); ++from) {
      auto read = f.log->read(from, everything, 10, true);
      // From the disk, or from what was read ahead of it; what is in memory from there alone.
      if (!on_disk) REQUIRE(std::holds_alternative<std::vector<SharedBytes>>(read));
      const auto batches = batches_of(std::move(read));
      REQUIRE(batches);
      REQUIRE(bytes_of(*batches) == f.expected(from, everything, 10));
    }
    CHECK(f.read_all(0) == f.expected(0));
    if (on_disk) CHECK(f.segments().size() > 5);
  }
}

TEST_CASE("the tail gives the bytes that came, not copies of them") {
  LogFixture f;
  f.open();
  auto batch = make_batch(0, {{1}, {2}});
  const auto* address = batch.data();
  f.append_batch(std::move(batch));
  const auto read = batches_of(f.log->read(1, everything, 1, true));
  REQUIRE(read->size() == 1);
  CHECK(read->front().data() == address);
}

TEST_CASE("an append of several batches is read batch by batch") {
  LogFixture f;
  f.open();
  Buffer both = make_batch(0, {{10}, {20}});
  const auto first = both.size();
  append_bytes(both, make_batch(2, {{5}}));
  f.log->append(SharedBytes(both), 0, 2, 20, f.now);
  CHECK(f.log->end_offset() == 3);
  CHECK(bytes_of(*batches_of(f.log->read(0, everything, 1, true))).size() == first);
  CHECK(bytes_of(*batches_of(f.log->read(2, everything, 1, true))).size() == both.size() - first);
  CHECK(bytes_of(*batches_of(f.log->read(0, 2, any_size, true))).size() == first);
}

TEST_CASE("a read stays below its limit, within its bytes, and says when it is out of range") {
  for (const bool on_disk : {false, true}) {
    LogFixture f;
    f.open();
    for (int i = 0; i < 10; ++i) f.append({{1, 100}, {2, 100}});
    const auto size = f.batches.front().size();
    if (on_disk) f.flush_and_forget();
    const auto read = [&](Offset from, Offset below, std::size_t max, bool one) {
      const auto batches = batches_of(f.log->read(from, below, max, one));
      REQUIRE(batches);
      CHECK(bytes_of(*batches) == f.expected(from, below, max, one));
      return bytes_of(*batches).size();
    };
    CHECK(read(0, everything, any_size, true) == 10 * size);
    CHECK(read(0, 20, any_size, true) == 10 * size);
    CHECK(read(0, 19, any_size, true) == 9 * size);
    CHECK(read(0, 1, any_size, true) == 0);  // The first batch reaches past the limit.
    CHECK(read(1, 2, any_size, true) == size);
    CHECK(read(4, 4, any_size, true) == 0);
    CHECK(read(20, everything, any_size, true) == 0);
    CHECK(read(4, everything, 3 * size, false) == 3 * size);
    CHECK(read(4, everything, 3 * size - 1, false) == 2 * size);
    CHECK(read(4, everything, size - 1, false) == 0);
    CHECK(read(4, everything, size - 1, true) == size);
    CHECK(read(4, everything, 0, true) == size);
    CHECK(std::holds_alternative<OffsetOutOfRange>(f.log->read(21, everything, 1, true)));
    CHECK(std::holds_alternative<OffsetOutOfRange>(f.log->read(-1, everything, 1, true)));
    f.log->move_start(5);
    CHECK(std::holds_alternative<OffsetOutOfRange>(f.log->read(4, everything, 1, true)));
    CHECK(read(5, everything, 0, true) == size);
  }
}

TEST_CASE("a read goes from disk to the tail without a gap, wherever the tail was trimmed") {
  LogFixture f;
  f.config.segment_bytes = 700;
  f.open();
  for (int i = 0; i < 20; ++i) f.append({{i, 50}});
  REQUIRE(f.try_flush(true, 15));
  CHECK(f.log->flushed_end() == 15);
  CHECK(f.log->unflushed_bytes() == f.expected(15).size());
  while (f.log->tail_bytes() > f.log->unflushed_bytes()) {
    REQUIRE(f.read_all(0, 150) == f.expected(0));
    REQUIRE(f.read_all(7, 1) == f.expected(7));
    f.log->trim_tail(f.log->tail_bytes() - 1);
  }
  f.log->trim_tail(0);  // Batches that are not flushed stay.
  CHECK(f.log->tail_bytes() == f.log->unflushed_bytes());
  CHECK(f.read_all(0) == f.expected(0));
}

TEST_CASE("a batch larger than one read is read too") {
  LogFixture f;
  f.open();
  f.append({{1, 6 << 20}});
  f.append({{2, 100}});
  f.append({{3, 5 << 20}});
  f.flush_and_forget();
  CHECK(f.read_all(0) == f.expected(0));
  const auto second = batches_of(f.log->read(1, everything, 8 << 20, true));
  CHECK(bytes_of(*second).size() == f.batches[1].size());
}

TEST_CASE("a read on from the last one needs no index") {
  LogFixture f;
  f.config.index_interval_bytes = 100;
  f.open();
  for (int i = 0; i < 200; ++i) f.append({{i, 100}});
  f.flush_and_forget();
  f.disk.count_only("open");
  const auto opens = [&](Offset from) {
    const auto before = f.disk.calls();
    REQUIRE(batches_of(f.log->read(from, everything, 1000, true)));
    return f.disk.calls() - before;
  };
  const auto first = opens(50);
  const auto batches = batches_of(f.log->read(50, everything, 1000, true));
  Bytes rest = batches->front().view();
  Offset next = 0;
  while (!rest.empty()) {
    next = records::next_batch(rest)->next_offset();
    rest = rest.subspan(records::next_batch(rest)->size());
  }
  CHECK(opens(next) < first);
}

TEST_CASE("a read that continues where another ended finds its bytes in memory, read ahead") {
  LogFixture f;
  f.config.segment_bytes = 5'000'000;
  f.open();
  for (int i = 0; i < 150; ++i) f.append({{i, 100'000}});
  f.flush_and_forget();
  REQUIRE(f.segments().size() > 2);
  const Buffer expected = f.expected(0);
  Buffer read;
  Offset from = 0;
  int from_memory = 0, from_disk = 0;
  f.disk.count_only("pread");
  while (from < f.log->end_offset()) {
    auto found = f.log->read(from, everything, 1'000'000, true);
    // The pool reads ahead while the answer is on its way.
    ++(std::holds_alternative<DiskRead>(found) ? from_disk : from_memory);
    const auto batches = batches_of(std::move(found));
    REQUIRE(batches);
    for (const auto& piece : *batches) {
      CHECK(piece.size() <= 1'000'000);
      for (Bytes rest = piece.view(); !rest.empty();) {
        const auto batch = records::next_batch(rest);
        REQUIRE(batch);
        from = batch->next_offset();
        rest = rest.subspan(batch->size());
      }
      append_bytes(read, piece.view());
    }
    if (auto ahead = f.log->take_read_ahead()) ahead->run();
  }
  CHECK(read == expected);
  CHECK(from_disk <= 3);
  CHECK(from_memory > 10);
}

TEST_CASE("random reads cause no read-ahead") {
  LogFixture f;
  f.open();
  for (int i = 0; i < 100; ++i) f.append({{i, 100'000}});
  f.flush_and_forget();
  for (Offset from : {10, 70, 30, 5, 90}) {
    auto found = f.log->read(from, everything, 150'000, true);
    CHECK(std::holds_alternative<DiskRead>(found));
    REQUIRE(batches_of(std::move(found)));
    CHECK(f.log->take_read_ahead() == nullptr);
  }
}

TEST_CASE(
    "bytes that were read ahead are given only below the limit, and not after the log is cut") {
  LogFixture f;
  f.open();
  for (int i = 0; i < 60; ++i) f.append({{i, 100'000}});
  f.flush_and_forget();
  REQUIRE(batches_of(f.log->read(0, everything, 450'000, true)));  // 0 to 3.
  REQUIRE(batches_of(f.log->read(4, everything, 450'000, true)));  // A piece, of which 4 to 7.
  auto found = f.log->read(8, 10, 1'000'000, true);
  REQUIRE(std::holds_alternative<std::vector<SharedBytes>>(found));
  CHECK(bytes_of(std::get<std::vector<SharedBytes>>(found)) == f.expected(8, 10));
  f.open();
  REQUIRE(f.log->truncate_to(8));
  f.append({{9, 50}});
  f.flush_and_forget();
  CHECK(bytes_of(*batches_of(f.log->read(8, everything, 1'000'000, true))).size() < 1000);
}

TEST_CASE("a piece that is being read is waited for, one that is only planned is not") {
  ReadAhead pieces;
  const auto log = pieces.new_log();
  CHECK(pieces.plan(log, 7));
  CHECK_FALSE(pieces.plan(log, 7));
  CHECK(pieces.find_or_wait(log, 7) == nullptr);
  CHECK_FALSE(pieces.begin(log, 7));  // Its reader has taken it over.

  CHECK(pieces.plan(log, 9));
  CHECK(pieces.begin(log, 9));
  auto piece = std::make_shared<SegmentPiece>();
  piece->batches.push_back({9, 12, 0, 100});
  std::thread reader([&] { CHECK(pieces.find_or_wait(log, 9) == piece); });
  pieces.done(log, 9, piece);
  reader.join();
  CHECK(pieces.find(log, 12) == piece);
  CHECK(pieces.find(log, 13) == nullptr);
  pieces.forget(log);
  CHECK(pieces.find(log, 12) == nullptr);
}

TEST_CASE("a read that ends with an exception leaves no piece that others wait for") {
  LogFixture f;
  f.open();
  for (int i = 0; i < 60; ++i) f.append({{i, 100'000}});
  f.flush_and_forget();
  REQUIRE(batches_of(f.log->read(0, everything, 450'000, true)));  // 0 to 3.
  f.disk.count_only("pread");
  f.disk.crash_call(1);
  CHECK_THROWS_AS(batches_of(f.log->read(4, everything, 450'000, true)), MemoryDisk::PowerCut);
  f.disk.heal();
  const auto again = batches_of(f.log->read(4, everything, 450'000, true));
  REQUIRE(again);
  CHECK(bytes_of(*again) == f.expected(4, 8));
}

TEST_CASE("pieces are bounded: those that were served go for new ones, those that were not stay") {
  ReadAhead pieces;
  const auto log = pieces.new_log();
  constexpr auto most = static_cast<Offset>(ReadAhead::max_bytes / ReadAhead::piece_bytes);
  for (Offset from = 0; from < most; ++from) {
    REQUIRE(pieces.plan(log, from));
    REQUIRE(pieces.begin(log, from));
    auto piece = std::make_shared<SegmentPiece>();
    piece->batches.push_back({from, from, 0, 100});
    pieces.done(log, from, piece);
  }
  CHECK_FALSE(pieces.plan(log, most));
  pieces.used_up(log, 3);
  CHECK(pieces.plan(log, most));
  CHECK(pieces.find(log, 3) == nullptr);
  CHECK(pieces.find(log, 4) != nullptr);
}

TEST_CASE("an index that is not true costs time, no data") {
  LogFixture f;
  f.config.index_interval_bytes = 100;
  f.config.segment_bytes = 5000;
  f.open();
  for (int i = 0; i < 100; ++i) f.append({{i, 60}});
  f.flush_and_forget();
  const auto index = segment_path(directory, 0, ".index");
  const auto good = f.disk.contents(index);
  for (int round = 0; round < 50; ++round) {
    Buffer junk(good.size());
    for (auto& byte : junk) byte = static_cast<std::uint8_t>(f.random.below(4));
    f.disk.poke(index, 0, junk);
    for (Offset from = 0; from < 20; ++from) {
      const auto read = batches_of(f.log->read(from, everything, 1, true));
      REQUIRE(read);
      REQUIRE(bytes_of(*read) == f.expected(from, everything, 1));
    }
    const auto time = f.log->find_timestamp(20, everything).run();
    REQUIRE(time);
    REQUIRE((*time)->offset == 20);
  }
  REQUIRE(f.disk.remove(index));
  CHECK(f.read_all(0) == f.expected(0));
}

TEST_CASE("a segment that is damaged says so, and does not serve the bytes") {
  LogFixture f;
  f.open();
  for (int i = 0; i < 10; ++i) f.append({{i, 60}});
  f.flush_and_forget();
  f.disk.poke(segment_path(directory, 0, ".log"), f.batches[0].size() + 8, Buffer{0x7f, 0xff});
  CHECK(batches_of(f.log->read(1, everything, any_size, true)).error().code == Errc::corrupt);
}

TEST_CASE("only batches that the journal has made durable are written") {
  LogFixture f;
  f.open();
  for (int i = 0; i < 5; ++i) f.append({{1}, {2}});
  CHECK(!f.log->plan_flush(0));
  CHECK(!f.log->plan_flush(1));  // The first batch reaches past it.
  CHECK(f.log->dirty());
  REQUIRE(f.try_flush(true, 7));
  CHECK(f.log->flushed_end() == 6);
  CHECK(f.disk.contents(segment_path(directory, 0, ".log")) == f.expected(0, 6));
  CHECK(!f.log->plan_flush(6));
  REQUIRE(f.try_flush(true, everything, 1));  // One batch at a time.
  CHECK(f.log->flushed_end() == 8);
  f.flush();
  CHECK(!f.log->dirty());
  CHECK(!f.log->plan_flush(everything));
}

TEST_CASE("one flush is in flight at most, and appends and reads continue beside it") {
  LogFixture f;
  f.open();
  f.append({{1}});
  auto flush = f.log->plan_flush(everything);
  REQUIRE(flush);
  CHECK(flush->bytes() == f.batches[0].size());
  CHECK(flush->end() == 1);
  CHECK(f.log->flush_in_flight());
  f.append({{2}});
  CHECK(!f.log->plan_flush(everything));
  auto done = flush->run(true);
  REQUIRE(done);
  CHECK(f.read_all(0) == f.expected(0));
  f.log->flushed(std::move(*done));
  CHECK(f.log->unflushed_bytes() == f.batches[1].size());
  f.flush_and_forget();
  CHECK(f.read_all(0) == f.expected(0));
}

TEST_CASE("the bytes of a flush with sync, and of all flushes before it, survive a power cut") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    LogFixture f(seed);
    f.config.segment_bytes = 300 + static_cast<std::int64_t>(seed) * 20;
    f.config.index_interval_bytes = 100;
    f.open();
    for (int i = 0; i < 12; ++i) f.append({{i, 60}});
    REQUIRE(f.try_flush(false, 5));
    REQUIRE(f.try_flush(false, 9));
    REQUIRE(f.log->dirty());
    if (seed % 2 == 0) {
      REQUIRE(f.try_flush(true));
    } else {  // A flush with nothing to write does the same.
      REQUIRE(f.try_flush(false));
      REQUIRE(f.try_flush(true));
    }
    REQUIRE(!f.log->dirty());
    f.disk.cut_power();
    REQUIRE(!f.open());
    REQUIRE(f.log->end_offset() == 12);
    REQUIRE(f.read_all(0) == f.expected(0));
  }
}

TEST_CASE("a segment rolls by size, by age, by a full index and when offsets do not fit") {
  LogFixture f;
  f.config.segment_bytes = 1000;
  f.open();
  f.append_batch(make_batch_of(600, 0, 1));
  f.append_batch(make_batch_of(400, 1, 1));
  f.append_batch(make_batch_of(100, 2, 1));
  f.append_batch(make_batch_of(5000, 3, 1));  // More than a segment: stands alone.
  f.append_batch(make_batch_of(100, 4, 1));
  const auto done = f.try_flush();
  CHECK(done->closed_segment);
  CHECK(f.segments() == std::vector<Offset>{0, 2, 3, 4});
  CHECK(f.read_all(0) == f.expected(0));
  // Closed segments have their last time entry; the active one has none yet.
  CHECK(f.disk.contents(segment_path(directory, 0, ".timeindex")).size() == 12);
  CHECK(f.disk.contents(segment_path(directory, 4, ".timeindex")).empty());

  LogFixture by_age;
  by_age.config.segment_ms = milliseconds(1000);
  by_age.open();
  by_age.append({{1}});
  by_age.now += milliseconds(1000);
  by_age.append({{2}});
  by_age.flush();
  by_age.now += milliseconds(1);
  by_age.append({{3}});
  by_age.flush();
  CHECK(by_age.segments() == std::vector<Offset>{0, 2});
  // The segment that was active when the flush was planned has got its last time entry too.
  CHECK(by_age.disk.contents(segment_path(directory, 0, ".timeindex")).size() == 12);

  LogFixture by_index;
  by_index.config.index_interval_bytes = 0;
  by_index.config.segment_index_bytes = 5 * 12;
  by_index.open();
  for (int i = 0; i < 20; ++i) by_index.append({{100 - i}});
  by_index.flush();
  // Every batch but the first of a segment gets an entry; there is room for seven.
  CHECK(by_index.segments() == std::vector<Offset>{0, 8, 16});

  LogFixture by_offset;
  by_offset.open();
  by_offset.append({{1}});
  auto huge = make_batch(1, {{1}, {2}});  // 2^31 - 1 offsets, nearly all of them holes.
  store_be(huge.data() + records::field::last_offset_delta, std::int32_t{0x7ffffffe});
  records::update_crc(huge);
  by_offset.append_batch(std::move(huge));
  by_offset.append({{3}});
  by_offset.flush_and_forget();
  CHECK(by_offset.segments() == std::vector<Offset>{0, Offset{1} << 31});
  CHECK(by_offset.read_all(0) == by_offset.expected(0));
}

TEST_CASE("a config that was changed counts from the next flush on") {
  LogFixture f;
  f.open();
  for (int i = 0; i < 4; ++i) f.append({{1}});
  f.flush();
  CHECK(f.segments().size() == 1);
  f.config.segment_bytes = 1;
  f.log->set_config(f.config);
  for (int i = 0; i < 2; ++i) f.append({{1}});
  f.flush();
  CHECK(f.segments() == std::vector<Offset>{0, 4, 5});
}

TEST_CASE("a flush that finds the disk full takes its writes back, and may be tried again") {
  for (std::uint64_t space = 0; space < 40'000; space += 997) {
    LogFixture f(space);
    f.config.segment_bytes = 3000;
    f.config.index_interval_bytes = 200;
    f.open();
    for (int i = 0; i < 10; ++i) f.append({{i, 100}});
    f.flush();
    const auto flushed = f.expected(0);
    for (int i = 0; i < 200; ++i) f.append({{i, 100}});
    const auto used = f.disk.used();
    f.disk.set_space(used + space);
    const auto done = f.try_flush();
    f.disk.set_space(std::uint64_t{1} << 40);
    if (!done) {
      REQUIRE(done.error().code == Errc::no_space);
      REQUIRE(f.disk.used() == used);
      REQUIRE(f.segments() == std::vector<Offset>{0});
      REQUIRE(f.disk.contents(segment_path(directory, 0, ".log")) == flushed);
      f.append({{1}});
      f.config.segment_bytes = 2500;
      f.log->set_config(f.config);
      REQUIRE(f.try_flush());
    }
    f.log->trim_tail(0);
    REQUIRE(f.log->tail_bytes() == 0);
    REQUIRE(f.read_all(0) == f.expected(0));
    REQUIRE(!f.open());
    REQUIRE(f.read_all(0) == f.expected(0));
  }
}

TEST_CASE(
    "a flush that finds no file descriptor, or cannot read where its segment ends, may be run "
    "again, "
    "and writes the same") {
  for (const std::string call : {"open", "fsync", "rename", "pread"}) {
    for (std::uint64_t nth = 1; nth <= 20; ++nth) {
      CAPTURE(call);
      CAPTURE(nth);
      LogFixture f;
      f.config.segment_bytes = 3000;
      f.config.index_interval_bytes = 200;
      f.open();
      for (int i = 0; i < 10; ++i) f.append({{i, 100}});
      f.flush();
      for (int i = 0; i < 60; ++i) f.append({{i, 100}});
      auto flush = f.log->plan_flush(everything, any_size);
      REQUIRE(flush);
      f.disk.count_only(call);
      f.disk.fail_call(nth, call == "pread" ? Errc::io : Errc::exhausted);
      auto done = flush->run(true);
      f.disk.heal();
      if (call == "pread" && nth == 1) CHECK_FALSE(done);
      if (!done) {
        REQUIRE(done.error().code == Errc::exhausted);
        done = flush->run(true);
        REQUIRE(done);
      }
      f.log->flushed(std::move(*done));
      f.log->trim_tail(0);
      REQUIRE(f.log->tail_bytes() == 0);
      REQUIRE(f.read_all(0) == f.expected(0));
      REQUIRE(!f.open());
      REQUIRE(f.read_all(0) == f.expected(0));
    }
  }
}

TEST_CASE(
    "a flush that ran without descriptors takes back all it wrote when the disk is full then") {
  LogFixture f;
  f.config.segment_bytes = 3000;
  f.open();
  for (int i = 0; i < 10; ++i) f.append({{i, 100}});
  f.flush();
  const auto flushed = f.expected(0);
  const auto used = f.disk.used();
  for (int i = 0; i < 200; ++i) f.append({{i, 100}});
  auto flush = f.log->plan_flush(everything, any_size);
  REQUIRE(flush);
  f.disk.count_only("open");
  f.disk.fail_call(20, Errc::exhausted);  // Some segments are begun.
  REQUIRE(flush->run(true).error().code == Errc::exhausted);
  f.disk.heal();
  REQUIRE(f.segments().size() > 2);
  f.disk.count_only("pwrite");
  f.disk.fail_call(1, Errc::no_space);
  const auto done = flush->run(true);
  REQUIRE_FALSE(done);
  REQUIRE(done.error().code == Errc::no_space);
  f.disk.heal();
  f.log->flush_failed(done.error());
  CHECK(f.disk.used() == used);
  CHECK(f.segments() == std::vector<Offset>{0});
  CHECK(f.disk.contents(segment_path(directory, 0, ".log")) == flushed);
  REQUIRE(f.try_flush());
  CHECK(f.read_all(0) == f.expected(0));
}

TEST_CASE("a flush whose write or sync fails for another reason is the last") {
  for (const char* call : {"pwrite", "fdatasync", "open", "ftruncate"}) {
    // The first file to be opened says whose directory it is, which may be asked again.
    const std::uint64_t first = std::string_view(call) == "open" ? 2 : 1;
    for (std::uint64_t nth = first; nth <= 3; ++nth) {
      LogFixture f;
      f.open();
      f.append({{1}});
      f.flush();
      f.append({{2, 5000}});
      f.append({{2, 5000}});
      f.disk.count_only(call);
      f.disk.fail_call(nth,
                       std::string(call) == "fdatasync" && nth == 2 ? Errc::no_space : Errc::io);
      const auto done = f.try_flush();
      f.disk.heal();
      if (done) continue;  // There were not so many calls.
      CHECK(done.error().code == Errc::io);
      CHECK(!f.log->plan_flush(everything));
      CHECK(f.read_all(0) == f.expected(0));  // The tail has it still.
    }
  }
}

TEST_CASE("a log that was closed in order opens as it was") {
  LogFixture f;
  f.config.segment_bytes = 700;
  f.config.index_interval_bytes = 100;
  f.open();
  SeededRandom random(5);
  for (int i = 0; i < 40; ++i) {
    f.append({{static_cast<std::int64_t>(random.below(1000)), random.below(200)}, {1}});
    f.flush();
    REQUIRE(!f.open());
    REQUIRE(f.log->end_offset() == (i + 1) * 2);
    REQUIRE(f.log->size_bytes() == f.expected(0).size());
    REQUIRE(f.log->tail_bytes() == 0);
  }
  CHECK(f.read_all(0) == f.expected(0));

  // The same in one go gives the same files, but for closing: nobody rolls differently.
  LogFixture g;
  g.config = f.config;
  g.open();
  for (const auto& batch : f.batches) g.append_batch(batch);
  g.flush();
  CHECK(f.segments() == g.segments());
  for (const auto& name : f.files()) {
    if (name == "partition.metadata") continue;
    CHECK(f.disk.contents(directory + "/" + name) == g.disk.contents(directory + "/" + name));
  }
}

TEST_CASE("damage at the end is reported, the good part is read, and nothing is written over it") {
  LogFixture f;
  f.open();
  for (int i = 0; i < 5; ++i) f.append({{i, 60}});
  f.flush();
  const auto path = segment_path(directory, 0, ".log");
  f.disk.poke(path, f.expected(0).size() - 10, Buffer{0xff, 0xff});
  const auto before = f.disk.contents(path);
  const auto damage = f.open();
  REQUIRE(damage);
  CHECK(damage->position == f.expected(0, 4).size());
  CHECK(damage->message.contains(path));
  CHECK(f.log->end_offset() == 4);
  CHECK(f.read_all(0) == f.expected(0, 4));
  f.batches.pop_back();
  f.append({{9}});
  CHECK(!f.log->plan_flush(everything));
  CHECK(f.disk.contents(path) == before);
}

TEST_CASE("recovery cuts the log where the journal continues, whatever a crash left behind") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    LogFixture f(seed);
    f.config.segment_bytes = 400 + static_cast<std::int64_t>(seed % 7) * 150;
    f.config.index_interval_bytes = 100;
    f.open();
    const Offset synced = static_cast<Offset>(seed % 13);
    for (int i = 0; i < 30; ++i) f.append({{i, 60}});
    if (synced > 0) REQUIRE(f.try_flush(true, synced));
    for (Offset below = synced + 3; below < 30; below += 4) REQUIRE(f.try_flush(false, below));
    if (seed % 3 == 0) {
      f.disk.kill();
    } else {
      f.disk.cut_power();
    }
    f.open();
    const auto cut = f.log->truncate_to(synced);
    if (!cut) FAIL(cut.error().message);
    REQUIRE(f.log->end_offset() == synced);
    REQUIRE(f.read_all(0) == f.expected(0, synced));
    const auto batches = f.batches;
    for (auto i = static_cast<std::size_t>(synced); i < batches.size(); ++i)
      REQUIRE(f.log->replay(SharedBytes(batches[i]), f.now));
    f.flush_and_forget();
    REQUIRE(f.read_all(0) == f.expected(0));
    REQUIRE(!f.open());
    REQUIRE(f.read_all(0) == f.expected(0));
    for (Offset base : f.segments())
      REQUIRE(load_active_segment(f.disk, directory, base, f.config)->damage == std::nullopt);
  }
}

TEST_CASE("a log that lost what a checkpoint vouched for is not cut, and keeps its bytes") {
  LogFixture f;
  f.config.segment_bytes = 300;
  f.open();
  for (int i = 0; i < 10; ++i) f.append({{i, 60}});
  f.flush();
  REQUIRE(!f.open());
  const auto files = f.files();
  CHECK(f.log->truncate_to(11).error().code == Errc::corrupt);
  CHECK(f.files() == files);
  CHECK(f.log->end_offset() == 10);
  REQUIRE(f.log->truncate_to(10));
  CHECK(f.log->replay(SharedBytes(make_batch(11, {{1}})), f.now).error().code == Errc::corrupt);
  CHECK(f.log->replay(SharedBytes(Buffer(70)), f.now).error().code == Errc::corrupt);

  LogFixture empty;
  empty.open();
  CHECK(empty.log->truncate_to(1).error().code == Errc::corrupt);
  REQUIRE(empty.log->truncate_to(0));
}

TEST_CASE("batches that retention removed before the checkpoint are not replayed") {
  LogFixture f;
  f.config.segment_bytes = 300;
  f.open();
  for (int i = 0; i < 10; ++i) f.append({{i, 60}});
  f.flush();
  f.config.retention_bytes = 400;
  f.log->set_config(f.config);
  auto plan = f.log->plan_retention(f.now, 10);
  REQUIRE(plan.removal);
  REQUIRE(plan.removal->run());
  const Offset start = f.log->start_offset();
  REQUIRE(start > 3);
  f.open();
  REQUIRE(f.log->start_offset() == start);
  REQUIRE(f.log->truncate_to(2));  // The journal goes back to before the start.
  const auto batches = f.batches;
  for (std::size_t i = 2; i < 10; ++i) REQUIRE(f.log->replay(SharedBytes(batches[i]), f.now));
  CHECK(f.log->end_offset() == 10);
  CHECK(f.read_all(start) == f.expected(start));
}

// --- Time

std::optional<TimestampedOffset> found(TimestampSearch search) {
  auto result = search.run();
  if (!result) FAIL(result.error().message);
  return *result;
}

TEST_CASE("a time finds the first record, not batch, that is not before it, in any codec") {
  for (const auto codec : {records::Codec::none, records::Codec::gzip, records::Codec::snappy,
                           records::Codec::lz4, records::Codec::zstd}) {
    for (const bool on_disk : {false, true}) {
      LogFixture f;
      f.config.segment_bytes = 400;
      f.config.index_interval_bytes = 100;
      f.open();
      f.append({{100}, {300}, {200}}, codec);  // 0, 1, 2
      f.append({{50}, {-1}, {60}}, codec);     // 3, -, 5
      f.append({{400}, {400}}, codec);         // 6, 7
      f.append({{350}, {500}}, codec);         // 8, 9
      if (on_disk) f.flush_and_forget();
      using Found = std::optional<TimestampedOffset>;
      const auto at = [&](std::int64_t target, Offset below = everything) {
        auto search = f.log->find_timestamp(target, below);
        CHECK((on_disk || !search.blocks()));
        return found(std::move(search));
      };
      CHECK(at(0) == Found({0, 100}));
      CHECK(at(100) == Found({0, 100}));
      CHECK(at(101) == Found({1, 300}));
      CHECK(at(300) == Found({1, 300}));
      CHECK(at(301) == Found({6, 400}));
      CHECK(at(401) == Found({9, 500}));
      CHECK(at(501) == Found());
      CHECK(at(401, 8) == Found());
      CHECK(at(301, 6) == Found());
      CHECK(found(f.log->find_max_timestamp(everything)) == Found({9, 500}));
      CHECK(found(f.log->find_max_timestamp(0)) == Found());
      f.log->move_start(2);
      CHECK(at(0) == Found({2, 200}));
      CHECK(at(201) == Found({6, 400}));
      f.log->move_start(10);
      CHECK(at(0) == Found());
      CHECK(found(f.log->find_max_timestamp(everything)) == Found());
    }
  }
}

TEST_CASE("the largest timestamp is the first of its records, also beside a start that cuts") {
  for (const bool on_disk : {false, true}) {
    LogFixture f;
    f.config.segment_bytes = 400;
    f.open();
    f.append({{900}, {100}, {700}});
    for (int i = 0; i < 20; ++i) f.append({{600 + i % 3, 50}});
    if (on_disk) f.flush_and_forget();
    using Found = std::optional<TimestampedOffset>;
    CHECK(found(f.log->find_max_timestamp(everything)) == Found({0, 900}));
    f.log->move_start(1);
    CHECK(found(f.log->find_max_timestamp(everything)) == Found({2, 700}));
    f.log->move_start(3);
    CHECK(found(f.log->find_max_timestamp(everything)) == Found({5, 602}));
  }
}

// --- Retention

TEST_CASE(
    "retention by time takes whole segments, and the active one when it is all that is left") {
  LogFixture f;
  f.config.segment_bytes = 300;
  f.config.retention_ms = milliseconds(10'000);
  f.open();
  for (int i = 0; i < 9; ++i) {
    f.append({{i, 60}});
    f.flush();
    f.now += milliseconds(1000);
  }
  const auto bases = f.segments();
  REQUIRE(bases.size() == 5);
  auto plan = f.log->plan_retention(f.now, 9);
  CHECK(!plan.removal);
  REQUIRE(plan.next);

  // The first segment's last append was at its second batch.
  f.now = *plan.next;
  auto at_once = f.log->plan_retention(f.now, 9);
  REQUIRE(at_once.removal);
  CHECK(at_once.removal->bases() == std::vector<Offset>{0});
  REQUIRE(at_once.removal->run());
  CHECK(f.log->start_offset() == bases[1]);
  CHECK(std::holds_alternative<OffsetOutOfRange>(f.log->read(0, everything, 1, true)));
  CHECK(f.read_all(bases[1]) == f.expected(bases[1]));

  // A restart changes nothing: the files know when they were written.
  REQUIRE(!f.open());
  CHECK(f.log->start_offset() == bases[1]);
  plan = f.log->plan_retention(f.now, 9);
  CHECK(!plan.removal);
  REQUIRE(plan.next);

  f.now += milliseconds(60'000);
  plan = f.log->plan_retention(f.now, 9);
  REQUIRE(plan.removal);
  REQUIRE(plan.removal->run());
  CHECK(!plan.next);
  CHECK(f.segments() == std::vector<Offset>{9});
  CHECK(f.log->start_offset() == 9);
  CHECK(f.log->end_offset() == 9);
  CHECK(f.log->size_bytes() == 0);

  // It goes on where it was, after a power cut too.
  f.disk.cut_power();
  REQUIRE(!f.open());
  CHECK(f.log->end_offset() == 9);
  f.append({{1}});
  f.flush_and_forget();
  CHECK(f.read_all(9) == f.expected(9));
}

TEST_CASE(
    "a segment that is closed because of its age is not written to by a flush that was planned") {
  LogFixture f;
  f.config.retention_ms = milliseconds(1000);
  f.open();
  f.append({{1}});
  f.flush();
  f.now += milliseconds(5000);
  f.append({{2}});
  auto flush = f.log->plan_flush(everything);
  REQUIRE(flush);
  CHECK(!f.log->plan_retention(f.now, 2).removal);  // Not while it is in flight.
  f.log->flushed(*flush->run(true));
  CHECK(!f.log->plan_retention(f.now, 2).removal);  // Now it is young.

  f.append({{3}});
  f.now += milliseconds(5000);
  auto plan = f.log->plan_retention(f.now, 3);  // Batches that are not flushed stay in memory.
  REQUIRE(plan.removal);
  CHECK(f.log->start_offset() == 2);
  f.flush();  // Before the removal: both may make the new segment.
  REQUIRE(plan.removal->run());
  CHECK(f.segments() == std::vector<Offset>{2});
  f.log->trim_tail(0);
  CHECK(f.read_all(2) == f.expected(2));
  REQUIRE(!f.open());
  CHECK(f.read_all(2) == f.expected(2));
}

TEST_CASE("a read that was planned before retention took its segment reads on, or says not found") {
  LogFixture f;
  f.config.segment_bytes = 300;
  f.open();
  for (int i = 0; i < 10; ++i) f.append({{i, 60}});
  f.flush_and_forget();
  auto read = f.log->read(0, everything, any_size, true);
  f.config.retention_bytes = 0;
  f.log->set_config(f.config);
  auto plan = f.log->plan_retention(f.now, 10);
  REQUIRE(plan.removal);
  REQUIRE(plan.removal->run());
  CHECK(batches_of(std::move(read)).error().code == Errc::not_found);
  CHECK(std::holds_alternative<OffsetOutOfRange>(f.log->read(0, everything, 1, true)));
}

TEST_CASE("a start that was moved is noted by the next flush and survives a restart") {
  LogFixture f;
  f.config.segment_bytes = 300;
  f.open();
  for (int i = 0; i < 10; ++i) f.append({{i, 60}});
  f.flush();
  f.log->move_start(5);
  CHECK(f.log->dirty());
  f.flush();
  CHECK(!f.log->dirty());
  auto plan = f.log->plan_retention(f.now, 10);  // Segments that are wholly below go.
  REQUIRE(plan.removal);
  REQUIRE(plan.removal->run());
  f.disk.cut_power();
  REQUIRE(!f.open());
  CHECK(f.log->start_offset() == 5);
  CHECK(f.segments().front() == 4);
  f.log->move_start(3);
  CHECK(f.log->start_offset() == 5);
  f.disk.poke(directory + "/start-offset", 12, as_bytes("x"));
  CHECK(Log::open(f.disk, directory, f.topic, f.config).error().code == Errc::corrupt);
}

TEST_CASE("a log that is deleted leaves nothing behind, and its name is free at once") {
  LogFixture f;
  f.open();
  f.append({{1}});
  f.flush();
  REQUIRE(f.log->delete_all().run());
  CHECK(f.disk.list("logs")->empty());
  f.topic = f.random.topic_id();
  REQUIRE(!f.open());
  CHECK(f.log->end_offset() == 0);
}

TEST_CASE("a flush on its way to a deleted log does not get into that of a topic named so since") {
  LogFixture f;
  f.config = {.segment_bytes = 300, .retention_bytes = 0};
  f.open();
  for (int i = 0; i < 10; ++i) f.append({{i, 60}});
  f.flush();
  auto late_removal = f.log->plan_retention(f.now, f.log->end_offset()).removal;
  REQUIRE(late_removal);
  for (int i = 0; i < 10; ++i) f.append({{i, 60}});
  auto late_flush = f.log->plan_flush(everything);
  REQUIRE(late_flush);
  const TopicId before = std::exchange(f.topic, f.random.topic_id());
  REQUIRE(LogRemoval(f.disk, directory, before).run());

  f.batches.clear();
  REQUIRE(!f.open());
  CHECK(f.log->start_offset() == 0);
  for (int i = 0; i < 10; ++i) f.append({{100 + i, 60}});
  f.flush();
  const auto files = f.files();
  CHECK_FALSE(late_flush->run(true));
  CHECK(late_removal->run());
  CHECK(f.files() == files);
  REQUIRE(!f.open());
  CHECK(f.log->start_offset() == 0);
  CHECK(f.read_all(0) == f.expected(0));
}

TEST_CASE("a file that a removal had no time to unlink is unlinked at the next open") {
  LogFixture f;
  f.config.segment_bytes = 300;
  f.open();
  for (int i = 0; i < 10; ++i) f.append({{i, 60}});
  f.flush();
  const auto path = segment_path(directory, 0, ".log");
  REQUIRE(f.disk.rename(path, path + ".deleted"));
  REQUIRE(!f.open());
  CHECK(f.log->start_offset() == 2);
  for (const auto& name : f.files()) {
    CHECK_FALSE(name.ends_with(".deleted"));
    CHECK_FALSE(name.starts_with("00000000000000000000"));  // Nor index files of no segment.
  }
}

TEST_CASE("an idle log is small and has no file open") {
  // A hundred thousand of them: 40 MB.
  CHECK(sizeof(Log) <= 400);
}

// --- Against a model

// A log to which everything happens in any order, beside the list of its batches.
struct RandomLog {
  LogFixture f;
  SeededRandom random;
  Offset checkpoint = 0;  // Everything below was synced.
  Offset start = 0;

  explicit RandomLog(std::uint64_t seed) : f(seed), random(seed * 7919) {
    f.config.segment_bytes = static_cast<std::int64_t>(300 + random.below(8000));
    f.config.segment_ms = milliseconds(1 + random.below(20'000));
    f.config.index_interval_bytes = static_cast<std::int64_t>(random.below(1500));
    f.config.segment_index_bytes = static_cast<std::int64_t>(24 + random.below(400));
    f.open();
  }

  bool chance(std::uint64_t one_in) { return random.below(one_in) == 0; }

  void check_read() {
    const Offset end = f.log->end_offset();
    const Offset from =
        f.log->start_offset() + static_cast<Offset>(random.below(
                                    static_cast<std::uint64_t>(end - f.log->start_offset()) + 1));
    const Offset below = chance(2) ? everything : from + static_cast<Offset>(random.below(20));
    const std::size_t max = random.below(chance(2) ? 3000 : 100'000);
    const bool one = chance(2);
    const auto read = batches_of(f.log->read(from, below, max, one));
    if (!read) FAIL(read.error().message);
    // A read may stop at the end of a segment, or where the tail begins.
    const auto got = bytes_of(*read);
    const auto expected = f.expected(from, below, max, one);
    REQUIRE(got.size() <= expected.size());
    REQUIRE(got.empty() == expected.empty());
    REQUIRE(std::equal(got.begin(), got.end(), expected.begin()));
  }
  void check_time() {
    const auto target = static_cast<std::int64_t>(random.below(1100));
    std::optional<TimestampedOffset> first_at, largest;
    for (const auto& batch : f.batches) {
      const auto view = view_of(batch);
      REQUIRE(records::for_each_record(
          view.records(), view.record_count(), [&](const records::RecordView& record) {
            const TimestampedOffset here{view.offset_of(record), to_ms(view.timestamp_of(record))};
            if (here.offset < f.log->start_offset()) return;
            if (!first_at && here.timestamp >= target) first_at = here;
            if (!largest || here.timestamp > largest->timestamp) largest = here;
          }));
    }
    REQUIRE(found(f.log->find_timestamp(target, everything)) == first_at);
    REQUIRE(found(f.log->find_max_timestamp(everything)) == largest);
  }

  void append() {
    std::vector<TestRecord> batch;
    for (auto n = 1 + random.below(5); n > 0; --n) {
      const auto time = static_cast<std::int64_t>(random.below(1000));
      batch.push_back({chance(5) ? -1 : time, random.below(chance(20) ? 9000 : 300)});
    }
    if (std::ranges::all_of(batch, [](auto& r) { return r.timestamp < 0; }))
      batch.push_back({5, 5});
    f.append(batch);
  }
  void flush() {
    const bool sync = chance(2);
    const Offset below =
        f.log->flushed_end() +
        static_cast<Offset>(random.below(
            static_cast<std::uint64_t>(f.log->end_offset() - f.log->flushed_end()) + 1));
    auto flush = f.log->plan_flush(below, chance(2) ? any_size : random.below(5000));
    if (!flush) return;
    f.disk.set_time(f.now);
    if (chance(4)) f.disk.set_space(f.disk.used() + random.below(5000));
    auto done = flush->run(sync);
    f.disk.set_space(std::uint64_t{1} << 40);
    if (chance(2)) check_read();
    if (!done) {
      REQUIRE(done.error().code == Errc::no_space);
      f.log->flush_failed(done.error());
      return;
    }
    REQUIRE(done->end <= std::max(below, f.log->flushed_end()));
    if (done->synced) checkpoint = done->end;
    f.log->flushed(std::move(*done));
  }
  void delete_old_segments() {
    f.config.retention_ms = milliseconds(chance(2) ? -1 : static_cast<int>(random.below(60'000)));
    f.config.retention_bytes = chance(2) ? -1 : static_cast<std::int64_t>(random.below(40'000));
    f.log->set_config(f.config);
    const Offset durable = f.log->flushed_end();
    auto plan = f.log->plan_retention(f.now, durable);
    if (plan.removal) REQUIRE(plan.removal->run());
    REQUIRE(f.log->start_offset() >= start);
    REQUIRE(f.log->start_offset() <= std::max(start, durable));
    start = f.log->start_offset();
  }
  void move_start() {
    f.log->move_start(
        start + static_cast<Offset>(
                    random.below(static_cast<std::uint64_t>(f.log->flushed_end() -
                                                            std::min(start, f.log->flushed_end())) +
                                 1)));
    start = f.log->start_offset();
  }
  // All that the journal has from the checkpoint on is replayed.
  void crash() {
    if (chance(2)) {
      f.disk.kill();
    } else {
      f.disk.cut_power();
    }
    const Offset end = f.log->end_offset();
    f.open();
    const auto cut = f.log->truncate_to(checkpoint);
    if (!cut) FAIL(cut.error().message);
    for (const auto& batch : f.batches) {
      if (view_of(batch).base_offset() < checkpoint) continue;
      const auto replayed = f.log->replay(SharedBytes(batch), f.now);
      if (!replayed) FAIL(replayed.error().message);
    }
    REQUIRE(f.log->end_offset() == end);
    f.log->move_start(start);
    REQUIRE(f.log->start_offset() == start);
  }

  void step() {
    f.now += milliseconds(random.below(2000));
    switch (random.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        append();
        break;
      case 4:
      case 5:
        flush();
        break;
      case 6:
        f.log->trim_tail(random.below(f.log->tail_bytes() + 1));
        break;
      case 7:
        if (chance(3)) delete_old_segments();
        break;
      case 8:
        if (chance(10)) move_start();
        break;
      case 9:
        check_time();
        break;
      case 10:
        check_read();
        break;
      default:
        if (chance(4)) crash();
        break;
    }
    REQUIRE(f.log->tail_bytes() >= f.log->unflushed_bytes());
    REQUIRE(f.log->end_offset() ==
            (f.batches.empty() ? 0 : view_of(f.batches.back()).next_offset()));
  }
};

TEST_CASE(
    "appends, flushes, reads, rolls, retention and crashes in any order agree with a list of "
    "batches") {
  const char* given = std::getenv("TARRY_SEED");
  const std::uint64_t first = given ? std::strtoull(given, nullptr, 10) : 1;
  const std::uint64_t last = given ? first : 40;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    CAPTURE(seed);
    RandomLog run(seed);
    for (int step = 0; step < 250; ++step) run.step();
    REQUIRE(run.f.read_all(run.f.log->start_offset()) == run.f.expected(run.f.log->start_offset()));
  }
}

}  // namespace
}  // namespace tarry::storage

TEST_SUITE_END();
