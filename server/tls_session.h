#pragma once

// TlsSession: the TLS of one connection, over its non-blocking socket.
//
// It reads and writes the socket itself, but does not own it: whoever waits for the socket calls
// again when it is ready.  Like a socket it may pass from thread to thread and is used by one at a
// time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>

#include "base/result.h"
#include "server/tls_context.h"

namespace tarry::server {

class TlsSession {
 public:
  TlsSession(std::shared_ptr<const TlsContext> context, int socket);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  enum class Step { done, needs_read, needs_write };
  // The error says in words what went wrong; cut_off: the client went.
  Result<Step> handshake();
  // The handshake failed because the client has no certificate, or one that nobody vouches for.
  bool is_client_refused() const { return client_refused_; }
  Result<std::string> principal() const { return context_->principal_of(ssl_); }

  // These behave like a socket's: would_block when the socket has to become readable or writable
  // first.
  std::size_t read_some(std::span<std::uint8_t> into, boost::system::error_code& error);
  // One record at most.  Bytes that would block are given again, from the same byte on.
  std::size_t write_some(std::span<const boost::asio::const_buffer> pieces,
                         boost::system::error_code& error);
  // Bytes that were received and can be read though the socket has none.
  bool has_pending() const;
  // The memory that OpenSSL takes for it now.
  std::size_t held_bytes() const;
  // Tells the client that this is the end, if that can be done at once.
  void say_end();

 private:
  const std::shared_ptr<const TlsContext> context_;
  struct ssl_st* const ssl_;
  bool broken_ = false;
  bool has_unsent_ = false;  // A TLS record was written in part.
  bool client_refused_ = false;
};

}  // namespace tarry::server
