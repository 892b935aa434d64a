#pragma once

// Listener: where clients connect, and which shard gets them.
//
//   localhost:9092 --> 127.0.0.1:9092 --.
//                                        +--> accept4() on shard 0 --> shard 0, 1, 2, 0, 1 ...
//                      [::1]:9092 ------'
//
// Taking the address and listening on it are two steps: a port that is in use is found out before
// anything on disk is touched, and no client can connect before the broker can answer.
//
// A host name stands for all its addresses; localhost for 127.0.0.1 and, where the machine has
// IPv6, ::1; no host for any address of either kind.  Port 0 is the same free port on all of them.
//
// Bounds: past max.connections (open_connections.h), and when the process has no file descriptor
// left, a connection is accepted and closed at once, so that it neither waits for ever nor keeps
// the listener busy.  One descriptor is kept in reserve for the second case.  Both cases are
// logged, at a bounded rate.
//
// If connections are made faster than the quotas allow (connection_rates.h), the next ones wait in
// the kernel's queue.  A connection from an address that is too fast is kept for a while and then
// closed, unserved; a bounded number of them is kept, and the others are closed at once.
//
// Belongs to shard 0's thread, but bind().

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/log_throttle.h"
#include "base/result.h"
#include "server/address.h"
#include "server/connection_rates.h"
#include "server/open_connections.h"

namespace tarry::server {

// Addresses that are taken, and on which no client can connect yet.
class BoundAddress {
 public:
  // `key` is the configuration's, for errors.  The machine is asked for names' addresses: blocks.
  static Result<BoundAddress> bind(const HostPort& where, const std::string& key);

  BoundAddress(BoundAddress&& other) noexcept = default;
  BoundAddress& operator=(BoundAddress&&) = delete;
  ~BoundAddress();

  // The configured address, with the port that was found; localhost as 127.0.0.1.
  const HostPort& address() const { return address_; }
  // Only this machine can connect.
  bool is_loopback() const { return local_; }
  // The address that clients are told when the operator configures none.
  HostPort advertised() const;

 private:
  friend class Listener;
  struct Socket {
    boost::asio::ip::tcp::endpoint endpoint;
    int descriptor;
  };

  explicit BoundAddress(HostPort address) : address_(std::move(address)) {}

  HostPort address_;
  bool local_ = false;  // On loopback alone.
  std::vector<Socket> sockets_;
};

class Listener {
 public:
  // Takes a socket over.  Called on shard 0's thread.
  using Take = std::function<void(int descriptor, boost::asio::ip::tcp protocol, std::string peer)>;

  // The receiver of a connection calls open.ended() when it has ended.
  Listener(boost::asio::io_context& context, const Clock& clock, BoundAddress bound,
           OpenConnections& open, ConnectionRates& rates, Take take);
  ~Listener();

  // From now on clients can connect.
  Result<> start();
  void stop();

 private:
  struct Door {
    boost::asio::ip::tcp::acceptor acceptor;
    boost::asio::steady_timer pause;
  };

  void wait(Door& door);
  void accept_some(Door& door);
  // Accepts and closes what cannot be served, with the reserve.
  enum class Turned { away, none_waiting, not_possible };
  Turned reject_connection(Door& door, int why);
  void pause_accepting(Door& door, std::chrono::milliseconds time);
  void close_later(int socket, std::chrono::milliseconds time);

  const Clock& clock_;
  OpenConnections& open_;
  ConnectionRates& rates_;
  const Take take_;
  std::vector<std::unique_ptr<Door>> doors_;  // One an address.
  int reserve_;  // A descriptor that can be given up to accept a connection and close it.
  // Closed when their timers end.
  struct Unserved {
    int descriptor;
    boost::asio::steady_timer end;
  };
  std::list<Unserved> unserved_;
  LogThrottle too_fast_;
  LogThrottle too_many_connections_;
  LogThrottle no_descriptor_;
  bool stopped_ = false;
};

// "127.0.0.1:40312", "[::1]:40312".
std::string peer_text(const boost::asio::ip::tcp::endpoint& peer);

}  // namespace tarry::server
