#include "storage/journal.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "tests/given.h"
#include "tests/memory_disk.h"

namespace tarry::storage {
namespace {

// Two threads that work, and an inbox for what is to run on the one that asked.
class ThreadBackground final : public Background {
 public:
  ThreadBackground() {
    for (int i = 0; i < 2; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  void run_and_then(Work work, Work then) override {
    const std::lock_guard lock(mutex_);
    todo_.push_back({std::move(work), std::move(then)});
    has_work_.notify_one();
  }
  // Waits for at least one piece to be done.
  void take_done() {
    std::deque<Work> done;
    {
      std::unique_lock lock(mutex_);
      has_done_.wait(lock, [&] { return !done_.empty(); });
      done.swap(done_);
    }
    for (auto& then : done) then();
  }

 private:
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (has_work_.wait(lock, stop, [&] { return !todo_.empty(); })) {
      auto [work, then] = std::move(todo_.front());
      todo_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      done_.push_back(std::move(then));
      has_done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any has_work_, has_done_;
  std::deque<std::pair<Work, Work>> todo_;
  std::deque<Work> done_;
  std::vector<std::jthread> threads_;  // Last: they use the others.
};

using Records = std::vector<std::pair<Lsn, Buffer>>;

Buffer text(std::string_view text) {
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

// One shard's journal on a disk of memory, with small files.
struct Rig {
  explicit Rig(std::uint64_t seed = 1) : random(seed), disk(random) {
    set_log_level(LogLevel::off);  // Here what goes wrong is meant to.
    options.directory = "journal/0";
    options.file_bytes = 64 << 10;
    options.max_bytes = 512 << 10;
    options.reserve_bytes = 64 << 10;
    options.round_bytes = 16 << 10;
  }

  Result<Records> recover() {
    Records records;
    const auto found = recover_journal(disk, options.directory, [&](Lsn lsn, Bytes record) {
      records.emplace_back(lsn, Buffer(record.begin(), record.end()));
      return Result<>{};
    });
    if (!found) return std::unexpected(found.error());
    recovered = *found;
    return records;
  }

  Result<> open(Disk* other = nullptr) {
    journal.reset();
    ready = false;
    JournalHooks hooks;
    hooks.on_ready = [this] { ready = true; };
    hooks.on_failure = [this](const Error& error) { failures.push_back(error); };
    hooks.on_pressure = [this] { ++pressure; };
    hooks.on_postponed = [this](const Error& error) { postponed.push_back(error); };
    auto opened = Journal::open(other != nullptr ? *other : disk, background, random, clock,
                                options, std::move(hooks), recovered);
    if (!opened) return std::unexpected(opened.error());
    journal = std::move(*opened);
    return {};
  }

  // As after the process has gone; what it left on its way is lost.
  void stop() {
    journal.reset();
    background.forget();
  }

  // Until nothing is on its way any more.
  void settle() {
    do {
      if (ready) {
        ready = false;
        journal->start_round();
      }
    } while (background.step() || ready);
  }

  Lsn append(Bytes record, Journal::Completion completion = {}) {
    const auto lsn = journal->append(record, std::move(completion));
    REQUIRE(lsn);
    return *lsn;
  }

  std::string only_file() {
    std::string found;
    const auto entries = disk.list(options.directory);
    for (const auto& entry : *entries)
      if (parse_journal_file_name(entry.name)) found = options.directory + "/" + entry.name;
    return found;
  }

  SeededRandom random;
  MemoryDisk disk;
  QueuedBackground background;
  SetClock clock;
  JournalOptions options;
  RecoveredJournal recovered;
  std::unique_ptr<Journal> journal;
  bool ready = false;
  int pressure = 0;
  std::vector<Error> failures;
  std::vector<Error> postponed;
};

// The disk, and no directory is where it was while `away`; files that are open stay open.
class MovedDisk final : public Disk {
 public:
  explicit MovedDisk(Disk& disk) : disk_(disk) {}
  bool away = false;
  std::function<bool(const OpenOptions&)> lacks_memory;  // For a spare; empty: never.

  Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options) override {
    if (away) return not_there(path);
    if (lacks_memory && path.ends_with(".spare") && lacks_memory(options)) throw std::bad_alloc();
    return disk_.open(path, options);
  }
  Result<std::vector<DirectoryEntry>> list(const std::string& directory) override {
    if (away) return not_there(directory);
    return disk_.list(directory);
  }
  Result<> make_directories(const std::string& directory) override {
    return disk_.make_directories(directory);
  }
  Result<> rename(const std::string& from, const std::string& to) override {
    if (away) return not_there(from);
    return disk_.rename(from, to);
  }
  Result<> remove(const std::string& file) override {
    if (away) return not_there(file);
    return disk_.remove(file);
  }
  Result<> remove_directory(const std::string& directory) override {
    return disk_.remove_directory(directory);
  }
  Result<> sync_directory(const std::string& directory) override {
    if (away) return not_there(directory);
    return disk_.sync_directory(directory);
  }
  Result<std::uint64_t> free_space(const std::string& directory) override {
    return disk_.free_space(directory);
  }

 private:
  static std::unexpected<Error> not_there(const std::string& path) {
    return fail(Errc::not_found, path + ": No such file or directory");
  }

  Disk& disk_;
};

std::uint64_t seed_from_environment() {
  const char* given = std::getenv("TARRY_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}

TEST_SUITE("journal") {
  TEST_CASE(
      "appended records are read back in order with the same LSNs, also by the life after next") {
    Rig rig;
    REQUIRE(rig.recover());
    REQUIRE(rig.open());
    Records expected;
    for (int i = 0; i < 100; ++i) {
      const auto record = text(fmt::format("record {}", std::string(i * 13 % 400, 'x')));
      expected.emplace_back(rig.append(record), record);
      if (i % 7 == 0) rig.settle();
    }
    rig.settle();
    rig.stop();
    CHECK(rig.recover() == expected);
    REQUIRE(rig.open());
    const auto more = text("more");
    expected.emplace_back(rig.append(more), more);
    rig.settle();
    rig.stop();
    rig.disk.cut_power();
    CHECK(rig.recover() == expected);
    CHECK(std::ranges::is_sorted(expected));
    REQUIRE(rig.open());
    rig.stop();
    CHECK(rig.recover() == expected);
    CHECK(rig.recovered.incarnation == 3);
  }

  TEST_CASE("records of any size come back, an empty one and one of several files too") {
    Rig rig;
    rig.options.max_bytes = 4 << 20;
    REQUIRE(rig.recover());
    REQUIRE(rig.open());
    Records expected;
    for (const std::size_t size :
         {0u, 1u, 4027u, 4028u, 4029u, 60'000u, 65'000u, 300'000u, 5u, 1'000'000u, 16'380u, 3u}) {
      Buffer record(size);
      for (auto& byte : record) byte = static_cast<std::uint8_t>(rig.random.u64());
      expected.emplace_back(rig.append(record), record);
      if (size % 2) rig.settle();
    }
    rig.settle();
    rig.stop();
    rig.disk.cut_power();
    CHECK((rig.recover() == expected));
    REQUIRE(rig.open());
    CHECK(rig.journal->append(Buffer((2 << 20) + 1), {}).error().code == Errc::too_large);
  }

  TEST_CASE("the largest record of work leaves room for what its delivery says more") {
    Rig rig;
    REQUIRE(rig.open());
    const auto most = rig.options.max_bytes / 2;
    CHECK(rig.journal->append(Buffer(most - delivery_overhead_bytes + 1), {}).error().code ==
          Errc::too_large);
    CHECK(rig.journal->append(Buffer(most), {}, Durability::fsync, Reserve::use));
    rig.settle();
  }

  TEST_CASE("rounds stand behind nothing in a lane of their own") {
    Rig rig;
    QueuedBackground lane;
    rig.options.round_lane = &lane;
    REQUIRE(rig.open());
    bool durable = false;
    REQUIRE(rig.journal->append(text("x"),
                                [&](const Result<>& result) { durable = result.has_value(); }));
    rig.background.run([] {}, [] {});  // Never gets its turn.
    rig.journal->start_round();
    lane.run_all();
    CHECK(durable);
  }

  TEST_CASE("a long piece whose memory is kept is copied where the round is written, not before") {
    for (const bool journal_goes : {false, true}) {
      CAPTURE(journal_goes);
      Rig rig;
      rig.options.file_bytes = 256 << 10;  // The round needs no other file.
      rig.options.max_bytes = 2 << 20;
      REQUIRE(rig.open());
      auto owner = std::make_shared<Buffer>(std::size_t{100'000}, std::uint8_t{'a'});
      const std::weak_ptr<Buffer> kept = owner;
      {
        const SharedBytes shared(owner, Bytes(*owner));
        const auto around = text("short");
        const Bytes pieces[] = {around, shared.view(), shared.view().first(10), around};
        REQUIRE(rig.journal->append(pieces, {}, Durability::fsync, Reserve::keep, shared));
      }
      // Nobody may do that; it shows when the journal reads.
      owner->back() = 'b';
      owner.reset();
      rig.ready = false;
      rig.journal->start_round();
      CHECK_FALSE(kept.expired());
      if (journal_goes) rig.journal.reset();
      CHECK_FALSE(kept.expired());  // The round in flight needs it.
      rig.background.run_all();
      CHECK(kept.expired());
      rig.stop();
      const auto records = rig.recover();
      REQUIRE(records);
      REQUIRE(records->size() == 1);
      const auto read = as_text(records->front().second);
      CHECK(read == "short" + std::string(99'999, 'a') + "b" + std::string(10, 'a') + "short");
    }
  }

  TEST_CASE("a record made of pieces is one record") {
    Rig rig;
    REQUIRE(rig.open());
    const auto a = text("one "), b = text(""), c = text("piece");
    const Bytes pieces[] = {a, b, c};
    REQUIRE(rig.journal->append(pieces, {}));
    rig.settle();
    rig.stop();
    const auto records = rig.recover();
    REQUIRE(records);
    REQUIRE(records->size() == 1);
    CHECK(as_text(records->front().second) == "one piece");
  }

  TEST_CASE(
      "any number of appends in a turn, and those that come while a round is in flight, take one "
      "sync") {
    Rig rig;
    REQUIRE(rig.open());
    auto before = rig.disk.syncs();
    std::vector<int> told;
    for (int i = 0; i < 50; ++i)
      rig.append(text("x"), [&told, i](const Result<>& result) {
        CHECK(result);
        told.push_back(i);
      });
    CHECK(rig.ready);
    rig.ready = false;
    rig.journal->start_round();
    for (int i = 50; i < 200; ++i)
      rig.append(text("y"), [&told, i](const Result<>&) { told.push_back(i); });
    CHECK_FALSE(rig.ready);  // Not while one is in flight.
    CHECK(told.empty());
    CHECK(rig.background.step());
    CHECK(rig.disk.syncs() == before + 1);
    CHECK(told.size() == 50);
    CHECK(rig.ready);
    rig.settle();
    CHECK(rig.journal->stats().syncs == 2);
    CHECK(told.size() == 200);
    CHECK(std::ranges::is_sorted(told));
    CHECK(rig.journal->stats().rounds == 2);
    CHECK(rig.journal->stats().records == 200);
  }

  TEST_CASE("completions that wait only for the write run before the sync, the others after it") {
    Rig rig;
    REQUIRE(rig.open());
    const auto syncs = rig.disk.syncs();
    std::string told;
    REQUIRE(rig.journal->append(text("a"), [&](const Result<>&) {
      told += 'a';
      CHECK(rig.disk.syncs() == syncs + 1);
    }));
    REQUIRE(rig.journal->append(
        text("b"),
        [&](const Result<>&) {
          told += 'b';
          CHECK(rig.disk.syncs() == syncs);
        },
        Durability::os));
    rig.settle();
    CHECK(told == "ba");
    rig.stop();
    rig.disk.kill();
    CHECK(rig.recover()->size() == 2);
  }

  TEST_CASE("a completion may append, and what it appends goes with the next round") {
    Rig rig;
    REQUIRE(rig.open());
    int told = 0;
    rig.append(text("first"), [&](const Result<>&) {
      ++told;
      rig.append(text("second"), [&](const Result<>&) { ++told; });
    });
    rig.settle();
    CHECK(told == 2);
    CHECK(rig.journal->stats().rounds == 2);
    CHECK(rig.journal->is_idle());
  }

  TEST_CASE("a last round that is torn at any byte is cut wholly, and the records before it stay") {
    Rig rig;
    REQUIRE(rig.open());
    rig.append(text("kept"));
    rig.settle();
    const auto from = rig.journal->durable_lsn();
    Buffer big(9000);
    for (auto& byte : big) byte = static_cast<std::uint8_t>(rig.random.u64() | 1);
    rig.append(text("cut too"));
    rig.append(big);
    rig.append(text("cut"));
    rig.settle();
    const auto to = rig.journal->durable_lsn();
    rig.stop();
    const auto path = rig.only_file();
    const auto whole = rig.disk.contents(path);
    const auto payload_end = round_header_bytes + 4 + 7 + 4 + 9000 + 4 + 3;
    for (auto torn = from; torn < to; torn += torn - from < 256 ? 1 : 37) {
      rig.disk.poke(path, torn, Buffer(to - torn));
      const auto records = rig.recover();
      REQUIRE(records);
      REQUIRE(records->size() == (torn - from < payload_end ? 1 : 4));
      CHECK(as_text(records->front().second) == "kept");
      rig.disk.poke(path, 0, whole);
    }
  }

  TEST_CASE("a last round that lost any of its sectors is cut, whatever lies beneath it") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      CAPTURE(seed);
      Rig rig(seed);
      REQUIRE(rig.open());
      rig.append(text("kept"));
      rig.settle();
      const auto from = rig.journal->durable_lsn();
      // Beneath: a round of the same place and number in another life.
      Buffer beneath(16384);
      for (auto& byte : beneath) byte = static_cast<std::uint8_t>(rig.random.u64());
      const auto path = rig.only_file();
      RoundHeader old{.salt = rig.random.u64(),
                      .incarnation = 1,
                      .number = 2,
                      .lsn = from,
                      .synced_to = from,
                      .payload_bytes = 0,
                      .records = 0,
                      .payload_crc = 0};
      old.write(beneath.data());
      old.lsn += 4096;
      old.synced_to += 4096;
      old.write(beneath.data() + 4096);
      rig.append(Buffer(10'000, 0x55));
      rig.settle();
      rig.stop();
      bool lost_any = false;
      for (std::size_t sector = 0; sector * 512 < round_header_bytes + 4 + 10'000; ++sector)
        if (rig.random.below(8) == 0) {
          lost_any = true;
          rig.disk.poke(path, from + sector * 512, Bytes(beneath).subspan(sector * 512, 512));
        }
      const auto records = rig.recover();
      REQUIRE(records);
      CHECK(records->size() == (lost_any ? 1 : 2));
      if (lost_any) CHECK(rig.recovered.end == from);
    }
  }

  TEST_CASE(
      "damage to a part that a later round states as synced is refused with its place, and changes "
      "nothing") {
    Rig rig;
    REQUIRE(rig.open());
    for (int i = 0; i < 3; ++i) {
      rig.append(Buffer(5000, static_cast<std::uint8_t>(i)));
      rig.settle();
    }
    CHECK(rig.journal->needs_idle_note());
    const auto last = rig.journal->durable_lsn();
    rig.journal->note_idle();
    rig.settle();
    CHECK_FALSE(rig.journal->needs_idle_note());
    rig.stop();
    const auto path = rig.only_file();
    const auto whole = rig.disk.contents(path);
    for (Lsn at = 0; at < last; at += at % 4096 < 96 ? 1 : 251) {
      // Zeros between rounds, and within the header's block, have no meaning of their own.
      if (at >= 4096 && at % 8192 > 4096 + 0 && (at - 4096) % 8192 >= 64 + 4 + 5000) continue;
      CAPTURE(at);
      const std::uint8_t flipped[] = {static_cast<std::uint8_t>(whole[at] ^ 0x10)};
      rig.disk.poke(path, at, flipped);
      const auto records = rig.recover();
      const bool meant = at < 4096 || (at - 4096) % 8192 < 64 + 4 + 5000;
      REQUIRE(records.has_value() == !meant);
      if (meant) {
        CHECK(records.error().code == Errc::corrupt);
        CHECK(records.error().message.contains(path));
        CHECK(records.error().message.contains("nothing was changed"));
      }
      const std::uint8_t original[] = {whole[at]};
      rig.disk.poke(path, at, original);
      CHECK(rig.disk.contents(path) == whole);
    }
    REQUIRE(rig.recover());
  }

  TEST_CASE(
      "damage to the last round before an idle note is reported, and without the note it is a torn "
      "end") {
    for (const bool noted : {false, true}) {
      Rig rig;
      REQUIRE(rig.open());
      rig.append(text("first"));
      rig.settle();
      rig.append(text("last"));
      rig.settle();
      if (noted) rig.journal->note_idle();
      rig.settle();
      rig.stop();
      const std::uint8_t bad[] = {0xff};
      rig.disk.poke(rig.only_file(), 4096 + 4096 + round_header_bytes, bad);
      const auto records = rig.recover();
      REQUIRE(records.has_value() == !noted);
      if (!noted) CHECK(records->size() == 1);
      if (!noted) CHECK(rig.recovered.torn);
    }
  }

  TEST_CASE("a damaged file before another one is refused, and so is one that is missing") {
    Rig rig;
    REQUIRE(rig.open());
    for (int i = 0; i < 20; ++i) {
      rig.append(Buffer(10'000, static_cast<std::uint8_t>(i)));
      rig.settle();
    }
    rig.stop();
    CHECK(rig.recover()->size() == 20);
    const auto first = rig.options.directory + "/" + journal_file_name(0);
    const auto whole = rig.disk.contents(first);
    const std::uint8_t bad[] = {0xff};
    for (const std::uint64_t at : {0u, 5000u, 60'000u}) {
      rig.disk.poke(first, at, bad);
      CHECK(rig.recover().error().code == Errc::corrupt);
      rig.disk.poke(first, 0, whole);
    }
    REQUIRE(rig.disk.remove(first));
    CHECK(rig.recover().error().code == Errc::corrupt);
  }

  TEST_CASE("a journal that was not recovered is not opened, and nothing of it is removed") {
    Rig rig;
    REQUIRE(rig.open());
    rig.append(text("x"));
    rig.settle();
    rig.recovered = {};
    CHECK(rig.open().error().code == Errc::invalid);
    CHECK(rig.recover()->size() == 1);
  }

  TEST_CASE("a journal of a later version is refused by its number") {
    Rig rig;
    REQUIRE(rig.open());
    rig.append(text("x"));
    rig.settle();
    rig.stop();
    auto bytes = rig.disk.contents(rig.only_file());
    bytes[15] = 2;
    store_be(bytes.data() + 8, crc32c(Bytes(bytes).subspan(12, 4084)));
    rig.disk.poke(rig.only_file(), 0, bytes);
    const auto records = rig.recover();
    REQUIRE_FALSE(records);
    CHECK(records.error().code == Errc::unsupported);
    CHECK(records.error().message.contains("version 2"));
  }

  TEST_CASE("bytes of a client that look like a round are not taken for one") {
    Rig rig;
    REQUIRE(rig.open());
    rig.append(text("kept"));
    rig.settle();
    const auto from = rig.journal->durable_lsn();
    // At a block's begin in the file, all right but the salt, which no client knows.
    Buffer forged(12'288);
    RoundHeader round{.salt = 0,
                      .incarnation = 1,
                      .number = 3,
                      .lsn = from + 4096,
                      .synced_to = from + 4096,
                      .payload_bytes = 0,
                      .records = 0,
                      .payload_crc = 0};
    round.write(forged.data() + 4096 - round_header_bytes - 4);
    rig.append(forged);
    rig.settle();
    rig.stop();
    CHECK(rig.recover()->size() == 2);
    const std::uint8_t bad[] = {0xff};
    rig.disk.poke(rig.only_file(), from, bad);  // Torn; nothing else says that it was synced.
    CHECK(rig.recover()->size() == 1);
  }

  TEST_CASE(
      "files that a checkpoint has passed are used again, and their old records never come back") {
    Rig rig;
    REQUIRE(rig.open());
    std::size_t max_files = 0;
    std::uint64_t max_used = 0;
    Records since;
    for (int i = 0; i < 400; ++i) {
      const auto record = Buffer(3000 + rig.random.below(9000), static_cast<std::uint8_t>(i));
      since.emplace_back(rig.append(record), record);
      rig.settle();
      if (i % 10 == 9) {
        rig.journal->checkpoint(rig.journal->durable_lsn(),
                                [](const Result<>& noted) { CHECK(noted); });
        rig.settle();
        since.clear();
      }
      max_files = std::max(max_files, rig.disk.list(rig.options.directory)->size());
      max_used = std::max(max_used, rig.disk.used());
    }
    CHECK(rig.journal->stats().files > 30);
    CHECK(max_files <= 7);
    CHECK(max_used <= 7 * rig.options.file_bytes);
    // A lost page: the round at the end is gone, older ones of the same file lie beneath.
    const auto record = text("torn");
    rig.append(record);
    rig.journal->start_round();
    rig.stop();
    rig.disk.kill();
    CHECK(rig.recover() == since);
    REQUIRE(rig.open());
    rig.stop();
    CHECK(rig.recover() == since);
  }

  TEST_CASE(
      "while rounds are held nothing becomes durable, and afterwards everything does, in order") {
    Rig rig;
    REQUIRE(rig.recover());
    REQUIRE(rig.open());
    int held = 0, durable = 0;
    const auto count = [&](const Result<>& safe) {
      CHECK(safe);
      ++durable;
    };
    rig.append(text("in flight"), count);
    rig.journal->start_round();
    rig.journal->hold_rounds([&] { ++held; });
    CHECK(held == 0);
    rig.append(text("held"), count);
    rig.ready = false;
    rig.settle();
    CHECK(held == 1);
    CHECK(durable == 1);
    const auto end = rig.journal->durable_lsn();
    rig.append(text("held too"), count);
    rig.settle();
    rig.journal->note_idle();
    rig.settle();
    CHECK(durable == 1);
    CHECK(rig.journal->durable_lsn() == end);
    rig.journal->release_rounds();
    rig.settle();
    CHECK(durable == 3);
    CHECK(rig.journal->is_idle());
    // At once when none is in flight.
    rig.journal->hold_rounds([&] { ++held; });
    CHECK(held == 2);
    rig.journal->release_rounds();
    rig.stop();
    CHECK(rig.recover()->size() == 3);
  }

  TEST_CASE(
      "files that are kept are there after a checkpoint, and are used again once they are not") {
    Rig rig;
    REQUIRE(rig.open());
    const auto names = [&] {
      std::vector<std::string> found;
      const auto entries = rig.disk.list(rig.options.directory);
      for (const auto& entry : *entries)
        if (parse_journal_file_name(entry.name)) found.push_back(entry.name);
      return found;
    };
    const auto fill = [&](int records) {
      for (int i = 0; i < records; ++i) {
        rig.append(Buffer(8000, 1));
        rig.settle();
      }
    };
    fill(20);
    const auto before = names();
    REQUIRE(before.size() >= 3);
    rig.journal->keep_files(true);
    for (int i = 0; i < 5; ++i) {
      fill(20);
      rig.journal->checkpoint(rig.journal->durable_lsn(), {});
      rig.settle();
    }
    const auto now = names();
    CHECK(std::ranges::includes(now, before));
    CHECK(now.size() > 10);
    rig.journal->keep_files(false);
    rig.settle();
    CHECK(names().size() < now.size());
    fill(40);
    const auto used_again = names();
    CHECK_FALSE(std::ranges::includes(used_again, before));
    CHECK(used_again.size() <= rig.options.max_bytes / rig.options.file_bytes + 1);
    rig.stop();
    CHECK(rig.recover()->size() == 40);
  }

  TEST_CASE("records before the checkpoint are not given again") {
    Rig rig;
    REQUIRE(rig.open());
    rig.append(text("before"));
    rig.settle();
    const auto at = rig.journal->durable_lsn();
    rig.append(text("behind"));
    rig.settle();
    rig.journal->checkpoint(at, {});
    rig.settle();
    rig.stop();
    // The rounds before it may even be damaged.
    const std::uint8_t bad[] = {0xff};
    rig.disk.poke(rig.only_file(), 4096 + 20, bad);
    const auto records = rig.recover();
    REQUIRE(records);
    REQUIRE(records->size() == 1);
    CHECK(as_text(records->front().second) == "behind");
  }

  TEST_CASE("a journal that ends before its checkpoint is damaged") {
    Rig rig;
    REQUIRE(rig.open());
    rig.append(text("x"));
    rig.settle();
    rig.stop();
    REQUIRE(write_checkpoint(rig.disk, rig.options.directory, {1 << 16, 1}));
    CHECK(rig.recover().error().code == Errc::corrupt);
    REQUIRE(rig.disk.remove(rig.only_file()));
    CHECK(rig.recover().error().code == Errc::corrupt);
  }

  TEST_CASE("a checkpoint that is not whole is refused") {
    Rig rig;
    REQUIRE(rig.disk.make_directories("journal/0"));
    CHECK(read_checkpoint(rig.disk, "journal/0")->lsn == 0);
    REQUIRE(write_checkpoint(rig.disk, "journal/0", {0x123000, 7}));
    CHECK(read_checkpoint(rig.disk, "journal/0")->lsn == 0x123000);
    CHECK(read_checkpoint(rig.disk, "journal/0")->incarnation == 7);
    const auto whole = rig.disk.contents("journal/0/checkpoint");
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const std::uint8_t flipped[] = {static_cast<std::uint8_t>(whole[i] ^ 1)};
      rig.disk.poke("journal/0/checkpoint", i, flipped);
      CHECK(read_checkpoint(rig.disk, "journal/0").error().code == Errc::corrupt);
      rig.disk.poke("journal/0/checkpoint", 0, whole);
    }
  }

  TEST_CASE(
      "a part that was cut stays cut, also when the next life dies before or after its first "
      "round") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      CAPTURE(seed);
      Rig rig(seed);
      REQUIRE(rig.open());
      rig.append(text("kept"));
      rig.settle();
      const auto torn = Buffer(6000, 0x77);
      rig.append(torn);
      rig.journal->start_round();
      rig.disk.count_only("fdatasync");
      rig.disk.crash_call(1);
      CHECK_THROWS_AS(rig.background.step(), MemoryDisk::PowerCut);
      rig.disk.count_only("");
      rig.stop();
      rig.disk.cut_power();
      auto first = rig.recover();
      REQUIRE(first);
      for (int life = 0; life < 3; ++life) {
        rig.disk.crash_call(1 + rig.random.below(14));
        try {
          if (!rig.recover() || !rig.open()) FAIL("a crash is the only thing to go wrong");
          (void)rig.journal->append(text("more"), {});
          rig.settle();
        } catch (const MemoryDisk::PowerCut&) {
        }
        rig.disk.heal();
        rig.stop();
        rig.disk.cut_power();
        const auto next = rig.recover();
        REQUIRE(next);
        // All that was there is there, and what is new is new.
        REQUIRE(next->size() >= first->size());
        for (std::size_t i = 0; i < next->size(); ++i) {
          if (i < first->size())
            CHECK((*next)[i] == (*first)[i]);
          else
            CHECK(as_text((*next)[i].second) == "more");
        }
        first = next;
      }
    }
  }

  TEST_CASE(
      "a failed sync ends the incarnation: it is reported once, never tried again, and all waiting "
      "requests are answered") {
    for (const char* call : {"fdatasync", "pwrite"}) {
      CAPTURE(call);
      Rig rig;
      REQUIRE(rig.open());
      int good = 0, bad = 0;
      const auto count = [&](const Result<>& result) { ++(result ? good : bad); };
      rig.append(text("fine"), count);
      rig.settle();
      rig.disk.count_only(call);
      rig.disk.fail_call(1, Errc::io);
      rig.append(text("lost"), count);
      rig.journal->start_round();
      rig.append(text("never written"), count);
      rig.settle();
      CHECK(good == 1);
      CHECK(bad == 2);
      REQUIRE(rig.failures.size() == 1);
      CHECK(rig.failures[0].code == Errc::io);
      CHECK(rig.failures[0].message.contains(call));
      const auto calls = rig.disk.calls();
      CHECK(rig.journal->append(text("x"), {}).error().code == Errc::io);
      rig.journal->start_round();
      rig.journal->note_idle();
      rig.settle();
      CHECK(rig.disk.calls() == calls);
      CHECK(rig.failures.size() == 1);
      CHECK_FALSE(rig.journal->has_room(1));
    }
  }

  TEST_CASE("the holder of the rounds is told when the journal fails, or had failed") {
    Rig rig;
    REQUIRE(rig.open());
    int held = 0;
    rig.disk.count_only("fdatasync");
    rig.disk.fail_call(1, Errc::io);
    rig.append(text("lost"), [](const Result<>&) {});
    rig.journal->start_round();
    rig.journal->hold_rounds([&] { ++held; });
    CHECK(held == 0);
    rig.settle();
    CHECK(rig.journal->has_failed());
    CHECK(held == 1);
    rig.journal->release_rounds();
    rig.journal->hold_rounds([&] { ++held; });
    CHECK(held == 2);
  }

  TEST_CASE(
      "a round or spare that finds no descriptor is postponed, and is durable when there is one") {
    // "fsync" is a directory's, which has to be opened for it.
    for (const char* call : {"open", "rename", "fsync"}) {
      for (std::uint64_t nth = 1; nth <= 12; ++nth) {
        for (const bool for_ever : {false, true}) {
          CAPTURE(call);
          CAPTURE(nth);
          Rig rig;
          REQUIRE(rig.open());
          int good = 0, bad = 0;
          const auto count = [&](const Result<>& result) { ++(result ? good : bad); };
          rig.disk.count_only(call);
          rig.disk.fail_call(nth, Errc::exhausted, for_ever);
          int appended = 0;
          for (; appended < 30; ++appended) {  // Three files.
            const auto when = appended % 2 == 0 ? Durability::fsync : Durability::os;
            if (!rig.journal->append(Buffer(6000), count, when)) break;
            rig.settle();
          }
          CHECK(rig.failures.empty());
          CHECK(bad == 0);
          const bool met = !rig.postponed.empty();
          CHECK(rig.journal->is_postponed() == met);
          rig.journal->retry_space();
          rig.settle();
          if (for_ever && met) CHECK(rig.journal->is_postponed());
          rig.disk.heal();
          rig.journal->retry_space();
          rig.settle();
          CHECK_FALSE(rig.journal->is_postponed());
          CHECK(good == appended);
          CHECK(rig.journal->is_idle());
          rig.stop();
          rig.disk.cut_power();
          CHECK(rig.recover()->size() == static_cast<std::size_t>(appended));
        }
      }
    }
  }

  TEST_CASE("rounds and spares that need a file wait while the data directory is away") {
    for (int from = 0; from <= 15; ++from) {
      CAPTURE(from);
      Rig rig;
      MovedDisk moved(rig.disk);
      REQUIRE(rig.open(&moved));
      int good = 0;
      const auto count = [&](const Result<>& result) {
        CHECK(result);
        ++good;
      };
      for (int appended = 0; appended < 30; ++appended) {  // Three files.
        moved.away = appended >= from && appended < from + 15;
        const auto when = appended % 2 == 0 ? Durability::fsync : Durability::os;
        REQUIRE(rig.journal->append(Buffer(6000), count, when));
        rig.settle();
      }
      CHECK(rig.failures.empty());
      CHECK_FALSE(rig.postponed.empty());
      moved.away = false;
      rig.journal->retry_space();
      rig.settle();
      CHECK_FALSE(rig.journal->is_postponed());
      CHECK(good == 30);
      rig.stop();
      rig.disk.cut_power();
      CHECK(rig.recover()->size() == 30);
    }
  }

  TEST_CASE("a spare that finds no memory is made when there is some, or is used without zeros") {
    for (const bool while_made : {false, true}) {
      CAPTURE(while_made);
      Rig rig;
      MovedDisk disk(rig.disk);
      REQUIRE(rig.open(&disk));
      int lacked = 0, good = 0;
      const auto count = [&](const Result<>& result) {
        CHECK(result);
        ++good;
      };
      disk.lacks_memory = [&](const OpenOptions& options) {
        const bool makes = options.create == OpenOptions::Create::must;
        lacked += makes == while_made ? 1 : 0;
        return makes == while_made;
      };
      for (int appended = 0; appended < 30; ++appended) {  // Three files.
        rig.append(Buffer(6000), count);
        rig.settle();
      }
      CHECK(lacked > 0);
      CHECK(rig.failures.empty());
      CHECK(rig.postponed.empty() == !while_made);
      disk.lacks_memory = nullptr;
      rig.journal->retry_space();
      rig.settle();
      CHECK(good == 30);
      rig.stop();
      rig.disk.cut_power();
      CHECK(rig.recover()->size() == 30);
    }
  }

  TEST_CASE("a spare that was removed while its directory is there ends the journal") {
    Rig rig;
    REQUIRE(rig.open());
    rig.disk.count_only("rename");
    rig.disk.fail_call(1, Errc::not_found);
    for (int i = 0; i < 20 && rig.journal->append(Buffer(6000), {}); ++i) rig.settle();
    CHECK(rig.failures.size() == 1);
  }

  TEST_CASE("a round that is postponed holds up no backup, and is written after it") {
    for (const bool postponed_first : {false, true}) {
      CAPTURE(postponed_first);
      Rig rig;
      REQUIRE(rig.open());
      int good = 0, held = 0;
      const auto count = [&](const Result<>& result) { good += result ? 1 : 0; };
      rig.disk.count_only("rename");
      rig.disk.fail_call(1, Errc::exhausted, true);
      int appended = 0;
      bool holding = false;
      // Until a round begins a file.
      while (rig.postponed.empty()) {
        REQUIRE(appended < 30);
        rig.append(Buffer(6000), count);
        ++appended;
        if (!postponed_first) {
          rig.ready = false;
          rig.journal->start_round();
          rig.journal->hold_rounds([&] { ++held; });
          rig.settle();
          CHECK(std::exchange(held, 0) == 1);
          holding = !rig.postponed.empty();
          if (holding) break;
          rig.journal->release_rounds();
        }
        rig.settle();
      }
      if (!holding) {
        rig.journal->hold_rounds([&] { ++held; });
        CHECK(held == 1);
      }
      const auto end = rig.journal->durable_lsn();
      rig.disk.heal();
      rig.journal->retry_space();
      rig.settle();
      CHECK(rig.journal->durable_lsn() == end);
      CHECK(good < appended);
      rig.journal->release_rounds();
      rig.settle();
      CHECK(good == appended);
      CHECK_FALSE(rig.journal->is_postponed());
    }
  }

  TEST_CASE(
      "on a full disk new work is refused, deliveries continue, and a checkpoint makes room "
      "again") {
    Rig rig;
    rig.options.max_bytes = 10 << 20;
    rig.options.reserve_bytes = 32 << 10;
    rig.disk.set_space(3 * rig.options.file_bytes + 20'000);
    REQUIRE(rig.open());
    int told = 0;
    const auto count = [&](const Result<>& result) { told += result ? 1 : 0; };
    int appended = 0;
    Result<Lsn> last = Lsn{0};
    while (appended < 1000) {
      last = rig.journal->append(Buffer(5000), count);
      if (!last) break;
      ++appended;
      rig.settle();
    }
    REQUIRE_FALSE(last);
    CHECK(last.error().code == Errc::no_space);
    CHECK(rig.failures.empty());
    CHECK(told == appended);
    CHECK(rig.journal->has_room(5000, Reserve::use));
    CHECK_FALSE(rig.journal->has_room(5000));
    const auto work = appended;
    while (rig.journal->append(Buffer(5000), count, Durability::fsync, Reserve::use)) {
      ++appended;
      rig.settle();
    }
    CHECK(appended >= work + 3);  // 32 KiB of rounds of two blocks.
    CHECK(told == appended);
    CHECK(rig.failures.empty());

    rig.disk.set_space(4 * rig.options.file_bytes + 20'000);
    rig.journal->checkpoint(rig.journal->durable_lsn(), {});
    rig.settle();
    CHECK(rig.journal->has_room(5000));
    rig.append(Buffer(5000), count);
    rig.settle();
    CHECK(told == appended + 1);
    rig.stop();
    rig.disk.cut_power();
    CHECK(rig.recover()->size() == 1);
  }

  TEST_CASE("space that comes back is found, and a round that waited for a file goes then") {
    Rig rig;
    rig.options.max_bytes = 10 << 20;
    rig.disk.set_space(rig.options.file_bytes);
    REQUIRE(rig.open());
    int told = 0;
    const auto count = [&](const Result<>& result) { told += result ? 1 : 0; };
    // Taken in one turn, before anybody has found out that there is no space.
    for (int i = 0; i < 20; ++i) rig.append(Buffer(10'000), count);
    rig.settle();
    CHECK(told < 20);
    CHECK_FALSE(rig.journal->has_room(10, Reserve::use));
    rig.journal->retry_space();
    rig.settle();
    CHECK(told < 20);
    rig.disk.set_space(100 * rig.options.file_bytes);
    for (int i = 0; i < 10 && told < 20; ++i) {
      rig.journal->retry_space();
      rig.settle();
    }
    CHECK(told == 20);
    CHECK(rig.journal->has_room(10));
    CHECK(rig.failures.empty());
  }

  TEST_CASE(
      "a journal that no checkpoint follows is full at its limit, and asks for one at half of it") {
    Rig rig;
    REQUIRE(rig.open());
    while (rig.journal->append(Buffer(4000), {})) {
      rig.settle();
      if (rig.journal->end_lsn() < rig.options.max_bytes / 2) CHECK(rig.pressure == 0);
    }
    CHECK(rig.pressure == 1);
    CHECK(rig.journal->end_lsn() > rig.options.max_bytes - rig.options.reserve_bytes - (16 << 10));
    CHECK(rig.journal->append(Buffer(4000), {}, Durability::fsync, Reserve::use));
    rig.settle();
    rig.journal->checkpoint(rig.journal->durable_lsn(), {});
    rig.settle();
    CHECK(rig.journal->append(Buffer(4000), {}));
    CHECK(rig.pressure == 1);
  }

  TEST_CASE(
      "a journal that begins again after it was retired has higher LSNs than the one before") {
    Rig rig;
    rig.options.directory = "journal/3";
    REQUIRE(rig.open());
    const auto before = rig.append(text("x"));
    rig.settle();
    const auto end = rig.journal->durable_lsn();
    rig.stop();
    REQUIRE(rig.recover());
    CHECK(*journal_shards(rig.disk, "journal") == std::vector<std::uint32_t>{3});
    REQUIRE(retire_journal(rig.disk, "journal", 3));
    CHECK(journal_shards(rig.disk, "journal")->empty());
    CHECK(rig.disk.list("journal")->empty());
    CHECK(rig.recover()->empty());
    CHECK_FALSE(rig.recovered.exists);
    rig.options.first_lsn = end;
    REQUIRE(rig.open());
    CHECK(rig.append(text("y")) > before);
    rig.settle();
    CHECK(rig.journal->has_room(1000));
    rig.stop();
    rig.disk.cut_power();
    CHECK(rig.recover()->size() == 1);
    REQUIRE(rig.open());
    CHECK(rig.journal->has_room(1000));
  }

  TEST_CASE("a journal that is retired is gone at one stroke, wherever a crash falls") {
    for (std::uint64_t call = 1; call < 20; ++call) {
      CAPTURE(call);
      Rig rig(call);
      REQUIRE(rig.open());
      for (int i = 0; i < 20; ++i) rig.append(Buffer(9000));
      rig.settle();
      rig.stop();
      rig.disk.crash_call(call);
      bool done = false;
      try {
        done = retire_journal(rig.disk, "journal", 0).has_value();
      } catch (const MemoryDisk::PowerCut&) {
      }
      rig.disk.heal();
      rig.disk.cut_power();
      const auto records = rig.recover();
      REQUIRE(records);
      CHECK((records->size() == 20 || !rig.recovered.exists));
      if (done) CHECK_FALSE(rig.recovered.exists);
      REQUIRE(remove_retired_journals(rig.disk, "journal"));
      CHECK(rig.disk.list("journal")->size() == (rig.recovered.exists ? 1 : 0));
    }
  }

  TEST_CASE(
      "zeros are written ahead into the next file, and a round that needs it does not wait for all "
      "of them") {
    Rig rig;
    rig.options.file_bytes = 4 << 20;
    rig.options.max_bytes = 16 << 20;
    REQUIRE(rig.open());
    for (const bool in_a_hurry : {false, true}) {
      CAPTURE(in_a_hurry);
      const auto files = rig.journal->stats().files;
      int told = 0, appended = 0;
      while (rig.journal->stats().files == files) {
        rig.append(Buffer(500'000), [&](const Result<>&) { ++told; });
        ++appended;
        if (in_a_hurry)
          rig.journal->start_round();
        else
          rig.settle();
        if (in_a_hurry) rig.background.step();
      }
      rig.settle();
      CHECK(told == appended);
      rig.journal->checkpoint(rig.journal->durable_lsn(), {});
      rig.settle();
    }
    rig.stop();
    rig.disk.cut_power();
    CHECK(rig.recover()->empty());
  }

  TEST_CASE(
      "on the machine's disk, with threads that write, records that were reported durable are read "
      "again") {
    std::string root = std::filesystem::temp_directory_path() / "tarry_journal_test_XXXXXX";
    REQUIRE(::mkdtemp(root.data()) != nullptr);
    PosixDisk disk;
    SeededRandom random(1);
    SetClock clock;
    JournalOptions options;
    options.directory = root + "/journal/0";
    options.file_bytes = 1 << 20;
    options.max_bytes = 4 << 20;
    options.reserve_bytes = 1 << 20;
    Records expected;
    std::size_t durable = 0, written = 0;
    for (int life = 0; life < 3; ++life) {
      ThreadBackground background;
      Records found;
      const auto recovered = recover_journal(disk, options.directory, [&](Lsn lsn, Bytes record) {
        found.emplace_back(lsn, Buffer(record.begin(), record.end()));
        return Result<>{};
      });
      REQUIRE(recovered);
      const auto live = std::ranges::lower_bound(expected, recovered->checkpoint, {},
                                                 &std::pair<Lsn, Buffer>::first);
      CHECK(std::ranges::equal(found, std::span(live, expected.end())));
      bool ready = false, pressure = false;
      JournalHooks hooks;
      hooks.on_ready = [&] { ready = true; };
      hooks.on_pressure = [&] { pressure = true; };
      const auto journal = std::move(
          *Journal::open(disk, background, random, clock, options, std::move(hooks), *recovered));
      const auto turn = [&] {
        if (std::exchange(ready, false)) journal->start_round();
        if (std::exchange(pressure, false)) journal->checkpoint(journal->durable_lsn(), {});
        background.take_done();
      };
      for (int i = 0; i < 300; ++i) {
        Buffer record(random.below(i % 50 == 0 ? 1'200'000 : 20'000));
        for (std::size_t at = 0; at < record.size(); at += 100)
          record[at] = static_cast<std::uint8_t>(random.u64());
        const auto when = i % 3 == 0 ? Durability::os : Durability::fsync;
        auto& told = i % 3 == 0 ? written : durable;
        for (;;) {
          const auto lsn = journal->append(
              record, [&told](const Result<>& r) { told += r ? 1 : 0; }, when);
          if (lsn) {
            expected.emplace_back(*lsn, std::move(record));
            break;
          }
          REQUIRE(lsn.error().code == Errc::no_space);
          turn();
        }
        if (random.below(4) == 0) turn();
      }
      while (!journal->is_idle()) turn();
      journal->note_idle();
      while (!journal->is_idle()) turn();
      CHECK(durable + written == expected.size());
      CHECK(journal->stats().files > 3);
    }
    std::filesystem::remove_all(root);
  }

  // The whole of it against a model, with a crash at any call of the disk.
  //
  // The model: the records appended, in order; how many of them somebody was told are durable
  // (or written, which a kill may not take); the checkpoint.  After each crash what is recovered
  // must be a prefix of them from the checkpoint on, and hold all that was told.
  struct Model {
    Records appended;
    std::size_t durable = 0, written = 0;  // How many of them.
    std::vector<Lsn> checkpoints = {0};    // The last one noted, and one that may have been.
  };

  void live_until_crash(Rig & rig, Model & model, int steps) {
    for (int step = 0; step < steps && !rig.journal->has_failed(); ++step) {
      switch (rig.random.below(8)) {
        case 0:
        case 1:
        case 2:
        case 3: {
          const auto kind = rig.random.below(20);
          const auto size = kind == 0  ? 60'000 + rig.random.below(30'000)
                            : kind < 6 ? 4000 + rig.random.below(9000)
                                       : rig.random.below(300);
          Buffer record(size);
          for (auto& byte : record) byte = static_cast<std::uint8_t>(rig.random.u64());
          const bool write_will_do = rig.random.below(4) == 0;
          const auto index = model.appended.size();
          const auto lsn = rig.journal->append(
              record,
              [&model, index, write_will_do](const Result<>& result) {
                if (!result) return;
                auto& told = write_will_do ? model.written : model.durable;
                told = std::max(told, index + 1);
              },
              write_will_do ? Durability::os : Durability::fsync);
          if (lsn) model.appended.emplace_back(*lsn, std::move(record));
          break;
        }
        case 4:
          rig.journal->start_round();
          break;
        case 5:
          rig.background.step();
          break;
        case 6:
          if (rig.random.below(3) == 0) rig.journal->note_idle();
          rig.settle();
          break;
        case 7:
          if (rig.random.below(3) == 0 && model.checkpoints.size() == 1) {
            const auto lsn = rig.journal->durable_lsn();
            model.checkpoints.push_back(lsn);
            rig.journal->checkpoint(lsn, [&model, lsn](const Result<>& noted) {
              if (noted) model.checkpoints = {lsn};
            });
          }
          break;
      }
    }
  }

  void check_against_model(Rig & rig, Model & model, bool power_was_cut) {
    const auto records = rig.recover();
    REQUIRE_MESSAGE(records, records.error().message);
    const auto checkpoint = rig.recovered.checkpoint;
    REQUIRE(std::ranges::count(model.checkpoints, checkpoint) > 0);
    model.checkpoints = {checkpoint};
    const auto from =
        std::ranges::lower_bound(model.appended, checkpoint, {}, &std::pair<Lsn, Buffer>::first);
    const auto before = static_cast<std::size_t>(from - model.appended.begin());
    const auto promised = power_was_cut ? model.durable : std::max(model.durable, model.written);
    REQUIRE(before + records->size() <= model.appended.size());
    REQUIRE(before + records->size() >= promised);
    CHECK(std::ranges::equal(*records, std::span(from, records->size())));
    // From here on what is there is there, and the rest never was.
    model.appended.resize(before + records->size());
    model.durable = model.written = model.appended.size();
  }

  TEST_CASE(
      "whatever a crash at any call takes, no record that was reported durable is lost and nothing "
      "else appears") {
    const auto first_seed = seed_from_environment();
    for (auto seed = first_seed; seed < first_seed + tries(150); ++seed) {
      INFO("TARRY_SEED=", seed);
      Rig rig(seed);
      if (seed % 5 == 0) rig.disk.set_space(5 * rig.options.file_bytes);
      Model model;
      for (int life = 0; life < 6; ++life) {
        const auto kind = rig.random.below(3);
        if (kind == 0)
          rig.disk.fail_call(1 + rig.random.below(150), Errc::io, rig.random.below(2) == 0);
        else
          rig.disk.crash_call(1 + rig.random.below(150));
        try {
          if (rig.recover() && rig.open()) live_until_crash(rig, model, 200);
        } catch (const MemoryDisk::PowerCut&) {
        }
        rig.disk.heal();
        rig.stop();
        const bool power = kind == 0 || rig.random.below(3) > 0;
        if (power)
          rig.disk.cut_power();
        else
          rig.disk.kill();
        INFO("life ", life, ", power cut: ", power);
        check_against_model(rig, model, power);
        // A power cut right behind a recovery may not take what the recovery gave.
        if (rig.random.below(2) == 0) {
          rig.disk.cut_power();
          check_against_model(rig, model, true);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarry::storage
