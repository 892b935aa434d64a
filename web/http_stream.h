#pragma once

// HttpStream: a connection of the admin, or to one: plain or with TLS, with deadlines for steps.
//
// It reads and writes as Asio's streams do, so Beast takes it for one.  Beast's own operations are
// templates of the stream, of its buffers and of what is called at the end; here they end in one
// function each for reading and writing, so TLS is compiled once and not for each of them.
//
// On the thread of its executor.

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <openssl/ssl.h>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/tcp_stream.hpp>

namespace tarry::web {

class HttpStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  // `tls` null: plain HTTP.
  HttpStream(boost::asio::ip::tcp::socket socket, const std::shared_ptr<SSL_CTX>& tls);
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  bool has_tls() const { return tls_ != nullptr; }
  executor_type get_executor() { return tcp_.get_executor(); }
  boost::asio::ip::tcp::socket& socket() { return tcp_.socket(); }
  void expires_after(std::chrono::milliseconds time) { tcp_.expires_after(time); }
  void close() { tcp_.close(); }

  // The server's first step: whether the connection can be used.
  boost::asio::awaitable<bool> begin(std::chrono::milliseconds time);
  // A client's, which tells the session before what it expects of the server.  Only with TLS.
  SSL* session();
  boost::asio::awaitable<boost::system::error_code> begin_as_client();
  // Says that nothing more is sent.
  boost::asio::awaitable<void> end(std::chrono::milliseconds time);

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, Signature>(
        [this, into = gather<boost::asio::mutable_buffer>(buffers)](auto handler) {
          read(into, std::move(handler));
        },
        token);
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, Signature>(
        [this, from = gather<boost::asio::const_buffer>(buffers)](auto handler) {
          write(from, std::move(handler));
        },
        token);
  }

 private:
  class Tls;
  using Signature = void(boost::system::error_code, std::size_t);
  using Done = std::move_only_function<Signature>;

  // The first of the buffers: what is over is read or written by the next call.  Each field of a
  // header is one of them, and an answer should leave in one write.
  template <typename Buffer>
  struct Pieces {
    std::array<Buffer, 64> pieces;
    std::size_t count = 0;

    const Buffer* begin() const { return pieces.data(); }
    const Buffer* end() const { return pieces.data() + count; }
  };
  template <typename Buffer, typename Buffers>
  static Pieces<Buffer> gather(const Buffers& buffers) {
    Pieces<Buffer> out;
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto at = boost::asio::buffer_sequence_begin(buffers);
         at != end && out.count < out.pieces.size(); ++at) {
      if (const Buffer piece = *at; piece.size() != 0) out.pieces[out.count++] = piece;
    }
    return out;
  }

  void read(const Pieces<boost::asio::mutable_buffer>& into, Done done);
  void write(const Pieces<boost::asio::const_buffer>& from, Done done);

  boost::beast::tcp_stream tcp_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace tarry::web
