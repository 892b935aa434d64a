// The client sends its token to the broker, and to no other program.

#include "cli/admin_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "base/token_proof.h"
#include "cli/pending_note.h"
#include "tests/cli/bound_socket.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;

const std::string token = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

// Takes one connection after the other and answers each request on it with what `answer` says;
// remembers all that it was sent.
class Server {
 public:
  using AnswerTo = std::function<std::string(const std::string& request)>;

  explicit Server(AnswerTo answer) : answer_(std::move(answer)), socket_(bound_socket(port_)) {
    REQUIRE(::listen(socket_, 8) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() { end(); }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  std::string received() {
    end();
    return received_;
  }

 private:
  void end() {
    ::shutdown(socket_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  void serve() {
    for (;;) {
      const int connection = ::accept(socket_, nullptr, nullptr);
      if (connection < 0) break;
      std::string text;
      char bytes[4096];
      for (ssize_t got; (got = ::recv(connection, bytes, sizeof bytes, 0)) > 0;) {
        text.append(bytes, static_cast<std::size_t>(got));
        for (std::size_t at; (at = text.find("\r\n\r\n")) != text.npos;) {
          const auto request = text.substr(0, at + 4);
          text.erase(0, at + 4);
          received_ += request;
          const auto reply = answer_(request);
          ::send(connection, reply.data(), reply.size(), MSG_NOSIGNAL);
        }
      }
      ::close(connection);
    }
    ::close(socket_);
  }

  const AnswerTo answer_;
  std::uint16_t port_ = 0;
  const int socket_;
  std::string received_;
  std::thread thread_;
};

std::string ok(const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}
std::string nonce_in(const std::string& request) {
  const auto at = request.find("nonce=");
  return at == request.npos ? "" : request.substr(at + 6, 64);
}
// An admin with the token, asked at `address`, would answer this to anything.
Server::AnswerTo admin_at(const std::string& address, const std::string& its_token = token) {
  return [=](const std::string& request) {
    const auto nonce = nonce_in(request);
    if (nonce.empty()) return ok(R"({"result": "cancelled"})");
    return ok(fmt::format(R"({{"proof": "{}", "address": "{}"}})",
                          token_proof(its_token, nonce, address), address));
  };
}

// A data directory with the token in it.
struct Data {
  Data() {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-test-XXXXXX").string();
    path = ::mkdtemp(name.data());
    std::ofstream(path + "/admin.token") << token << '\n';
    ::unsetenv("TARRY_ADMIN_TOKEN");
  }
  ~Data() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST_SUITE("admin client") {
  TEST_CASE("a program that took the port gets a nonce and no token, whatever it answers") {
    const Data data;
    for (const std::string& answer :
         {ok("{}"), ok(R"({"data": "/etc", "proof": ""})"), ok(R"({"proof": 1, "address": []})"),
          ok(R"({"proof": ")" + std::string(64, '0') + R"(", "address": "127.0.0.1:1"})"),
          std::string("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
          std::string("rubbish")}) {
      CAPTURE(answer);
      Server impostor([&](const std::string&) { return answer; });
      AdminClient admin({impostor.address(), 5s, false, data.path});
      const auto removed = admin.remove("/delayed/t/id");
      CHECK_FALSE(removed.has_value());
      const auto received = impostor.received();
      CHECK(received.find("GET /proof?nonce=") != std::string::npos);
      CHECK(received.find(token) == std::string::npos);
      CHECK(received.find("DELETE") == std::string::npos);
      CHECK(received.find("Authorization") == std::string::npos);
    }
  }

  TEST_CASE(
      "a program that passes the request on to the real admin, at another port, gets no token") {
    const Data data;
    Server relay(admin_at("127.0.0.1:1"));
    AdminClient admin({relay.address(), 5s, false, data.path});
    const auto removed = admin.remove("/delayed/t/id");
    REQUIRE_FALSE(removed.has_value());
    CHECK(removed.error().message.find("127.0.0.1:1") != std::string::npos);
    CHECK(relay.received().find(token) == std::string::npos);
  }

  TEST_CASE("an admin with another token is not sent ours, and the error says which was meant") {
    const Data data;
    Server* other = nullptr;
    Server server([&](const std::string& request) {
      return admin_at(other->address(), std::string(64, 'f'))(request);
    });
    other = &server;
    AdminClient admin({server.address(), 5s, false, data.path});
    const auto removed = admin.remove("/delayed/t/id");
    REQUIRE_FALSE(removed.has_value());
    for (const auto& word : {data.path + "/admin.token", std::string("--data"), server.address()})
      CHECK(removed.error().message.find(word) != std::string::npos);
    CHECK(server.received().find(token) == std::string::npos);
  }

  TEST_CASE("an admin that proves itself gets the token on the same connection") {
    const Data data;
    Server* self = nullptr;
    Server server([&](const std::string& request) { return admin_at(self->address())(request); });
    self = &server;
    AdminClient admin({server.address(), 5s, false, data.path});
    const auto removed = admin.remove("/delayed/t/id");
    REQUIRE(removed.has_value());
    CHECK(*removed == R"({"result": "cancelled"})");
    CHECK(server.received().find("Authorization: Bearer " + token) != std::string::npos);
  }

  TEST_CASE("a read carries the token at once, so that the admin sees no request without one") {
    const Data data;
    Server* self = nullptr;
    Server server([&](const std::string& request) { return admin_at(self->address())(request); });
    self = &server;
    AdminClient admin({.address = server.address(), .timeout = 5s, .data = data.path});
    REQUIRE(admin.get("/status").has_value());
    REQUIRE(admin.get("/topics").has_value());
    const auto received = server.received();
    for (const std::string& target : {"/status", "/topics"}) {
      const auto at = received.find("GET " + target + " ");
      REQUIRE(at != std::string::npos);
      CHECK(received.find("GET " + target + " ", at + 1) == std::string::npos);
      CHECK(received.substr(at, received.find("\r\n\r\n", at) - at)
                .find("Authorization: Bearer " + token) != std::string::npos);
    }
  }

  TEST_CASE(
      "an admin that does not know our token is read without it, and is asked to prove once") {
    const Data data;
    Server* self = nullptr;
    Server server([&](const std::string& request) {
      return admin_at(self->address(), std::string(64, 'f'))(request);
    });
    self = &server;
    AdminClient admin({.address = server.address(), .timeout = 5s, .data = data.path});
    CHECK(admin.get("/status").has_value());
    CHECK(admin.get("/topics").has_value());
    const auto received = server.received();
    CHECK(received.find(token) == std::string::npos);
    const auto first = received.find("GET /proof?");
    CHECK(first != std::string::npos);
    CHECK(received.find("GET /proof?", first + 1) == std::string::npos);
  }

  TEST_CASE("a program that does not prove itself reads no token, whether it asks for one or not") {
    const Data data;
    ::setenv("TARRY_ADMIN_TOKEN", token.c_str(), 1);
    Server impostor([](const std::string&) { return ok("{}"); });
    AdminClient admin({.address = impostor.address(), .timeout = 5s});
    CHECK(admin.get("/status").has_value());
    CHECK(impostor.received().find(token) == std::string::npos);
    Server greedy([](const std::string&) {
      return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    });
    AdminClient again({.address = greedy.address(), .timeout = 5s});
    const auto refused = again.get("/status");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.find("was not sent the token") != std::string::npos);
    CHECK(greedy.received().find(token) == std::string::npos);
    ::unsetenv("TARRY_ADMIN_TOKEN");
  }

  TEST_CASE(
      "a 401 is that of a broker only with Tarry's realm, and else nobody is sent for a token") {
    const Data data;
    const auto refusal = [](const std::string& realm) {
      return fmt::format(
          "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: {}\r\nContent-Length: 0\r\n\r\n", realm);
    };
    const std::string nowhere = data.path + "/nowhere";
    Server files([&](const std::string&) { return refusal("Basic realm=\"files\""); });
    AdminClient wrong({.address = files.address(), .timeout = 5s, .data = nowhere});
    const auto of_files = wrong.get("/status");
    REQUIRE_FALSE(of_files.has_value());
    CHECK(of_files.error().message.contains("something else answers at " + files.address()));
    CHECK(wrong.obstacle() == AdminClient::Obstacle::stranger);
    Server broker([&](const std::string&) { return refusal("Bearer realm=\"tarry\""); });
    AdminClient right({.address = broker.address(), .timeout = 5s, .data = nowhere});
    const auto of_broker = right.get("/status");
    REQUIRE_FALSE(of_broker.has_value());
    CHECK(of_broker.error().message.contains("needs the admin's token"));
    CHECK(right.obstacle() == AdminClient::Obstacle::wants_token);
  }

  TEST_CASE("the note about other partitions believes no admin that was named for another broker") {
    const Data data;
    // Its status has no cluster id, so it is not known to be the broker's.
    Server server([](const std::string&) { return ok(R"({"partitions": [0, 1]})"); });
    BrokerOptions options;
    options.admin = server.address();
    CHECK(elsewhere_note(options, "t", "a", 1).contains("pending in partition 0 too"));
    options.admin_given = true;
    CHECK(elsewhere_note(options, "t", "a", 1).empty());
    options.admin_given = false;
    options.brokers_given = true;
    CHECK(elsewhere_note(options, "t", "a", 1).empty());
  }

  TEST_CASE("a missing token is an error with its place and advice") {
    const Data data;
    Server server([](const std::string&) { return ok("{}"); });
    AdminClient admin({server.address(), 5s, false, data.path + "/nowhere"});
    const auto removed = admin.remove("/delayed/t/id");
    REQUIRE_FALSE(removed.has_value());
    CHECK(removed.error().message.find(data.path + "/nowhere/admin.token is not there") !=
          std::string::npos);
    CHECK(removed.error().message.find("--data") != std::string::npos);
    CHECK(server.received().find("DELETE") == std::string::npos);
  }

  TEST_CASE("a read that a rule refuses to those without a token says where one may be") {
    const Data data;
    Server server([](const std::string&) {
      const std::string body = R"({"error": "User:ANONYMOUS may not"})";
      return fmt::format("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n{}", body.size(),
                         body);
    });
    AdminClient admin({.address = server.address(), .timeout = 5s, .data = data.path + "/nowhere"});
    const auto refused = admin.get("/delayed?topic=t");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::io);
    CHECK(refused.error().message.starts_with(
        "User:ANONYMOUS may not; this needs the admin's token, and "));
    CHECK(refused.error().message.contains("--data"));
  }

  TEST_CASE(
      "a change asks the admin where its data is if nobody has said it, and wants the proof") {
    const Data data;
    const auto status = ok(fmt::format(R"({{"data": "{}"}})", data.path));
    Server* self = nullptr;
    Server broker([&](const std::string& request) {
      return request.starts_with("GET /status ") ? status : admin_at(self->address())(request);
    });
    self = &broker;
    AdminClient admin({broker.address(), 5s});
    CHECK(admin.remove("/delayed/t/id").has_value());
    CHECK(broker.received().contains("Authorization: Bearer " + token));

    Server impostor([&](const std::string& request) {
      return request.starts_with("GET /status ") ? status : ok(R"({"proof": ""})");
    });
    AdminClient fooled({impostor.address(), 5s});
    CHECK_FALSE(fooled.remove("/delayed/t/id").has_value());
    const auto received = impostor.received();
    CHECK(received.contains("GET /proof?nonce="));
    CHECK_FALSE(received.contains(token));
    CHECK_FALSE(received.contains("DELETE"));

    // A file that is none.
    std::filesystem::remove(data.path + "/admin.token");
    std::filesystem::create_directory(data.path + "/admin.token");
    Server empty([&](const std::string&) { return status; });
    AdminClient without({empty.address(), 5s});
    const auto removed = without.remove("/delayed/t/id");
    REQUIRE_FALSE(removed.has_value());
    CHECK(removed.error().message.contains("needs the admin's token"));
  }

  TEST_CASE("a port that ends the connection without an answer may be Kafka's, as the error says") {
    const Data data;
    std::uint16_t port = 0;
    const int socket = bound_socket(port);
    REQUIRE(::listen(socket, 8) == 0);
    std::thread closing([socket] {
      const int connection = ::accept(socket, nullptr, nullptr);
      char bytes[4096];
      static_cast<void>(::recv(connection, bytes, sizeof bytes, 0));
      ::close(connection);
    });
    AdminClient admin({fmt::format("127.0.0.1:{}", port), 5s, false, data.path + "/nowhere"});
    const auto answer = admin.get("/status");
    closing.join();
    ::close(socket);
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error().message.find("is it Kafka's port?") != std::string::npos);
  }

  TEST_CASE("requests to an admin that never answers end together at their deadline") {
    const Data data;
    std::uint16_t port = 0;
    const int socket = bound_socket(port);
    REQUIRE(::listen(socket, 8) == 0);
    const auto start = std::chrono::steady_clock::now();
    AdminClient admin({.address = fmt::format("127.0.0.1:{}", port),
                       .timeout = 20s,
                       .data = data.path + "/nowhere",
                       .deadline = start + 100ms});
    for (int request = 0; request < 3; ++request) CHECK_FALSE(admin.get("/status").has_value());
    const auto took = std::chrono::steady_clock::now() - start;
    ::close(socket);
    CHECK(took >= 99ms);
    CHECK(took < 10s);
  }

  TEST_CASE("a connection that is reset in the middle of an answer is not called Kafka's") {
    const Data data;
    std::uint16_t port = 0;
    const int socket = bound_socket(port);
    REQUIRE(::listen(socket, 8) == 0);
    std::thread resetting([socket] {
      const int connection = ::accept(socket, nullptr, nullptr);
      char bytes[4096];
      static_cast<void>(::recv(connection, bytes, sizeof bytes, 0));
      const std::string begun = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{";
      ::send(connection, begun.data(), begun.size(), MSG_NOSIGNAL);
      // Without a linger time the end is a reset, and what was sent before stays readable.
      const linger at_once{1, 0};
      ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      ::close(connection);
    });
    AdminClient admin({fmt::format("127.0.0.1:{}", port), 5s, false, data.path + "/nowhere"});
    const auto answer = admin.get("/status");
    resetting.join();
    ::close(socket);
    REQUIRE_FALSE(answer.has_value());
    CAPTURE(answer.error().message);
    CHECK(answer.error().message.find(fmt::format("the admin at 127.0.0.1:{}: ", port)) == 0);
    CHECK(answer.error().message.find("is it Kafka's port?") == std::string::npos);
  }

  TEST_CASE(
      "where nobody listens the error comes at once, or after the timeout when waiting was asked "
      "for") {
    const Data data;
    std::uint16_t port = 0;
    ::close(bound_socket(port));
    const auto address = fmt::format("127.0.0.1:{}", port);
    const auto start = std::chrono::steady_clock::now();
    AdminClient impatient({.address = address, .timeout = 20s});
    const auto refused = impatient.get("/status");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.find("is `tarry serve` running?") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - start < 10s);
    AdminClient patient({.address = address, .timeout = 300ms, .waits_for_start = true});
    const auto late = patient.get("/status");
    REQUIRE_FALSE(late.has_value());
    CHECK(late.error().message.find("within 300ms") != std::string::npos);
  }
}

}  // namespace
}  // namespace tarry::cli
