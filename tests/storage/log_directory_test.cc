#include "storage/log_directory.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "scratch.h"

namespace tarry::storage {
namespace {

struct LogDirectoryFixture {
  ScratchDirectory scratch;
  PosixDisk disk;
  SeededRandom random{1};
  const std::string logs = scratch.path("segments");
  const std::string first = made("first"), second = made("second");

  std::string made(const std::string& name) {
    std::filesystem::create_directories(scratch.path(name));
    return scratch.path(name);
  }
  // As a broker that has taken records there.
  void use(const std::string& data) {
    REQUIRE(take(data).has_value());
    std::filesystem::create_directories(logs + "/orders-0");
  }
  Result<std::optional<DirectoryLock>> take(const std::string& data) {
    return take_log_directory(disk, data, logs, random);
  }
  // Empty: none.
  std::string problem(const std::string& data) {
    const auto taken = take(data);
    return taken ? std::string() : taken.error().message;
  }
};

TEST_SUITE("log directory") {
  TEST_CASE("a directory is within another by whole names only") {
    CHECK(is_within("/data", "/data"));
    CHECK(is_within("/data/logs", "/data"));
    CHECK(is_within("/data", "/"));
    CHECK_FALSE(is_within("/data2", "/data"));
    CHECK_FALSE(is_within("/data", "/data/logs"));
    CHECK_FALSE(is_within("/logs/data", "/data"));
  }

  TEST_CASE("two data directories do not get one log.dirs at a time, even when it is empty") {
    LogDirectoryFixture f;
    {
      const auto taken = f.take(f.first);
      REQUIRE(taken.has_value());
      REQUIRE(taken->has_value());
      const auto again = f.take(f.second);
      REQUIRE_FALSE(again.has_value());
      CHECK(again.error().code == Errc::in_use);
      CHECK(again.error().message.contains("segments"));
      CHECK(again.error().message.contains("pid " + std::to_string(::getpid())));
      const auto checked = check_log_directory(f.disk, f.second, f.logs);
      REQUIRE_FALSE(checked.has_value());
      CHECK(checked.error().code == Errc::in_use);
    }
    CHECK(f.problem(f.second) == "");
  }

  TEST_CASE(
      "segments of another data directory are refused, unchanged, until its mark is removed") {
    LogDirectoryFixture f;
    f.use(f.first);
    const auto before = contents(f.logs);
    for (const auto& data : {f.second, f.scratch.path("not-there")}) {
      const auto refused = f.take(data);
      REQUIRE_FALSE(refused.has_value());
      CHECK(refused.error().code == Errc::invalid);
      CHECK(refused.error().message.contains(f.first));
      CHECK(refused.error().message.contains(f.logs + "/owner.properties"));
      CHECK_FALSE(check_log_directory(f.disk, data, f.logs).has_value());
      const auto repaired =
          lock_log_directory(f.disk, data, f.logs, DirectoryLock::For::reading, "stop it first");
      CHECK_FALSE(repaired.has_value());
    }
    CHECK(contents(f.logs) == before);
    CHECK(f.problem(f.first) == "");
    std::filesystem::remove(f.logs + "/owner.properties");
    CHECK(f.problem(f.second) == "");
    CHECK(f.problem(f.first).contains("another data directory, " + f.second));
  }

  TEST_CASE("segments that have no mark, and a marked directory without segments, are taken over") {
    LogDirectoryFixture f;
    std::filesystem::create_directories(f.logs + "/orders-0");
    CHECK(f.problem(f.first) == "");
    CHECK(f.problem(f.second) != "");
    std::filesystem::remove(f.logs + "/orders-0");
    CHECK(f.problem(f.second) == "");
  }

  TEST_CASE("a data directory that was moved keeps its log.dirs, a copy beside the original not") {
    namespace fs = std::filesystem;
    LogDirectoryFixture f;
    f.use(f.first);
    const auto copy = f.scratch.path("copy"), away = f.scratch.path("away");
    fs::copy(f.first, copy, fs::copy_options::recursive);
    CHECK(f.problem(copy).contains("another data directory, " + f.first));
    fs::rename(f.first, away);
    CHECK(f.problem(copy) == "");
    // The copy has taken its place, so the original is the other one now.
    CHECK(f.problem(away).contains("another data directory, " + copy));
    fs::remove_all(copy);
    CHECK(f.problem(away) == "");
  }

  TEST_CASE("logs below the data directory need no lock; those below another one are refused") {
    LogDirectoryFixture f;
    for (const auto& logs : {f.first + "/logs", f.first + "/elsewhere/", f.first}) {
      const auto taken = take_log_directory(f.disk, f.first, logs, f.random);
      REQUIRE(taken.has_value());
      CHECK_FALSE(taken->has_value());
    }
    CHECK(contents(f.first).empty());
    write_whole(f.first + "/meta.properties", "version=1\n");
    std::filesystem::create_directories(f.first + "/logs");
    const auto refused = take_log_directory(f.disk, f.second, f.first + "/logs", f.random);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.contains("of the data directory " + f.first));
    CHECK(contents(f.first).size() == 1);
  }

  TEST_CASE("logs/ that is a link to another place is locked there") {
    LogDirectoryFixture f;
    std::filesystem::create_directories(f.logs);
    std::filesystem::create_directory_symlink(f.logs, f.first + "/logs");
    const auto taken = take_log_directory(f.disk, f.first, f.first + "/logs", f.random);
    REQUIRE(taken.has_value());
    CHECK(taken->has_value());
    CHECK_FALSE(f.take(f.second).has_value());
  }
}

}  // namespace
}  // namespace tarry::storage
