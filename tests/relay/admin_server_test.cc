// The admin of one member, asked over real connections, and members beside it that are none.

#include "relay/admin_server.h"

#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
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
  MonoTime mono() const override { return stopped_ ? *stopped_ : std::chrono::steady_clock::now(); }
  // From now on no time passes but on the wall.  Before others use it.
  void stop() { stopped_ = std::chrono::steady_clock::now(); }

 private:
  std::optional<MonoTime> stopped_;
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

// A certificate for 127.0.0.1 that nobody else has signed.
class OwnCertificate {
 public:
  explicit OwnCertificate(const std::string& name)
      : file(std::filesystem::temp_directory_path() /
             ("tarry-relay-" + name + "-" + std::to_string(::getpid()) + ".pem")) {
    const std::shared_ptr<EVP_PKEY> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"),
                                        EVP_PKEY_free);
    const std::shared_ptr<X509> made(X509_new(), X509_free);
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
    X509_set_pubkey(made.get(), key.get());
    X509_NAME* const subject = X509_get_subject_name(made.get());
    const std::vector<unsigned char> text(name.begin(), name.end());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, text.data(),
                               static_cast<int>(text.size()), -1, 0);
    X509_set_issuer_name(made.get(), subject);
    const std::shared_ptr<X509_EXTENSION> address(
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1"),
        X509_EXTENSION_free);
    X509_add_ext(made.get(), address.get(), -1);
    REQUIRE(X509_sign(made.get(), key.get(), EVP_sha256()) > 0);
    const std::shared_ptr<std::FILE> out(std::fopen(file.c_str(), "w"), std::fclose);
    REQUIRE(PEM_write_X509(out.get(), made.get()) == 1);
    context.reset(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
    REQUIRE(SSL_CTX_use_certificate(context.get(), made.get()) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1);
  }
  ~OwnCertificate() { std::filesystem::remove(file); }
  OwnCertificate(const OwnCertificate&) = delete;
  OwnCertificate& operator=(const OwnCertificate&) = delete;

  AdminOptions options(const std::string& ca) const {
    AdminOptions out;
    out.tls = context;
    out.ca = ca;
    return out;
  }

  std::filesystem::path file;
  std::shared_ptr<SSL_CTX> context;
};

// The admin of a member that owns nothing, of a group with one source partition.
class OneAdmin {
 public:
  // `tokens`: the text of admin.tokens.
  explicit OneAdmin(AdminOptions options = {}, const std::string& tokens = "",
                    const std::string& name = "us")
      : path(std::filesystem::temp_directory_path() /
             ("tarry-relay-admin-" + name + "-" + std::to_string(::getpid()))),
        has_tls(options.tls != nullptr) {
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
    us = {name, admin->address(), made->public_part()};
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
    start_among({us, {"other", address, std::string(64, 'b'), {{"o.delayed", 0}}}});
  }
  void start_among(std::vector<Peer> peers) {
    directory.listing.peers = std::move(peers);
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
    std::string said;
    boost::system::error_code ignored;
    const auto talk = [&](auto& stream) {
      boost::asio::write(stream, boost::asio::buffer(request));
      boost::asio::read(stream, boost::asio::dynamic_buffer(said), ignored);
    };
    if (has_tls) {
      boost::asio::ssl::context trusting(boost::asio::ssl::context::tls_client);
      boost::asio::ssl::stream<tcp::socket&> secure(socket, trusting);
      secure.handshake(boost::asio::ssl::stream_base::client);
      talk(secure);
    } else {
      talk(socket);
    }
    const auto head = said.find("\r\n\r\n");
    REQUIRE(head != std::string::npos);
    return {std::stoi(said.substr(9, 3)), said.substr(head + 4)};
  }

