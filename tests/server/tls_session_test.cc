// TLS over real connections; the client is OpenSSL's.  Where the kernel has TLS ("modprobe tls"),
// these are tests of kernel TLS; tests/integration/kernel_tls.py runs them there.

#include "server/tls_session.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/bytes.h"
#include "server/listener_config.h"
#include "server/system_clock.h"
#include "tests/server/certificate.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// What both sides speak.
struct Suite {
  int version;
  const char* name;
  bool known_to_kernel;
};
constexpr Suite of_tls_1_3{TLS1_3_VERSION, "TLS_AES_256_GCM_SHA384", true};
constexpr Suite of_tls_1_2{TLS1_2_VERSION, "ECDHE-ECDSA-AES256-GCM-SHA384", true};
constexpr Suite all_suites[] = {
    of_tls_1_3,
    {TLS1_3_VERSION, "TLS_AES_128_GCM_SHA256", true},
    {TLS1_3_VERSION, "TLS_CHACHA20_POLY1305_SHA256", true},
    of_tls_1_2,
    {TLS1_2_VERSION, "ECDHE-ECDSA-AES128-GCM-SHA256", true},
    {TLS1_2_VERSION, "ECDHE-ECDSA-CHACHA20-POLY1305", true},
    {TLS1_2_VERSION, "ECDHE-ECDSA-AES128-SHA256", false},
};

std::shared_ptr<const TlsContext> usable_context() {
  ListenerConfig listener;
  listener.settings = {{"ssl.keystore.certificate.chain", std::string(certificate_of_test)},
                       {"ssl.keystore.key", std::string(key_of_test)}};
  const auto context = TlsContext::make(listener, SystemClock().wall());
  REQUIRE_MESSAGE(context.has_value(), context.error().message);
  return *context;
}

// A client and the broker's end of its connection, whose handshake is done.
class Pair {
 public:
  // With small buffers the kernel takes little of what the client does not read.
  explicit Pair(const Suite& suite, bool small_buffers = false) {
    tcp::acceptor acceptor(sockets_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    client_.open(tcp::v4());
    if (small_buffers) client_.set_option(asio::socket_base::receive_buffer_size(4096));
    client_.connect(acceptor.local_endpoint());
    served_ = acceptor.accept();
    if (small_buffers) served_.set_option(asio::socket_base::send_buffer_size(4096));
    // As a session has it: else small records wait for the client's acknowledgement.
    served_.set_option(tcp::no_delay(true));
    client_.non_blocking(true);
    served_.non_blocking(true);
    session = std::make_unique<TlsSession>(usable_context(), served_.native_handle());

    SSL_set_min_proto_version(ssl(), suite.version);
    SSL_set_max_proto_version(ssl(), suite.version);
    REQUIRE((suite.version == TLS1_3_VERSION ? SSL_set_ciphersuites(ssl(), suite.name)
                                             : SSL_set_cipher_list(ssl(), suite.name)) == 1);
    REQUIRE(SSL_set_fd(ssl(), client_.native_handle()) == 1);
    SSL_set_connect_state(ssl());
    until([&] {
      (void)SSL_do_handshake(ssl());
      const auto step = session->handshake();
      REQUIRE_MESSAGE(step.has_value(), step.error().message);
      return *step == TlsSession::Step::done && SSL_is_init_finished(ssl()) == 1;
    });
    REQUIRE(SSL_get_cipher_name(ssl()) == std::string_view(suite.name));
  }

  SSL* ssl() const { return ssl_.get(); }
  // Whether the broker can send more.
  bool has_room() {
    ::pollfd what{served_.native_handle(), POLLOUT, 0};
    return ::poll(&what, 1, 0) == 1;
  }
  // The broker's end of the connection is closed.
  void hang_up() {
    session->say_end();
    session.reset();
    served_.close();
  }

  void client_goes() { client_.close(); }

  // The client reads so much of what has come, and no more.
  void read_some(std::size_t most) {
    Buffer part(most);
    std::size_t got = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(ssl(), part.data(), most, &got);
    come.insert(come.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got));
    if (result == 1) return;
    const int why = SSL_get_error(ssl(), result);
    was_told_end = why == SSL_ERROR_ZERO_RETURN;
    ended = why != SSL_ERROR_WANT_READ;
  }
  void client_sends(Bytes bytes) {
    std::size_t sent = 0;
    REQUIRE(SSL_write_ex(ssl(), bytes.data(), bytes.size(), &sent) == 1);
    REQUIRE(sent == bytes.size());
  }
  // What the broker gets by one read, once there is something.
  Buffer received(boost::system::error_code& error) {
    Buffer into(100'000);
    std::size_t got = 0;
    until([&] {
      got = session->read_some(into, error);
      return error != asio::error::would_block;
    });
    into.resize(got);
    return into;
  }
  // The kernel hands over what was sent when it likes to.
  template <typename Condition>
  static void until(Condition is) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!is()) {
      if (std::chrono::steady_clock::now() > end) FAIL("what was waited for did not happen");
    }
  }

 private:
  asio::io_context sockets_;
  tcp::socket client_{sockets_}, served_{sockets_};
  const std::shared_ptr<SSL_CTX> context_{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  const std::shared_ptr<SSL> ssl_{SSL_new(context_.get()), SSL_free};

 public:
  std::unique_ptr<TlsSession> session;  // Before its socket, in the order of ending.
  Buffer come;
  bool ended = false, was_told_end = false;
};

