#include "server/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include <fmt/core.h>
#include <boost/asio/error.hpp>

namespace tarry::server {
namespace {

namespace asio = boost::asio;

// The most that one TLS record holds.
constexpr std::size_t record_bytes = 16 * 1024;

// The memory of a connection on which nothing is under way.  Measured with OpenSSL 3.0, TLS 1.3 and
// 1400 connections that had an answer each: 12 to 15 KB more than without TLS.
constexpr std::size_t idle_bytes = 16 * 1024;

// The buffer of a record that was read or written in part; there is one for each direction.  The
// documentation of SSL_MODE_RELEASE_BUFFERS, with which they go when they are empty, says 34 KB for
// both.
constexpr std::size_t buffer_bytes = 17 * 1024;

// The pieces of one call to the kernel; IOV_MAX is 1024.  The rest is given again.
constexpr std::size_t max_vectors = 128;

// Called with each message of the handshake; offers the kernel the keys for sending alone.  OpenSSL
// looks at the option whenever it takes a key into use: that for sending after the broker's
// Finished in TLS 1.3, and in TLS 1.2 after the client's, which the key for receiving has already
// decrypted.
void offer_sending_key(int is_sent, int version, int type, const void* message, std::size_t size,
                       SSL* ssl, void* /*none*/) {
  if (type != SSL3_RT_HANDSHAKE || size == 0 ||
      *static_cast<const std::uint8_t*>(message) != SSL3_MT_FINISHED)
    return;
  if ((is_sent != 0) == (version == TLS1_3_VERSION)) {
    SSL_set_options(ssl, SSL_OP_ENABLE_KTLS);
  } else {
    SSL_clear_options(ssl, SSL_OP_ENABLE_KTLS);
  }
}

// In words, where OpenSSL's say little to an operator.
std::string handshake_failure(const SSL* ssl) {
  const unsigned long error = ERR_peek_error();
  switch (ERR_GET_REASON(error)) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
      return "the client does not speak TLS; it needs security.protocol=SSL or SASL_SSL";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "the client sent no certificate (ssl.client.auth=required)";
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return fmt::format("the client's certificate is not accepted: {} (ssl.truststore)",
                         X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return fmt::format("the client does not accept the broker's certificate ({})",
                         ERR_reason_error_string(error));
    case SSL_R_UNSUPPORTED_PROTOCOL:
      return "the client supports no enabled version of TLS (ssl.enabled.protocols)";
    case SSL_R_NO_SHARED_CIPHER:
      return "the client supports no enabled cipher (ssl.cipher.suites)";
    default:
      const char* reason = ERR_reason_error_string(error);
      return reason == nullptr ? "the connection broke" : reason;
  }
}

}  // namespace

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, int socket)
    : context_(std::move(context)), ssl_(SSL_new(context_->get())) {
  // Either fails for lack of memory alone.
  if (ssl_ == nullptr || SSL_set_fd(ssl_, socket) != 1) {
    SSL_free(ssl_);
    throw std::bad_alloc();
  }
  SSL_set_accept_state(ssl_);
  SSL_set_msg_callback(ssl_, offer_sending_key);
}

TlsSession::~TlsSession() {
  SSL_free(ssl_);
}

Result<TlsSession::Step> TlsSession::handshake() {
  // OpenSSL's errors queue up for each thread: what another connection left there would be taken
  // for an error of this one.
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) {
    SSL_set_msg_callback(ssl_, nullptr);  // It would be called for each record.
    return Step::done;
  }
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return Step::needs_read;
    case SSL_ERROR_WANT_WRITE:
      return Step::needs_write;
    case SSL_ERROR_ZERO_RETURN:
    case SSL_ERROR_SYSCALL:
      broken_ = true;
      return fail(Errc::stopped, "the client closed the connection");
    default: {
      broken_ = true;
      // OpenSSL 3 has an error of its own for an end that it did not expect.
      const int reason = ERR_GET_REASON(ERR_peek_error());
      if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        return fail(Errc::stopped, "the client closed the connection");
      client_refused_ = reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE ||
                        reason == SSL_R_CERTIFICATE_VERIFY_FAILED;
      return fail(Errc::invalid, handshake_failure(ssl_));
    }
  }
}

bool TlsSession::sends_by_kernel() const {
  return BIO_ctrl(SSL_get_wbio(ssl_), BIO_CTRL_GET_KTLS_SEND, 0, nullptr) > 0;
}

