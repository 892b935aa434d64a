#pragma once

// ConnectionHandoff: a connection on its way to a shard, from the listener or from another shard,
// with the bytes that were read ahead there.
//
// It belongs to whoever holds it, on any thread; the Session that is made of it takes all of it.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "base/bytes.h"
#include "broker/context/connection_origin.h"
#include "server/frame.h"
#include "server/tls_session.h"

namespace tarry::server {

// Bytes that were received and are not part of a request yet.
struct Unread {
  // An unfinished frame: first its size, then the rest.
  std::array<std::uint8_t, 4> size;
  std::size_t size_come = 0;
  std::shared_ptr<Frame> partial;  // Null until its size has come, and the rest in part.
  // Bytes that were read, and not taken because the session was full; they begin at ahead_from.
  Buffer ahead;
  std::size_t ahead_from = 0;
};

// The descriptor of a socket that no socket object has; closed with its owner, which may be a
// handler that there was no memory for.
class LooseDescriptor {
 public:
  explicit LooseDescriptor(int number) : number_(number) {}
  LooseDescriptor(LooseDescriptor&& other) noexcept : number_(other.release()) {}
  LooseDescriptor& operator=(LooseDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~LooseDescriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int get() const { return number_; }
  // Somebody else closes it.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;  // -1: none.
};

struct ConnectionHandoff {
  LooseDescriptor descriptor;
  boost::asio::ip::tcp protocol = boost::asio::ip::tcp::v4();
  std::string peer;
  broker::ConnectionOrigin origin = {};
  std::unique_ptr<TlsSession> tls = {};  // Null: plain text.
  // Only for a connection that comes from another shard:
  std::string software_name = {};
  std::string software_version = {};
  Unread unread = {};
};

}  // namespace tarry::server
