#include "storage/journal_repair.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "batches.h"
#include "storage/journal.h"
#include "storage/journal_record.h"
#include "storage/recovery.h"
#include "tests/memory_disk.h"

TEST_SUITE_BEGIN("journal repair");

namespace tarry::storage {
namespace {

const std::string repaired_journal = "journal/0";

// A journal with a round for each record: batches of ten offsets of two partitions, in turns.
struct DamagedJournalFixture {
  SeededRandom random{3};
  MemoryDisk disk{random};
  QueuedBackground background;
  SetClock clock;
  std::vector<std::pair<Lsn, Offset>> rounds;  // Where a record is, and its first offset.

  explicit DamagedJournalFixture(int count = 12, std::uint64_t file_bytes = 1 << 20,
                                 bool has_idle_note = true) {
    set_log_level(LogLevel::off);
    REQUIRE(disk.make_directories(repaired_journal));
    JournalOptions options;
    options.directory = repaired_journal;
    options.file_bytes = file_bytes;
    options.max_bytes = 16 << 20;
    options.reserve_bytes = 64 << 10;
    auto journal = Journal::open(disk, background, random, clock, options, {}, {});
    REQUIRE(journal);
    for (int i = 0; i < count; ++i) {
      const Offset first = i / 2 * 10;
      const auto batch = make_batch(first, std::vector<TestRecord>(10, TestRecord{1000, 200}));
      RecordBuilder record;
      record.add(LogAppended{partition(i % 2), from_ms(1), batch});
      const auto pieces = record.pieces();
      const auto lsn = (*journal)->append(pieces, {});
      REQUIRE(lsn);
      rounds.emplace_back(*lsn, first);
      (*journal)->start_round();
      background.run_all();
    }
    if (!has_idle_note) return;
    (*journal)->note_idle();
    background.run_all();
  }

  static TopicPartition partition(PartitionIndex index) { return {TopicId{}, index}; }

  std::string file_of(Lsn lsn, std::uint64_t& at) {
    Lsn first = 0;
    const auto entries = disk.list(repaired_journal);
    for (const auto& entry : *entries) {
      const auto parsed = parse_journal_file_name(entry.name);
      if (parsed && *parsed <= lsn) first = std::max(first, *parsed);
    }
    at = lsn - first;
    return repaired_journal + "/" + journal_file_name(first);
  }
  void flip(Lsn lsn) {
    std::uint64_t at = 0;
    const auto file = disk.open(file_of(lsn, at), {.write = true});
    REQUIRE(file);
    Buffer byte(1);
    REQUIRE((*file)->pread(at, byte));
    byte[0] ^= 0x10;
    REQUIRE((*file)->pwrite(at, byte));
    REQUIRE((*file)->sync());
  }
  std::map<std::string, Buffer> everything() {
    std::map<std::string, Buffer> out;
    const auto entries = disk.list(repaired_journal);
    for (const auto& entry : *entries)
      out[entry.name] = *read_file(disk, repaired_journal + "/" + entry.name, 64 << 20);
    return out;
  }

  struct Record {
    Lsn lsn;
    Buffer bytes;
    bool operator==(const Record&) const = default;
  };
  std::vector<Record> seen;
  OnRecord collect() {
    seen.clear();
    return [this](Lsn lsn, Bytes record) {
      seen.push_back({lsn, Buffer(record.begin(), record.end())});
      return Result<>();
    };
  }

  JournalRepair inspect() {
    auto found = JournalRepair::inspect(disk, repaired_journal, collect());
    if (!found) FAIL(found.error().message);
    return std::move(*found);
  }

