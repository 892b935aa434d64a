#include "server/service_manager.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace tarry::server {
namespace {

// 0, or the errno of what failed.
int send_datagram(const std::string& path, std::string_view bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  // The abstract namespace: the name follows a zero byte.
  if (path.front() == '@') address.sun_path[0] = '\0';
  const auto address_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());

  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  // A manager that does not read must not hold up the broker's start or stop.
  const timeval patience{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const auto sent = ::sendto(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), address_size);
  const int failure = sent < 0 ? errno : 0;
  ::close(descriptor);
  return failure;
}

}  // namespace

ServiceManager ServiceManager::from_environment() {
  const char* path = std::getenv("NOTIFY_SOCKET");
  return ServiceManager(path ? path : "");
}

void ServiceManager::tell(std::string_view lines) const {
  if (!listens()) return;
  if (const int failure = send_datagram(socket_path_, lines); failure != 0) {
    log_warn("server", "the service manager did not receive the message {}: NOTIFY_SOCKET={}: {}",
             printable(lines), printable(socket_path_), std::strerror(failure));
  }
}

}  // namespace tarry::server
