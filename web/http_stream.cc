#include "web/http_stream.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace tarry::web {

namespace asio = boost::asio;

class HttpStream::Tls {
 public:
  Tls(boost::beast::tcp_stream& tcp, asio::ssl::context context) : stream(tcp, context) {
    // Asio hands over what it has received and expects all of it to be taken.
    SSL_set_mode(stream.native_handle(), SSL_MODE_AUTO_RETRY);
  }

  asio::ssl::stream<boost::beast::tcp_stream&> stream;
};

HttpStream::HttpStream(asio::ip::tcp::socket socket, const std::shared_ptr<SSL_CTX>& tls)
    : tcp_(std::move(socket)) {
  if (!tls) return;
  SSL_CTX_up_ref(tls.get());  // The context gives it back.
  tls_ = std::make_unique<Tls>(tcp_, asio::ssl::context(tls.get()));
}

HttpStream::~HttpStream() = default;

asio::awaitable<bool> HttpStream::begin(std::chrono::milliseconds time) {
  if (!tls_) co_return true;
  tcp_.expires_after(time);
  boost::system::error_code error;
  co_await tls_->stream.async_handshake(asio::ssl::stream_base::server,
                                        asio::redirect_error(asio::use_awaitable, error));
  co_return !error;
}

SSL* HttpStream::session() {
  return tls_->stream.native_handle();
}

asio::awaitable<boost::system::error_code> HttpStream::begin_as_client() {
  boost::system::error_code error;
  co_await tls_->stream.async_handshake(asio::ssl::stream_base::client,
                                        asio::redirect_error(asio::use_awaitable, error));
  co_return error;
}

asio::awaitable<void> HttpStream::end(std::chrono::milliseconds time) {
  boost::system::error_code ignored;
  tcp_.expires_after(time);
  if (tls_)
    // Its alert says that nothing was cut off; a client that does not wait for it is not waited
    // for.
    co_await tls_->stream.async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
  tcp_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

void HttpStream::read(const Pieces<asio::mutable_buffer>& into, Done done) {
  if (tls_)
    tls_->stream.async_read_some(into, std::move(done));
  else
    tcp_.async_read_some(into, std::move(done));
}

void HttpStream::write(const Pieces<asio::const_buffer>& from, Done done) {
  if (tls_)
    tls_->stream.async_write_some(from, std::move(done));
  else
    tcp_.async_write_some(from, std::move(done));
}

}  // namespace tarry::web
