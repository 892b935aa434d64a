#include "server/listener.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "server/system_clock.h"
#include "tests/server/contains.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

BoundAddress bound(const HostPort& where) {
  auto result = BoundAddress::bind(where, "listeners");
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}
std::string refused(const HostPort& where) {
  const auto result = BoundAddress::bind(where, "listeners");
  REQUIRE_FALSE(result.has_value());
  return result.error().message;
}
bool machine_has_ipv6() {
  return BoundAddress::bind({"::1", 0}, "listeners").has_value();
}

class StillClock final : public Clock {
 public:
  WallTime wall() const override { return {}; }
  MonoTime mono() const override { return now; }
  MonoTime now{std::chrono::hours(1)};
};

// A listener on a free port, whose connections are kept open.
struct Fixture {
  explicit Fixture(const HostPort& where = {"127.0.0.1", 0}, std::size_t max_connections = 100,
                   std::size_t max_of_address = 100'000,
                   std::optional<double> max_rate = std::nullopt)
      : open(max_connections, max_of_address),
        all_rates(std::make_shared<ConnectionRates::Broker>(std::nullopt, meters)),
        rates(max_rate, all_rates) {
    all_rates->limit_of = [this](std::string_view) { return limit_of_address; };
    auto address = bound(where);
    port = address.address().port;
    listener.emplace(context, clock, std::move(address), open, rates,
                     [this](int descriptor, tcp, std::string peer) {
                       taken.push_back(descriptor);
                       peers.push_back(std::move(peer));
                     });
    REQUIRE(listener->start().has_value());
  }
  ~Fixture() {
    listener->stop();
    context.restart();
    context.poll();
    listener.reset();
    for (const int descriptor : taken) ::close(descriptor);
  }

  tcp::socket connect(const std::string& host = "127.0.0.1") {
    tcp::socket socket(clients);
    socket.connect({asio::ip::make_address(host), port});
    return socket;
  }
  // Until so many connections were taken; the kernel hands them over when it likes to.
  void until_taken(std::size_t count) {
    until([&] { return taken.size() >= count; });
    CHECK(taken.size() == count);
  }
  // Whether the other side closes it.
  bool is_closed(tcp::socket& socket) {
    socket.non_blocking(true);
    until([&] {
      char byte;
      boost::system::error_code error;
      socket.read_some(asio::buffer(&byte, 1), error);
      return error == asio::error::eof || error == asio::error::connection_reset;
    });
    return true;
  }
  template <typename Condition>
  void until(Condition is) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    while (!is()) {
      if (std::chrono::steady_clock::now() > end) FAIL("what was waited for did not happen");
      context.restart();
      if (context.poll() == 0) std::this_thread::yield();
    }
  }

  asio::io_context context{1}, clients{1};
  StillClock clock;
  std::vector<int> taken;
  std::vector<std::string> peers;
  OpenConnections open;
  broker::QuotaMeters meters{{.count = 2, .length = std::chrono::seconds{1}}};
  std::shared_ptr<ConnectionRates::Broker> all_rates;
  std::optional<double> limit_of_address;
  ConnectionRates rates;
  std::optional<Listener> listener;
  std::uint16_t port = 0;
};

