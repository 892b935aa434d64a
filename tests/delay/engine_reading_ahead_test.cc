#include "delay/engine.h"

#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

// Counts what this thread's iterators pass over in RocksDB, deletions and all.
class PassedOver {
 public:
  PassedOver() {
    rocksdb::SetPerfLevel(rocksdb::PerfLevel::kEnableCount);
    take();
  }
  // Since the last time.
  std::uint64_t take() {
    const auto& counts = *rocksdb::get_perf_context();
    const std::uint64_t all =
        counts.internal_key_skipped_count + counts.internal_delete_skipped_count;
    return all - std::exchange(taken_, all);
  }

 private:
  std::uint64_t taken_ = 0;
};

TEST_SUITE("reading ahead") {
  TEST_CASE("to cancel what is due first costs no more for all that was cancelled before it") {
    TestHost host;
    constexpr int records = 1'000, measured = 100;
    for (int i = 0; i < records; ++i) {
      host.schedule(orders, "v", std::to_string(3600 + i) + "s", std::to_string(i));
    }
    host.settle();
    host.crash();
    host.settle();
    PassedOver passed;
    std::uint64_t first = 0, last = 0;
    for (int i = 0; i < records; ++i) {
      const auto answer = host.cancel(orders, std::to_string(i));
      host.settle();
      REQUIRE(*answer == ControlOutcome::done);
      const auto of_this = passed.take();
      if (i < measured) first += of_this;
      if (i >= records - measured) last += of_this;
      if (i + 1 == records) break;
      const auto next = host.engine->stats().next_due;
      REQUIRE(next.has_value());
      REQUIRE(*next <= host.pending().begin()->second.key.due);
    }
    CHECK(first <= 4 * measured);
    CHECK(last <= 4 * measured);
    // A record on the disk is seen to be gone when it comes near.
    host.pass(std::chrono::hours{2});
    CHECK(host.wheel->empty());
  }

  TEST_CASE("a step passes over a bounded number of records of a deleted topic") {
    Engine::Options options;
    options.step_loads = 50;
    TestHost host(options);
    const WallTime start = host.clock.wall();
    for (int i = 0; i < 2'000; ++i) host.schedule(orders, "v", std::to_string(3600 + i) + "s");
    host.schedule(others, "a", "2h", "a");
    host.schedule(others, "b", "3h", "b");
    host.settle();
    host.drop(orders.topic);
    host.deleted.insert(orders.topic);
    host.checks_store = false;
    host.engine->topic_deleted(orders.topic);

    PassedOver passed;
    std::uint64_t most = 0;
    const auto settle = [&] {
      do {
        host.sync();
        passed.take();
        while (host.turn(1) != 0) most = std::max(most, passed.take());
      } while (!host.idle());
    };
    const WallTime a = start + std::chrono::hours{2}, b = start + std::chrono::hours{3};
    settle();
    CHECK(host.engine->stats().next_due == a);
    host.crash();
    settle();
    CHECK(host.engine->stats().next_due <= a);
    const auto answer = host.cancel(others, "a");
    settle();
    CHECK(*answer == ControlOutcome::done);
    host.clock.pass(std::chrono::minutes{100});  // The records of the deleted topic come near.
    settle();
    CHECK(host.engine->stats().next_due <= b);
    CHECK(host.engine->stats().near == 0);
    host.schedule(others, "c", "1s");
    host.pass(std::chrono::minutes{80});
    settle();
    CHECK(host.values(others) == Strings{"c", "b"});
    CHECK(host.values(orders).empty());
    CHECK(most <= 60);
  }
}

}  // namespace
}  // namespace tarry::delay
