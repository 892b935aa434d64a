#pragma once

// A broker of one shard in a directory of its own, in the test's thread: the test says when the
// shard runs and what time it is.

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include "broker/broker.h"
#include "server/blocking_pool.h"
#include "server/config_layers.h"
#include "server/system_clock.h"
#include "server/system_random.h"
#include "storage/file.h"

namespace tarry::server {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/tarry-server-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Set by the test, and asked by the pool's threads too (how long a write has taken).
class FakeClock final : public Clock {
 public:
  WallTime wall() const override {
    return WallTime{std::chrono::floor<std::chrono::milliseconds>(mono().time_since_epoch())} +
           std::chrono::years(55);
  }
  MonoTime mono() const override { return MonoTime{std::chrono::nanoseconds{now_.load()}}; }
  void advance(std::chrono::milliseconds time) { now_ += std::chrono::nanoseconds{time}.count(); }

 private:
  std::atomic<std::int64_t> now_ = std::chrono::nanoseconds{std::chrono::hours{1}}.count();
};

// A test waits for threads that it does not hold in its hand (the pool's), so
// there is an end to its patience; nothing is ever waited for that does not have to happen.
constexpr std::chrono::seconds patience{20};

inline void pass_time(FakeClock& clock) {
  clock.advance(std::chrono::milliseconds{1});
}
inline void pass_time(const SystemClock&) {}  // It does by itself.

template <typename ClockType>
struct World {
  // `memory_bytes` as in tarry.memory.bytes; 0: its default.
  explicit World(std::int64_t memory_bytes = 0) {
    broker::BrokerSetup setup;
    setup.config = make_config({})->broker;
    if (memory_bytes > 0) setup.config.memory_bytes = memory_bytes;
    setup.config.data_directory = directory.path() + "/data";
    setup.disk = &disk;
    setup.clock = &clock;
    setup.random = &random;
    setup.on_failure = [](const Error& error) { FAIL(error.message); };
    setup.shards.push_back({0, context.get_executor(), background.get()});
    auto opened = broker::Broker::open(std::move(setup));
    if (!opened) FAIL(opened.error().message);
    broker = std::move(*opened);
    broker->start();
  }
  ~World() {
    // A round that is under way is waited for with the wheel, so time goes on meanwhile.
    bool stopped = false;
    broker->stop([&] { stopped = true; });
    until([&] {
      pass_time(clock);
      shard().wheel().advance(shard().tick());
      return stopped;
    });
    pool.stop();
    context.restart();
    context.poll();
  }

  broker::Shard& shard() { return broker->shard(0); }

  // Runs the shard until `is` says so.
  template <typename Condition>
  void until(Condition is) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!is()) {
      if (std::chrono::steady_clock::now() > end) FAIL("what was waited for did not happen");
      context.restart();
      if (context.poll() == 0) std::this_thread::yield();
    }
  }
  // Runs what is there to be run.
  void settle() {
    context.restart();
    while (context.poll() > 0) {
    }
  }

  TemporaryDirectory directory;
  ClockType clock;
  SystemRandom random;
  storage::PosixDisk disk;
  boost::asio::io_context context{1};
  BlockingPool pool{4};
  std::unique_ptr<Background> background = pool.background_for(context);
  std::unique_ptr<broker::Broker> broker;
};

}  // namespace tarry::server
