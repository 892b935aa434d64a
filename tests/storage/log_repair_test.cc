#include "storage/log_repair.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "batches.h"
#include "storage/log.h"
#include "storage/segment_writer.h"
#include "tests/memory_disk.h"

TEST_SUITE_BEGIN("log repair");

namespace tarry::storage {
namespace {

const std::string repaired_directory = "logs/orders-0";
constexpr Offset batch_records = 10;

// Two segments of five batches with ten records each: 0 to 49 and 50 to 99.
struct DamagedLogFixture {
  SeededRandom random{7};
  MemoryDisk disk{random};
  LogFacts facts;
  std::map<Offset, Buffer> batches;

  DamagedLogFixture() {
    facts.topic = random.topic_id();
    facts.config.index_interval_bytes = 1;  // An entry for each batch but the first.
    facts.config.retention_ms = std::chrono::milliseconds(-1);
    REQUIRE(disk.make_directories(repaired_directory));
    put(path("partition.metadata"), as_bytes("version: 0\ntopic_id: " + facts.topic.text() + "\n"));
    write_segment_of(0, 50);
    write_segment_of(50, 100);
  }

  static std::string path(std::string_view name) {
    return fmt::format("{}/{}", repaired_directory, name);
  }
  static std::string log_of(Offset base) { return segment_path(repaired_directory, base, ".log"); }

  Buffer& batch(Offset first) {
    const auto [found, is_new] = batches.try_emplace(first);
    if (is_new) {
      found->second =
          make_batch(first, std::vector<TestRecord>(batch_records, TestRecord{1000 + first, 30}));
    }
    return found->second;
  }

  void write_segment_of(Offset from, Offset until) {
    SegmentWriter writer(disk, repaired_directory, facts.config);
    REQUIRE(writer.begin(from));
    for (Offset first = from; first < until; first += batch_records)
      REQUIRE(writer.append(batch(first), first, first + batch_records - 1, 1000 + first));
    REQUIRE(writer.finish());
  }

  void put(const std::string& name, Bytes bytes) { REQUIRE(replace_file(disk, name, bytes)); }
  Buffer get(const std::string& name) {
    auto bytes = read_file(disk, name, 1 << 20);
    if (!bytes) FAIL(bytes.error().message);
    return *bytes;
  }
  // The position of a batch in its segment.
  std::size_t position_of(Offset first) {
    const Offset base = first < 50 ? 0 : 50;
    std::size_t at = 0;
    for (Offset each = base; each < first; each += batch_records) at += batch(each).size();
    return at;
  }
  void flip(Offset first, std::size_t within) {
    const auto name = log_of(first < 50 ? 0 : 50);
    auto bytes = get(name);
    bytes.at(position_of(first) + within) ^= 0x55;
    put(name, bytes);
  }

  std::map<std::string, Buffer> everything() {
    std::map<std::string, Buffer> out;
    for (const auto& name : {repaired_directory, std::string("kept")}) {
      const auto entries = disk.list(name);
      if (!entries) continue;
      for (const auto& entry : *entries) out[entry.name] = get(name + "/" + entry.name);
    }
    return out;
  }

  LogRepair inspect() {
    auto found = LogRepair::inspect(disk, repaired_directory, facts);
    if (!found) FAIL(found.error().message);
    return std::move(*found);
  }
  void repair() {
    auto found = inspect();
    const auto done = found.run();
    if (!done) FAIL(done.error().message);
    const auto left = inspect();
    for (const auto& finding : left.findings()) FAIL_CHECK(finding.file << finding.problem);
  }

