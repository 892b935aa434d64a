// A broker that dies again and again, at any moment, while it makes a checkpoint every few
// milliseconds over segments of a few records: what was acknowledged is there, once.
//
// TARRY_SEED repeats a run, TARRY_LIVES makes it longer.

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

#include "tests/broker/batches.h"
#include "tests/memory_disk.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

// Journals and logs in memory, where what was not synced can be taken away; the rest (RocksDB goes
// its own way) on the machine's disk.
class CrashDisk final : public storage::Disk {
 public:
  explicit CrashDisk(Random& random) : memory(random) {}

  Result<std::unique_ptr<storage::File>> open(const std::string& path,
                                              storage::OpenOptions options) override {
    if (dead) return gone(path);
    return of(path).open(path, options);
  }
  Result<std::vector<storage::DirectoryEntry>> list(const std::string& directory) override {
    if (dead) return gone(directory);
    return of(directory).list(directory);
  }
  Result<> make_directories(const std::string& directory) override {
    if (dead) return gone(directory);
    if (auto made = machine_.make_directories(directory); !made) return made;
    return memory.make_directories(directory);
  }
  Result<> rename(const std::string& from, const std::string& to) override {
    if (dead) return gone(from);
    return of(from).rename(from, to);
  }
  Result<> remove(const std::string& file) override {
    if (dead) return gone(file);
    return of(file).remove(file);
  }
  Result<> remove_directory(const std::string& directory) override {
    if (dead) return gone(directory);
    return of(directory).remove_directory(directory);
  }
  Result<> sync_directory(const std::string& directory) override {
    if (dead) return gone(directory);
    return of(directory).sync_directory(directory);
  }
  Result<std::uint64_t> free_space(const std::string&) override { return std::uint64_t{1} << 40; }

  storage::MemoryDisk memory;
  bool dead = false;  // Files that are open fail since memory.kill().

 private:
  static std::unexpected<Error> gone(const std::string& path) {
    return fail(Errc::io, path + ": the process is dead");
  }
  storage::Disk& of(const std::string& path) {
    const bool ours =
        path.find("/journal") != std::string::npos || path.find("/logs") != std::string::npos;
    if (ours) return memory;
    return machine_;
  }
  storage::PosixDisk machine_;
};

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Sent {
  std::string topic;
  PartitionIndex partition;
  std::shared_ptr<World::Pending> answer;
  std::optional<WallTime> due;  // Delayed.
  bool acknowledged = false;
  bool may_be_lost = false;  // tarry.durability=os, and the power was cut.
};

// Two topics whose broker dies again and again, and all that was sent to them.
struct Lives {
  SeededRandom random;
  CrashDisk disk{random};
  World world{{.shards = 2,
               .configure =
                   [](BrokerConfig& config) {
                     config.checkpoint_interval = 5ms;
                     config.journal_file_bytes = 64 << 10;
                     config.journal_max_bytes = 40 << 20;
                     config.tail_bytes = 64 << 10;
                   },
               .disk = &disk}};
  std::map<std::string, Sent> sent;
  int next = 0;

  explicit Lives(std::uint64_t seed) : random(seed) {
    create_topic(world, "durable", 2, {{"segment.bytes", "3000"}});
    create_topic(world, "os", 2, {{"segment.bytes", "3000"}, {"tarry.durability", "os"}});
  }

  void settle_answers() {
    for (auto& [value, one] : sent) {
      if (!one.answer || !one.answer->answer) continue;
      const auto response = world.read<protocol::ProduceResponse>(*one.answer, 9);
      one.acknowledged = response.responses[0].partition_responses[0].error_code == ErrorCode::none;
      one.answer = nullptr;
    }
  }
  void check(bool all_is_due) {
    std::map<std::string, int> seen;
    for (const char* topic : {"durable", "os"}) {
      for (PartitionIndex p = 0; p < 2; ++p) {
        for (const auto& record : read_all(world, topic, p)) ++seen[record.value];
      }
    }
    for (const auto& [value, times] : seen) {
      INFO("value ", value);
      REQUIRE(times == 1);
      const Sent& one = sent.at(value);
      if (one.due) REQUIRE(*one.due <= world.clock.wall());
    }
    for (const auto& [value, one] : sent) {
      INFO("value ", value);
      if (one.acknowledged && !one.may_be_lost && (!one.due || all_is_due))
        REQUIRE(seen.contains(value));
    }
  }

  void send() {
    Sent one{random.below(2) == 0 ? "durable" : "os", static_cast<PartitionIndex>(random.below(2)),
             nullptr, std::nullopt};
    const std::string value = std::to_string(next++) + std::string(random.below(600), '.');
    NewRecord record{value};
    if (random.below(2) == 0) {
      const auto delay = random.below(30);
      record.headers.push_back({"x-delay", std::to_string(delay)});
      one.due = world.clock.wall() + std::chrono::milliseconds{delay};
    }
    const Buffer batch = batch_of(world.clock.wall(), {record});
    one.answer = world.begin(produce_request(one.topic, one.partition, batch), 9,
                             random.below(world.shard_count()));
    sent.emplace(value, std::move(one));
  }
  // Records are sent, time passes, and threads and disks do some of their work.
  void live() {
    world.runs_at_once = false;
    for (auto left = 20 + random.below(100); left > 0; --left) {
      const auto kind = random.below(10);
      if (kind < 3) {
        send();
      } else if (kind < 5) {
        const std::chrono::milliseconds time{1 + random.below(4)};
        world.clock.now_wall += time;
        world.clock.now_mono += time;
      }
      world.turn();
      for (auto steps = random.below(4); steps > 0; --steps) {
        auto& background = world.background(random.below(world.shard_count()));
        random.below(3) == 0 ? background.step_last() : background.step();
      }
    }
    settle_answers();
  }
  void die() {
    const bool power = random.below(2) == 0;
    for (auto& [value, one] : sent) {
      one.answer = nullptr;  // A request that was not answered by now never is.
      if (power && one.topic == "os" && !one.due) one.may_be_lost = true;
    }
    disk.dead = true;
    power ? disk.memory.cut_power() : disk.memory.kill();
    world.crash();
    disk.dead = false;
    world.runs_at_once = true;
    const auto opened = world.try_restart(1 + random.below(2));
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
  }
};

TEST_SUITE("crashes") {
  TEST_CASE(
      "through many crashes between checkpoints nothing acknowledged is lost and nothing is "
      "duplicated") {
    const auto seed = number_from("TARRY_SEED", 1);
    const auto lives = number_from("TARRY_LIVES", static_cast<std::uint64_t>(tries(24)));
    INFO("TARRY_SEED=", seed);
    Lives run(seed);
    for (std::uint64_t life = 0; life < lives; ++life) {
      INFO("life ", life);
      run.live();
      run.die();
      if (life % 4 == 3) run.check(false);
    }
    run.world.pass(100ms);
    run.check(true);
    CHECK_FALSE(run.world.failure.has_value());
    CHECK(run.sent.size() > lives);
  }
}

}  // namespace
}  // namespace tarry::broker::test