  std::filesystem::path path;
  const bool has_tls;
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

TEST_CASE("a status includes what only the other member knows") {
  const StubbornPeer peer(
      R"({"relay":{"partitions":[{"topic":"o.delayed","partition":0}]},"delayed":{"figure":7}})");
  OneAdmin one;
  one.start(peer.address());
  const auto status = one.ask("GET", "/status");
  CHECK(status.status == 200);
  CHECK(status.json()["delayed"].value("figure", 0) == 7);
  CHECK(status.json()["relay"]["missing"].empty());
}

TEST_CASE("orders of an unknown kind are refused, and not carried out as another kind") {
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
  CHECK(log.count("audit: a client without a token from 127.0.0.1:") == 1);
  CHECK(log.count(" on the admin: DELETE /delayed/o.delayed/x?partition=0: denied (401)") == 1);
  CHECK(status("PATCH", record, std::string(32, 'x')) == 401);
  CHECK(log.count("audit: a client with a wrong token from 127.0.0.1:") == 1);
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

// What the first member's status says of the other one.
Json other_in_status(const OneAdmin& one) {
  const Json members = one.ask("GET", "/status").json()["relay"]["members"];
  for (const auto& member : members)
    if (member.value("address", "") != one.us.address) return member;
  return {};
}

TEST_CASE("members whose admins have TLS ask each other over it, and check the certificates") {
  const OwnCertificate certificate("one"), other("other");
  OneAdmin asking(certificate.options(other.file), "", "asking");
  OneAdmin asked(other.options(certificate.file), "", "asked");
  OneAdmin distrusting(certificate.options(certificate.file), "", "distrusting");
  asked.start_among({asking.us, asked.us, distrusting.us});
  asking.start_among({asking.us, asked.us});
  distrusting.start_among({distrusting.us, asked.us});
  const Json told = other_in_status(asking);
  CHECK(told.value("instance", "") == "asked");
  CHECK(told.value("state", "unreachable") != "unreachable");
  const Json refused = other_in_status(distrusting);
  CHECK(refused.value("state", "") == "unreachable");
  CHECK(refused.value("error", "").contains("its certificate is not accepted"));
}

TEST_CASE(
    "a running admin takes a new certificate and reads its authorities again, or changes nothing") {
  const OwnCertificate first("first"), second("second"), other("other");
  const auto authorities = std::filesystem::temp_directory_path() /
                           ("tarry-relay-authorities-" + std::to_string(::getpid()) + ".pem");
  std::filesystem::copy_file(first.file, authorities,
                             std::filesystem::copy_options::overwrite_existing);
  OneAdmin renewed(first.options(authorities), "", "renewed");
  OneAdmin asked(other.options(second.file), "", "asked");
  renewed.start_among({renewed.us, asked.us});
  asked.start_among({renewed.us, asked.us});
  for (const OneAdmin* each : {&renewed, &asked})
    CHECK(other_in_status(*each).value("state", "") == "unreachable");
  std::filesystem::copy_file(other.file, authorities,
                             std::filesystem::copy_options::overwrite_existing);
  REQUIRE(renewed.admin->use_certificate(second.context).has_value());
  for (const OneAdmin* each : {&renewed, &asked})
    CHECK(other_in_status(*each).value("state", "unreachable") != "unreachable");
  std::filesystem::remove(authorities);
  CHECK_FALSE(renewed.admin->use_certificate(first.context).has_value());
  for (const OneAdmin* each : {&renewed, &asked})
    CHECK(other_in_status(*each).value("state", "unreachable") != "unreachable");
}

TEST_CASE("a member with TLS asks none without, whose answers anybody could make") {
  const OwnCertificate certificate("one");
  OneAdmin asking(certificate.options(certificate.file), "", "asking");
  OneAdmin plain({}, "", "plain");
  plain.start_among({asking.us, plain.us});
  asking.start_among({asking.us, plain.us});
  const Json told = other_in_status(asking);
  CHECK(told.value("state", "") == "unreachable");
  CHECK(told.value("error", "").contains("no TLS with it"));
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
  one.clock.stop();  // However slow the machine is, a listing does not grow old.
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
  CHECK(one.directory.lists <= 2);  // One of them is forced.
}

}  // namespace tarry::relay
