#include "cli/checkup.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

namespace tarry::cli {
namespace {

using Level = Finding::Level;

DiskFacts good_disk() {
  return {.directory = "/srv/tarry",
          .free_bytes = std::uint64_t{50} << 30,
          .total_bytes = std::uint64_t{100} << 30,
          .free_inodes = 1'000'000,
          .total_inodes = 2'000'000,
          .reserve_bytes = std::uint64_t{256} << 20,
          .file_system = 0xEF53,
          .takes_direct = true};
}

const Finding* finding_of(const std::vector<Finding>& findings, const std::string& check) {
  const auto found = std::ranges::find(findings, check, &Finding::check);
  return found == findings.end() ? nullptr : &*found;
}
Level level_of(const std::vector<Finding>& findings, const std::string& check) {
  const auto* found = finding_of(findings, check);
  REQUIRE(found != nullptr);
  return found->level;
}

TEST_SUITE_BEGIN("checkup");

TEST_CASE("a limit of open files that serves fewer connections than are wanted is a warning") {
  CHECK(check_open_files(1'048'576, 100'000, 100'000).level == Level::ok);
  const auto fewer = check_open_files(20'000, 100'000, 19'456);
  CHECK(fewer.level == Level::warning);
  CHECK(fewer.text.find("max.connections=100000") != std::string::npos);
  CHECK(check_open_files(1024, 100, 100).level == Level::problem);
}

TEST_CASE("a disk below the reserve is a problem, one that is nearly full a warning") {
  auto disk = good_disk();
  CHECK(std::ranges::all_of(check_disk(disk),
                            [](const auto& each) { return each.level == Level::ok; }));
  disk.free_bytes = std::uint64_t{9} << 30;
  CHECK(level_of(check_disk(disk), "disk space") == Level::warning);
  disk.free_bytes = disk.reserve_bytes - 1;
  CHECK(level_of(check_disk(disk), "disk space") == Level::problem);
}

TEST_CASE("for a disk that is smaller than the reserve the advice is to lower the reserve") {
  auto disk = good_disk();
  disk.reserve_bytes = disk.total_bytes + 1;
  CHECK(level_of(check_disk(disk), "disk space") == Level::problem);
  CHECK(finding_of(check_disk(disk), "disk space")->text.contains("lower the reserve"));
  disk.reserve_bytes = disk.total_bytes;
  CHECK(finding_of(check_disk(disk), "disk space")->text.contains("free some space"));
}

TEST_CASE("a disk that is smaller than journals and reserve together is a warning with their sum") {
  auto disk = good_disk();
  disk.total_bytes = std::uint64_t{574} << 20;
  disk.free_bytes = std::uint64_t{500} << 20;
  disk.journal_bytes = std::uint64_t{318} << 20;
  CHECK(level_of(check_disk(disk), "disk space") == Level::ok);
  disk.journal_bytes = std::uint64_t{512} << 20;
  CHECK(level_of(check_disk(disk), "disk space") == Level::warning);
  CHECK(finding_of(check_disk(disk), "disk space")->text.find("768") != std::string::npos);
}

TEST_CASE(
    "a reserve that is too small for a checkpoint is a warning that says how large it has to be") {
  constexpr std::uint64_t least = std::uint64_t{64} << 20;
  CHECK(check_reserve(least).level == Level::ok);
  const auto small = check_reserve(least - 1);
  CHECK(small.check == "disk reserve");
  CHECK(small.level == Level::warning);
  CHECK(small.text.contains("tarry.disk.reserve.bytes=67108863"));
  CHECK(small.text.contains("set it to 67108864 or more"));
  CHECK(check_reserve(0).level == Level::warning);
}

TEST_CASE("a file system that forgets or refuses direct writes is a warning with its name") {
  auto disk = good_disk();
  disk.takes_direct = false;
  CHECK(level_of(check_disk(disk), "O_DIRECT") == Level::warning);
  disk.takes_direct.reset();
  CHECK(finding_of(check_disk(disk), "O_DIRECT") == nullptr);
  disk.file_system = 0x01021994;
  CHECK(level_of(check_disk(disk), "file system") == Level::warning);
  CHECK(finding_of(check_disk(disk), "file system")->text.starts_with("tmpfs: "));
  disk.file_system = 0x1234;
  CHECK(level_of(check_disk(disk), "file system") == Level::ok);
}

TEST_CASE("a clock that nothing synchronises is a warning") {
  CHECK(check_clock(false, 16'000'000).level == Level::warning);
  CHECK(check_clock(true, 1500).text == "synchronised, off by at most 1.5 ms");
}

TEST_CASE("a certificate that expires within thirty days is a warning that says how to renew it") {
  const WallTime now = from_ms(1'700'000'000'000);
  const auto later = check_certificate("listener SSL: CN=b", now + std::chrono::days(31), now);
  CHECK(later.level == Level::ok);
  CHECK(later.text == "listener SSL: CN=b");
  const auto soon = check_certificate("listener SSL: CN=b", now + std::chrono::days(29), now);
  CHECK(soon.level == Level::warning);
  CHECK(soon.text == "listener SSL: CN=b: it expires in 29d; renew it, and send the broker SIGHUP");
}

TEST_CASE("a listener beyond loopback is a warning unless its clients log in") {
  CHECK(check_access("127.0.0.1:9092", true, false).level == Level::ok);
  CHECK(check_access("0.0.0.0:9092", false, true).level == Level::ok);
  const auto open = check_access("0.0.0.0:9092", false, false);
  CHECK(open.level == Level::warning);
  CHECK(open.text.find("full access") != std::string::npos);
}

TEST_CASE("an address that clients are told, and to which nobody can connect, is a warning") {
  const auto good = check_advertised("PLAINTEXT", "127.0.0.1:9092", "");
  CHECK(good.level == Level::ok);
  CHECK(good.text ==
        "clients of the listener PLAINTEXT are told 127.0.0.1:9092, which takes connections");
  const auto bad = check_advertised("EXTERNAL", "broker.example:9093", "Connection refused");
  CHECK(bad.level == Level::warning);
  CHECK(bad.text.contains(
      "broker.example:9093, which cannot be reached from here (Connection refused)"));
  CHECK(bad.text.contains("advertised.listeners"));
}

TEST_CASE(
    "a running broker whose listener is open to all, or that serves fewer connections than it "
    "should, is a warning") {
  const auto closed = check_status(
      R"({"state":"running","max_connections":100,"wanted_connections":100,"open_listeners":[]})");
  CHECK(level_of(closed, "access") == Level::ok);
  // True of listeners on loopback alone, too, where nobody logs in.
  CHECK(finding_of(closed, "access")->text ==
        "no listener gives other machines access without a login");
  CHECK(level_of(closed, "open files") == Level::ok);
  const auto open = check_status(
      R"({"state":"running","max_connections":19456,"wanted_connections":100000,"open_listeners":["0.0.0.0:9092"]})");
  CHECK(level_of(open, "access") == Level::warning);
  CHECK(finding_of(open, "access")->text.find("0.0.0.0:9092 is not loopback") != std::string::npos);
  CHECK(level_of(open, "open files") == Level::warning);
  CHECK(finding_of(open, "open files")->text.find("max.connections is 100000") !=
        std::string::npos);
  // A member of the relay has no listeners.
  CHECK(finding_of(check_status(R"({"state":"running"})"), "access") == nullptr);
}

TEST_CASE("settings that need nearly all of the machine's memory are a warning") {
  constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  CHECK(check_memory(6 * gib, 1 * gib, 8 * gib).level == Level::ok);
  const auto all = check_memory(6 * gib, 2 * gib, 8 * gib);
  CHECK(all.level == Level::warning);
  CHECK(all.text.find("allow 6.0 GiB, up to 2.0 GiB") != std::string::npos);
  CHECK(all.text.find("tarry.memory.bytes") != std::string::npos);
}

TEST_CASE("a broker that refuses, is late or was early is distinguished from a healthy one") {
  const auto healthy = check_status(
      R"({"version":"1","state":"running","shards":[{"shard":0,"has_room":true}],"produce_errors":{},)"
      R"("connections":3,"max_connections":100,"delayed":{"overdue":0,"early_total":0,"damaged_total":0,)"
      R"("lag_ms":{"p99":0.4}}})");
  CHECK(std::ranges::all_of(healthy, [](const auto& each) { return each.level == Level::ok; }));

  const auto ill = check_status(
      R"({"version":"1","state":"stopping","shards":[{"shard":0,"has_room":true},{"shard":1,"has_room":false}],)"
      R"("produce_errors":{"INVALID_RECORD":7},"connections":95,"max_connections":100,)"
      R"("delayed":{"lag_ms":{"p99":5512.0}}})");
  CHECK(level_of(ill, "broker") == Level::problem);
  CHECK(level_of(ill, "room for records") == Level::problem);
  CHECK(finding_of(ill, "room for records")->text.find("shard 1 ") != std::string::npos);
  CHECK(level_of(ill, "refusals") == Level::warning);
  CHECK(finding_of(ill, "refusals")->text.find("7 INVALID_RECORD") != std::string::npos);
  CHECK(level_of(ill, "connections") == Level::warning);
  CHECK(finding_of(ill, "deliveries")->text.find("5.51 s") != std::string::npos);
  // As after a downtime: they were late, and all are delivered.
  CHECK(finding_of(ill, "deliveries")->text.find("nothing is overdue now") != std::string::npos);

  const auto damaged = check_status(
      R"({"state":"running","out_of_service":[)"
      R"({"topic":"a","partition":1,"reason":"the log is cut","set_aside":7},{"topic":"b","partition":0,"reason":"r"},)"
      R"({"topic":"c","partition":0,"reason":"r"},{"topic":"hidden","partition":0,"reason":"r"}, 7]})");
  CHECK(level_of(damaged, "partitions") == Level::problem);
  const auto& named = finding_of(damaged, "partitions")->text;
  CHECK(named.find("a-1 (the log is cut)") != std::string::npos);
  CHECK(named.find("hidden") == std::string::npos);

  // Nothing was delivered late, because nothing is delivered.
  const auto stuck = [](const char* next_due) {
    return check_status(fmt::format(
        R"({{"state":"running","at_ms":1700000600000,"delayed":{{"overdue":3,"next_due":{},"lag_ms":{{"p99":0.2}}}}}})",
        next_due));
  };
  CHECK(level_of(stuck("1700000599000"), "deliveries") == Level::ok);
  CHECK(level_of(stuck("1700000560000"), "deliveries") == Level::warning);
  CHECK(level_of(stuck("1700000000000"), "deliveries") == Level::problem);
  CHECK(finding_of(stuck("1700000000000"), "deliveries")
            ->text.starts_with("3 records are overdue, the oldest for 10m"));

  CHECK(level_of(check_status(R"({"state":"running","delayed":{"early_total":1}})"),
                 "deliveries") == Level::problem);
  CHECK(level_of(check_status("<html>"), "broker") == Level::problem);
  CHECK(level_of(check_status(R"({"state":7,"shards":7,"produce_errors":7})"), "broker") ==
        Level::problem);
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry::cli
