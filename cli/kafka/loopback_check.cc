#include "cli/kafka/loopback_check.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "cli/io/host_port.h"

namespace tarry::cli {
namespace {

constexpr const char* default_port = "9092";  // librdkafka's.

// Loopback answers at once; a socket that is not served yet need not.
constexpr int patience_ms = 200;

bool is_refused(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  // Without IPv6 nobody listens there.
  if (socket < 0) return errno == EAFNOSUPPORT;
  // A blocking connect could take minutes, while loopback refuses at once, if it does.
  int error = ::connect(socket, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{socket, POLLOUT, 0};
    socklen_t size = sizeof error;
    if (::poll(&ready, 1, patience_ms) == 1) {
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  ::close(socket);
  // EADDRNOTAVAIL: the machine has no such address, as ::1 where IPv6 is off.
  return error == ECONNREFUSED || error == EADDRNOTAVAIL;
}

bool is_refused_on_loopback(std::string_view broker) {
  if (const auto scheme = broker.find("://"); scheme != broker.npos)
    broker.remove_prefix(scheme + 3);
  auto at = parse_host_port(broker);
  if (!at) at = parse_host_port(std::string(broker) + ":" + default_port);
  if (!at || !at->is_loopback()) return false;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(at->host.c_str(), at->port.c_str(), &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    // One address that does not refuse may be the broker, and librdkafka tries all.
    if (!is_refused(*each)) return false;
  }
  return found != nullptr;
}

}  // namespace

bool all_refused_on_loopback(std::string_view brokers) {
  bool any = false;
  while (!brokers.empty()) {
    const auto end = brokers.find(',');
    auto one = brokers.substr(0, end);
    brokers.remove_prefix(end == brokers.npos ? brokers.size() : end + 1);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one.empty()) continue;
    if (!is_refused_on_loopback(one)) return false;
    any = true;
  }
  return any;
}

}  // namespace tarry::cli