// SSL_write() would tell the client of new keys and change those of OpenSSL only.
bool TlsSession::needs_other_keys() const {
  return SSL_get_key_update_type(ssl_) != SSL_KEY_UPDATE_NONE && sends_by_kernel();
}

std::size_t TlsSession::read_some(std::span<std::uint8_t> into, boost::system::error_code& error) {
  error = {};
  std::size_t total = 0;
  while (total < into.size()) {
    std::size_t got = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_, into.data() + total, into.size() - total, &got);
    if (result == 1) total += got;
    if (needs_other_keys()) {
      error = asio::error::operation_not_supported;
      return total;
    }
    if (result == 1) continue;
    switch (SSL_get_error(ssl_, result)) {
      case SSL_ERROR_WANT_READ:
        if (total == 0) error = asio::error::would_block;
        return total;
      case SSL_ERROR_ZERO_RETURN:
        error = asio::error::eof;
        return total;
      case SSL_ERROR_SYSCALL:
        broken_ = true;
        error = errno == 0 ? boost::system::error_code(asio::error::eof)
                           : boost::system::error_code(errno, boost::system::system_category());
        return total;
      // SSL_ERROR_WANT_WRITE too, for an alert that does not fit into the socket: the client sends
      // what is refused and does not read the refusals.
      default:
        broken_ = true;
        error = asio::error::connection_reset;
        return total;
    }
  }
  return total;
}

std::size_t TlsSession::write_some(std::span<const asio::const_buffer> pieces,
                                   boost::system::error_code& error) {
  if (sends_by_kernel()) return write_to_kernel(pieces, error);
  error = {};
  std::array<std::uint8_t, record_bytes> gathered;
  asio::const_buffer record = pieces.front();
  // A record costs some fifty bytes and a system call, so small pieces share one.
  if (record.size() < record_bytes && pieces.size() > 1) {
    std::size_t size = 0;
    for (const auto& piece : pieces) {
      const std::size_t more = std::min(piece.size(), record_bytes - size);
      std::memcpy(gathered.data() + size, piece.data(), more);
      size += more;
      if (size == record_bytes) break;
    }
    record = asio::const_buffer(gathered.data(), size);
  }
  std::size_t sent = 0;
  ERR_clear_error();
  const int result =
      SSL_write_ex(ssl_, record.data(), std::min(record.size(), record_bytes), &sent);
  has_unsent_ = false;
  if (result == 1) return sent;
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      has_unsent_ = true;
      error = asio::error::would_block;
      return 0;
    default:
      broken_ = true;
      error = asio::error::connection_reset;
      return 0;
  }
}

// What the kernel takes, it has encrypted or copied: nothing of it is ever given again.
std::size_t TlsSession::write_to_kernel(std::span<const asio::const_buffer> pieces,
                                        boost::system::error_code& error) {
  error = {};
  if (needs_other_keys()) {
    error = asio::error::operation_not_supported;
    return 0;
  }
  std::array<::iovec, max_vectors> vectors;
  ::msghdr message{};
  message.msg_iov = vectors.data();
  for (const auto& piece : pieces.first(std::min(pieces.size(), max_vectors))) {
    // The kernel only reads it.
    vectors[message.msg_iovlen++] = {const_cast<void*>(piece.data()), piece.size()};
  }
  for (;;) {
    const ::ssize_t sent = ::sendmsg(SSL_get_wfd(ssl_), &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EINTR) continue;
    error = errno == EAGAIN ? boost::system::error_code(asio::error::would_block)
                            : boost::system::error_code(errno, boost::system::system_category());
    return 0;
  }
}

bool TlsSession::has_pending() const {
  return SSL_pending(ssl_) > 0;
}

std::size_t TlsSession::held_bytes() const {
  // "RB": the header of a record was read, and of its body nothing, which leaves nothing pending.
  const bool has_unread =
      SSL_has_pending(ssl_) == 1 || std::string_view(SSL_rstate_string(ssl_)) == "RB";
  return idle_bytes + (has_unread ? buffer_bytes : 0) + (has_unsent_ ? buffer_bytes : 0);
}

void TlsSession::say_end() {
  // OpenSSL forbids a shutdown after a fatal error, and refuses one within the handshake.
  if (broken_ || SSL_is_init_finished(ssl_) == 0) return;
  ERR_clear_error();
  // Sends our alert alone: nobody waits for that of the client.
  SSL_shutdown(ssl_);
  ERR_clear_error();
}

}  // namespace tarry::server