// Whether a connection of this machine can have kernel TLS.
bool kernel_has_tls() {
  asio::io_context sockets;
  tcp::acceptor acceptor(sockets, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  tcp::socket socket(sockets);
  socket.connect(acceptor.local_endpoint());
  constexpr std::string_view name = "tls";
  return ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_ULP, name.data(),
                      static_cast<::socklen_t>(name.size())) == 0;
}

// Bytes in which nothing repeats, in small and large pieces.
struct Pieces {
  explicit Pieces(std::size_t count) {
    constexpr std::size_t sizes[] = {1, 61, 4096, 16'384, 16'385, 70'000, 13};
    for (std::size_t i = 0; i < count; ++i) {
      Buffer piece(sizes[i % std::size(sizes)]);
      for (auto& byte : piece) byte = static_cast<std::uint8_t>((next_ = next_ * 69'069 + 1) >> 24);
      whole.insert(whole.end(), piece.begin(), piece.end());
      all.push_back(std::move(piece));
    }
  }
  // Those from byte `sent` on.
  std::vector<asio::const_buffer> from(std::size_t sent) const {
    std::vector<asio::const_buffer> rest;
    for (const Buffer& piece : all) {
      const std::size_t skipped = std::min(sent, piece.size());
      sent -= skipped;
      if (skipped < piece.size()) rest.emplace_back(piece.data() + skipped, piece.size() - skipped);
    }
    return rest;
  }

  std::vector<Buffer> all;
  Buffer whole;

 private:
  std::uint32_t next_ = 1;
};

TEST_SUITE("TLS session") {
  TEST_CASE("the kernel encrypts where it knows the cipher, and OpenSSL where it does not") {
    for (const Suite& suite : all_suites) {
      INFO(std::string(suite.name));
      CHECK(Pair(suite).session->sends_by_kernel() == (suite.known_to_kernel && kernel_has_tls()));
    }
  }

  TEST_CASE("a client that reads slowly gets what was sent, with every cipher") {
    const Pieces pieces(120);
    for (const Suite& suite : all_suites) {
      INFO(std::string(suite.name));
      Pair pair(suite, true);
      std::size_t sent = 0, blocked = 0, most = 1;
      Pair::until([&] {
        boost::system::error_code error;
        if (sent < pieces.whole.size()) {
          const std::size_t more = pair.session->write_some(pieces.from(sent), error);
          REQUIRE((!error || error == asio::error::would_block));
          CHECK((more > 0) == !error);
          sent += more;
        }
        if (!error && sent < pieces.whole.size()) return false;
        // What blocked is given again, sometimes before the client has read anything.
        if (++blocked % 3 != 0 && sent < pieces.whole.size()) return false;
        pair.read_some(most = most * 5 % 30'011);
        return pair.come.size() == pieces.whole.size() || pair.ended;
      });
      CHECK_FALSE(pair.ended);
      CHECK(blocked > 10);
      CHECK(pair.come == pieces.whole);
    }
  }

  TEST_CASE("what a client sends is read whole, with every cipher") {
    const Pieces pieces(50);
    for (const Suite& suite : all_suites) {
      INFO(std::string(suite.name));
      Pair pair(suite);
      Buffer come;
      for (const Buffer& piece : pieces.all) {
        pair.client_sends(piece);
        Pair::until([&, size = come.size() + piece.size()] {
          boost::system::error_code error;
          const Buffer more = pair.received(error);
          CHECK_FALSE(error);
          come.insert(come.end(), more.begin(), more.end());
          return come.size() >= size;
        });
      }
      CHECK(come == pieces.whole);
    }
  }

  TEST_CASE("all that was sent comes, if the socket has room again before it is closed") {
    const Pieces pieces(300);
    for (const Suite& suite : {of_tls_1_3, of_tls_1_2}) {
      for (const bool small_buffers : {true, false}) {
        INFO(std::string(suite.name), small_buffers);
        Pair pair(suite, small_buffers);
        std::size_t sent = 0;
        boost::system::error_code error;
        while (!error && sent < pieces.whole.size())
          sent += pair.session->write_some(pieces.from(sent), error);
        Pair::until([&] {
          pair.read_some(100);
          return pair.has_room();
        });
        pair.hang_up();
        Pair::until([&] {
          pair.read_some(10'000);
          return pair.ended;
        });
        CHECK(pair.come.size() == sent);
        CHECK(std::equal(pair.come.begin(), pair.come.end(), pieces.whole.begin()));
      }
    }
  }

  TEST_CASE("a client is told the end") {
    for (const Suite& suite : all_suites) {
      INFO(std::string(suite.name));
      Pair pair(suite);
      boost::system::error_code error;
      const Pieces pieces(3);
      CHECK(pair.session->write_some(pieces.from(0), error) == pieces.whole.size());
      pair.hang_up();
      Pair::until([&] {
        pair.read_some(1000);
        return pair.ended;
      });
      CHECK(pair.come == pieces.whole);
      CHECK(pair.was_told_end);
    }
  }

  TEST_CASE("a client that asks for new keys gets them, or the end where the kernel has the old") {
    Pair pair(of_tls_1_3);
    REQUIRE(SSL_key_update(pair.ssl(), SSL_KEY_UPDATE_REQUESTED) == 1);
    pair.client_sends(as_bytes("a request"));
    boost::system::error_code error, of_write;
    Buffer come;
    Pair::until([&] {
      const Buffer more = pair.received(error);
      come.insert(come.end(), more.begin(), more.end());
      return error || come.size() == 9;
    });
    const Pieces pieces(5);
    if (pair.session->sends_by_kernel()) {
      CHECK(error == asio::error::operation_not_supported);
      CHECK(pair.session->write_some(pieces.from(0), of_write) == 0);
      CHECK(of_write == asio::error::operation_not_supported);
      pair.hang_up();
    } else {
      CHECK_FALSE(error);
      for (std::size_t sent = 0; sent < pieces.whole.size();) {
        sent += pair.session->write_some(pieces.from(sent), of_write);
        REQUIRE_FALSE(of_write);
      }
    }
    Pair::until([&] {
      pair.read_some(1000);
      return pair.ended || pair.come.size() == pieces.whole.size();
    });
    CHECK(pair.come == (error ? Buffer() : pieces.whole));
    CHECK(pair.was_told_end == !!error);
  }

  TEST_CASE("a client that has new keys of its own is served on") {
    Pair pair(of_tls_1_3);
    const Pieces pieces(5);
    boost::system::error_code error;
    for (int i = 1; i <= 3; ++i) {
      REQUIRE(SSL_key_update(pair.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
      pair.client_sends(as_bytes("a request"));
      CHECK(pair.received(error) == Buffer{'a', ' ', 'r', 'e', 'q', 'u', 'e', 's', 't'});
      CHECK_FALSE(error);
      pair.come.clear();
      std::size_t sent = 0;
      Pair::until([&] {
        if (sent < pieces.whole.size()) sent += pair.session->write_some(pieces.from(sent), error);
        REQUIRE((!error || error == asio::error::would_block));
        pair.read_some(100'000);
        return pair.ended || pair.come.size() == pieces.whole.size();
      });
      CHECK(pair.come == pieces.whole);
    }
  }

  TEST_CASE("a client that went is an error of the next writes") {
    std::signal(SIGPIPE, SIG_IGN);  // As the broker does, for OpenSSL's writes.
    for (const Suite& suite : {of_tls_1_3, of_tls_1_2}) {
      Pair pair(suite);
      const Pieces pieces(20);
      pair.client_goes();
      boost::system::error_code error;
      Pair::until([&] {
        (void)pair.session->write_some(pieces.from(0), error);
        return error && error != asio::error::would_block;
      });
      CHECK((error == asio::error::connection_reset || error == asio::error::broken_pipe));
    }
  }
}

}  // namespace
}  // namespace tarry::server