  // The offsets that recovery gets of a partition, each run {first, behind the last, is a hole}.
  std::vector<std::tuple<Offset, Offset, bool>> recovered(PartitionIndex index) {
    std::vector<std::tuple<Offset, Offset, bool>> out;
    const auto read = recover_journal(disk, repaired_journal, [&](Lsn, Bytes record) {
      return for_each_operation(record, [&](const Operation& operation) -> Result<> {
        const auto* appended = std::get_if<LogAppended>(&operation);
        if (appended == nullptr || appended->partition != partition(index)) return {};
        const auto view = *records::BatchView::parse(appended->batches);
        CHECK(view.crc_matches());
        out.emplace_back(view.base_offset(), view.next_offset(), view.is_control());
        return {};
      });
    });
    if (!read) FAIL(read.error().message);
    return out;
  }
};

TEST_CASE(
    "a broken round costs its own records: later ones keep their places, and a log has a "
    "hole instead of a fence") {
  DamagedJournalFixture journal;
  auto whole = journal.inspect();
  CHECK(whole.findings().empty());
  const auto all = journal.seen;
  REQUIRE(all.size() == 12);

  journal.flip(journal.rounds[5].first + 100);
  CHECK_FALSE(recover_journal(journal.disk, repaired_journal, journal.collect()));
  const auto before = journal.everything();
  auto found = journal.inspect();
  CHECK(journal.everything() == before);
  auto expected = all;
  expected.erase(expected.begin() + 5);
  CHECK(journal.seen == expected);
  REQUIRE(found.findings().size() == 2);
  CHECK(found.findings()[0].can_repair());
  CHECK(found.findings()[1].lost_from == 20);
  CHECK(found.findings()[1].lost_until == 30);

  REQUIRE(found.run("kept"));
  CHECK(journal.inspect().findings().empty());
  using Runs = std::vector<std::tuple<Offset, Offset, bool>>;
  CHECK(journal.recovered(0) == Runs{{0, 10, false},
                                     {10, 20, false},
                                     {20, 30, false},
                                     {30, 40, false},
                                     {40, 50, false},
                                     {50, 60, false}});
  CHECK(journal.recovered(1) == Runs{{0, 10, false},
                                     {10, 20, false},
                                     {20, 30, true},
                                     {30, 40, false},
                                     {40, 50, false},
                                     {50, 60, false}});
  const auto kept = journal.disk.list("kept");
  REQUIRE(kept);
  REQUIRE(kept->size() == 1);
  const auto bytes = read_file(journal.disk, "kept/" + kept->front().name, 1 << 20);
  REQUIRE(bytes);
  const auto& file = before.begin()->second;
  CHECK(std::ranges::search(file, *bytes).size() == bytes->size());
}

TEST_CASE("several broken rounds, at the beginning, in a row and at the end, are all bridged") {
  for (const auto& broken :
       std::vector<std::vector<std::size_t>>{{0}, {3, 4, 5}, {11}, {2, 7, 11}}) {
    CAPTURE(broken.front());
    DamagedJournalFixture journal;
    for (const auto round : broken) journal.flip(journal.rounds[round].first + 100);
    auto found = journal.inspect();
    REQUIRE_FALSE(found.findings().empty());
    for (const auto& finding : found.findings()) CHECK(finding.can_repair());
    CHECK(journal.seen.size() == 12 - broken.size());
    REQUIRE(found.run("kept"));
    CHECK(journal.inspect().findings().empty());
    CHECK(recover_journal(journal.disk, repaired_journal, journal.collect()).has_value());
  }
}

TEST_CASE("broken headers of rounds and files are bridged too, over several files") {
  DamagedJournalFixture journal(40, 64 << 10);
  const auto files = journal.everything();
  REQUIRE(std::ranges::count_if(files, [](const auto& each) {
            return parse_journal_file_name(each.first).has_value();
          }) > 2);
  journal.flip(journal.rounds[8].first - round_header_bytes + 30);
  Lsn second = 0;
  for (const auto& [name, bytes] : files) {
    const auto first = parse_journal_file_name(name);
    if (first && *first > 0 && second == 0) second = *first;
  }
  journal.flip(second + 20);
  auto found = journal.inspect();
  CHECK(journal.seen.size() == 39);
  REQUIRE(found.run("kept"));
  const auto inspected = journal.inspect();
  for (const auto& finding : inspected.findings()) FAIL_CHECK(finding.problem);
  CHECK(journal.recovered(0).size() + journal.recovered(1).size() == 40);
}

TEST_CASE("a journal in which the header of a file is all that is broken loses nothing") {
  DamagedJournalFixture journal(40, 64 << 10);
  Lsn second = 0;
  for (const auto& [name, bytes] : journal.everything()) {
    const auto first = parse_journal_file_name(name);
    if (first && *first > 0 && second == 0) second = *first;
  }
  journal.flip(second + 20);
  auto found = journal.inspect();
  REQUIRE_FALSE(found.findings().empty());
  for (const auto& finding : found.findings()) CHECK(finding.can_repair());
  CHECK(journal.seen.size() == 40);
  REQUIRE(found.run("kept"));
  const auto inspected = journal.inspect();
  for (const auto& finding : inspected.findings()) FAIL_CHECK(finding.problem);
  CHECK(journal.recovered(0).size() + journal.recovered(1).size() == 40);
}

TEST_CASE("a torn end is no damage, and the last round before an idle note is") {
  DamagedJournalFixture torn(12, 1 << 20, false);
  torn.flip(torn.rounds.back().first + 100);
  const auto cut = torn.inspect();
  CHECK(cut.findings().empty());
  CHECK(cut.is_torn());
  CHECK(torn.seen.size() == 11);

  DamagedJournalFixture damaged;
  damaged.flip(damaged.rounds.back().first + 100);
  const auto found = damaged.inspect();
  CHECK(found.findings().size() == 1);
  CHECK_FALSE(found.is_torn());
}

TEST_CASE(
    "a checkpoint that is not whole or a file that is missing is told, and nothing is changed") {
  DamagedJournalFixture journal(40, 64 << 10);
  const auto files = journal.everything();
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files)
    if (parse_journal_file_name(name)) names.push_back(repaired_journal + "/" + name);
  REQUIRE(names.size() > 2);
  REQUIRE(journal.disk.remove(names[1]));
  const auto before = journal.everything();
  auto found = journal.inspect();
  REQUIRE(found.findings().size() == 1);
  CHECK_FALSE(found.findings().front().can_repair());
  CHECK(found.findings().front().problem.contains("missing"));
  REQUIRE(found.run("kept"));
  CHECK(journal.everything() == before);

