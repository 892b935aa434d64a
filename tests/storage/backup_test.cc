#include "storage/backup.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/random.h"
#include "scratch.h"
#include "storage/bucket_store.h"
#include "storage/data_directory.h"
#include "storage/database.h"
#include "storage/journal_format.h"
#include "storage/journal_recovery.h"

namespace tarry::storage {
namespace {

namespace fs = std::filesystem;

// A data directory with two databases, journals of two shards and what a test adds.
struct BackupRig {
  BackupRig() {
    set_log_level(LogLevel::off);
    write_whole(make(data) / "meta.properties", "version=1\ncluster.id=abc\nnode.id=1\n");
    make(data + "/db");
    for (const int shard : {0, 1}) {
      const auto directory = make(fmt::format("{}/journal/{}", data, shard));
      write_whole(directory / journal_file_name(0), std::string(64 << 10, 'a'));
      write_whole(directory / journal_file_name(64 << 10), std::string(64 << 10, 'b'));
      write_whole(directory / journal_file_name(128 << 10), std::string(64 << 10, 'c'));
      REQUIRE(write_checkpoint(disk, directory.string(), {80 << 10, 1}));
    }
    auto made_meta = Database::make(data + "/db/meta");
    auto made_pending = BucketStore::make(data + "/db/pending", {});
    REQUIRE(made_meta);
    REQUIRE(made_pending);
    meta = std::move(*made_meta);
    pending = std::move(*made_pending);
    REQUIRE(meta->flush());
    REQUIRE(pending->flush());
  }

  static fs::path make(const std::string& directory) {
    fs::create_directories(directory);
    return directory;
  }
  std::string segment(const std::string& log, Offset base, const std::string& bytes) {
    const auto directory = make(data + "/logs/" + log);
    write_whole(directory / "partition.metadata", "version: 0\ntopic_id: x\n");
    const auto name = fmt::format("{}/{:020}", directory.string(), base);
    write_whole(name + ".log", bytes);
    write_whole(name + ".index", "index");
    write_whole(name + ".timeindex", "times");
    return name;
  }

  Result<std::unique_ptr<Backup>> begin(std::uint64_t reserve = 0) {
    return Backup::begin(disk, {data, data + "/logs", 2, reserve}, target);
  }
  static Result<> all(Backup& backup, Result<bool> (Backup::*step)()) {
    for (;;) {
      const auto more = (backup.*step)();
      if (!more) return std::unexpected(more.error());
      if (!*more) return {};
    }
  }
  Result<> copy_rest(Backup& backup) {
    if (auto held = backup.hold_journals({136 << 10, 136 << 10}); !held) return held;
    if (auto copied = all(backup, &Backup::copy_journals); !copied) return copied;
    if (auto copied = all(backup, &Backup::copy_files); !copied) return copied;
    return backup.finish();
  }

  Result<> copy_all() {
    auto begun = begin();
    if (!begun) return std::unexpected(begun.error());
    if (auto held = (*begun)->hold_state(*meta, *pending); !held) return held;
    if (auto held = all(**begun, &Backup::hold_logs); !held) return held;
    return copy_rest(**begun);
  }

