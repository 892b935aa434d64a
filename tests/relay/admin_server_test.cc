// The admin of one member, asked over real connections, and members beside it that are none.

#include "relay/admin_server.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "base/json.h"
#include "base/log.h"
#include "base/token_proof.h"
#include "tests/captured_log.h"
#include "tests/relay/kafka_model.h"
#include "tests/relay/memory_rows.h"

namespace tarry::relay {
namespace {

using boost::asio::ip::tcp;

// Says the same to everybody, whatever it is asked.
class StubbornPeer {
 public:
  explicit StubbornPeer(std::string body, bool hangs_up = false)
      : body_(std::move(body)), hangs_up_(hangs_up), thread_([this] { serve(); }) {}
  ~StubbornPeer() {
    is_over_ = true;
    boost::asio::io_context io;
    tcp::socket last(io);
    boost::system::error_code ignored;
    last.connect(acceptor_.local_endpoint(), ignored);
    last.close(ignored);
    thread_.join();
  }
  StubbornPeer(const StubbornPeer&) = delete;
  StubbornPeer& operator=(const StubbornPeer&) = delete;

  std::string address() const {
    return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }

 private:
  void serve() {
    while (!is_over_) {
      tcp::socket socket(io_);
      acceptor_.accept(socket);
      boost::system::error_code error;
      std::string head;
      boost::asio::read_until(socket, boost::asio::dynamic_buffer(head), "\r\n\r\n", error);
      if (error || hangs_up_) continue;
      boost::asio::write(socket,
                         boost::asio::buffer("HTTP/1.1 200 OK\r\nContent-Length: " +
                                             std::to_string(body_.size()) + "\r\n\r\n" + body_),
                         error);
    }
  }

  const std::string body_;
  const bool hangs_up_;
  std::atomic<bool> is_over_ = false;
  boost::asio::io_context io_;
  tcp::acceptor acceptor_{io_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)};
  std::thread thread_;
};

class CountingDirectory final : public Directory {
 public:
  Result<Listing> list() override {
    ++lists;
    return listing;
  }
  Listing listing;
  std::atomic<int> lists = 0;
};

class MachineClock final : public Clock {
 public:
  WallTime wall() const override {
    return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  }
  MonoTime mono() const override { return std::chrono::steady_clock::now(); }
};

class CountingRandom final : public Random {
 public:
  std::uint64_t u64() override { return ++last_; }

 private:
  std::uint64_t last_ = 0;
};

struct HttpSaid {
  int status = 0;
  std::string body;

  Json json() const { return parse_json(body); }
};

// The admin of a member that owns nothing, of a group with one source partition.
class OneAdmin {
 public:
  // `tokens`: the text of admin.tokens.
  explicit OneAdmin(AdminOptions options = {}, const std::string& tokens = "")
      : path(std::filesystem::temp_directory_path() /
             ("tarry-relay-admin-" + std::to_string(::getpid()))) {
    set_log_level(LogLevel::off);
    std::filesystem::create_directories(path);
    if (!tokens.empty()) {
      const auto file = path / "admin.tokens";
      std::ofstream(file) << tokens;
      std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    }
    options.port = 0;
    auto opened = AdminServer::open(options);
    REQUIRE(opened.has_value());
    admin = std::move(*opened);
    auto made = PeerKey::make();
    REQUIRE(made.has_value());
    us = {"us", admin->address(), made->public_part()};
    own_key = std::make_unique<PeerKey>(std::move(*made));
    directory.listing.sources["o.delayed"] = 1;
  }
  ~OneAdmin() {
    admin->stop();
    std::filesystem::remove_all(path);
    set_log_level(LogLevel::info);
  }
  OneAdmin(const OneAdmin&) = delete;
  OneAdmin& operator=(const OneAdmin&) = delete;

  // The partition is another member's.
  void start(const std::string& address) {
    directory.listing.peers = {us, {"other", address, std::string(64, 'b'), {{"o.delayed", 0}}}};
    MemberFacts facts;
    facts.self = us;
    facts.data = path.string();
    REQUIRE(admin->start(member, directory, clock, random, std::move(*own_key), facts).has_value());
  }
  std::string token() const {
    std::string text;
    std::getline(std::ifstream(path / "admin.token") >> std::ws, text);
    return "Bearer " + text;
  }
  HttpSaid ask(const std::string& method, const std::string& target,
               const std::string& authorization = "", const std::string& body = "") const {
    boost::asio::io_context io;
    tcp::socket socket(io);
    const std::string at = admin->address();
    socket.connect({boost::asio::ip::address_v4::loopback(),
                    static_cast<std::uint16_t>(std::stoi(at.substr(at.rfind(':') + 1)))});
    std::string request =
        method + " " + target + " HTTP/1.1\r\nHost: " + at +
        "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    if (!authorization.empty()) request += "Authorization: " + authorization + "\r\n";
    request += "\r\n" + body;
    boost::asio::write(socket, boost::asio::buffer(request));
    std::string said;
    boost::system::error_code ignored;
    boost::asio::read(socket, boost::asio::dynamic_buffer(said), ignored);
    const auto head = said.find("\r\n\r\n");
    REQUIRE(head != std::string::npos);
    return {std::stoi(said.substr(9, 3)), said.substr(head + 4)};
  }

