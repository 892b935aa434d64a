// The admin's door: what it takes, what it refuses, and that each bound holds.

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;

TEST_SUITE("http server") {
  TEST_CASE("an answer is JSON that no browser guesses about, frames or keeps") {
    Admin admin;
    const auto answer = admin.get("/status");
    CHECK(answer.status == 200);
    CHECK(answer.headers.at("Content-Type") == "application/json");
    CHECK(answer.headers.at("X-Content-Type-Options") == "nosniff");
    CHECK(answer.headers.at("X-Frame-Options") == "DENY");
    CHECK(answer.headers.at("Cache-Control") == "no-store");
    CHECK(answer.headers.at("Content-Security-Policy").starts_with("default-src 'none'"));
    CHECK_FALSE(answer.headers.contains("Access-Control-Allow-Origin"));
  }

  TEST_CASE("answers that clients are slow to read have a bound together, and another gets 503") {
    boost::asio::io_context context(1);
    HttpOptions options;
    options.port = 0;
    options.answer_bytes = 10'000'000;
    auto opened = HttpServer::open(context.get_executor(), options);
    REQUIRE(opened.has_value());
    HttpServer& server = **opened;
    // Larger than the limit, and than the kernel takes.
    REQUIRE(server
                .start([](Question question) -> boost::asio::awaitable<Reply> {
                  Reply reply;
                  reply.body.assign(question.target == "/small" ? 1000 : 20'000'000, 'x');
                  co_return reply;
                })
                .has_value());
    std::thread thread([&] { context.run(); });
    const std::string ask = " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    const auto answer = [&](const std::string& target) {
      Connection connection(server.port());
      connection.send("GET " + target + ask);
      return connection.read();
    };
    {
      Connection slow(server.port(), 4096);
      slow.send("GET /large" + ask);
      CHECK(slow.read_head().status == 200);  // One alone is not refused.
      CHECK(answer("/small").status == 200);
      const auto refused = answer("/large");
      CHECK(refused.status == 503);
      CHECK(refused.error().contains("the limit is 10000000: ask again"));
    }
    // The slow one has gone, which the server notices in a moment.
    unsigned status = 503;
    for (int tries = 0; tries < 1000 && status == 503; ++tries) status = answer("/large").status;
    CHECK(status == 200);
    boost::asio::post(context, [&] { server.stop(); });
    thread.join();
  }

  TEST_CASE("a body's memory is asked for before it is read, and one that finds none gets 503") {
    boost::asio::io_context context(1);
    HttpOptions options;
    options.port = 0;
    auto opened = HttpServer::open(context.get_executor(), options);
    REQUIRE(opened.has_value());
    HttpServer& server = **opened;
    std::atomic<std::size_t> held = 0, held_while_answered = 0, limit = 400'000;
    server.count_bodies([&](std::size_t bytes) -> std::shared_ptr<void> {
      if (held + bytes > limit) return nullptr;
      held += bytes;
      return {&held, [&held, bytes](void*) { held -= bytes; }};
    });
    REQUIRE(server
                .start([&](Question question) -> boost::asio::awaitable<Reply> {
                  held_while_answered = held.load();
                  Reply reply;
                  reply.body = std::to_string(question.body.size());
                  co_return reply;
                })
                .has_value());
    std::thread thread([&] { context.run(); });
    const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    const auto answer = [&](const std::string& rest) {
      Connection connection(server.port());
      connection.send(head + rest);
      return connection.read();
    };
    const auto of_length = [](std::size_t length) {
      return "Content-Length: " + std::to_string(length) + "\r\n\r\n";
    };
    const auto in_chunks = [](std::size_t count) {
      std::string text = "Transfer-Encoding: chunked\r\n\r\n";
      for (std::size_t i = 0; i < count; ++i)
        text += "2710\r\n" + std::string(10'000, 'x') + "\r\n";
      return text + "0\r\n\r\n";
    };
    CHECK(answer(of_length(50'000) + std::string(50'000, 'x')).body == "50000");
    CHECK(held_while_answered == 50'000);
    // Of this one nothing comes: the answer does not wait for it.
    const auto refused = answer(of_length(500'000));
    CHECK(refused.status == 503);
    CHECK(refused.error().contains("there is no memory for a body of this size: ask again"));
    CHECK(answer(in_chunks(3)).body == "30000");
    CHECK(held_while_answered >= 30'000);
    CHECK(answer(in_chunks(40)).status == 503);
    limit = 0;
    CHECK(answer(of_length(1000) + std::string(1000, 'x')).body == "1000");
    CHECK(answer(of_length(50'000)).status == 503);
    boost::asio::post(context, [&] { server.stop(); });
    thread.join();
    CHECK(held == 0);
  }

  TEST_CASE("bodies of requests count in tarry.memory.bytes") {
    Admin admin;
    broker::Charge clients(admin.world.shard().ledger(), nullptr);
    const auto becomes = [&](std::size_t bytes) {
      const auto& pool = *admin.world.broker().memory();
      for (int i = 0; i < 100'000 && pool.used() != bytes; ++i) admin.world.run();
      return pool.used() == bytes;
    };
    const auto head = "POST /login HTTP/1.1\r\nHost: " + admin.server->address() +
                      "\r\nContent-Length: 100000\r\n\r\n";
    {
      Connection half(admin.port);
      half.send(head + "{");
      CHECK(becomes(100'000));
    }
    CHECK(becomes(0));
    clients.set(admin.world.shard().ledger().room());
    CHECK(admin.send(head).status == 503);
    CHECK(admin.get("/healthz").status == 200);
  }

  TEST_CASE("ten answers with lists, asked for at once, are made one at a time") {
    Admin admin;
    const auto one = "GET /groups HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n";
    const auto statuses = admin.meanwhile([&] {
      std::list<Connection> connections;
      for (int i = 0; i < 10; ++i) connections.emplace_back(admin.port).send(one);
      std::vector<unsigned> got;
      for (auto& connection : connections) got.push_back(connection.read().status);
      return got;
    });
    CHECK(statuses == std::vector<unsigned>(10, 200));
    // A turn is given back also by one that is refused.
    CHECK(admin.get("/groups/none").status == 404);
    CHECK(admin.get("/groups/none").status == 404);
    CHECK(admin.get("/metrics").status == 200);
  }

  TEST_CASE("HEAD is answered as GET is, without the body") {
    Admin admin;
    const auto head = admin.ask("HEAD", "/topics");
    const auto get = admin.get("/topics");
    CHECK(head.status == 200);
    CHECK(head.body.empty());
    CHECK(head.headers.at("Content-Length") == get.headers.at("Content-Length"));
  }

  TEST_CASE("requests follow one another on a connection, also when they come at once") {
    Admin admin;
    const auto one = "GET /healthz HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n";
    const auto statuses = admin.meanwhile([&] {
      Connection connection(admin.port);
      std::vector<unsigned> got;
      for (int i = 0; i < 3; ++i) {
        connection.send(one);
        got.push_back(connection.read().status);
      }
      connection.send(one + one);
      got.push_back(connection.read().status);
      got.push_back(connection.read().status);
      connection.send("GET /healthz HTTP/1.0\r\n\r\n");
      got.push_back(connection.read().status);
      got.push_back(connection.ended() ? 1 : 0);
      return got;
    });
    CHECK(statuses == std::vector<unsigned>{200, 200, 200, 200, 200, 200, 1});
  }

  TEST_CASE("a request that is not HTTP gets 400 and its connection ends; others are served") {
    Admin admin;
    const std::string host = "Host: " + admin.server->address() + "\r\n";
    const std::vector<std::string> rubbish{
        "\x16\x03\x01\x02garbage\r\n\r\n",
        "GET\r\n\r\n",
        "GET /status\r\n\r\n",
        "GET /status HTTP/1.1\r\nHost\r\n\r\n",
        "GET /status HTTP/2.0\r\n" + host + "\r\n",
        "GET /status HTTP/1.1\r\n" + host + host + "\r\n",
        "GET /status HTTP/1.1\r\n\r\n",
        "GET /status HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n",
        "GET /status HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "GET /status HTTP/1.1\r\n" + host +
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /status HTTP/1.1\r\n" + host +
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "GET /status HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET /status HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET http://127.0.0.1/status HTTP/1.1\r\n" + host + "\r\n",
        "GET status HTTP/1.1\r\n" + host + "\r\n",
    };
    for (const auto& text : rubbish) {
      CAPTURE(text);
      const auto status = admin.meanwhile([&] {
        Connection connection(admin.port);
        connection.send(text);
        connection.end_sending();
        const auto answer = connection.read();
        return std::pair(answer.status, connection.ended());
      });
      CHECK(status.first == 400);
      CHECK(status.second);
    }
    CHECK(admin.get("/healthz").status == 200);
  }

  TEST_CASE("a header past 8 KiB, or more than 64 of them, gets 431, a body past 1 MiB 413") {
    Admin admin;
    CHECK(admin.ask("GET", "/healthz", {{"X-Long", std::string(7'000, 'x')}}).status == 200);
    CHECK(admin.ask("GET", "/healthz", {{"X-Long", std::string(8'192, 'x')}}).status == 431);
    CHECK(admin.get("/" + std::string(200'000, 'a')).status == 431);
    CHECK(admin.ask("GET", "/healthz", {{"X-Long", std::string(300'000, 'x')}}).status == 431);
    Admin::Headers many;
    for (int i = 0; i < 63; ++i) many["X-" + std::to_string(i)] = "y";
    CHECK(admin.ask("GET", "/healthz", many).status == 200);
    many["X-more"] = "y";
    CHECK(admin.ask("GET", "/healthz", many).status == 431);
    CHECK(admin.ask("GET", "/healthz", {{"Content-Length", "1048577"}}).status == 413);
    CHECK(admin.ask("GET", "/healthz", {{"Content-Length", "99999999999"}}).status == 413);
    const std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
    std::string chunks = "DELETE /topics/t HTTP/1.1\r\nHost: " + admin.server->address() +
                         "\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < 17; ++i) chunks += chunk;
    CHECK(admin.send(chunks).status == 413);
  }

  TEST_CASE("a body that nothing asks for is refused, not ignored") {
    Admin admin;
    const auto logout = [&](const std::string& body) {
      return admin.send("POST /logout HTTP/1.1\r\nHost: " + admin.server->address() +
                        "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    };
    const auto answer = logout(R"({"all": true})");
    CHECK(answer.status == 400);
    CHECK(answer.error().find("takes no body") != std::string::npos);
    // There is nothing in it to ignore, and some clients send it with every POST.
    CHECK(logout("{}").status == 204);
  }

  TEST_CASE("a request that does not come within its time ends its connection, an idle one too") {
    AdminOptions options;
    options.request_timeout = 100ms;
    options.idle_timeout = 100ms;
    Admin admin(options);
    CHECK(admin.meanwhile([&] {
      Connection silent(admin.port);
      Connection slow(admin.port);
      slow.send("GET /status HTTP/1.1\r\nHost: ");
      return silent.ended() && slow.ended();
    }));
    CHECK(admin.get("/healthz").status == 200);
  }

  TEST_CASE("a connection above the limit gets 503, and is served when another has ended") {
    AdminOptions options;
    options.max_connections = 2;
    Admin admin(options);
    const std::string healthz =
        "GET /healthz HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n";
    const auto served = [&](Connection& connection) {
      connection.send(healthz);
      return connection.read().status;
    };
    auto one = std::make_unique<Connection>(admin.port);
    Connection two(admin.port);
    CHECK(admin.meanwhile([&] { return served(*one); }) == 200);
    CHECK(admin.meanwhile([&] { return served(two); }) == 200);
    const auto third = admin.meanwhile([&] {
      Connection connection(admin.port);
      connection.send("GET /status HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n");
      const auto answer = connection.read();
      connection.end_sending();
      return std::pair(answer.status, connection.ended());
    });
    CHECK(third == std::pair(503u, true));
    one.reset();
    unsigned status = 503;
    for (int i = 0; i < 100 && status == 503; ++i) {
      status = admin.meanwhile([&] {
        Connection connection(admin.port);
        connection.send("GET /status HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n");
        return connection.read().status;
      });
    }
    CHECK(status == 200);
    CHECK(admin.meanwhile([&] { return served(two); }) == 200);
  }

  TEST_CASE("a thousand silent connections keep nobody from the health checks") {
    rlimit files{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
    Admin admin;
    const auto request = [&](const std::string& path) {
      return "GET " + path + " HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n";
    };
    const auto statuses = admin.meanwhile([&] {
      std::vector<std::unique_ptr<Connection>> silent;
      for (int i = 0; i < 1000; ++i) {
        silent.push_back(std::make_unique<Connection>(admin.port));
        if (i % 2 == 0) silent.back()->send("GET /healthz HT");  // Half a request.
      }
      std::vector<unsigned> got;
      for (const auto* path : {"/healthz", "/readyz", "/healthz?x", "/status", "/healthz"}) {
        Connection connection(admin.port);
        connection.send(request(path));
        const auto answer = connection.read();
        got.push_back(answer.status);
        got.push_back(connection.ended() ? 1 : 0);  // One request, and no more.
      }
      return got;
    });
    CHECK(statuses == std::vector<unsigned>{200, 1, 200, 1, 400, 1, 503, 1, 200, 1});
  }

  TEST_CASE("a connection beyond the limit that asks nothing is gone after a short time") {
    AdminOptions options;
    options.max_connections = 1;
    options.health_timeout = 100ms;
    Admin admin(options);
    CHECK(admin.meanwhile([&] {
      Connection first(admin.port);
      first.send("GET /healthz HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n");
      if (first.read().status != 200) return false;
      Connection second(admin.port);
      return second.ended();
    }));
  }

  TEST_CASE("a client that hangs up at any point harms no other") {
    Admin admin;
    const std::string request =
        "GET /metrics HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n";
    admin.meanwhile([&] {
      for (std::size_t length = 0; length <= request.size(); length += 7) {
        Connection connection(admin.port);
        connection.send(request.substr(0, length));
      }
      return true;
    });
    CHECK(admin.get("/healthz").status == 200);
  }

  TEST_CASE("after stop() connections are closed and no new ones are taken") {
    Admin admin;
    auto connection = std::make_unique<Connection>(admin.port);
    admin.meanwhile([&] {
      connection->send("GET /healthz HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n");
      return connection->read().status;
    });
    admin.server->stop();
    CHECK(admin.meanwhile([&] { return connection->ended(); }));
    CHECK_FALSE(Connection(admin.port).connected());
  }

  TEST_CASE(
      "an address that is in use, or not of this machine, is refused in a line that names it") {
    Admin admin;
    AdminOptions options;
    options.port = admin.port;
    const auto again = AdminServer::open(admin.world.shard().executor(), options);
    REQUIRE_FALSE(again.has_value());
    CHECK(again.error().code == Errc::in_use);
    CHECK(again.error().message.find(admin.server->address()) != std::string::npos);
    CHECK(again.error().message.find('\n') == std::string::npos);
    options.host = "192.0.2.1";  // For documentation: nobody has it.
    const auto elsewhere = AdminServer::open(admin.world.shard().executor(), options);
    REQUIRE_FALSE(elsewhere.has_value());
    CHECK(elsewhere.error().message.find("192.0.2.1:") != std::string::npos);
    options.host = "no such host";
    CHECK_FALSE(AdminServer::open(admin.world.shard().executor(), options).has_value());
  }

  TEST_CASE("localhost is shown as 127.0.0.1, an IPv6 address in brackets") {
    boost::asio::io_context context;
    AdminOptions options;
    options.port = 0;
    options.host = "localhost";
    const auto local = AdminServer::open(context.get_executor(), options);
    REQUIRE(local.has_value());
    CHECK((*local)->address().starts_with("127.0.0.1:"));
    options.host = "::1";
    if (const auto six = AdminServer::open(context.get_executor(), options))
      CHECK((*six)->address().starts_with("[::1]:"));
  }
}

}  // namespace
}  // namespace tarry::admin::test
