#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <sys/file.h>

#include "base/bytes.h"
#include "base/log.h"
#include "cli/index_dump.h"
#include "cli/journal_dump.h"
#include "cli/pending_dump.h"
#include "storage/bucket_store.h"
#include "storage/catalog.h"
#include "storage/database.h"
#include "storage/index.h"
#include "storage/journal.h"
#include "storage/journal_record.h"
#include "tests/cli/captured.h"
#include "tests/given.h"
#include "tests/memory_disk.h"
#include "tests/storage/scratch.h"

namespace tarry::cli {
namespace {

struct OfflineFiles {
  OfflineFiles() { REQUIRE(disk.make_directories("journal/0").has_value()); }

  void put(const std::string& path, std::uint64_t at, Bytes bytes) {
    const auto file =
        disk.open(path, {.write = true, .create = storage::OpenOptions::Create::if_absent});
    REQUIRE(file.has_value());
    REQUIRE((*file)->pwrite(at, bytes).has_value());
  }
  void put_text(const std::string& path, std::uint64_t at, std::string_view bytes) {
    put(path, at, as_bytes(bytes));
  }

  template <typename Dump>
  DumpFindings dump(Dump function, const std::string& path, bool json = false) {
    Captured out;
    const auto findings = function(disk, path, json, out.output());
    REQUIRE(findings.has_value());
    text = out.text();
    return *findings;
  }

  // A round for each operation; returns the journal's file.
  template <typename... Operations>
  std::string write_operations(storage::Disk& on, const std::string& directory,
                               const Operations&... operations) {
    set_log_level(LogLevel::off);
    QueuedBackground background;
    SetClock clock;
    storage::JournalOptions options;
    options.directory = directory;
    options.file_bytes = 64 << 10;
    options.max_bytes = 512 << 10;
    options.reserve_bytes = 64 << 10;
    auto journal = storage::Journal::open(on, background, random, clock, options, {}, {});
    REQUIRE(journal.has_value());
    const auto append = [&](const auto& operation) {
      storage::RecordBuilder record;
      record.add(operation);
      const auto pieces = record.pieces();
      REQUIRE((*journal)->append(pieces, {}).has_value());
      (*journal)->start_round();
      while (background.step()) {
      }
    };
    (append(operations), ...);
    journal->reset();
    const auto entries = on.list(directory);
    for (const auto& entry : *entries)
      if (entry.name.ends_with(".journal")) return directory + "/" + entry.name;
    return {};
  }

  // A topic, a pending record that is cancelled, and a user.
  std::string write_journal() {
    storage::PendingAdded added{{{}, 2},       7,     from_ms(5000),         from_ms(1000),
                                from_ms(9000), "o-1", as_bytes("the record")};
    added.principal = 12;
    storage::PendingRemoved removed{
        {{}, 2}, 7, from_ms(5000), storage::RemovalReason::cancelled, from_ms(2000), "o-1"};
    removed.share = added.share();
    return write_operations(disk, "journal/0",
                            storage::TopicCreated{{}, 3, "orders", {{"retention.ms", "1000"}}},
                            added, removed, storage::SecurityRowSet{"user:1alice", "the secret"});
  }

  SeededRandom random{1};
  storage::MemoryDisk disk{random};
  std::string text;  // The text of the last dump.
};

bool has_line(const std::string& text, std::string_view part) {
  return text.contains(part);
}

TEST_SUITE("offline dumps") {
  TEST_CASE(
      "the entries of both indexes are printed with Kafka's words, and damage does not end it") {
    OfflineFiles files;
    Buffer entries;
    storage::append_entry(entries, 100, storage::IndexEntry{128, 4169});
    storage::append_entry(entries, 100, storage::IndexEntry{120, 9000});  // Not behind it.
    storage::append_entry(entries, 100, storage::IndexEntry{190, 9500});
    const std::string name = "journal/0/00000000000000000100";
    files.put(name + ".index", 0, entries);
    files.put_text(name + ".index", entries.size(), "half");
    auto found = files.dump(dump_index, name + ".index");
    CHECK(files.text ==
          "Dumping journal/0/00000000000000000100.index\n"
          "offset: 128 position: 4169\n"
          "offset: 120 position: 9000\n"
          "offset: 190 position: 9500\n");
    CHECK(found.entries == 3);
    CHECK(found.wrong == 2);
    CHECK(found.first == name + ".index: entry 1 does not follow the entry before it");

    Buffer times;
    storage::append_entry(times, 100, storage::TimeEntry{1700, 128});
    storage::append_entry(times, 100, storage::TimeEntry{1800, 190});
    files.put(name + ".timeindex", 0, times);
    found = files.dump(dump_index, name + ".timeindex", true);
    CHECK(found.wrong == 0);
    CHECK(has_line(files.text, R"("timestamp":1700,"offset":128})"));
    CHECK(has_line(files.text, R"("timestamp":1800,"offset":190})"));

    // With the log beside it an entry that is of no batch there is found.
    files.put_text(name + ".log", 0, std::string(5000, 'x'));
    found = files.dump(dump_index, name + ".index");
    CHECK(found.wrong == 5);
    Captured out;
    CHECK_FALSE(dump_index(files.disk, name + ".log", false, out.output()).has_value());
    CHECK_FALSE(dump_index(files.disk, "journal/0/1.index", false, out.output()).has_value());
  }

  TEST_CASE("a journal's rounds and what they record are printed, without secrets") {
    OfflineFiles files;
    const auto path = files.write_journal();
    auto found = files.dump(dump_journal, path);
    CAPTURE(files.text);
    CHECK(found.wrong == 0);
    CHECK(found.entries == 4);
    CHECK(has_line(files.text, "shard: 0 incarnation: 1 first: 0000000000000000"));
    CHECK(has_line(files.text, "round: 2 lsn: 0000000000002000 records: 1"));
    CHECK(has_line(files.text, "TopicCreated topic: AAAAAAAAAAAAAAAAAAAAAA name: orders"));
    CHECK(has_line(files.text,
                   "PendingAdded topic: AAAAAAAAAAAAAAAAAAAAAA partition: 2 sequence: 7"));
    CHECK(has_line(files.text, "id: o-1 bytes: 10 principal: 12"));
    CHECK(has_line(files.text, "how: cancelled at_ms: 2000 id: o-1 principal: 12"));
    CHECK(has_line(files.text, "key: user:1alice"));
    CHECK_FALSE(has_line(files.text, "secret"));
    files.dump(dump_journal, path, true);
    CHECK(has_line(files.text, R"("operation":"PendingRemoved")"));
    CHECK(has_line(files.text, R"("id":"o-1")"));
  }

  TEST_CASE("behind damage in a journal its rounds go on, and the damage is told with its place") {
    OfflineFiles files;
    const auto path = files.write_journal();
    files.put_text(path, 0x2000, "gone");               // The header of the second round,
    files.put_text(path, 0x3000 + 64 + 10, "changed");  // and a record of the third.
    const auto found = files.dump(dump_journal, path);
    CAPTURE(files.text);
    CHECK(found.entries == 3);
    CHECK(found.wrong == 2);
    CHECK(found.first == path +
                             ": position 8192: 4096 bytes are damaged, because a whole round of "
                             "the same journal follows");
    CHECK(has_line(files.text, "round: 3 lsn: 0000000000003000 records: 1"));
    CHECK(has_line(files.text, "isvalid: false"));
    CHECK(has_line(files.text, "user:1alice"));
    CHECK_FALSE(has_line(files.text, "how: cancelled"));

    files.put_text(path, 0, "no journal");
    Captured out;
    const auto none = dump_journal(files.disk, path, false, out.output());
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().message.contains("header of a journal file"));
  }