  DamagedJournalFixture other;
  REQUIRE(replace_file(other.disk, repaired_journal + "/checkpoint", as_bytes("half a li")));
  auto unknown = other.inspect();
  REQUIRE(unknown.findings().size() == 1);
  CHECK_FALSE(unknown.findings().front().can_repair());
}

TEST_CASE("a read of a journal that fails ends the work, and is never taken for damage") {
  std::uint64_t failures = 0;
  for (std::uint64_t call = 1;; ++call) {
    CAPTURE(call);
    DamagedJournalFixture journal;
    journal.flip(journal.rounds[5].first + 100);
    journal.disk.fail_call(call, Errc::io);
    const auto found = JournalRepair::inspect(journal.disk, repaired_journal, journal.collect());
    journal.disk.heal();
    if (found) {
      CHECK(found->findings().size() == 2);
      break;
    }
    CHECK(found.error().code == Errc::io);
    ++failures;
  }
  CHECK(failures > 10);
}

TEST_CASE("a repair of a journal that is killed at any call is completed by the next one") {
  std::uint64_t kills = 0;
  for (std::uint64_t call = 1;; ++call) {
    CAPTURE(call);
    DamagedJournalFixture journal;
    journal.flip(journal.rounds[5].first + 100);
    auto found = journal.inspect();
    journal.disk.crash_call(call);
    bool killed = false;
    try {
      static_cast<void>(found.run("kept"));
    } catch (const MemoryDisk::PowerCut&) {
      killed = true;
    }
    journal.disk.heal();
    if (!killed) break;
    ++kills;
    journal.disk.cut_power();
    auto again = journal.inspect();
    REQUIRE(again.run("kept"));
    const auto inspected = journal.inspect();
    for (const auto& finding : inspected.findings()) FAIL_CHECK(finding.problem);
    CHECK(journal.recovered(1).size() == 6);
  }
  CHECK(kills > 5);
}

}  // namespace
}  // namespace tarry::storage

TEST_SUITE_END();
