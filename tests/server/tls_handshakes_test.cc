// Handshakes over real connections; the client is OpenSSL's.

#include "server/tls_handshakes.h"

#include <openssl/ssl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <string>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "server/listener_config.h"
#include "server/system_clock.h"
#include "tests/server/certificate.h"

namespace tarry::server {
namespace {

TEST_SUITE("TLS handshakes") {
  TEST_CASE("a connection that no shard can be given for want of memory has ended, and once") {
    using boost::asio::ip::tcp;
    ListenerConfig listener;
    listener.settings = {{"ssl.keystore.certificate.chain", std::string(certificate_of_test)},
                         {"ssl.keystore.key", std::string(key_of_test)}};
    const SystemClock clock;
    const auto context = TlsContext::make(listener, clock.wall());
    REQUIRE_MESSAGE(context.has_value(), context.error().message);
    std::atomic<int> done = 0, failed = 0;
    std::promise<std::string> first_failed;
    TlsHandshakes handshakes(
        clock, 1, TlsHandshakeLimits{},
        [&](const ConnectionHandoff&) {
          ++done;
          throw std::bad_alloc();
        },
        [&](const std::string& peer) {
          if (++failed == 1) first_failed.set_value(peer);
        });

    boost::asio::io_context sockets;
    tcp::acceptor acceptor(sockets, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
    tcp::socket client(sockets);
    client.connect(acceptor.local_endpoint());
    handshakes.begin({.descriptor = LooseDescriptor(acceptor.accept().release()),
                      .protocol = tcp::v4(),
                      .peer = "a client"},
                     *context);
    const std::shared_ptr<SSL_CTX> of_client(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    const std::shared_ptr<SSL> session(SSL_new(of_client.get()), SSL_free);
    REQUIRE(SSL_set_fd(session.get(), client.native_handle()) == 1);
    CHECK(SSL_connect(session.get()) == 1);

    auto peer = first_failed.get_future();
    REQUIRE(peer.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(peer.get() == "a client");
    handshakes.stop();
    CHECK(done == 1);
    CHECK(failed == 1);
    CHECK(handshakes.under_way() == 0);
  }
}

}  // namespace
}  // namespace tarry::server