  std::filesystem::path path;
  KafkaModel kafka{{}};
  Rules rules{"g", "*", false};
  ModelCluster cluster{kafka, 1, rules, [] {}, [](int) { return false; }};
  MachineClock clock;
  MemoryRows store;
  Member member{cluster, clock, store, {.rules = rules}};
  CountingDirectory directory;
  CountingRandom random;
  std::unique_ptr<AdminServer> admin;
  std::unique_ptr<PeerKey> own_key;
  Peer us;
};

}  // namespace

TEST_CASE("a member whose answer makes no sense is named, and the others go on") {
  const std::string many(1'000, '[');
  for (const std::string& said :
       {std::string("{}"), std::string("[]"),
        std::string(R"({"covers":7,"records":{},"relay":[]})"),
        std::string(R"({"covers":[7],"records":[7],"counts":[7],"relay":{},"delayed":{}})"),
        std::string(R"({"covers":[{"topic":7,"partition":"x"}],"records":[],"counts":[]})"),
        std::string(R"({"relay":{"partitions":[{"topic":1}]},"delayed":{"pending":"x"}})"),
        std::string(R"({"relay":{"partitions":[]},"delayed":{"lag_ms":{"p50":"x"}}})"),
        R"({"covers":)" + many}) {
    CAPTURE(said);
    const StubbornPeer peer(said);
    OneAdmin one;
    one.start(peer.address());
    for (const char* target :
         {"/delayed", "/delayed/count?by=day", "/delayed/o.delayed/a", "/wheel"}) {
      CAPTURE(target);
      const auto answer = one.ask("GET", target);
      CHECK(answer.status == 503);
      CHECK(answer.json()["missing"][0].value("member", "").starts_with("other at "));
    }
    const auto status = one.ask("GET", "/status");
    CHECK(status.status == 200);
    CHECK(status.json()["relay"]["missing"].size() == 1);
    CHECK(status.json()["relay"]["members"].size() == 2);
    const auto cancel = one.ask("DELETE", "/delayed/o.delayed/a", one.token());
    CHECK(cancel.status == 503);
    CHECK(cancel.json().value("error", "").contains("it is not known whether it was done"));
  }
}

TEST_CASE(
    "a member that answers without end is named, and takes no more memory than one answer may") {
  const StubbornPeer peer(std::string((32u << 20) + 1, ' '));
  OneAdmin one;
  one.start(peer.address());
  const auto answer = one.ask("GET", "/delayed");
  CHECK(answer.status == 503);
  const Json missing = answer.json()["missing"];
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].value("error", "").contains("more than 32 MiB"));
}

TEST_CASE("an order says that it may have been done unless its owner has refused the connection") {
  {
    const StubbornPeer peer("", true);
    OneAdmin one;
    one.start(peer.address());
    const auto cancel = one.ask("DELETE", "/delayed/o.delayed/a", one.token());
    CHECK(cancel.status == 503);
    CHECK(cancel.json().value("error", "").contains("it is not known whether it was done"));
  }
  OneAdmin one;
  one.start("127.0.0.1:1");
  const auto cancel = one.ask("DELETE", "/delayed/o.delayed/a", one.token());
  CHECK(cancel.status == 503);
  CHECK(cancel.json().value("error", "").contains("refused"));
  CHECK_FALSE(cancel.json().value("error", "").contains("not known"));
}

TEST_CASE("a status sums what only the other member knows") {
  const StubbornPeer peer(
      R"({"relay":{"partitions":[{"topic":"o.delayed","partition":0}]},"delayed":{"figure":7}})");
  OneAdmin one;
  one.start(peer.address());
  const auto status = one.ask("GET", "/status");
  CHECK(status.status == 200);
  CHECK(status.json()["delayed"].value("figure", 0) == 7);
  CHECK(status.json()["relay"]["missing"].empty());
}