  TEST_CASE(
      "a dumped pending record has the name of its topic, from the database or from the journal, "
      "and "
      "none where neither has it") {
    OfflineFiles files;
    const storage::ScratchDirectory scratch;
    const auto data = scratch.path("data");
    for (const char* directory : {"/db", "/journal/0"})
      std::filesystem::create_directories(data + directory);
    REQUIRE(storage::BucketStore::make(data + "/db/pending", {}));
    const auto known = storage::test_topic(1), fresh = storage::test_topic(2),
               lost = storage::test_topic(3);
    {
      auto meta = storage::Database::make(data + "/db/meta");
      REQUIRE(meta);
      storage::Catalog catalog(**meta);
      REQUIRE(catalog.load());
      REQUIRE(catalog.apply(storage::TopicCreated{known, 1, "orders", {}}));
      REQUIRE((*meta)->flush());
    }
    const auto added = [](const TopicId& topic, Sequence sequence) {
      return storage::PendingAdded{{topic, 0},    sequence, from_ms(5000),         from_ms(1000),
                                   from_ms(9000), "",       as_bytes("the record")};
    };
    storage::PosixDisk disk;
    files.write_operations(disk, data + "/journal/0", added(known, 1),
                           storage::TopicCreated{fresh, 1, "bills", {}}, added(fresh, 2),
                           added(lost, 3));
    const auto dumped = [&](bool json) {
      Captured out;
      const auto found = dump_pending(data, json, out.output());
      REQUIRE(found);
      CHECK(found->wrong == 0);
      CHECK(found->entries == 3);
      return out.text();
    };
    const auto text = dumped(false);
    CAPTURE(text);
    CHECK(has_line(text, "topic: " + known.text() + " name: orders partition: 0"));
    CHECK(has_line(text, "topic: " + fresh.text() + " name: bills partition: 0"));
    CHECK(has_line(text, "topic: " + lost.text() + " partition: 0"));
    CHECK(has_line(dumped(true), R"("name":"bills")"));
    std::filesystem::remove_all(data + "/db/meta");
    CHECK(has_line(dumped(false), "topic: " + known.text() + " partition: 0"));
  }

  TEST_CASE("pending records are not dumped while a broker holds the directory, and it is named") {
    set_log_level(LogLevel::off);
    const storage::ScratchDirectory scratch;
    const auto data = scratch.path("data"), bare = data + "/db/pending";
    const auto error_of = [](const std::string& directory) {
      Captured out;
      const auto found = dump_pending(directory, false, out.output());
      return found ? std::string() : found.error().message;
    };
    CHECK(error_of(data).contains("neither a data directory"));
    std::filesystem::create_directories(bare);
    REQUIRE(storage::BucketStore::make(bare, {}));
    CHECK(error_of(data) == "");
    storage::write_whole(data + "/.lock", "4711\n");
    {
      const std::shared_ptr<std::FILE> lock(std::fopen((data + "/.lock").c_str(), "r"),
                                            std::fclose);
      REQUIRE(::flock(::fileno(lock.get()), LOCK_EX | LOCK_NB) == 0);
      for (const auto& directory : {data, data + "/", bare, bare + "/"})
        CHECK(error_of(directory).contains("in use by the broker with pid 4711"));
    }
    CHECK(error_of(data) == "");
    // Nothing about a backup to a reader.
    storage::write_whole(bare + "/CURRENT", "nothing\n");
    const auto damaged = error_of(bare);
    CHECK(damaged != "");
    CHECK_FALSE(damaged.contains("restore"));
  }
}

}  // namespace
}  // namespace tarry::cli
