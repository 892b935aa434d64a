#pragma once

// PeerWatch: notices that a client has disconnected although its socket is not being read.
//
// A session that reads its socket sees the end of the stream.  A session at its limits does not
// read, nor does one whose client sends no more and waits for its answers, but their parked
// requests must be cancelled when the client goes.  Boost.Asio can only wait for a socket to be
// readable, which it is as soon as there is one unread byte; the kernel reports the end of the
// stream apart from that (EPOLLRDHUP).
//
//   socket --+
//   socket --+--> an epoll of our own --> Asio waits for it alone --> `on_event`
//
// The sessions of a shard share one, on the shard's thread.  It opens nothing and waits for nothing
// until a socket is watched.

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

  enum class Event {
    ended,   // The peer sends no more.
    broken,  // It does not read any more either.
  };
  using OnEvent = std::move_only_function<void(Event)>;
  // `on_event` is called once, when the connection is broken, or the peer of `socket` sends no more
  // if that is `awaited` too; it may call add() and remove().  When the system has no descriptor
  // for the epoll, nothing is watched and a line in the log says so.  The caller calls remove()
  // before it closes the socket.
  void add(int socket, Event awaited, OnEvent on_event);
  void remove(int socket);

 private:
  bool open();
  void wait();
  void look();

  boost::asio::posix::stream_descriptor waiting_;  // Open once a socket was watched.
  std::unordered_map<int, OnEvent> watched_;
  bool armed_ = false;  // While Asio waits for the epoll.
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tarry::server