  Log open() {
    auto opened = Log::open(disk, repaired_directory, facts.topic, facts.config);
    if (!opened) FAIL(opened.error().message);
    CHECK_FALSE(opened->damage);
    return std::move(opened->log);
  }
  // The first offsets of all batches that a consumer gets.
  std::vector<Offset> read_from(Log& log, Offset from) {
    std::vector<Offset> out;
    while (from < log.end_offset()) {
      auto read = log.read(from, log.end_offset(), 1 << 20, true);
      if (auto* work = std::get_if<DiskRead>(&read)) {
        const auto got = work->run();
        if (!got) FAIL(got.error().message);
        if (got->empty()) break;
        for (const auto& run : *got) {
          for (Bytes rest = run.view(); !rest.empty();) {
            const auto view = records::next_batch(rest);
            REQUIRE(view);
            CHECK(view->crc_matches());
            from = view->next_offset();
            rest = rest.subspan(view->size());
            if (view->is_control()) continue;  // A hole.
            out.push_back(view->base_offset());
            CHECK(Buffer(view->bytes().begin(), view->bytes().end()) == batch(view->base_offset()));
          }
        }
      } else {
        break;
      }
    }
    return out;
  }
};

TEST_CASE("a broken batch costs its own records, and the whole batches behind it stay") {
  DamagedLogFixture log;
  log.flip(20, 70);
  const auto before = log.everything();
  const auto found = log.inspect();
  CHECK(log.everything() == before);
  REQUIRE(found.findings().size() == 1);
  const auto& finding = found.findings().front();
  CHECK(finding.kind == RepairFinding::Kind::segment);
  CHECK(finding.file == DamagedLogFixture::log_of(0));
  CHECK(finding.position == log.position_of(20));
  CHECK(finding.lost_from == 20);
  CHECK(finding.lost_until == 30);
  log.repair();
  auto opened = log.open();
  CHECK(opened.end_offset() == 100);
  CHECK(log.read_from(opened, 0) == std::vector<Offset>{0, 10, 30, 40, 50, 60, 70, 80, 90});
  CHECK(log.read_from(opened, 25) == std::vector<Offset>{30, 40, 50, 60, 70, 80, 90});
  const auto old = before.at("00000000000000000000.log");
  const auto cut = static_cast<std::ptrdiff_t>(log.position_of(20));
  CHECK(log.get(finding.moved_to) == Buffer(old.begin() + cut, old.end()));
}

TEST_CASE("behind a batch whose length is broken the index says where the next one begins") {
  DamagedLogFixture log;
  log.flip(20, records::field::batch_length + 1);
  log.repair();
  auto opened = log.open();
  CHECK(log.read_from(opened, 0) == std::vector<Offset>{0, 10, 30, 40, 50, 60, 70, 80, 90});

  DamagedLogFixture without;
  without.flip(20, records::field::batch_length + 1);
  without.put(segment_path(repaired_directory, 0, ".index"), {});
  without.repair();
  auto rest = without.open();
  CHECK(without.read_from(rest, 0) == std::vector<Offset>{0, 10, 50, 60, 70, 80, 90});
}

TEST_CASE("bytes of a record that look like a batch are never taken for one") {
  DamagedLogFixture log;
  // Its only record holds a whole batch with offsets that would fit.
  const auto inner = make_batch(25, {{1000, 10}});
  records::BatchOptions options{.base_offset = 20, .leader_epoch = 0};
  records::BatchBuilder builder(options);
  builder.append(from_ms(1020), std::nullopt, Bytes{inner});
  builder.skip(9);
  log.batch(20) = builder.finish();
  log.write_segment_of(0, 50);
  log.flip(20, records::field::batch_length + 1);
  log.put(segment_path(repaired_directory, 0, ".index"), {});
  log.repair();
  auto opened = log.open();
  CHECK(log.read_from(opened, 0) == std::vector<Offset>{0, 10, 50, 60, 70, 80, 90});
}

TEST_CASE("a log that is cut at its end still ends where it did") {
  for (const std::size_t within : {70u, 9u, 16u}) {  // A record, the length, the format.
    CAPTURE(within);
    DamagedLogFixture log;
    log.flip(90, within);
    log.repair();
    auto opened = log.open();
    CHECK(opened.end_offset() == 100);
    CHECK(log.read_from(opened, 0) == std::vector<Offset>{0, 10, 20, 30, 40, 50, 60, 70, 80});
    opened.append(SharedBytes(Buffer(log.batch(100))), 100, 109, 1100, from_ms(1));
    CHECK(opened.end_offset() == 110);
  }
}

TEST_CASE(
    "committed offsets tell the end where nothing else does, but not any number of a client") {
  DamagedLogFixture log;
  log.flip(90, records::field::magic);
  log.put(segment_path(repaired_directory, 50, ".index"), {});
  log.facts.seen_end = 97;
  log.repair();
  CHECK(log.open().end_offset() == 97);

  DamagedLogFixture far;
  far.flip(90, records::field::magic);
  far.put(segment_path(repaired_directory, 50, ".index"), {});
  far.facts.seen_end = Offset{1} << 50;
  const auto found = far.inspect();
  REQUIRE(found.findings().size() == 1);
  CHECK(found.findings().front().repair.contains("may be given out again"));
  far.repair();
  CHECK(far.open().end_offset() == 90);
}

TEST_CASE("a file that was cut short is missed by the offsets that producers were told") {
  DamagedLogFixture log;
  auto bytes = log.get(DamagedLogFixture::log_of(50));
  bytes.resize(log.position_of(80));
  log.put(DamagedLogFixture::log_of(50), bytes);
  for (const char* suffix : {".index", ".timeindex"})
    REQUIRE(log.disk.remove(segment_path(repaired_directory, 50, suffix)));
  log.facts.appended_end = 91;
  const auto found = log.inspect();
  bool told = false;
  for (const auto& finding : found.findings()) {
    if (finding.kind != RepairFinding::Kind::log_end) continue;
    told = true;
    CHECK(finding.lost_from == 80);
    CHECK(finding.lost_until == 91);
  }
  CHECK(told);
  log.repair();
  CHECK(log.open().end_offset() == 91);
}

TEST_CASE("indexes that point nowhere, disagree, are torn or missing are made anew") {
  const std::string index = segment_path(repaired_directory, 0, ".index");
  const std::string times = segment_path(repaired_directory, 0, ".timeindex");
  DamagedLogFixture whole;
  const auto before = whole.everything();
  CHECK(whole.inspect().findings().empty());
  for (const auto& name : {index, times}) {
    for (int kind = 0; kind < 4; ++kind) {
      CAPTURE(name);
      CAPTURE(kind);
      DamagedLogFixture log;
      auto bytes = log.get(name);
      if (kind == 0) bytes.at(3) ^= 1;
      if (kind == 1) bytes.at(bytes.size() - 1) ^= 1;
      if (kind == 2) bytes.resize(bytes.size() - 3);
      log.put(name, bytes);
      if (kind == 3) REQUIRE(log.disk.remove(name));
      const auto found = log.inspect();
      REQUIRE(found.findings().size() == 1);
      CHECK(found.findings().front().kind == RepairFinding::Kind::index);
      CHECK(found.findings().front().file == name);
      log.repair();
      auto after = log.everything();
      if (kind != 3) {
        const auto kept =
            after.extract(fmt::format("{}.damaged", name.substr(name.rfind('/') + 1)));
        REQUIRE_FALSE(kept.empty());
        CHECK(kept.mapped() == bytes);
      }
      CHECK(after == before);
    }
  }
}

TEST_CASE(
    "bytes that the journal replaces are no damage, and where it goes on behind the log is a "
    "hole") {
  DamagedLogFixture log;
  log.flip(90, 70);
  log.facts.journal_from = 90;
  CHECK(log.inspect().findings().empty());
  log.facts.journal_from = 60;
  CHECK(log.inspect().findings().empty());

  // The records from 90 to 99 are lost, and the journal has the log from 100 on.
  log.facts.journal_from = 100;
  log.repair();
  auto opened = log.open();
  CHECK(opened.end_offset() == 100);
  REQUIRE(opened.truncate_to(100));
  REQUIRE(opened.replay(SharedBytes(Buffer(log.batch(100))), from_ms(1)));
  CHECK(opened.end_offset() == 110);
}

TEST_CASE("batches that a start has saved are put back into the log") {
  DamagedLogFixture log;
  REQUIRE(log.disk.make_directories("kept"));
  const std::string saved = "kept/orders-0-00000000000000000120.log";
  Buffer bytes = log.batch(120);
  append_bytes(bytes, log.batch(130));
  log.put(saved, bytes);
  log.facts.saved = {saved};
  log.repair();
  auto opened = log.open();
  CHECK(opened.end_offset() == 140);
  CHECK(log.read_from(opened, 80) == std::vector<Offset>{80, 90, 120, 130});
  CHECK(log.get(saved + ".restored") == bytes);
  // A file of which the log has the first part.
  const std::string partly = "kept/orders-0-00000000000000000130.log";
  Buffer overlapping = log.batch(130);
  append_bytes(overlapping, log.batch(140));
  log.put(partly, overlapping);
  log.facts.saved = {partly};
  log.repair();
  auto longer = log.open();
  CHECK(longer.end_offset() == 150);
  CHECK(log.read_from(longer, 80) == std::vector<Offset>{80, 90, 120, 130, 140});
  // Offsets that the log has given out again meanwhile are not overwritten.
  const std::string old = "kept/orders-0-00000000000000000090.log";
  log.put(old, log.batch(90));
  log.facts.saved = {old};
  CHECK(log.inspect().findings().empty());
}

TEST_CASE("a hole never takes the place of what a start has saved, wherever a repair was killed") {
  std::uint64_t kills = 0;
  for (const bool tail_is_broken : {false, true}) {
    bool killed = true;
    for (std::uint64_t call = 1; killed; ++call) {
      CAPTURE(tail_is_broken);
      CAPTURE(call);
      DamagedLogFixture log;
      REQUIRE(log.disk.make_directories("kept"));
      const std::string saved = "kept/orders-0-00000000000000000120.log";
      Buffer bytes = log.batch(120);
      append_bytes(bytes, log.batch(130));
      log.put(saved, bytes);
      log.facts.saved = {saved};
      log.facts.appended_end = 150;
      if (tail_is_broken) log.flip(90, 70);
      auto found = log.inspect();
      log.disk.crash_call(call);
      killed = false;
      try {
        static_cast<void>(found.run());
      } catch (const MemoryDisk::PowerCut&) {
        killed = true;
      }
      log.disk.heal();
      if (killed) {
        ++kills;
        if (call % 2 == 0) {
          log.disk.kill();
        } else {
          log.disk.cut_power();
        }
      }
      log.repair();
      auto opened = log.open();
      CHECK(opened.end_offset() == 150);
      const auto expected = tail_is_broken ? std::vector<Offset>{70, 80, 120, 130}
                                           : std::vector<Offset>{70, 80, 90, 120, 130};
      CHECK(log.read_from(opened, 70) == expected);
    }
  }
  CHECK(kills > 30);
}

TEST_CASE("a broken batch costs nothing if a start has saved its records") {
  struct Case {
    std::vector<Offset> broken, saved;
  };
  // The end that a kill has torn, a batch with others behind it, one at a segment's beginning, the
  // end of a segment that is not the last, and several in one file.
  for (const Case& one :
       {Case{{90}, {90, 100}}, Case{{60}, {60, 70}}, Case{{50}, {50}}, Case{{40}, {40, 50}},
        Case{{10, 30, 90}, {10, 20, 30, 40, 50, 60, 70, 80, 90, 100}}}) {
    CAPTURE(one.broken.front());
    DamagedLogFixture log;
    for (const Offset first : one.broken) log.flip(first, 70);
    REQUIRE(log.disk.make_directories("kept"));
    const auto path = fmt::format("kept/orders-0-{:020}.log", one.saved.front());
    Buffer bytes;
    for (const Offset first : one.saved) append_bytes(bytes, log.batch(first));
    log.put(path, bytes);
    log.facts.saved = {path};
    const auto inspected = log.inspect();
    for (const auto& finding : inspected.findings()) CHECK(finding.lost_from == finding.lost_until);
    log.repair();
    auto opened = log.open();
    std::vector<Offset> expected;
    const Offset end = one.saved.back() == 100 ? 110 : 100;
    for (Offset first = 0; first < end; first += batch_records) expected.push_back(first);
    CHECK(opened.end_offset() == end);
    CHECK(log.read_from(opened, 0) == expected);
    CHECK(log.get(path + ".restored") == bytes);
  }
}

TEST_CASE("a part that a start has saved fills a gap between two segments, if it fits there") {
  DamagedLogFixture log;
  for (const char* suffix : {".log", ".index", ".timeindex"})
    REQUIRE(log.disk.remove(segment_path(repaired_directory, 50, suffix)));
  log.write_segment_of(80, 100);
  REQUIRE(log.disk.make_directories("kept"));
  const std::string path = "kept/orders-0-00000000000000000060.log";
  Buffer bytes;
  for (const Offset first : {60, 70, 80}) append_bytes(bytes, log.batch(first));
  // Its last batch is broken, and the log has that one.
  bytes.back() ^= 1;
  log.put(path, bytes);
  log.facts.saved = {path};
  const auto found = log.inspect();
  REQUIRE(found.findings().size() == 1);
  CHECK(found.findings().front().problem.contains("the rest of it is damaged"));
  CHECK(found.findings().front().lost_from == 50);
  CHECK(found.findings().front().lost_until == 60);
  log.repair();
  auto opened = log.open();
  CHECK(log.read_from(opened, 30) == std::vector<Offset>{30, 40, 60, 70, 80, 90});
}

TEST_CASE("a batch that does not belong at a segment's beginning costs none of those behind it") {
  DamagedLogFixture log;
  Buffer bytes = log.batch(40);
  append_bytes(bytes, log.get(DamagedLogFixture::log_of(50)));
  log.put(DamagedLogFixture::log_of(50), bytes);
  log.repair();
  auto opened = log.open();
  CHECK(log.read_from(opened, 0) == std::vector<Offset>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90});
}

TEST_CASE("a hole may be longer than a segment's index reaches") {
  DamagedLogFixture log;
  log.facts.config.index_interval_bytes = 0;
  constexpr Offset far = Offset{1} << 40;
  log.facts.journal_from = far;
  log.repair();
  auto opened = log.open();
  CHECK(opened.end_offset() == far);
  CHECK(log.read_from(opened, 80) == std::vector<Offset>{80, 90});
  CHECK(log.everything().size() < 20);
}

TEST_CASE("a partition.metadata that is missing or unreadable is written again") {
  for (const char* text : {"", "nonsense"}) {
    DamagedLogFixture log;
    const auto name = DamagedLogFixture::path("partition.metadata");
    REQUIRE(log.disk.remove(name));
    if (*text != 0) log.put(name, as_bytes(std::string_view(text)));
    CHECK(log.inspect().findings().size() == 1);
    log.repair();
    CHECK(log.open().end_offset() == 100);
  }
}

TEST_CASE("another topic's log is set aside whole, and the partition goes on at its own end") {
  DamagedLogFixture log;
  const auto owner = std::exchange(log.facts.topic, log.random.topic_id());
  log.facts.name_of = [&](const TopicId& id) {
    return id == owner ? std::string("payments") : std::string();
  };
  log.facts.appended_end = 30;
  log.put(DamagedLogFixture::path("start-offset"), as_bytes("version: 0\nstart_offset: 70\n"));
  const auto before = log.everything();
  for (const char* ending : {".damaged", ".damaged-2"}) {
    const auto aside = fmt::format("{}.{}{}", repaired_directory, owner.text(), ending);
    const auto found = log.inspect();
    REQUIRE(found.findings().size() == 2);
    const auto& finding = found.findings().front();
    CHECK(finding.file == repaired_directory);
    CHECK(finding.problem.contains("topic payments"));
    CHECK(finding.repair.contains(aside));
    CHECK(found.findings().back().kind == RepairFinding::Kind::log_end);
    log.repair();
    const auto entries = log.disk.list(aside);
    REQUIRE(entries);
    std::map<std::string, Buffer> kept;
    for (const auto& entry : *entries) kept[entry.name] = log.get(aside + "/" + entry.name);
    CHECK(kept == before);
    auto opened = log.open();
    CHECK(opened.start_offset() == 0);
    CHECK(opened.end_offset() == 30);
    // The same again.
    const auto names = log.everything();
    for (const auto& [name, bytes] : names) REQUIRE(log.disk.remove(DamagedLogFixture::path(name)));
    for (const auto& [name, bytes] : before) log.put(DamagedLogFixture::path(name), bytes);
  }
  // As long a name as a topic may have.
  const auto longest = fmt::format("logs/{}-0", std::string(249, 't'));
  REQUIRE(log.disk.rename(repaired_directory, longest));
  auto found = LogRepair::inspect(log.disk, longest, log.facts);
  REQUIRE(found);
  const auto& repair = found->findings().front().repair;
  const auto name = repair.substr(repair.find('/') + 1);
  CHECK(name.substr(0, name.find(';')).size() <= 255);
}

TEST_CASE("a read that fails ends the work, and is never taken for damage") {
  std::uint64_t failures = 0;
  for (std::uint64_t call = 1;; ++call) {
    CAPTURE(call);
    DamagedLogFixture log;
    log.flip(20, 70);
    log.put(DamagedLogFixture::path("start-offset"), as_bytes("version: 0\nstart_offset: 5\n"));
    log.disk.fail_call(call, Errc::io);
    const auto found = LogRepair::inspect(log.disk, repaired_directory, log.facts);
    log.disk.heal();
    if (found) {
      CHECK(found->findings().size() == 1);
      break;
    }
    CHECK(found.error().code == Errc::io);
    ++failures;
  }
  CHECK(failures > 10);
}

TEST_CASE("a repair that a full disk ends has lost nothing, and there is room for the next one") {
  DamagedLogFixture log;
  log.flip(20, 70);
  const auto before = log.everything();
  const auto used = log.disk.used();
  const auto room = before.at("00000000000000000000.log").size();
  // The copy of what is cut off does not fit, or the segment behind it does not.
  for (const auto free : {room / 4, room}) {
    CAPTURE(free);
    log.disk.set_space(used + free);
    auto found = log.inspect();
    const auto done = found.run();
    REQUIRE_FALSE(done);
    CHECK(done.error().code == Errc::no_space);
    const auto after = log.everything();
    for (const auto& [name, bytes] : before) CHECK(after.at(name) == bytes);
    for (const auto& [name, bytes] : after) {
      CHECK_FALSE(name.ends_with(".log.tmp"));
      CHECK_FALSE(name.ends_with(".damaged.tmp"));
    }
  }
  log.disk.set_space(used + 8 * room);
  log.repair();
  auto opened = log.open();
  CHECK(log.read_from(opened, 0) == std::vector<Offset>{0, 10, 30, 40, 50, 60, 70, 80, 90});
}

TEST_CASE("a file that was set aside earlier is not overwritten") {
  DamagedLogFixture log;
  const auto start = DamagedLogFixture::path("start-offset");
  for (const char* text : {"first", "second", "second"}) {
    log.put(start, as_bytes(std::string_view(text)));
    log.repair();
  }
  CHECK(as_text(log.get(start + ".damaged")) == "first");
  CHECK(as_text(log.get(start + ".damaged-2")) == "second");
  CHECK_FALSE(log.everything().contains("start-offset.damaged-3"));
}

TEST_CASE("a repair that is killed at any call is completed by the next one, and nothing is lost") {
  using Firsts = std::vector<Offset>;
  std::uint64_t kills = 0;
  for (const Firsts& broken : {Firsts{20, 90}, Firsts{10, 30}, Firsts{60, 90}, Firsts{0, 20, 40}}) {
    Firsts expected;
    for (Offset first = 0; first < 100; first += batch_records)
      if (std::ranges::find(broken, first) == broken.end()) expected.push_back(first);
    bool killed = true;
    for (std::uint64_t call = 1; killed; ++call) {
      CAPTURE(broken.front());
      CAPTURE(call);
      DamagedLogFixture log;
      for (const Offset first : broken) log.flip(first, 70);
      auto found = log.inspect();
      log.disk.crash_call(call);
      killed = false;
      try {
        static_cast<void>(found.run());
      } catch (const MemoryDisk::PowerCut&) {
        killed = true;
      }
      log.disk.heal();
      if (!killed) break;
      ++kills;
      if (call % 2 == 0) {
        log.disk.kill();
      } else {
        log.disk.cut_power();
      }
      log.repair();
      auto opened = log.open();
      CHECK(opened.end_offset() == 100);
      CHECK(log.read_from(opened, 0) == expected);
    }
  }
  CHECK(kills > 100);
}

}  // namespace
}  // namespace tarry::storage

TEST_SUITE_END();