  ScratchDirectory scratch;
  PosixDisk disk;
  std::string data = scratch.path("data"), target = scratch.path("copy");
  std::unique_ptr<Database> meta;
  std::unique_ptr<BucketStore> pending;
};

bool tells(const Error& error, std::string_view words) {
  return error.message.find(words) != std::string::npos;
}

TEST_SUITE("backup") {
  TEST_CASE("a copy has what was held, whatever is deleted, renamed or appended meanwhile") {
    BackupRig rig;
    const auto old = rig.segment("orders-0", 0, std::string(300, '0'));
    const auto active = rig.segment("orders-0", 7, std::string(500, '7'));
    rig.segment("gone-0", 0, "deleted topic");
    rig.segment("left-0.abc-delete", 0, "being deleted");
    write_whole(rig.data + "/logs/orders-0/start-offset", "version: 0\nstart_offset: 3\n");
    write_whole(rig.data + "/logs/orders-0/start-offset.tmp", "half");
    write_whole(rig.data + "/admin.token", "token");
    const auto tokens = "ci operate " + std::string(6000, 'x');  // More than a block.
    write_whole(rig.data + "/admin.tokens", tokens);
    auto begun = rig.begin();
    REQUIRE(begun);
    auto& backup = **begun;
    REQUIRE(backup.hold_state(*rig.meta, *rig.pending));
    REQUIRE(rig.all(backup, &Backup::hold_logs));

    fs::remove(old + ".log");
    fs::rename(rig.data + "/logs/gone-0", rig.data + "/logs/gone-0.xyz-delete");
    fs::remove_all(rig.data + "/logs/gone-0.xyz-delete");
    {
      std::ofstream more(active + ".log", std::ios::app);
      more << "behind the moment";
    }
    rig.segment("later-0", 0, "a topic that came later");
    REQUIRE(rig.copy_rest(backup));

    const auto log = rig.target + "/logs/orders-0/";
    CHECK(read_whole(log + "00000000000000000000.log") == std::string(300, '0'));
    CHECK(read_whole(log + "00000000000000000007.log") == std::string(500, '7'));
    CHECK(read_whole(log + "00000000000000000007.timeindex") == "times");
    CHECK(read_whole(log + "start-offset") == "version: 0\nstart_offset: 3\n");
    CHECK_FALSE(fs::exists(log + "start-offset.tmp"));
    CHECK(read_whole(rig.target + "/logs/gone-0/00000000000000000000.log") == "deleted topic");
    CHECK_FALSE(fs::exists(rig.target + "/logs/left-0.abc-delete"));
    CHECK_FALSE(fs::exists(rig.target + "/logs/later-0"));
    CHECK_FALSE(fs::exists(rig.target + "/" + unfinished_backup_name));
    CHECK_FALSE(fs::exists(rig.data + "/.tarry-backup"));
    CHECK_FALSE(fs::exists(rig.data + "/logs/.tarry-backup"));
    CHECK(read_whole(rig.target + "/admin.tokens") == tokens);
    for (const char* name : {"/admin.token", "/admin.tokens"}) {
      struct stat token {};
      REQUIRE(::stat((rig.target + name).c_str(), &token) == 0);
      CHECK((token.st_mode & 0777) == 0600);
    }
    // The databases open, while those that they were copied from are open.
    CHECK(Database::open(rig.target + "/db/meta").has_value());
    CHECK(BucketStore::open(rig.target + "/db/pending", {}).has_value());
    SeededRandom random(1);
    const auto opened = DataDirectory::open(rig.disk, rig.target, random);
    REQUIRE(opened);
    CHECK_FALSE(opened->is_new());
    CHECK(opened->cluster_id() == "abc");
  }

  TEST_CASE(
      "a copy has the topics whose names begin with a dot, and nothing that is no partition") {
    BackupRig rig;
    rig.segment(".audit-0", 0, "a dot");
    rig.segment(".a-b-12", 0, "a dash");
    BackupRig::make(rig.data + "/logs/lost+found");
    write_whole(BackupRig::make(rig.data + "/logs/.x") / "partition.metadata", "");
    REQUIRE(rig.copy_all());
    const auto logs = rig.target + "/logs/";
    CHECK(read_whole(logs + ".audit-0/00000000000000000000.log") == "a dot");
    CHECK(read_whole(logs + ".a-b-12/00000000000000000000.log") == "a dash");
    for (const char* name : {"lost+found", ".x", ".tarry-backup"})
      CHECK_FALSE(fs::exists(logs + name));
  }

  TEST_CASE("the files of a copy have the times of those they were copied from") {
    BackupRig rig;
    const auto name = rig.segment("orders-0", 0, "records") + ".log";
    const ::timespec times[] = {{5, 0}, {1'600'000'000, 123'000'000}};
    REQUIRE(::utimensat(AT_FDCWD, name.c_str(), times, 0) == 0);
    REQUIRE(rig.copy_all());
    struct stat found {};
    const auto copy = rig.target + "/logs/orders-0/00000000000000000000.log";
    REQUIRE(::stat(copy.c_str(), &found) == 0);
    CHECK(found.st_mtim.tv_sec == times[1].tv_sec);
    CHECK(found.st_mtim.tv_nsec == times[1].tv_nsec);
  }

  TEST_CASE(
      "the last segment may have become shorter; an older one ends the backup with its name") {
    for (const bool is_last : {true, false}) {
      CAPTURE(is_last);
      BackupRig rig;
      const auto old = rig.segment("orders-0", 0, std::string(300, '0'));
      const auto active = rig.segment("orders-0", 7, std::string(500, '7'));
      auto begun = rig.begin();
      REQUIRE(begun);
      REQUIRE((*begun)->hold_state(*rig.meta, *rig.pending));
      REQUIRE(rig.all(**begun, &Backup::hold_logs));
      fs::resize_file((is_last ? active : old) + ".log", 100);
      const auto copied = rig.copy_rest(**begun);
      CHECK(copied.has_value() == is_last);
      if (copied) {
        CHECK(fs::file_size(rig.target + "/logs/orders-0/00000000000000000007.log") == 100);
      } else {
        CHECK(tells(copied.error(), "orders-0/00000000000000000000.log ends after 100 of its 300"));
      }
    }
  }

  TEST_CASE("a directory of somebody else that has the stage's name stays, and refuses a backup") {
    for (const char* where : {"/.tarry-backup", "/logs/.tarry-backup"}) {
      CAPTURE(where);
      BackupRig rig;
      rig.segment("orders-0", 0, "records");
      const auto foreign = BackupRig::make(rig.data + where) / "letter";
      write_whole(foreign, "mine");
      REQUIRE(remove_backup_leftovers(rig.data, rig.data + "/logs"));
      CHECK(read_whole(foreign) == "mine");
      const auto begun = rig.begin();
      REQUIRE_FALSE(begun);
      CHECK(begun.error().code == Errc::invalid);
      CHECK(tells(begun.error(), rig.data + where + " was not made by Tarry"));
      CHECK(read_whole(foreign) == "mine");
      CHECK_FALSE(fs::exists(rig.target));
      fs::remove_all(rig.data + where);
      CHECK(rig.begin().has_value());
    }
  }

  TEST_CASE("a backup has a journal's bytes from the checkpoint to its moment") {
    BackupRig rig;
    auto begun = rig.begin();
    REQUIRE(begun);
    REQUIRE((*begun)->hold_state(*rig.meta, *rig.pending));
    REQUIRE(rig.all(**begun, &Backup::hold_logs));
    // A checkpoint that is noted now is not the copy's: the rest does not have what it promises.
    REQUIRE(write_checkpoint(rig.disk, rig.data + "/journal/1", {132 << 10, 1}));
    REQUIRE(rig.copy_rest(**begun));
    for (const int shard : {0, 1}) {
      const auto directory = fmt::format("{}/journal/{}/", rig.target, shard);
      CHECK_FALSE(fs::exists(directory + journal_file_name(0)));
      CHECK(fs::file_size(directory + journal_file_name(64 << 10)) == 64 << 10);
      CHECK(read_whole(directory + journal_file_name(128 << 10)) == std::string(8 << 10, 'c'));
      CHECK(read_checkpoint(rig.disk, directory)->lsn == 80 << 10);
    }
  }

  TEST_CASE("segments that retention has taken while they were listed leave no gap behind") {
    // The middle one is gone: it was taken with the first, which the listing still finds.
    BackupRig rig;
    rig.segment("orders-0", 0, "first");
    fs::remove(rig.segment("orders-0", 10, "second") + ".log");
    fs::create_symlink("nothing", rig.data + "/logs/orders-0/00000000000000000010.log");
    fs::remove(rig.data + "/logs/orders-0/00000000000000000010.index");
    rig.segment("orders-0", 20, "third");
    auto begun = rig.begin();
    REQUIRE(begun);
    REQUIRE((*begun)->hold_state(*rig.meta, *rig.pending));
    REQUIRE(rig.all(**begun, &Backup::hold_logs));
    REQUIRE(rig.copy_rest(**begun));
    const auto log = rig.target + "/logs/orders-0/";
    CHECK(read_whole(log + "00000000000000000020.log") == "third");
    for (const char* name : {"00000000000000000000.log", "00000000000000000000.index",
                             "00000000000000000010.log", "00000000000000000010.timeindex"})
      CHECK_FALSE(fs::exists(log + name));
  }

  TEST_CASE(
      "a backup that is given up leaves nothing, and one that was cut off is refused by its name") {
    BackupRig rig;
    rig.segment("orders-0", 0, "records");
    {
      auto begun = rig.begin();
      REQUIRE(begun);
      REQUIRE((*begun)->hold_state(*rig.meta, *rig.pending));
      SeededRandom random(1);
      const auto opened = DataDirectory::open(rig.disk, rig.target, random);
      REQUIRE_FALSE(opened);
      CHECK(tells(opened.error(), rig.target + " is a backup that was not finished"));
      CHECK_FALSE(fs::exists(rig.target + "/.lock"));
      const auto second =
          Backup::begin(rig.disk, {rig.data, rig.data + "/logs", 2, 0}, rig.scratch.path("second"));
      REQUIRE_FALSE(second);
      CHECK(second.error().code == Errc::in_use);
    }
    CHECK_FALSE(fs::exists(rig.target));
    CHECK_FALSE(fs::exists(rig.data + "/.tarry-backup"));
    // A directory that was there stays, empty.
    fs::create_directory(rig.target);
    { REQUIRE(rig.begin()); }
    CHECK(fs::exists(rig.target));
    CHECK(fs::is_empty(rig.target));
    // A kill leaves these.
    fs::create_directories(rig.data + "/.tarry-backup/db");
    fs::create_directories(rig.data + "/logs/.tarry-backup/orders-0");
    for (const char* stage : {"/.tarry-backup", "/logs/.tarry-backup"})
      write_whole(rig.data + stage + "/.tarry", "");
    REQUIRE(remove_backup_leftovers(rig.data, rig.data + "/logs"));
    CHECK_FALSE(fs::exists(rig.data + "/.tarry-backup"));
    CHECK_FALSE(fs::exists(rig.data + "/logs/.tarry-backup"));
    CHECK(rig.begin().has_value());
  }

  TEST_CASE(
      "a backup that does not fit beside the reserve is refused before it is copied, with words "
      "that say so") {
    BackupRig rig;
    rig.segment("orders-0", 0, "records");
    auto begun = rig.begin(std::uint64_t{1} << 60);
    REQUIRE(begun);
    REQUIRE((*begun)->hold_state(*rig.meta, *rig.pending));
    REQUIRE(rig.all(**begun, &Backup::hold_logs));
    const auto copied = (*begun)->hold_journals({136 << 10, 136 << 10});
    REQUIRE_FALSE(copied);
    CHECK(copied.error().code == Errc::no_space);
    CHECK(tells(copied.error(), "tarry.disk.reserve.bytes"));
    CHECK((*begun)->copied_bytes() == 0);
  }

  TEST_CASE(
      "a target that is relative, taken, or in or around the broker's own directories is refused") {
    BackupRig rig;
    const auto refused = [&](const std::string& target, std::string_view words) {
      CAPTURE(target);
      const auto begun = Backup::begin(rig.disk, {rig.data, rig.data + "/logs", 2, 0}, target);
      REQUIRE_FALSE(begun);
      CHECK(begun.error().code == Errc::invalid);
      CHECK(tells(begun.error(), words));
      CHECK_FALSE(fs::exists(rig.data + "/.tarry-backup"));
    };
    fs::create_directory_symlink(rig.data, rig.scratch.path("link"));
    write_whole(rig.scratch.path("file"), "");
    refused("copy", "absolute");
    refused(rig.data, "overlaps the broker's directory");
    refused(rig.data + "/copy", "overlaps the broker's directory");
    refused(rig.scratch.path(), "overlaps the broker's directory");
    refused(rig.scratch.path("link/copy"), "overlaps the broker's directory");
    refused("/", "overlaps the broker's directory");
    refused(rig.scratch.path("none/copy"), "create its parent directory");
    refused(rig.scratch.path("file"), "not a directory");
  }
}

}  // namespace
}  // namespace tarry::storage
