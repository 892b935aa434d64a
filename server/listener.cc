#include "server/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Connections that wait to be accepted; the kernel cuts it to net.core.somaxconn.
constexpr int backlog = 4096;

// One turn of the shard; what is left waits behind its other work.
constexpr int accepted_at_once = 16;

// When not even the reserve helps: another thread has taken it.
constexpr std::chrono::milliseconds pause{100};

// Connections of addresses that are too fast; each holds a descriptor.
constexpr std::size_t max_unserved = 1000;

// Port 0 on several addresses: the port that one has may be taken on another.
constexpr int ports_tried = 16;

std::string reason(int error) {
  return std::generic_category().message(error);
}

Result<std::vector<tcp::endpoint>> addresses_of(const HostPort& where, const std::string& key) {
  using asio::ip::address;
  const auto at = [&](const address& a) { return tcp::endpoint(a, where.port); };
  if (where.host.empty())
    return std::vector{at(asio::ip::address_v4::any()), at(asio::ip::address_v6::any())};
  if (where.host == "localhost") {
    return std::vector{at(asio::ip::address_v4::loopback()), at(asio::ip::address_v6::loopback())};
  }
  boost::system::error_code no_literal;
  if (const auto literal = asio::ip::make_address(where.host, no_literal); !no_literal)
    return std::vector{at(literal)};

  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(where.host.c_str(), nullptr, &hints, &found); error != 0) {
    return fail(Errc::invalid,
                fmt::format("{}={}: the host {} has no address: {}: give an address of this "
                            "machine",
                            key, where.text(), printable(where.host), ::gai_strerror(error)));
  }
  std::vector<tcp::endpoint> endpoints;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    tcp::endpoint endpoint;
    if (entry->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), entry->ai_addr, entry->ai_addrlen);
    endpoint.resize(entry->ai_addrlen);
    endpoint.port(where.port);
    // getaddrinfo() may give one twice, and the second socket would find its port taken.
    if (std::ranges::find(endpoints, endpoint) == endpoints.end()) endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(found);
  return endpoints;
}

// A socket that holds the address; the error is errno's.
std::expected<int, int> hold(const tcp::endpoint& endpoint, bool only_ipv6) {
  const int socket =
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return std::unexpected(errno);
  const int yes = 1, v6only = only_ipv6 ? 1 : 0;
  // Connections of a broker that has just ended stay in TIME_WAIT; without SO_REUSEADDR they would
  // keep the next one from starting.
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (endpoint.address().is_v6())
    ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only);
  if (::bind(socket, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
    const int error = errno;
    ::close(socket);
    return std::unexpected(error);
  }
  return socket;
}

std::uint16_t port_of(int socket) {
  tcp::endpoint bound;
  auto size = static_cast<socklen_t>(bound.capacity());
  if (::getsockname(socket, bound.data(), &size) != 0) return 0;
  bound.resize(size);
  return bound.port();
}

// Without IPv6 in the kernel or on the machine, "any" and localhost are of IPv4 alone.
bool has_no_such_family(int error) {
  return error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
}

}  // namespace

std::string peer_text(const tcp::endpoint& peer) {
  const auto address = peer.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return fmt::format("{}:{}",
                       asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string(),
                       peer.port());
  }
  return HostPort{address.to_string(), peer.port()}.text();
}

