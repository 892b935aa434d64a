#pragma once

// World: a whole broker in one thread under time that a test sets.
//
//   World world({.shards = 2});
//   auto response = world.call(request, version);      // Runs until the answer is there.
//   auto waiting = world.begin(fetch, 12);             // Starts, and goes on with world.run().
//   world.pass(3s);                                    // Wall and monotonic time go on.
//   world.restart();                                   // As after kill -9: what is not synced by
//                                                      // the journal is recovered from it.
//
// The executors are polled, what is blocking runs in between, the wheels are advanced; nothing
// sleeps and nothing happens behind a test's back.

#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <doctest/doctest.h>

#include "base/background.h"
#include "broker/broker.h"
#include "broker/handlers/table.h"
#include "protocol/header.h"
#include "records/batch_builder.h"
#include "records/record_batch.h"
#include "tests/given.h"

namespace tarry::broker::test {

struct WorldOptions {
  std::size_t shards = 2;
  std::function<void(BrokerConfig&)> configure = [](BrokerConfig&) {};
  storage::Disk* disk = nullptr;  // Null: the machine's.
};

class World {
 public:
  explicit World(WorldOptions options = {}) : options_(std::move(options)) {
    auto pattern = (std::filesystem::temp_directory_path() / "tarry-world-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
    open();
  }
  ~World() {
    close();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  const std::string& directory() const { return directory_; }
  Broker& broker() { return *broker_; }
  Shard& shard(std::size_t index = 0) { return broker_->shard(index); }
  std::size_t shard_count() const { return options_.shards; }
  SetClock clock;
  bool runs_at_once = true;  // begin() does; else the test says when something runs.

  // What is ready runs, until nothing is.
  void run() {
    for (bool busy = true; busy;) {
      busy = turn();
      if (!background_stands_still) {
        for (auto& background : backgrounds_) busy = background->step() || busy;
      }
    }
  }

  // The same without what blocks, which waits in background() for the test to pick.
  bool turn() {
    bool any = false;
    for (bool busy = true; busy; any = any || busy) {
      busy = false;
      for (std::size_t i = 0; i < contexts_.size(); ++i) {
        if (i == stands_still) continue;
        contexts_[i]->restart();
        busy = contexts_[i]->poll() > 0 || busy;
      }
      for (std::size_t i = 0; i < contexts_.size(); ++i) {
        if (i == stands_still) continue;
        const auto progress = shard(i).wheel().advance(shard(i).tick());
        busy = progress.fired > 0 || progress.more || busy;
      }
    }
    return any;
  }
  QueuedBackground& background(std::size_t index = 0) { return *backgrounds_[index]; }

  // Time passes, a wheel's bucket at a time, so that what falls due in between comes in order.
  void pass(std::chrono::milliseconds time) {
    const auto until = clock.now_mono + time;
    run();
    while (clock.now_mono < until) {
      auto next = until;
      for (std::size_t i = 0; i < contexts_.size(); ++i) {
        if (const auto due = shard(i).wheel().next_due())
          next = std::min(next, shard(i).time_of(*due));
      }
      next = std::max(next, clock.now_mono + std::chrono::milliseconds{1});
      next = std::min(next, until);
      clock.now_wall += next - clock.now_mono;
      clock.now_mono = next;
      run();
    }
  }

  // As after kill -9, at a moment when nothing is on its way to the disk; or with another --shards.
  void restart(std::optional<std::size_t> shards = std::nullopt) {
    if (shards) options_.shards = *shards;
    kill();
    open();
  }
  // The same, when the start may be refused.
  Result<> try_restart(std::optional<std::size_t> shards = std::nullopt) {
    if (shards) options_.shards = *shards;
    kill();
    return try_open();
  }
  // Everything ends, on a disk that takes nothing any more: as kill -9 at the moment when that
  // began.  Before try_restart().
  void crash() {
    for (std::size_t i = 0; i < contexts_.size(); ++i) shard(i).purgatory().cancel_all();
    kill();
    failure.reset();
  }
  // In order.
  void stop() {
    bool stopped = false;
    broker_->stop([&] { stopped = true; });
    for (int i = 0; i < 1000 && !stopped; ++i) pass(std::chrono::milliseconds{1});
    CHECK(stopped);
    kill();
  }

  // --- Requests

  struct Pending {
    std::optional<Answer> answer;
  };
  template <typename Request>
  std::shared_ptr<Pending> begin(const Request& request, int version, std::size_t home = 0) {
    Buffer frame = protocol::encode_request_frame(7, "test", request, version);
    frame.erase(frame.begin(), frame.begin() + 4);
    frames_.push_back(std::make_unique<Buffer>(std::move(frame)));
    auto header = protocol::parse_request_header(*frames_.back());
    REQUIRE(header.has_value());
    const Handler* handler = find_handler(header->key);
    REQUIRE(handler != nullptr);
    auto pending = std::make_shared<Pending>();
    boost::asio::co_spawn(contexts_[home]->get_executor(),
                          handler->run({*broker_, shard(home), *connections_[home], *header}),
                          [pending](std::exception_ptr failed, Answer answer) {
                            if (failed) std::rethrow_exception(failed);
                            pending->answer = std::move(answer);
                          });
    if (runs_at_once) run();
    return pending;
  }

  template <typename Response>
  Response read(const Pending& pending, int version) {
    REQUIRE(pending.answer.has_value());
    REQUIRE_MESSAGE(pending.answer->close.empty(), pending.answer->close);
    answers_.push_back(std::make_unique<Buffer>());
    for (const auto& piece : pending.answer->frame) append_bytes(*answers_.back(), piece.view());
    const Bytes frame = Bytes(*answers_.back()).subspan(4);
    const auto header = protocol::parse_response_header(frame, Response::api, version);
    REQUIRE(header.has_value());
    auto response = protocol::decode_message<Response>(header->body, version);
    REQUIRE_MESSAGE(response.has_value(), response.error().message);
    return *response;
  }

  // Begins, runs until answered (time passes, at most a minute of it), reads.
  template <typename Response, typename Request>
  Response call(const Request& request, int version, std::size_t home = 0) {
    const auto pending = begin(request, version, home);
    for (int i = 0; i < 60'000 && !pending->answer; ++i) pass(std::chrono::milliseconds{1});
    return read<Response>(*pending, version);
  }

  Connection& connection(std::size_t home = 0) { return *connections_[home]; }
  std::optional<Error> failure;             // What the broker told on_failure.
  bool background_stands_still = false;     // As when the disk does not answer.
  std::optional<std::size_t> stands_still;  // A shard whose thread does not get to run.
  bool ready = false;                       // As Broker::start() says.

 private:
  void open() {
    const auto opened = try_open();
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
  }
  Result<> try_open() {
    BrokerSetup setup;
    setup.config.data_directory = directory_ + "/data";
    setup.config.version = "test";
    setup.config.disk_reserve_bytes = 0;
    options_.configure(setup.config);
    setup.disk = options_.disk != nullptr ? options_.disk : &disk_;
    setup.clock = &clock;
    setup.random = &random_;
    setup.on_failure = [this](const Error& error) { failure = error; };
    for (std::size_t i = 0; i < options_.shards; ++i) {
      contexts_.push_back(std::make_unique<boost::asio::io_context>(1));
      backgrounds_.push_back(std::make_unique<QueuedBackground>());
      connections_.push_back(std::make_unique<Connection>("127.0.0.1:1"));
      setup.shards.push_back({static_cast<std::uint32_t>(i), contexts_.back()->get_executor(),
                              backgrounds_.back().get()});
    }
    auto broker = Broker::open(std::move(setup));
    if (!broker) return std::unexpected(broker.error());
    broker_ = std::move(*broker);
    ready = false;
    broker_->start([this] { ready = true; });
    run();
    return {};
  }
  void kill() {
    // Coroutines that wait go with their contexts; the broker they point to goes last.
    for (auto& connection : connections_) connection->close();
    if (broker_) run();
    // What others had asked of it first: that points to their contexts.
    if (stands_still) contexts_[*stands_still].reset();
    stands_still.reset();
    contexts_.clear();
    broker_.reset();
    backgrounds_.clear();
    connections_.clear();
  }
  void close() { kill(); }

  WorldOptions options_;
  std::string directory_;
  storage::PosixDisk disk_;
  SeededRandom random_{42};
  std::vector<std::unique_ptr<boost::asio::io_context>> contexts_;
  std::vector<std::unique_ptr<QueuedBackground>> backgrounds_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Buffer>> frames_, answers_;  // What requests and responses view.
  std::unique_ptr<Broker> broker_;
};

}  // namespace tarry::broker::test
