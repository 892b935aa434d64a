#include "server/peer_watch.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace tarry::server {

namespace asio = boost::asio;

bool PeerWatch::open() {
  if (waiting_.is_open()) return true;
  const int descriptor = ::epoll_create1(EPOLL_CLOEXEC);
  if (descriptor < 0) {
    log_warn("server",
             "the broker cannot watch connections that are at their limits, and will notice late "
             "when such a client disconnects: {}",
             std::generic_category().message(errno));
    return false;
  }
  boost::system::error_code error;
  waiting_.assign(descriptor, error);
  if (error) {
    ::close(descriptor);
    log_warn("server",
             "the broker cannot watch connections that are at their limits, and will notice late "
             "when such a client disconnects: {}",
             error.message());
    return false;
  }
  return true;
}

void PeerWatch::add(int socket, Event awaited, OnEvent on_event) {
  if (!open()) return;
  epoll_event event{};
  event.events = EPOLLONESHOT;  // A broken connection is always told.
  if (awaited == Event::ended) event.events |= EPOLLRDHUP;
  event.data.fd = socket;
  // Not watched then: the session notices the end of its client when it reads again.
  if (::epoll_ctl(waiting_.native_handle(), EPOLL_CTL_ADD, socket, &event) != 0) return;
  watched_.insert_or_assign(socket, std::move(on_event));
  if (!armed_) wait();
}

void PeerWatch::remove(int socket) {
  if (watched_.erase(socket) == 0) return;
  ::epoll_ctl(waiting_.native_handle(), EPOLL_CTL_DEL, socket, nullptr);
  boost::system::error_code ignored;
  if (watched_.empty()) waiting_.cancel(ignored);  // Nothing keeps the executor at work.
}

void PeerWatch::wait() {
  armed_ = true;
  // The callback comes even if this object is destroyed first; `alive` tells it so.
  waiting_.async_wait(
      asio::posix::stream_descriptor::wait_read,
      [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
        if (alive.expired()) return;
        armed_ = false;
        if (!error) look();
        // A callback of look() may have called add(), which has armed it again.
        if (!watched_.empty() && !armed_) wait();
      });
}

void PeerWatch::look() {
  std::array<epoll_event, 64> events;
  // Events that do not fit into `events` are still there for the next look.
  const int count =
      ::epoll_wait(waiting_.native_handle(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int socket = events[static_cast<std::size_t>(i)].data.fd;
    const auto seen = events[static_cast<std::size_t>(i)].events;
    const auto found = watched_.find(socket);
    if (found == watched_.end()) continue;  // Removed by one before it.
    auto on_event = std::move(found->second);
    // Before the callback, which may watch the same socket again.
    remove(socket);
    on_event((seen & (EPOLLHUP | EPOLLERR)) != 0 ? Event::broken : Event::ended);
  }
}

}  // namespace tarry::server