TEST_CASE("orders of a kind that nobody knows are refused, and not carried out as others") {
  OneAdmin one;
  one.start("127.0.0.1:1");
  for (const char* kind : {"", R"("kind":-1,)", R"("kind":3,)", R"("kind":1000,)"}) {
    const auto said =
        one.ask("POST", "/peer/orders", one.token(),
                std::string("{") + kind +
                    R"("time_ms":0,"orders":[{"topic":"o.delayed","partition":0,"name":"a"}]})");
    CHECK(said.status == 400);
    CHECK(said.json().value("error", "").contains("kind"));
  }
}

TEST_CASE("a role in admin.tokens allows at a member what it says, and each refusal is audited") {
  const std::string reader(32, 'r'), operating(32, 'o'), owner(32, 'w');
  OneAdmin one({}, "prometheus read " + reader + "\nnight-shift operate " + operating +
                       "\nalice all " + owner + "\n");
  one.start("127.0.0.1:1");
  CapturedLog log;
  set_log_level(LogLevel::info);
  const auto status = [&](const char* method, const char* target, const std::string& token) {
    return one.ask(method, target, token.empty() ? "" : "Bearer " + token).status;
  };
  const char* const record = "/delayed/o.delayed/x?partition=0";
  CHECK(status("DELETE", record, "") == 401);
  CHECK(log.count("audit: somebody without a token from 127.0.0.1:") == 1);
  CHECK(log.count(" on the admin: DELETE /delayed/o.delayed/x?partition=0: denied (401)") == 1);
  CHECK(status("PATCH", record, std::string(32, 'x')) == 401);
  CHECK(log.count("audit: somebody with a wrong token from 127.0.0.1:") == 1);
  CHECK(status("DELETE", record, reader) == 403);
  CHECK(log.count("audit: prometheus with the role read from 127.0.0.1:") == 1);
  CHECK(status("GET", "/status?scope=member", reader) == 200);
  CHECK(log.count("audit") == 3);
  // The partition's owner cannot be reached, so that is what they are told.
  CHECK(status("DELETE", record, operating) == 503);
  CHECK(log.count("audit: night-shift with the role operate from 127.0.0.1:") == 1);
  CHECK(status("POST", "/peer/orders", operating) == 403);
  CHECK(status("DELETE", record, owner) == 503);
  CHECK(status("POST", "/peer/orders", owner) == 400);
  CHECK(log.count("audit: alice with the role all from 127.0.0.1:") == 2);
  CHECK(log.count(owner) == 0);
  const std::string nonce(64, 'a');
  const Json said = one.ask("GET", "/proof?nonce=" + nonce).json();
  CHECK(said["proofs"].size() == 5);
  CHECK(said["proofs"].dump().contains(
      token_proof(operating, nonce, said["address"].get<std::string>())));
}

TEST_CASE("with --admin-loopback-reads token a member's admin wants a token for reading, too") {
  AdminOptions options;
  options.loopback_reads = false;
  OneAdmin one(options);
  one.start("127.0.0.1:1");
  for (const char* target : {"/status?scope=member", "/delayed", "/metrics"}) {
    CHECK(one.ask("GET", target).status == 401);
    CHECK(one.ask("GET", target, one.token()).status != 401);
  }
  CHECK(one.ask("GET", "/healthz").status == 200);
}

TEST_CASE("a member that has the address of another one does not answer in its place") {
  OneAdmin one;
  one.start(one.admin->address());
  for (const char* target : {"/delayed", "/wheel"}) {
    const auto answer = one.ask("GET", target);
    CHECK(answer.status == 503);
    const Json missing = answer.json()["missing"];
    REQUIRE(missing.size() == 1);
    CHECK(missing[0].value("error", "").contains("two members"));
  }
}

TEST_CASE("strangers with keys of their own make Kafka list the group no more than twice") {
  OneAdmin one;
  one.start("127.0.0.1:1");
  const auto stranger = PeerKey::make();
  REQUIRE(stranger.has_value());
  for (int i = 0; i < 20; ++i) {
    const std::string target = i % 2 == 0 ? "/wheel?scope=member" : "/healthz";
    const std::string nonce = "0123456789abcdef0123456789abcd" + std::to_string(10 + i);
    const auto answer = one.ask(
        "GET", target,
        stranger->sign({"GET", target, "", one.us.address, one.us.key}, one.clock.wall(), nonce));
    CHECK(answer.status == (i % 2 == 0 ? 401 : 200));
  }
  CHECK(one.directory.lists <= 3);  // One is forced; a slow machine outlives the age of a listing.
}

}  // namespace tarry::relay
