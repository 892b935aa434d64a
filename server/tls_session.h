#pragma once

// TlsSession: the TLS of one connection, over its non-blocking socket.
//
// It reads and writes the socket itself, but does not own it: whoever waits for the socket calls
// again when it is ready.  Like a socket it may pass from thread to thread and is used by one at a
// time.
//
//   received:  socket --> OpenSSL --> read_some()
//   sent:      write_some() --> OpenSSL --> socket
//              write_some() --> socket, whose kernel encrypts      sends_by_kernel()
//
// Kernel TLS: OpenSSL gives the keys for sending to the socket at the end of the handshake, if the
// kernel has its module "tls" and knows the cipher.  From then on all that is written to the socket
// becomes TLS records there, so pieces of the log are sent without a copy in this process.  OpenSSL
// still makes the alerts, as records of their own, and reads everything: a client's bytes are not
// for the kernel to parse.  Where there is no kernel TLS, OpenSSL encrypts; nothing else differs
// but this: OpenSSL 3.0 cannot change keys that the kernel has.  A client that asks for it
// (KeyUpdate of TLS 1.3) is not served on, because it would take what comes then for damaged.

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

  // Once the handshake is done: whether the kernel encrypts what is sent.  It stays so.
  bool sends_by_kernel() const;

  // These behave like a socket's: would_block when the socket has to become readable or writable
  // first.  operation_not_supported: the client asked for new keys, and the kernel has the old
  // ones; nothing more can be sent, except the end.
  std::size_t read_some(std::span<std::uint8_t> into, boost::system::error_code& error);
  // One record at most, if OpenSSL encrypts.  Bytes that would block are given again, from the same
  // byte on.
  std::size_t write_some(std::span<const boost::asio::const_buffer> pieces,
                         boost::system::error_code& error);
  // Bytes that were received and can be read though the socket has none.
  bool has_pending() const;
  // The memory that OpenSSL takes for it now.
  std::size_t held_bytes() const;
  // Tells the client that this is the end, if that can be done at once.  If the kernel encrypts,
  // the socket is to be closed only after it has become writable: a record that it has sent in part
  // would be lost, unlike bytes in the buffer of a socket.
  void say_end();

 private:
  bool needs_other_keys() const;
  std::size_t write_to_kernel(std::span<const boost::asio::const_buffer> pieces,
                              boost::system::error_code& error);

  const std::shared_ptr<const TlsContext> context_;
  struct ssl_st* const ssl_;
  bool broken_ = false;
  bool has_unsent_ = false;  // A TLS record was written in part.
  bool client_refused_ = false;
};

}  // namespace tarry::server
