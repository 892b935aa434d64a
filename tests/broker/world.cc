#include "tests/broker/world.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/co_spawn.hpp>

#include "broker/handlers/table.h"

namespace tarry::broker::test {

purgatory::Kind kind_named(std::string_view name) {
  const auto all = purgatory::kinds();
  const auto found = std::ranges::find(all, name, &purgatory::Kind::name);
  REQUIRE(found != all.end());
  return *found;
}

std::uint64_t count_waiting(World& world, purgatory::Kind kind) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < world.shard_count(); ++i)
    sum += world.shard(i).purgatory().metrics(kind).waiting;
  return sum;
}

World::World(WorldOptions options) : options_(std::move(options)) {
  auto pattern = (std::filesystem::temp_directory_path() / "tarry-world-XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  directory_ = pattern;
  open();
}

World::~World() {
  kill();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void World::run() {
  for (bool busy = true; busy;) {
    busy = turn();
    if (!background_stands_still) {
      for (auto& background : backgrounds_) busy = background->step() || busy;
    }
  }
}

bool World::turn() {
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

void World::pass(std::chrono::milliseconds time) {
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

void World::restart(std::optional<std::size_t> shards) {
  if (shards) options_.shards = *shards;
  kill();
  open();
}

Result<> World::try_restart(std::optional<std::size_t> shards) {
  if (shards) options_.shards = *shards;
  kill();
  return try_open();
}

void World::crash() {
  for (std::size_t i = 0; i < contexts_.size(); ++i) shard(i).purgatory().cancel_all();
  kill();
  failure.reset();
}

void World::stop() {
  bool stopped = false;
  broker_->stop([&] { stopped = true; });
  for (int i = 0; i < 1000 && !stopped; ++i) pass(std::chrono::milliseconds{1});
  CHECK(stopped);
  kill();
}

std::shared_ptr<World::Pending> World::begin_frame(Buffer frame, std::size_t home) {
  frame.erase(frame.begin(), frame.begin() + 4);  // Its size.
  frames_.push_back(std::make_unique<Buffer>(std::move(frame)));
  auto header = protocol::parse_request_header(*frames_.back());
  REQUIRE(header.has_value());
  const Handler* handler = find_handler(header->key);
  REQUIRE(handler != nullptr);
  auto pending = std::make_shared<Pending>();
  RequestContext context{*broker_, shard(home), *connections_[home], *header};
  context.frame_bytes = frames_.back()->size();
  context.charge = Charge(shard(home).ledger(), nullptr);
  context.time = request_time;
  boost::asio::co_spawn(contexts_[home]->get_executor(), handler->run(std::move(context)),
                        [pending](std::exception_ptr failed, Answer answer) {
                          pending->has_failed = failed != nullptr;
                          if (failed) std::rethrow_exception(failed);
                          pending->answer = std::move(answer);
                        });
  if (runs_at_once) run();
  return pending;
}

Bytes World::frame_of(const Pending& pending) {
  REQUIRE(pending.answer.has_value());
  REQUIRE_MESSAGE(pending.answer->close.empty(), pending.answer->close);
  answers_.push_back(std::make_unique<Buffer>());
  for (const auto& piece : pending.answer->frame) append_bytes(*answers_.back(), piece.view());
  return Bytes(*answers_.back()).subspan(4);
}

void World::wait_for(const Pending& pending) {
  for (int i = 0; i < 60'000 && !pending.answer; ++i) pass(std::chrono::milliseconds{1});
}

void World::open() {
  const auto opened = try_open();
  REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
}

Result<> World::try_open() {
  BrokerSetup setup;
  setup.config.data_directory = directory_ + "/data";
  setup.config.version = "test";
  setup.config.disk_reserve_bytes = 0;
  options_.configure(setup.config);
  setup.disk = options_.disk != nullptr ? options_.disk : &disk_;
  setup.clock = &clock;
  setup.random = &random_;
  setup.settings = options_.settings;
  setup.on_failure = [this](const Error& error) { failure = error; };
  for (std::size_t i = 0; i < options_.shards; ++i) {
    contexts_.push_back(std::make_unique<boost::asio::io_context>(1));
    backgrounds_.push_back(std::make_unique<QueuedBackground>());
    // Each of another client.
    connections_.push_back(std::make_unique<Connection>(fmt::format("127.0.0.{}:1", i + 1)));
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

void World::kill() {
  // Coroutines that wait go with their contexts; the broker they point to goes last.
  for (auto& connection : connections_) connection->close();
  if (broker_) run();
  // The work that others asked of it goes first: it points to their contexts.
  if (stands_still) contexts_[*stands_still].reset();
  stands_still.reset();
  contexts_.clear();
  // What its clients held is charged until it is freed.
  for (auto& background : backgrounds_) background->forget();
  broker_.reset();
  backgrounds_.clear();
  connections_.clear();
}

}  // namespace tarry::broker::test