Result<BoundAddress> BoundAddress::bind(const HostPort& where, const std::string& key) {
  auto endpoints = addresses_of(where, key);
  if (!endpoints) return std::unexpected(endpoints.error());
  const bool spare_family = where.host.empty() || where.host == "localhost";

  for (int tried = 1;; ++tried) {
    BoundAddress bound(where);
    if (where.host == "localhost") bound.address_.host = "127.0.0.1";
    bound.local_ = std::ranges::all_of(
        *endpoints, [](const auto& endpoint) { return endpoint.address().is_loopback(); });
    int error = 0;
    tcp::endpoint refused;
    for (auto endpoint : *endpoints) {
      // For port 0 this is the free port that the first address was given.
      if (bound.address_.port != 0) endpoint.port(bound.address_.port);
      // [::]:9092 means both kinds, as everywhere, unless the other kind has a socket of its own.
      const auto held = hold(endpoint, endpoints->size() > 1);
      if (!held && spare_family && endpoint.address().is_v6() && !bound.sockets_.empty() &&
          has_no_such_family(held.error())) {
        continue;
      }
      if (!held) {
        error = held.error();
        refused = endpoint;
        break;
      }
      bound.address_.port = port_of(*held);
      endpoint.port(bound.address_.port);
      bound.sockets_.push_back({endpoint, *held});
    }
    if (error == 0) return bound;
    // The kernel chose a port that is taken on another address; the next try gets another one.
    if (error == EADDRINUSE && where.port == 0 && tried < ports_tried) continue;

    const std::string at = HostPort{refused.address().to_string(), refused.port()}.text();
    const std::string asked = fmt::format("{}={}", key, where.text());
    switch (error) {
      case EADDRINUSE:
        return fail(Errc::in_use,
                    fmt::format("{}: the port of {} is in use: stop the process that uses it (`ss "
                                "-tanp 'sport = :{}'` shows it), or give another port",
                                asked, at, refused.port()));
      case EADDRNOTAVAIL:
        return fail(Errc::invalid,
                    fmt::format("{}: {} is not an address of this machine: `ip address` lists them",
                                asked, at));
      case EACCES:
        return fail(
            Errc::io,
            fmt::format("{}: this user may not listen on {}: choose a port above 1023", asked, at));
      default:
        return fail(Errc::io, fmt::format("{}: cannot listen on {}: {}", asked, at, reason(error)));
    }
  }
}

BoundAddress::~BoundAddress() {
  for (const auto& socket : sockets_) ::close(socket.descriptor);
}

HostPort BoundAddress::advertised() const {
  if (local_) return address_;
  char name[256] = {};
  // A machine without a name is found by no name.
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return address_;
  return {name, address_.port};
}

Listener::Listener(asio::io_context& context, const Clock& clock, BoundAddress bound,
                   OpenConnections& open, ConnectionRates& rates, Take take)
    : clock_(clock),
      open_(open),
      rates_(rates),
      take_(std::move(take)),
      reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  // The acceptors own the sockets from here on, so the BoundAddress must not close them.
  for (const auto& socket : std::exchange(bound.sockets_, {})) {
    doors_.push_back(std::make_unique<Door>(
        Door{tcp::acceptor(context, socket.endpoint.protocol(), socket.descriptor),
             asio::steady_timer(context)}));
  }
}

Listener::~Listener() {
  stop();
}

Result<> Listener::start() {
  // All addresses listen before the first one accepts: after an error no client is connected.
  for (auto& door : doors_) {
    if (::listen(door->acceptor.native_handle(), backlog) != 0) {
      const int error = errno;
      boost::system::error_code ignored;
      const auto endpoint = door->acceptor.local_endpoint(ignored);
      // Another socket may be bound to the address too, until one of them listens.
      return fail(
          error == EADDRINUSE ? Errc::in_use : Errc::io,
          fmt::format("listeners: cannot listen on {}: {}: stop the process that uses the port "
                      "(`ss -tanp 'sport = :{}'` shows it), or give another one",
                      peer_text(endpoint), reason(error), endpoint.port()));
    }
  }
  for (auto& door : doors_) wait(*door);
  return {};
}

void Listener::stop() {
  // The destructor comes here as well.
  if (std::exchange(stopped_, true)) return;
  boost::system::error_code ignored;
  for (auto& door : doors_) {
    door->acceptor.close(ignored);
    door->pause.cancel();
  }
  if (reserve_ >= 0) ::close(std::exchange(reserve_, -1));
  // Their timers' callbacks are still to come, and find that the listener has stopped.
  for (auto& unserved : unserved_) {
    ::close(unserved.descriptor);
    unserved.end.cancel();
  }
}

