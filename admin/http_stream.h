#pragma once

// HttpStream: a connection of the admin, plain or with TLS, with a deadline for each step.
//
// It reads and writes as Asio's streams do, so Beast takes it for one.  On shard 0's thread.

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include <openssl/ssl.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>

namespace tarry::admin {

class HttpStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  // `tls` null: plain HTTP.
  HttpStream(boost::asio::ip::tcp::socket socket, const std::shared_ptr<SSL_CTX>& tls)
      : tcp_(std::move(socket)) {
    if (!tls) return;
    SSL_CTX_up_ref(tls.get());
    boost::asio::ssl::context context(tls.get());
    tls_.emplace(tcp_, context);
    // Asio hands over what it has received and expects all of it to be taken.
    SSL_set_mode(tls_->native_handle(), SSL_MODE_AUTO_RETRY);
  }
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  bool has_tls() const { return tls_.has_value(); }
  executor_type get_executor() { return tcp_.get_executor(); }
  boost::asio::ip::tcp::socket& socket() { return tcp_.socket(); }
  void expires_after(std::chrono::milliseconds time) { tcp_.expires_after(time); }
  void close() { tcp_.close(); }

  // Whether the connection can be used.
  boost::asio::awaitable<bool> begin(std::chrono::milliseconds time) {
    if (!tls_) co_return true;
    tcp_.expires_after(time);
    boost::system::error_code error;
    co_await tls_->async_handshake(boost::asio::ssl::stream_base::server,
                                   boost::asio::redirect_error(boost::asio::use_awaitable, error));
    co_return !error;
  }
  // Says that nothing more is sent.
  boost::asio::awaitable<void> end(std::chrono::milliseconds time) {
    boost::system::error_code ignored;
    tcp_.expires_after(time);
    if (tls_)
      co_await tls_->async_shutdown(
          boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    tcp_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return tcp_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return tcp_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  boost::beast::tcp_stream tcp_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace tarry::admin
