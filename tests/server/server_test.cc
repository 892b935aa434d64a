#include "server/server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <future>
#include <thread>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "broker/handlers/delayed_fetch.h"
#include "server/config_layers.h"
#include "tests/server/world.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

Config config_for(const TemporaryDirectory& directory, std::uint32_t shards = 2) {
  auto config = *make_config({});
  config.listeners[0].listen = {"127.0.0.1", 0};
  config.admin.reset();
  config.shards = shards;
  config.broker.data_directory = directory.path() + "/data";
  return config;
}
void no_failure(const Error& error) {
  FAIL(error.message);
}

// Asks for the versions, and returns the answer's correlation id.
std::int32_t ask(const HostPort& where, std::int32_t correlation) {
  asio::io_context context;
  tcp::socket socket(context);
  socket.connect({asio::ip::make_address(where.host), where.port});
  Buffer frame;
  append_be<std::int32_t>(frame, 10);
  append_be<std::int16_t>(frame, 18);
  append_be<std::int16_t>(frame, 0);
  append_be(frame, correlation);
  append_be<std::int16_t>(frame, -1);
  asio::write(socket, asio::buffer(frame));
  std::array<std::uint8_t, 8> answer;
  asio::read(socket, asio::buffer(answer));
  return load_be<std::int32_t>(answer.data() + 4);
}

void append_text(Buffer& to, std::string_view text) {
  append_be(to, static_cast<std::int16_t>(text.size()));
  append_bytes(to, as_bytes(text));
}
template <typename Body>
Buffer request(std::int16_t key, std::int16_t version, Body body) {
  Buffer frame;
  append_be<std::int32_t>(frame, 0);
  append_be(frame, key);
  append_be(frame, version);
  append_be<std::int32_t>(frame, 1);
  append_be<std::int16_t>(frame, -1);
  body(frame);
  store_be(frame.data(), static_cast<std::int32_t>(frame.size() - 4));
  return frame;
}
void read_answer(tcp::socket& socket) {
  std::array<std::uint8_t, 4> size;
  asio::read(socket, asio::buffer(size));
  Buffer rest(load_be<std::uint32_t>(size.data()));
  asio::read(socket, asio::buffer(rest));
}

Buffer ask_fetch(std::string_view topic, std::int32_t max_wait_ms = 0) {
  return request(1, 4, [&](Buffer& body) {
    append_be<std::int32_t>(body, -1);
    append_be(body, max_wait_ms);
    append_be<std::int32_t>(body, 1);        // at least,
    append_be<std::int32_t>(body, 1 << 20);  // at most.
    append_be<std::int8_t>(body, 0);
    append_be<std::int32_t>(body, 1);
    append_text(body, topic);
    append_be<std::int32_t>(body, 1);
    append_be<std::int32_t>(body, 0);  // Partition.
    append_be<std::int64_t>(body, 0);  // Offset.
    append_be<std::int32_t>(body, 1 << 20);
  });
}

// Makes topics until there is one on each of two shards; returns their names, by shard.
std::array<std::string, 2> topics_on_both(Server& server) {
  asio::io_context context;
  tcp::socket socket(context);
  socket.connect({asio::ip::address_v4::loopback(), server.kafka().port});
  std::array<std::string, 2> names;
  for (int i = 0; names[0].empty() || names[1].empty(); ++i) {
    const std::string name = "t" + std::to_string(i);
    asio::write(socket, asio::buffer(request(3, 4, [&](Buffer& body) {
                  append_be<std::int32_t>(body, 1);
                  append_text(body, name);
                  append_be<std::int8_t>(body, 1);  // Makes it.
                })));
    read_answer(socket);
    std::promise<std::size_t> where;
    auto& first = server.broker().shard(0);
    asio::post(first.executor(), [&] {
      const TopicPartition id{first.topics().find(name)->id, 0};
      where.set_value(server.broker().shard_of(id).index());
    });
    names[where.get_future().get()] = name;
  }
  return names;
}
std::size_t connections_on(Server& server, std::size_t shard) {
  std::promise<std::size_t> count;
  asio::post(server.broker().shard(shard).executor(),
             [&] { count.set_value(server.broker().shard(shard).counters.connections); });
  return count.get_future().get();
}
// Of the client that came to the shard last; empty: there is none.
std::string principal_on(Server& server, std::size_t shard) {
  std::promise<std::string> principal;
  auto& there = server.broker().shard(shard);
  asio::post(there.executor(), [&] {
    principal.set_value(there.clients.empty() ? std::string() : there.clients.front().principal());
  });
  return principal.get_future().get();
}
template <typename Condition>
void until(Condition is) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!is()) {
    if (std::chrono::steady_clock::now() > end) FAIL("what was waited for did not happen");
    std::this_thread::yield();
  }
}

