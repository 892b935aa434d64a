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
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include <doctest/doctest.h>

#include "base/background.h"
#include "broker/broker.h"
#include "broker/context/connection.h"
#include "broker/context/request_context.h"
#include "protocol/header.h"
#include "purgatory/kind.h"
#include "records/batch_builder.h"
#include "records/record_batch.h"
#include "tests/given.h"

namespace tarry::broker::test {

// The kind of operations that the broker has registered under this name.
purgatory::Kind kind_named(std::string_view name);

struct WorldOptions {
  std::size_t shards = 2;
  std::function<void(BrokerConfig&)> configure = [](BrokerConfig&) {};
  storage::Disk* disk = nullptr;      // Null: the machine's.
  SettingsTable* settings = nullptr;  // Null: none can be changed.
};

class World {
 public:
  explicit World(WorldOptions options = {});
  ~World();

  const std::string& directory() const { return directory_; }
  Broker& broker() { return *broker_; }
  Shard& shard(std::size_t index = 0) { return broker_->shard(index); }
  std::size_t shard_count() const { return options_.shards; }
  SetClock clock;
  bool runs_at_once = true;  // begin() does; else the test says when something runs.

  // Runs all that is ready, until nothing is.
  void run();

  // The same without what blocks, which waits in background() for the test to pick.
  bool turn();
  QueuedBackground& background(std::size_t index = 0) { return *backgrounds_[index]; }

  // Time passes, a wheel's bucket at a time, so that what falls due in between comes in order.
  void pass(std::chrono::milliseconds time);

  // As after kill -9, at a moment when nothing is on its way to the disk; or with another --shards.
  void restart(std::optional<std::size_t> shards = std::nullopt);
  // The same, when the start may be refused.
  Result<> try_restart(std::optional<std::size_t> shards = std::nullopt);
  // Everything ends, on a disk that takes nothing any more: as kill -9 at the moment when that
  // began.  Before try_restart().
  void crash();
  // In order.
  void stop();

  // --- Requests

  struct Pending {
    std::optional<Answer> answer;
    bool has_failed = false;  // By an exception, which ends the connection of a real client.
  };
  template <typename Request>
  std::shared_ptr<Pending> begin(const Request& request, int version, std::size_t home = 0) {
    return begin_frame(protocol::encode_request_frame(7, "test", request, version), home);
  }

  template <typename Response>
  Response read(const Pending& pending, int version) {
    const Bytes frame = frame_of(pending);
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
    wait_for(*pending);
    return read<Response>(*pending, version);
  }

  // The time that the next requests take of their shard's thread; null: it is not counted.
  std::shared_ptr<RequestTime> request_time;
  Connection& connection(std::size_t home = 0) { return *connections_[home]; }
  std::optional<Error> failure;             // The error that the broker gave to on_failure.
  bool background_stands_still = false;     // As when the disk does not answer.
  std::optional<std::size_t> stands_still;  // A shard whose thread does not get to run.
  bool ready = false;                       // As Broker::start() says.

 private:
  void open();
  Result<> try_open();
  void kill();
  // All but the templates is compiled once, in world.cc.
  std::shared_ptr<Pending> begin_frame(Buffer frame, std::size_t home);
  void wait_for(const Pending& pending);
  Bytes frame_of(const Pending& pending);  // Without its size.

  WorldOptions options_;
  std::string directory_;
  storage::PosixDisk disk_;
  SeededRandom random_{42};
  std::vector<std::unique_ptr<boost::asio::io_context>> contexts_;
  std::vector<std::unique_ptr<QueuedBackground>> backgrounds_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Buffer>> frames_, answers_;  // Requests and responses view these.
  std::unique_ptr<Broker> broker_;
};

// How many operations of a kind wait, on all shards.
std::uint64_t count_waiting(World& world, purgatory::Kind kind);

}  // namespace tarry::broker::test