TEST_SUITE("listener") {
  TEST_CASE("port 0 finds a free port, which is the same on 127.0.0.1 and ::1") {
    Fixture fixture({"localhost", 0});
    CHECK(fixture.port != 0);
    auto four = fixture.connect("127.0.0.1");
    fixture.until_taken(1);
    if (machine_has_ipv6()) {
      auto six = fixture.connect("::1");
      fixture.until_taken(2);
      CHECK(fixture.peers[1].starts_with("[::1]:"));
    }
    CHECK(fixture.peers[0].starts_with("127.0.0.1:"));
  }

  TEST_CASE("other limits of connections hold for the next one, and end none that is open") {
    OpenConnections open(2, 2);
    CHECK(open.begin("127.0.0.1:1").empty());
    CHECK(open.begin("127.0.0.1:2").empty());
    open.set_limits(1, 5);
    CHECK(open.max() == 1);
    CHECK(open.count() == 2);
    CHECK(contains(open.begin("10.0.0.1:1"), "max.connections,"));
    open.set_limits(9, 2);
    CHECK(contains(open.begin("127.0.0.1:3"), "max.connections.per.ip"));
    CHECK(open.begin("10.0.0.1:1").empty());
  }

  TEST_CASE("localhost is advertised as 127.0.0.1, loopback as itself, else the host's name") {
    CHECK(bound({"localhost", 0}).advertised().host == "127.0.0.1");
    CHECK(bound({"127.0.0.1", 0}).advertised().host == "127.0.0.1");
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    const auto any = bound({"0.0.0.0", 0});
    CHECK(any.advertised() == HostPort{name, any.address().port});
    CHECK(bound({"", 0}).advertised().host == name);
  }

  TEST_CASE("a port in use is refused with its address, and the error says what to do") {
    Fixture fixture;
    const auto said = refused({"127.0.0.1", fixture.port});
    CHECK(contains(said, "127.0.0.1:" + std::to_string(fixture.port)));
    CHECK(contains(said, "in use"));
    CHECK(contains(said, "ss -tanp"));
    CHECK(contains(refused({"localhost", fixture.port}),
                   "127.0.0.1:" + std::to_string(fixture.port)));
  }

  TEST_CASE("an address that is not this machine's is refused by name") {
    CHECK(contains(refused({"192.0.2.1", 0}), "192.0.2.1"));
    CHECK(contains(refused({"no-such-host.invalid", 0}), "no-such-host.invalid"));
  }

  TEST_CASE("past its rate a listener accepts the next connection later") {
    Fixture fixture({"127.0.0.1", 0}, 100, 100, 10);
    std::vector<tcp::socket> clients;
    for (int i = 0; i < 12; ++i) clients.push_back(fixture.connect());
    // The 11th is too much, and the 12th has to wait for it.
    fixture.until_taken(11);
    const auto begun = std::chrono::steady_clock::now();
    fixture.until_taken(12);
    CHECK(std::chrono::steady_clock::now() - begun >= std::chrono::milliseconds{50});
  }

  TEST_CASE("a connection of an address past its rate is closed, and no place is taken by it") {
    Fixture fixture;
    fixture.limit_of_address = 10;
    std::vector<tcp::socket> clients;
    for (int i = 0; i < 11; ++i) clients.push_back(fixture.connect());
    CHECK(fixture.is_closed(clients.back()));
    CHECK(fixture.taken.size() == 10);
    CHECK(fixture.open.count() == 10);
  }

  TEST_CASE("until it is started nobody can connect") {
    const auto address = bound({"127.0.0.1", 0});
    asio::io_context context;
    tcp::socket socket(context);
    boost::system::error_code error;
    socket.connect({asio::ip::address_v4::loopback(), address.address().port}, error);
    CHECK(error == asio::error::connection_refused);
  }

  TEST_CASE("past max.connections a connection is closed at once, until one has ended") {
    Fixture fixture({"127.0.0.1", 0}, 2);
    auto a = fixture.connect(), b = fixture.connect();
    fixture.until_taken(2);
    auto c = fixture.connect();
    CHECK(fixture.is_closed(c));
    CHECK(fixture.taken.size() == 2);
    fixture.open.ended(fixture.peers[0]);
    auto d = fixture.connect();
    fixture.until_taken(3);
    CHECK(fixture.open.count() == 2);
  }

  TEST_CASE("past max.connections.per.ip an address gets no connection, and another one does") {
    Fixture fixture({"127.0.0.1", 0}, 100, 1);
    auto a = fixture.connect();
    fixture.until_taken(1);
    auto b = fixture.connect();
    CHECK(fixture.is_closed(b));
    CHECK(contains(fixture.open.begin("127.0.0.1:1"), "max.connections.per.ip"));
    CHECK(fixture.open.begin("127.0.0.2:1").empty());
    fixture.open.ended("127.0.0.2:1");
    fixture.open.ended(fixture.peers[0]);
    auto c = fixture.connect();
    fixture.until_taken(2);
    CHECK(fixture.open.count() == 1);
  }

  TEST_CASE("many connections that wait are all accepted, a bounded number a turn") {
    Fixture fixture({"127.0.0.1", 0}, 1000);
    std::vector<tcp::socket> sockets;
    for (int i = 0; i < 200; ++i) sockets.push_back(fixture.connect());
    fixture.context.restart();
    fixture.context.poll_one();
    CHECK(fixture.taken.size() <= 16);
    fixture.until_taken(200);
  }

  TEST_CASE("without a file descriptor left a connection is closed, and later ones are served") {
    Fixture fixture;
    auto refused_one = tcp::socket(fixture.clients, tcp::v4());
    auto served = tcp::socket(fixture.clients, tcp::v4());
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int probe = ::dup(0);
    ::close(probe);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(probe);  // No descriptor from here on.
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const tcp::endpoint there(asio::ip::address_v4::loopback(), fixture.port);
    refused_one.connect(there);
    CHECK(fixture.is_closed(refused_one));
    CHECK(fixture.taken.empty());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    served.connect(there);
    fixture.until_taken(1);
  }

  TEST_CASE("after stop() nobody can connect, and the port is free again") {
    Fixture fixture;
    fixture.listener->stop();
    boost::system::error_code error;
    tcp::socket socket(fixture.clients);
    socket.connect({asio::ip::address_v4::loopback(), fixture.port}, error);
    CHECK(error == asio::error::connection_refused);
    CHECK(BoundAddress::bind({"127.0.0.1", fixture.port}, "listeners").has_value());
  }
}

}  // namespace
}  // namespace tarry::server
