#pragma once

// A client of the admin that is as rude as a test wants: it sends any bytes over a real loopback
// connection and takes what comes, while the broker of the test runs in the test's own thread.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "admin/admin_server.h"
#include "base/json.h"
#include "tests/broker/batches.h"

namespace tarry::admin::test {

using namespace web;
using broker::test::World;

struct Answer {
  unsigned status = 0;  // 0: none came.
  std::map<std::string, std::string> headers;
  std::string body;

  Json json() const {
    const auto parsed = Json::parse(body, nullptr, false);
    REQUIRE_MESSAGE(!parsed.is_discarded(), "no JSON: " << body);
    return parsed;
  }
  std::string error() const { return json().value("error", ""); }
};

// One connection, blocking, for at most 20 s.
class Connection {
 public:
  // `buffer`: of the kernel, for what was not read yet; 0: as it likes.
  explicit Connection(std::uint16_t port, int buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (buffer != 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    const timeval patience{20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // It has hung up.
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void end_sending() { ::shutdown(socket_, SHUT_WR); }

  // The next answer; `has_body` is false for one to HEAD.
  Answer read(bool has_body = true) {
    Answer answer = read_head();
    if (answer.status == 0) return answer;
    // These two never have one, and so no length of it.
    has_body &= answer.status != 204 && answer.status != 304;
    const std::size_t length = has_body ? std::stoul(answer.headers["Content-Length"]) : 0;
    while (received_.size() < length)
      if (!receive()) break;
    answer.body = received_.substr(0, length);
    received_.erase(0, length);
    return answer;
  }
  Answer read_head() {
    Answer answer;
    std::size_t end;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos)
      if (!receive()) return answer;
    std::string head = received_.substr(0, end + 2);
    received_.erase(0, end + 4);
    REQUIRE(head.starts_with("HTTP/1."));
    answer.status = static_cast<unsigned>(std::stoul(head.substr(9, 3)));
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const auto line_end = head.find("\r\n", at);
      const std::string line = head.substr(at, line_end - at);
      const auto colon = line.find(": ");
      answer.headers[line.substr(0, colon)] = line.substr(colon + 2);
      at = line_end + 2;
    }
    return answer;
  }
  // A piece of an answer in chunks; empty: that was the last, or the connection has ended.
  std::string read_chunk() {
    std::size_t end;
    while ((end = received_.find("\r\n")) == std::string::npos)
      if (!receive()) return {};
    const std::size_t size = std::stoul(received_.substr(0, end), nullptr, 16);
    while (received_.size() < end + 2 + size + 2)
      if (!receive()) return {};
    const std::string chunk = received_.substr(end + 2, size);
    received_.erase(0, end + 2 + size + 2);
    return chunk;
  }
  // Whether the other side ends the connection, without another byte.
  bool ended() { return received_.empty() && !receive() && errno != EAGAIN; }

 private:
  bool receive() {
    char bytes[16384];
    errno = 0;
    const auto got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    received_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }

  int socket_;
  bool connected_ = false;
  std::string received_;
};

// Whether `json` has all of these fields; each that is missing is a failed check.
inline bool has(const Json& json, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    INFO(name);
    CHECK(json.contains(name));
    if (!json.contains(name)) return false;
  }
  return true;
}

// A broker and its admin.
class Admin {
 public:
  // `tokens`: the text of admin.tokens.
  explicit Admin(AdminOptions options = {}, broker::test::WorldOptions world_options = {},
                 const std::string& tokens = "")
      : world(std::move(world_options)) {
    if (!tokens.empty()) {
      const auto file = world.directory() + "/data/admin.tokens";
      std::ofstream(file) << tokens;
      REQUIRE(::chmod(file.c_str(), 0600) == 0);
    }
    options.port = 0;
    auto opened = AdminServer::open(world.shard().executor(), options);
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
    server = std::move(*opened);
    const auto started = server->start(world.broker(), {"127.0.0.1:9092",
                                                        "PLAINTEXT://127.0.0.1:9092",
                                                        {},
                                                        [] { return std::size_t{2000}; },
                                                        [] { return std::size_t{1000}; },
                                                        "PLAINTEXT://broker.example:9092"});
    REQUIRE_MESSAGE(started.has_value(), started.error().message);
    port = static_cast<std::uint16_t>(
        std::stoul(server->address().substr(server->address().rfind(':') + 1)));
  }
  ~Admin() {
    if (server) server->stop();
    world.run();
  }

  // Runs `work` in a thread of its own while the broker runs here.
  template <typename Work>
  auto meanwhile(Work work) {
    auto done = std::async(std::launch::async, std::move(work));
    while (done.wait_for(std::chrono::microseconds{200}) != std::future_status::ready) world.run();
    return done.get();
  }

  Answer send(const std::string& bytes, bool has_body = true) {
    return meanwhile([&] {
      Connection connection(port);
      connection.send(bytes);
      connection.end_sending();
      return connection.read(has_body);
    });
  }

  using Headers = std::map<std::string, std::string>;
  Answer ask(const std::string& method, const std::string& target, Headers headers = {},
             const std::string& body = "") {
    headers.try_emplace("Host", server->address());
    if (!body.empty()) headers.try_emplace("Content-Length", std::to_string(body.size()));
    std::string text = method + " " + target + " HTTP/1.1\r\n";
    for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
    return send(text + "\r\n" + body, method != "HEAD");
  }
  Answer get(const std::string& target) { return ask("GET", target); }
  Json get_json(const std::string& target) {
    const auto answer = get(target);
    REQUIRE_MESSAGE(answer.status == 200, target << ": " << answer.status << " " << answer.body);
    return answer.json();
  }
  Answer remove(const std::string& target) {
    return ask("DELETE", target, {{"Authorization", "Bearer " + token()}});
  }

  std::string token_file() const { return world.directory() + "/data/admin.token"; }
  std::string token() const {
    std::string text;
    std::ifstream(token_file()) >> text;
    return text;
  }

  World world;
  std::unique_ptr<AdminServer> server;
  std::uint16_t port = 0;
};

}  // namespace tarry::admin::test