TEST_SUITE("server") {
  TEST_CASE("it serves on every shard, stops in order, and starts again with other shards") {
    const TemporaryDirectory directory;
    for (const std::uint32_t shards : {2u, 1u, 3u}) {
      Server server(config_for(directory, shards), no_failure);
      const auto started = server.start();
      if (!started) FAIL(started.error().message);
      CHECK(server.kafka().port != 0);
      CHECK(server.shards() == shards);
      for (int i = 0; i < 6; ++i) CHECK(ask(server.kafka(), i) == i);
      server.stop();
      server.stop();  // Once more does nothing.
    }
  }

  TEST_CASE("it stops with connections that are open") {
    const TemporaryDirectory directory;
    Server server(config_for(directory), no_failure);
    REQUIRE(server.start().has_value());
    asio::io_context context;
    std::vector<tcp::socket> sockets;
    for (int i = 0; i < 10; ++i) {
      sockets.emplace_back(context);
      sockets.back().connect({asio::ip::address_v4::loopback(), server.kafka().port});
    }
    server.stop();
    for (auto& socket : sockets) {
      std::uint8_t byte;
      boost::system::error_code error;
      asio::read(socket, asio::buffer(&byte, 1), error);
      CHECK(error);
    }
  }

  TEST_CASE("it stops with connections that hold as much as they may, and are not read") {
    const TemporaryDirectory directory;
    auto config = config_for(directory);
    config.sessions.requests_in_flight = 3;
    Server server(config, no_failure);
    REQUIRE(server.start().has_value());
    const auto topics = topics_on_both(server);
    asio::io_context context;
    std::vector<tcp::socket> sockets;
    for (std::size_t i = 0; i < 6; ++i) {
      sockets.emplace_back(context);
      sockets.back().connect({asio::ip::address_v4::loopback(), server.kafka().port});
      for (int k = 0; k < 5; ++k)
        asio::write(sockets.back(), asio::buffer(ask_fetch(topics[i % 2], 3'600'000)));
    }
    const auto waiting = [&] {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        std::promise<std::uint64_t> here;
        auto& shard = server.broker().shard(i);
        asio::post(shard.executor(),
                   [&] { here.set_value(shard.purgatory().metrics(broker::fetch_kind).waiting); });
        sum += here.get_future().get();
      }
      return sum;
    };
    until([&] { return waiting() == 18; });
    sockets.pop_back();  // Its end is seen, and then nobody's is waited for on that shard's behalf.
    until([&] { return waiting() == 15; });
    CHECK(server.stop().has_value());
  }

  TEST_CASE("a connection goes to the shard of its partitions with what it sent ahead") {
    const TemporaryDirectory directory;
    auto config = config_for(directory);
    config.max_connections = 6;
    Server server(config, no_failure);
    REQUIRE(server.start().has_value());
    const auto topics = topics_on_both(server);
    until([&] { return connections_on(server, 0) + connections_on(server, 1) == 0; });

    asio::io_context context;
    std::vector<tcp::socket> sockets;
    for (std::size_t i = 0; i < config.max_connections; ++i) {
      sockets.emplace_back(context);
      sockets.back().connect({asio::ip::address_v4::loopback(), server.kafka().port});
    }
    for (const std::size_t there : {1u, 0u, 1u}) {
      // Pieces that end anywhere in a frame, each sent before the answers to the last were read.
      for (auto& socket : sockets) {
        constexpr int requests = 200;
        Buffer all;
        for (int i = 0; i < requests; ++i) {
          Buffer frame = ask_fetch(topics[there]);
          store_be<std::int32_t>(frame.data() + 8, i);
          append_bytes(all, frame);
        }
        int answered = 0;
        for (std::size_t sent = 0, piece = 1; sent < all.size(); piece = piece * 7 % 1009) {
          const std::size_t size = std::min(piece, all.size() - sent);
          sent += asio::write(socket, asio::buffer(all.data() + sent, size));
          if (socket.available() == 0) continue;
          std::array<std::uint8_t, 8> start;
          asio::read(socket, asio::buffer(start));
          Buffer rest(load_be<std::uint32_t>(start.data()) - 4);
          asio::read(socket, asio::buffer(rest));
          CHECK(load_be<std::int32_t>(start.data() + 4) == answered++);
        }
        for (; answered < requests; ++answered) {
          std::array<std::uint8_t, 8> start;
          asio::read(socket, asio::buffer(start));
          Buffer rest(load_be<std::uint32_t>(start.data()) - 4);
          asio::read(socket, asio::buffer(rest));
          REQUIRE(load_be<std::int32_t>(start.data() + 4) == answered);
        }
        // It goes between two requests, and a habit is not made by a few.
        for (int i = 0; i < 16; ++i) {
          asio::write(socket, asio::buffer(ask_fetch(topics[there])));
          read_answer(socket);
        }
      }
      until([&] {
        return connections_on(server, there) == sockets.size() &&
               connections_on(server, 1 - there) == 0;
      });
    }

    // Each counts once: when one has ended there is room for one.
    sockets.pop_back();
    until([&] { return connections_on(server, 1) == sockets.size(); });
    CHECK(ask(server.kafka(), 7) == 7);
  }

  TEST_CASE(
      "a client that has logged in is the same user on each shard that its connection goes to") {
    const TemporaryDirectory directory;
    auto config = config_for(directory);
    auto login = config.listeners[0];
    login.name = "LOGIN";
    login.protocol = broker::SecurityProtocol::sasl_plaintext;
    login.settings = {{"sasl.enabled.mechanisms", "PLAIN"},
                      {"plain.sasl.jaas.config", "PlainLoginModule required user_alice=a;"}};
    config.listeners.push_back(std::move(login));
    Server server(config, no_failure);
    REQUIRE(server.start().has_value());
    const auto topics = topics_on_both(server);
    until([&] { return connections_on(server, 0) + connections_on(server, 1) == 0; });

    asio::io_context context;
    tcp::socket socket(context);
    const std::string listeners = server.listeners();
    const auto port = std::stoul(listeners.substr(listeners.rfind(':') + 1));
    socket.connect({asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)});
    asio::write(socket,
                asio::buffer(request(17, 1, [](Buffer& body) { append_text(body, "PLAIN"); })));
    read_answer(socket);
    asio::write(socket, asio::buffer(request(36, 1, [](Buffer& body) {
                  constexpr std::string_view token("\0alice\0a", 8);
                  append_be(body, static_cast<std::int32_t>(token.size()));
                  append_bytes(body, as_bytes(token));
                })));
    read_answer(socket);
    for (const std::size_t there : {1u, 0u, 1u}) {
      // Without its login the next request would end the connection.
      for (int i = 0; i < 32; ++i) {
        asio::write(socket, asio::buffer(ask_fetch(topics[there])));
        read_answer(socket);
      }
      until([&] {
        return connections_on(server, there) == 1 && connections_on(server, 1 - there) == 0;
      });
      CHECK(principal_on(server, there) == "User:alice");
    }
  }

  TEST_CASE("it stops while connections go from shard to shard") {
    const TemporaryDirectory directory;
    for (int round = 0; round < 5; ++round) {
      Server server(config_for(directory), no_failure);
      REQUIRE(server.start().has_value());
      const auto topics = topics_on_both(server);
      std::atomic<int> answers = 0;
      std::vector<std::thread> clients;
      for (int i = 0; i < 4; ++i) {
        clients.emplace_back([&] {
          asio::io_context context;
          tcp::socket socket(context);
          socket.connect({asio::ip::address_v4::loopback(), server.kafka().port});
          try {
            for (std::size_t there = 0;; there = 1 - there) {
              for (int k = 0; k < 9; ++k, ++answers) {
                asio::write(socket, asio::buffer(ask_fetch(topics[there])));
                read_answer(socket);
              }
            }
          } catch (const boost::system::system_error&) {  // The broker has gone.
          }
        });
      }
      for (int last = 0; last < 500; last = answers) until([&] { return answers > last; });
      CHECK(server.stop().has_value());
      for (auto& client : clients) client.join();
    }
  }

  TEST_CASE("a port in use is refused before the directory is made") {
    const TemporaryDirectory directory;
    asio::io_context context;
    const tcp::acceptor taken(context, {asio::ip::address_v4::loopback(), 0});
    auto config = config_for(directory);
    config.listeners[0].listen.port = taken.local_endpoint().port();
    Server server(config, no_failure);
    const auto started = server.start();
    REQUIRE_FALSE(started.has_value());
    CHECK(started.error().message.find(config.listeners[0].listen.text()) != std::string::npos);
    CHECK(std::filesystem::is_empty(directory.path()));
  }

  TEST_CASE("the admin answers while the server runs, and no longer") {
    const TemporaryDirectory directory;
    auto config = config_for(directory);
    config.admin = HostPort{"127.0.0.1", 0};
    Server server(config, no_failure);
    const auto started = server.start();
    if (!started) FAIL(started.error().message);
    const tcp::endpoint admin(asio::ip::address_v4::loopback(), server.admin().value().port);
    asio::io_context context;
    tcp::socket socket(context);
    socket.connect(admin);
    const std::string request =
        "GET /healthz HTTP/1.1\r\nHost: " + server.admin().value().text() + "\r\n\r\n";
    asio::write(socket, asio::buffer(request));
    std::array<char, 12> answer;
    asio::read(socket, asio::buffer(answer));
    CHECK(std::string(answer.begin(), answer.end()) == "HTTP/1.1 200");
    server.stop();
    tcp::socket later(context);
    boost::system::error_code error;
    later.connect(admin, error);
    CHECK(error == asio::error::connection_refused);
  }

  TEST_CASE("the admin's port in use is refused before the directory is made") {
    const TemporaryDirectory directory;
    asio::io_context context;
    const tcp::acceptor taken(context, {asio::ip::address_v4::loopback(), 0});
    auto config = config_for(directory);
    config.admin = HostPort{"127.0.0.1", taken.local_endpoint().port()};
    Server server(config, no_failure);
    const auto started = server.start();
    REQUIRE_FALSE(started.has_value());
    CHECK(started.error().message.find(config.admin->text()) != std::string::npos);
    CHECK(std::filesystem::is_empty(directory.path()));
  }

  TEST_CASE("a directory in use is refused by its path") {
    const TemporaryDirectory directory;
    Server first(config_for(directory), no_failure);
    REQUIRE(first.start().has_value());
    Server second(config_for(directory), no_failure);
    const auto started = second.start();
    REQUIRE_FALSE(started.has_value());
    CHECK(started.error().message.find(directory.path()) != std::string::npos);
    CHECK(ask(first.kafka(), 1) == 1);
  }

  TEST_CASE("a server that was never started, or did not start, is destroyed in peace") {
    const TemporaryDirectory directory;
    const Server server(config_for(directory), no_failure);
  }

  TEST_CASE("shards that are asked have answered only when the last of them has") {
    const TemporaryDirectory directory;
    Server server(config_for(directory, 3), no_failure);
    REQUIRE(server.start().has_value());
    std::promise<void> hold;
    std::promise<void> held;
    asio::post(server.broker().shard(1).executor(), [&] {
      held.set_value();
      hold.get_future().wait();
    });
    held.get_future().wait();
    std::promise<void> answered;
    std::atomic<bool> early{true};
    server.ask_shards([&] {
      CHECK_FALSE(early);
      answered.set_value();
    });
    for (const std::size_t free : {0u, 2u}) {
      std::promise<void> turned;
      asio::post(server.broker().shard(free).executor(), [&] { turned.set_value(); });
      turned.get_future().wait();
    }
    early = false;
    hold.set_value();
    answered.get_future().wait();
  }

  TEST_CASE("a request that does not end delays the stop as long as is allowed, and is logged") {
    const TemporaryDirectory directory;
    Config config = config_for(directory, 1);
    config.shutdown_timeout = std::chrono::milliseconds{100};
    Server server(config, no_failure);
    REQUIRE(server.start().has_value());
    asio::io_context context;
    tcp::socket socket(context);
    socket.connect({asio::ip::address_v4::loopback(), server.kafka().port});
    // A new topic's partition is opened when it is first asked for; who opens a pipe to read waits
    // for a writer.
    Buffer frames = request(3, 4, [](Buffer& body) {  // Metadata: makes it.
      append_be<std::int32_t>(body, 1);
      append_text(body, "t");
      append_be<std::int8_t>(body, 1);
    });
    asio::write(socket, asio::buffer(frames));
    read_answer(socket);
    const std::string log = server.data() + "/logs/t-0";
    std::filesystem::create_directories(log);
    const std::string pipe = log + "/partition.metadata";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    asio::write(socket, asio::buffer(request(2, 1, [](Buffer& body) {  // ListOffsets
                  append_be<std::int32_t>(body, -1);
                  append_be<std::int32_t>(body, 1);
                  append_text(body, "t");
                  append_be<std::int32_t>(body, 1);
                  append_be<std::int32_t>(body, 0);
                  append_be<std::int64_t>(body, -1);
                })));
    CHECK(ask(server.kafka(), 7) == 7);  // Came later: the other one is under way.
    const auto stopped = server.stop();
    REQUIRE_FALSE(stopped.has_value());
    CHECK(stopped.error().message ==
          "requests of 1 connections are still running after tarry.shutdown.timeout.ms=100");
    ::close(::open(pipe.c_str(), O_WRONLY | O_CLOEXEC));  // The file ends, and so does the request.
    CHECK(server.stop().has_value());
  }
}

}  // namespace
}  // namespace tarry::server
