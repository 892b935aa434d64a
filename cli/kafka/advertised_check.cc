#include "cli/kafka/advertised_check.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::cli {
namespace {

// A host that answers at all does so sooner, also from the other side of the world.
constexpr int connect_patience_ms = 1000;

// One of them is reason enough, and each that does not answer costs the patience.
constexpr int max_brokers_tried = 3;
constexpr int max_addresses_tried = 4;  // For one name.

// A broker's text goes to a terminal; a name of DNS is not longer.
constexpr std::size_t max_host_shown = 255;

// "ssl://127.0.0.1:9092/bootstrap", librdkafka's name of a broker -> "127.0.0.1:9092"
std::string_view address_of(std::string_view name) {
  if (const auto scheme = name.find("://"); scheme != name.npos) name.remove_prefix(scheme + 3);
  return name.substr(0, name.rfind('/'));
}

std::string advertised_text(const rd_kafka_metadata_broker_t& broker) {
  const std::string host = printable(broker.host, max_host_shown);
  // An address of IPv6 has colons of its own.
  return host.contains(':') ? fmt::format("[{}]:{}", host, broker.port)
                            : fmt::format("{}:{}", host, broker.port);
}

// The error of an attempt to connect; 0: it succeeded, or a signal ended it.
int connect_error(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  int error = ::connect(socket, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{socket, POLLOUT, 0};
    const int polled = ::poll(&ready, 1, connect_patience_ms);
    error = polled == 0 ? ETIMEDOUT : 0;
    socklen_t size = sizeof error;
    if (polled == 1) ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  ::close(socket);
  return error;
}

}  // namespace

std::string connect_problem(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unresolved = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (unresolved != 0) return ::gai_strerror(unresolved);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  int error = 0;
  int tried = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (++tried > max_addresses_tried) return {};
    error = connect_error(*each);
    // One address is enough: librdkafka tries all.
    if (error == 0) return {};
  }
  return tried == 0 ? std::string() : std::generic_category().message(error);
}

std::optional<UnreachableBroker> find_unreachable(const struct rd_kafka_metadata& metadata) {
  const std::string answered(
      address_of(metadata.orig_broker_name == nullptr ? "" : metadata.orig_broker_name));
  for (int i = 0; i < std::min(metadata.broker_cnt, max_brokers_tried); ++i) {
    const auto& broker = metadata.brokers[i];
    std::string advertised = advertised_text(broker);
    // It has just answered.
    if (advertised == answered) continue;
    std::string reason = connect_problem(broker.host, std::to_string(broker.port));
    if (!reason.empty())
      return UnreachableBroker{printable(answered), std::move(advertised), std::move(reason)};
  }
  return std::nullopt;
}

std::string unreachable_text(const UnreachableBroker& broker) {
  return fmt::format(
      "the broker at {} answers, but it advertises the address {}, which cannot be reached from "
      "here ({}): set advertised.listeners, or --advertise of `tarry serve`, to an address that "
      "leads to the broker",
      broker.answered, broker.advertised, broker.reason);
}

}  // namespace tarry::cli
