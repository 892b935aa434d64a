// Handshakes over real connections; the client is OpenSSL's.

#include "server/tls_handshakes.h"

#include <openssl/ssl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "server/listener_config.h"
#include "server/system_clock.h"
#include "tests/captured_log.h"
#include "tests/server/certificate.h"
#include "tests/server/world.h"

namespace tarry::server {
namespace {

using boost::asio::ip::tcp;

std::shared_ptr<const TlsContext> context_of_test(const Clock& clock) {
  ListenerConfig listener;
  listener.settings = {{"ssl.keystore.certificate.chain", std::string(certificate_of_test)},
                       {"ssl.keystore.key", std::string(key_of_test)}};
  const auto context = TlsContext::make(listener, clock.wall());
  REQUIRE_MESSAGE(context.has_value(), context.error().message);
  return *context;
}

// A client, and the other end of its connection on its way to the handshakes.
class TlsPeer {
 public:
  TlsPeer(TlsHandshakes& handshakes, std::shared_ptr<const TlsContext> context,
          const std::string& name) {
    tcp::acceptor acceptor(sockets_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
    socket_.connect(acceptor.local_endpoint());
    handshakes.begin({.descriptor = LooseDescriptor(acceptor.accept().release()),
                      .protocol = tcp::v4(),
                      .peer = name},
                     std::move(context));
  }

  // Whether its handshake succeeds.
  bool connects() {
    REQUIRE(SSL_set_fd(session_.get(), socket_.native_handle()) == 1);
    return SSL_connect(session_.get()) == 1;
  }
  // The first bytes of a ClientHello of 128 KiB.
  void stop_in_the_middle() {
    const std::string hello("\x16\x03\x01\x40\x00\x01\x02\x00\x00\x03\x03", 11);
    boost::asio::write(socket_, boost::asio::buffer(hello));
  }

 private:
  boost::asio::io_context sockets_;
  tcp::socket socket_{sockets_};
  const std::shared_ptr<SSL_CTX> context_{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  const std::shared_ptr<SSL> session_{SSL_new(context_.get()), SSL_free};
};

// Other threads do what is waited for.
template <typename Condition>
void wait_until(Condition is) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::yield();
  }
}

// A pool whose eighth has room for so many handshakes.
std::shared_ptr<broker::MemoryPool> room_for(std::size_t handshakes) {
  return std::make_shared<broker::MemoryPool>(8 * handshakes * TlsHandshakeLimits{}.bytes);
}

TEST_SUITE("TLS handshakes") {
  TEST_CASE("a connection that no shard can be given for want of memory has ended, and once") {
    const SystemClock clock;
    std::atomic<int> done = 0, failed = 0;
    std::promise<std::string> first_failed;
    TlsHandshakes handshakes(
        clock, 1, TlsHandshakeLimits{}, room_for(1),
        [&](const ConnectionHandoff&) {
          ++done;
          throw std::bad_alloc();
        },
        [&](const std::string& peer) {
          if (++failed == 1) first_failed.set_value(peer);
        });
    TlsPeer client(handshakes, context_of_test(clock), "a client");
    CHECK(client.connects());

    auto peer = first_failed.get_future();
    REQUIRE(peer.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(peer.get() == "a client");
    handshakes.stop();
    CHECK(done == 1);
    CHECK(failed == 1);
    CHECK(handshakes.under_way() == 0);
    CHECK(handshakes.memory() == 0);
  }

  TEST_CASE(
      "a handshake holds memory from its first bytes on, and the oldest is ended for another") {
    const SystemClock clock;
    const auto pool = room_for(1);
    std::atomic<int> done = 0, failed = 0;
    std::promise<std::string> first_failed;
    TlsHandshakeLimits limits;
    limits.chance = std::chrono::milliseconds(0);
    TlsHandshakes handshakes(
        clock, 1, limits, pool, [&](const ConnectionHandoff&) { ++done; },
        [&](const std::string& peer) {
          if (++failed == 1) first_failed.set_value(peer);
        });
    const auto context = context_of_test(clock);
    TlsPeer silent(handshakes, context, "silent"), slow(handshakes, context, "slow");
    wait_until([&] { return handshakes.under_way() == 2; });
    CHECK(handshakes.memory() == 0);
    slow.stop_in_the_middle();
    wait_until([&] { return handshakes.memory() == limits.bytes && pool->used() == limits.bytes; });

    TlsPeer quick(handshakes, context, "quick");
    CHECK(quick.connects());
    auto peer = first_failed.get_future();
    REQUIRE(peer.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(peer.get() == "slow");
    wait_until([&] { return done == 1 && handshakes.memory() == 0 && pool->used() == 0; });
    CHECK(handshakes.under_way() == 1);  // The silent one, which holds none.
  }

  TEST_CASE("a handshake that finds no memory waits until there is some") {
    const SystemClock clock;
    const auto pool = room_for(1);
    std::atomic<int> done = 0, failed = 0;
    TlsHandshakes handshakes(
        clock, 1, TlsHandshakeLimits{.chance = std::chrono::hours(1)}, pool,
        [&](const ConnectionHandoff&) { ++done; }, [&](const std::string&) { ++failed; });
    const auto context = context_of_test(clock);
    std::optional<TlsPeer> slow;
    slow.emplace(handshakes, context, "slow");
    slow->stop_in_the_middle();
    wait_until([&] { return handshakes.memory() > 0; });
    TlsPeer quick(handshakes, context, "quick");
    auto connected = std::async(std::launch::async, [&] { return quick.connects(); });
    wait_until([&] { return handshakes.waiting() == 1; });
    CHECK(done == 0);
    slow.reset();  // It hangs up.
    CHECK(connected.get());
    wait_until([&] { return done == 1; });
    CHECK(failed == 1);
    CHECK(handshakes.waiting() == 0);
  }

  TEST_CASE("a handshake that has waited for memory has its chance from when it gets some") {
    FakeClock clock;
    const auto context = context_of_test(SystemClock());
    std::atomic<int> failed = 0;
    const TlsHandshakeLimits limits;
    TlsHandshakes handshakes(
        clock, 1, limits, room_for(1), [](const ConnectionHandoff&) {},
        [&](const std::string&) { ++failed; });
    TlsPeer first(handshakes, context, "first"), second(handshakes, context, "second"),
        third(handshakes, context, "third");
    first.stop_in_the_middle();
    wait_until([&] { return handshakes.memory() > 0; });
    second.stop_in_the_middle();
    wait_until([&] { return handshakes.waiting() == 1; });
    CHECK(failed == 0);
    clock.advance(limits.chance);
    wait_until([&] { return handshakes.waiting() == 0; });
    CHECK(failed == 1);
    // The second came two seconds ago as well, but has only just begun.
    third.stop_in_the_middle();
    wait_until([&] { return handshakes.waiting() == 1; });
    CHECK(failed == 1);
    clock.advance(limits.chance);
    wait_until([&] { return handshakes.waiting() == 0; });
    CHECK(failed == 2);
  }

  TEST_CASE("the handshakes of one thread leave the other threads their shares of the memory") {
    const SystemClock clock;
    std::atomic<int> done = 0, failed = 0;
    const TlsHandshakeLimits limits{.chance = std::chrono::hours(1)};
    TlsHandshakes handshakes(
        clock, 2, limits, room_for(2), [&](const ConnectionHandoff&) { ++done; },
        [&](const std::string&) { ++failed; });
    const auto context = context_of_test(clock);
    // In turn: the first and the third are one thread's.
    TlsPeer first(handshakes, context, "first"), second(handshakes, context, "second"),
        third(handshakes, context, "third");
    first.stop_in_the_middle();
    wait_until([&] { return handshakes.memory() == limits.bytes; });
    third.stop_in_the_middle();
    wait_until([&] { return handshakes.waiting() == 1; });
    CHECK(handshakes.memory() == limits.bytes);
    CHECK(second.connects());
    wait_until([&] { return done == 1; });
    CHECK(failed == 0);
  }

  TEST_CASE("a handshake for which there is never any memory ends in its time") {
    const SystemClock clock;
    CapturedLog log;
    std::atomic<int> done = 0, failed = 0;
    TlsHandshakes handshakes(
        clock, 1, TlsHandshakeLimits{.time = std::chrono::milliseconds(50)},
        std::make_shared<broker::MemoryPool>(1000), [&](const ConnectionHandoff&) { ++done; },
        [&](const std::string&) { ++failed; });
    TlsPeer client(handshakes, context_of_test(clock), "a client");
    CHECK_FALSE(client.connects());
    wait_until([&] { return failed == 1; });
    CHECK(done == 0);
    CHECK(log.count("no memory became free for its TLS handshake within 50 ms") == 1);
  }
}

}  // namespace
}  // namespace tarry::server