void Listener::wait(Door& door) {
  // Waits only: accept_some() takes many connections in one turn, and gives up the reserve when
  // there is no descriptor.
  door.acceptor.async_wait(tcp::acceptor::wait_read,
                           [this, &door](const boost::system::error_code& error) {
                             if (!error && !stopped_) accept_some(door);
                           });
}

void Listener::accept_some(Door& door) {
  for (int i = 0; i < accepted_at_once; ++i) {
    tcp::endpoint peer;
    auto size = static_cast<socklen_t>(peer.capacity());
    const int socket =
        ::accept4(door.acceptor.native_handle(), peer.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      const int error = errno;
      if (error == EAGAIN || error == EWOULDBLOCK) break;
      if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
        switch (reject_connection(door, error)) {
          case Turned::away:
            continue;
          case Turned::none_waiting:
            return wait(door);
          case Turned::not_possible:
            return pause_accepting(door, pause);
        }
      }
      continue;  // It went before it was accepted, or its network did: the next may be well.
    }
    peer.resize(size);
    // It is accepted first and then closed: a connection that is left in the backlog would wait
    // without an answer.
    std::string text = peer_text(peer);
    if (const auto why = open_.begin(text); !why.empty()) {
      ::close(socket);
      too_many_connections_.warn(clock_.mono(), "audit",
                                 fmt::format("a connection from {} is refused: {}", text, why));
      continue;
    }
    const auto admission = rates_.begin(text, clock_.mono());
    if (admission.close_after.count() > 0) {
      // An unserved connection is bounded by max_unserved, not by max.connections.
      open_.ended(text);
      too_fast_.warn(clock_.mono(), "audit",
                     fmt::format("a connection from {} is refused: its address opens connections "
                                 "faster than its quota connection_creation_rate allows",
                                 text));
      // Closed at once, its client would try again at once.
      close_later(socket, admission.close_after);
      continue;
    }
    take_(socket, peer.protocol(), std::move(text));
    if (admission.next_after.count() > 0) return pause_accepting(door, admission.next_after);
  }
  wait(door);
}

Listener::Turned Listener::reject_connection(Door& door, int why) {
  // The reserve may be gone since the last time; perhaps a descriptor is free now.
  if (reserve_ < 0) reserve_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (reserve_ < 0) return Turned::not_possible;
  // The reserve is given up for the length of one accept4() and a close(), which frees a descriptor
  // for it again.
  ::close(std::exchange(reserve_, -1));
  const int socket = ::accept4(door.acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
  const int error = errno;
  if (socket >= 0) ::close(socket);
  reserve_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  // Without a free descriptor the kernel fails before it looks for a client, so only EAGAIN means
  // that there is none.
  if (socket < 0)
    return error == EAGAIN || error == EWOULDBLOCK ? Turned::none_waiting : Turned::not_possible;
  no_descriptor_.warn(
      clock_.mono(), "server",
      fmt::format(
          "a connection is refused: {}: raise the limit of open files (`ulimit -n`, LimitNOFILE=)",
          reason(why)));
  return Turned::away;
}

void Listener::close_later(int socket, std::chrono::milliseconds time) {
  if (unserved_.size() >= max_unserved) {
    ::close(socket);
    return;
  }
  auto& executor = doors_.front()->acceptor;
  const auto at = unserved_.insert(
      unserved_.end(), Unserved{socket, asio::steady_timer(executor.get_executor(), time)});
  at->end.async_wait([this, at](const boost::system::error_code& error) {
    if (error || stopped_) return;
    ::close(at->descriptor);
    unserved_.erase(at);
  });
}

void Listener::pause_accepting(Door& door, std::chrono::milliseconds time) {
  door.pause.expires_after(time);
  door.pause.async_wait([this, &door](const boost::system::error_code& error) {
    if (!error && !stopped_) wait(door);
  });
}

}  // namespace tarry::server
