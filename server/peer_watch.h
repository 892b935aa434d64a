#pragma once

// PeerWatch: says when a client has gone whose socket is not being read.
//
// Who reads a socket sees its end.  A connection that holds as much as it may is not read, and what
// its requests wait for is to be cancelled all the same when the client goes, at once and not when
// the waiting is over.  Boost.Asio waits for a socket to be readable, which it is as soon as there
// is one unread byte; the kernel tells the end of the stream apart (EPOLLRDHUP).
//
//   socket --+
//   socket --+--> an epoll of our own --> Asio waits for it alone --> `gone`
//
// One for the sessions of a shard, on its thread; nothing is made, and nothing waited for, until
// somebody is watched.

#include <functional>
#include <memory>
#include <unordered_map>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace tarry::server {

class PeerWatch {
 public:
  explicit PeerWatch(const boost::asio::any_io_executor& executor) : waiting_(executor) {}
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // `gone` is called once, when the peer of `socket` sends no more or the connection is broken; it
  // may add and remove.  When the system has no descriptor for it, nobody is watched, with a line
  // in the log.  Until remove(), which comes before the socket is closed.
  void add(int socket, std::move_only_function<void()> gone);
  void remove(int socket);

 private:
  bool open();
  void wait();
  void look();

  boost::asio::posix::stream_descriptor waiting_;  // Open once somebody was watched.
  std::unordered_map<int, std::move_only_function<void()>> watched_;
  bool armed_ = false;  // While somebody is watched, and until that is noticed to be over.
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tarry::server
