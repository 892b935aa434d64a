#include "relay/admin_http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/ascii_case.h"
#include "base/log.h"

namespace tarry::relay {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t max_connections = 32;
constexpr std::size_t max_request = 8 * 1024;
constexpr std::chrono::seconds request_timeout{5};

struct HttpConnection {
  HttpConnection(int with, Steady::time_point until) : socket(with), deadline(until) {}
  ~HttpConnection() { ::close(socket); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  const int socket;
  const Steady::time_point deadline;
  std::string in, out;
  std::size_t sent = 0;
};

std::string_view phrase_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

std::string http_text(const HttpAnswer& answer, bool has_body) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{}Connection: close\r\n\r\n{}",
      answer.status, phrase_of(answer.status), answer.body.size(),
      answer.status == 405 ? "Allow: GET, HEAD\r\n" : "", has_body ? answer.body : "");
}

// The value of a header; empty: there is none.
std::string header_in(std::string_view head, std::string_view name) {
  for (std::size_t at = head.find("\r\n"); at != std::string_view::npos;) {
    const std::size_t begin = at + 2;
    at = head.find("\r\n", begin);
    const std::string_view line =
        head.substr(begin, at == std::string_view::npos ? at : at - begin);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || !equals_ignoring_case(line.substr(0, colon), name))
      continue;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
      value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    return std::string(value);
  }
  return {};
}

std::string answer_to(std::string_view head, const AdminHttp::Handler& handler) {
  const auto first = head.substr(0, head.find("\r\n"));
  const auto method_end = first.find(' ');
  const auto target_end = first.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end ||
      !first.substr(target_end).starts_with(" HTTP/1."))
    return http_text({400, R"({"error":"this is not an HTTP/1.1 request"})"}, true);
  const auto method = first.substr(0, method_end);
  if (method != "GET" && method != "HEAD")
    return http_text({405, R"({"error":"only GET and HEAD are answered"})"}, true);
  const HttpAsked asked{std::string(first.substr(method_end + 1, target_end - method_end - 1)),
                        header_in(head, "Host")};
  try {
    return http_text(handler(asked), method == "GET");
  } catch (
      const std::exception& wrong) {  // No memory, say: the member goes on without this answer.
    log_error("relay", "admin: {}: {}", printable(asked.target), wrong.what());
    return http_text({503, R"({"error":"the member could not make this answer"})"}, true);
  }
}

// False: the connection is over.
bool serve(HttpConnection& connection, const AdminHttp::Handler& handler) {
  if (connection.out.empty()) {
    char bytes[4096];
    const auto got = ::recv(connection.socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got > 0) connection.in.append(bytes, static_cast<std::size_t>(got));
    const auto end = connection.in.find("\r\n\r\n");
    if (end != std::string::npos) {
      connection.out = answer_to(std::string_view(connection.in).substr(0, end), handler);
    } else if (connection.in.size() > max_request) {
      connection.out = http_text({431, R"({"error":"the request is larger than 8 KiB"})"}, true);
    }
  }
  while (connection.sent < connection.out.size()) {
    const auto sent = ::send(connection.socket, connection.out.data() + connection.sent,
                             connection.out.size() - connection.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<std::size_t>(sent);
  }
  if (connection.out.empty()) return true;
  ::shutdown(connection.socket, SHUT_WR);
  return false;
}

std::string address_text(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  ::getnameinfo(address, size, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return address->sa_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                        : fmt::format("{}:{}", host, port);
}

bool is_loopback_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    return (ntohl(in.sin_addr.s_addr) >> 24) == 127;
  }
  sockaddr_in6 in{};
  std::memcpy(&in, address, sizeof in);
  return IN6_IS_ADDR_LOOPBACK(&in.sin6_addr) != 0;
}

}  // namespace

Result<std::unique_ptr<AdminHttp>> AdminHttp::open(const std::string& host, std::uint16_t port) {
  const auto wrong = [&](std::string_view why) {
    return fail(Errc::io, fmt::format("--admin {}:{}: {}", printable(host), port, why));
  };
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                      std::to_string(port).c_str(), &hints, &found);
      error != 0)
    return wrong(::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  std::unique_ptr<AdminHttp> server(new AdminHttp());
  server->listener_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  ::setsockopt(server->listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (server->listener_ < 0 || ::bind(server->listener_, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(server->listener_, 64) != 0 || ::pipe2(server->wake_, O_CLOEXEC) != 0)
    return wrong(errno == EADDRINUSE ? "another process uses this address" : std::strerror(errno));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  auto* address = reinterpret_cast<sockaddr*>(&bound);
  ::getsockname(server->listener_, address, &size);
  server->address_ = address_text(address, size);
  server->is_loopback_ = is_loopback_address(address);
  return server;
}

AdminHttp::~AdminHttp() {
  if (wake_[1] >= 0) ::close(wake_[1]);
  if (thread_.joinable()) thread_.join();
  if (wake_[0] >= 0) ::close(wake_[0]);
  if (listener_ >= 0) ::close(listener_);
}

void AdminHttp::start(Handler handler) {
  handler_ = std::move(handler);
  thread_ = std::thread([this] { run(); });
}

void AdminHttp::run() {
  std::list<HttpConnection> connections;
  Steady::time_point accept_at{};
  for (;;) {
    const bool accepts = Steady::now() >= accept_at;
    // poll() leaves a negative one out.
    std::vector<pollfd> waiting{{wake_[0], POLLIN, 0}, {accepts ? listener_ : -1, POLLIN, 0}};
    for (const auto& each : connections)
      waiting.push_back({each.socket, static_cast<short>(each.out.empty() ? POLLIN : POLLOUT), 0});
    ::poll(waiting.data(), waiting.size(), connections.empty() && accepts ? -1 : 1'000);
    if (waiting[0].revents != 0) return;
    std::size_t at = 2;
    for (auto each = connections.begin(); each != connections.end(); ++at) {
      const bool is_over =
          (waiting[at].revents != 0 && !serve(*each, handler_)) || Steady::now() > each->deadline;
      each = is_over ? connections.erase(each) : std::next(each);
    }
    if (waiting[1].revents == 0) continue;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      // Without a descriptor the listener would be ready again at once.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        accept_at = Steady::now() + std::chrono::seconds{1};
      continue;
    }
    if (connections.size() >= max_connections) connections.pop_front();
    connections.emplace_back(socket, Steady::now() + request_timeout);
  }
}

}  // namespace tarry::relay
