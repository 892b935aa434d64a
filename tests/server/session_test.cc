#include "server/session.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <string>

#include <boost/asio/co_spawn.hpp>

#include "broker/handlers/delayed_fetch.h"
#include "records/batch_builder.h"
#include "server/listener_config.h"
#include "server/sessions.h"
#include "server/tls_context.h"
#include "tests/captured_log.h"
#include "tests/server/certificate.h"
#include "tests/server/world.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::int16_t produce = 0, fetch = 1, metadata = 3, api_versions = 18;

// A request in its frame.
class Request {
 public:
  Request(std::int16_t key, std::int16_t version, std::int32_t correlation) {
    append_be<std::int32_t>(bytes_, 0);
    append_be(bytes_, key);
    append_be(bytes_, version);
    append_be(bytes_, correlation);
    append_be<std::int16_t>(bytes_, -1);  // No client id.
  }
  template <typename T>
  Request& be(T value) {
    append_be(bytes_, value);
    return *this;
  }
  Request& text(std::string_view value) {
    append_be(bytes_, static_cast<std::int16_t>(value.size()));
    append_bytes(bytes_, as_bytes(value));
    return *this;
  }
  Request& raw(Bytes value) {
    append_bytes(bytes_, value);
    return *this;
  }
  Buffer done() const {
    Buffer bytes = bytes_;
    store_be(bytes.data(), static_cast<std::int32_t>(bytes.size() - 4));
    return bytes;
  }

 private:
  Buffer bytes_;
};

Buffer ask_versions(std::int32_t correlation) {
  return Request(api_versions, 0, correlation).done();
}
// Makes the topic.
Buffer ask_metadata(std::int32_t correlation, std::string_view topic) {
  return Request(metadata, 4, correlation)
      .be<std::int32_t>(1)
      .text(topic)
      .be<std::int8_t>(1)
      .done();
}
// From partition 0, at its beginning, where nothing is.
Buffer ask_fetch(std::int32_t correlation, std::string_view topic, std::int32_t max_wait_ms) {
  return Request(fetch, 4, correlation)
      .be<std::int32_t>(-1)
      .be(max_wait_ms)
      .be<std::int32_t>(1)        // Least bytes.
      .be<std::int32_t>(1 << 20)  // Most bytes.
      .be<std::int8_t>(0)
      .be<std::int32_t>(1)
      .text(topic)
      .be<std::int32_t>(1)
      .be<std::int32_t>(0)  // Partition.
      .be<std::int64_t>(0)  // Offset.
      .be<std::int32_t>(1 << 20)
      .done();
}

// One record of so many bytes.
Buffer ask_produce(std::int32_t correlation, std::string_view topic, std::size_t bytes,
                   std::int16_t acks = -1) {
  records::BatchBuilder builder{records::BatchOptions{}};
  builder.append({}, std::nullopt, Bytes(Buffer(bytes, 'v')), {});
  const Buffer batch = builder.finish();
  return Request(produce, 3, correlation)
      .be<std::int16_t>(-1)  // No transaction.
      .be(acks)
      .be<std::int32_t>(10'000)
      .be<std::int32_t>(1)
      .text(topic)
      .be<std::int32_t>(1)
      .be<std::int32_t>(0)  // Partition.
      .be(static_cast<std::int32_t>(batch.size()))
      .raw(batch)
      .done();
}

// The beginning of a request, of so many bytes.
Buffer part_of_produce(std::size_t bytes) {
  Buffer part = Request(produce, 3, 1).be<std::int16_t>(-1).done();
  store_be(part.data(), static_cast<std::int32_t>(bytes + 1'000));
  part.resize(bytes);
  return part;
}
// It may take 32 times as much while it is answered.
Buffer ask_for_names(std::int32_t correlation, std::size_t names) {
  Request request(metadata, 4, correlation);
  request.be(static_cast<std::int32_t>(names));
  for (std::size_t i = 0; i < names; ++i) request.text(std::string(100, 'n'));
  return request.be<std::int8_t>(0).done();
}

using TestWorld = World<FakeClock>;

// Sessions and the clients that speak to them over loopback.
struct Sitting : TestWorld {
  explicit Sitting(SessionLimits limits = {}, std::int64_t memory_bytes = 0)
      : TestWorld(memory_bytes), sessions(*broker, shard(), limits) {}
  ~Sitting() {
    sessions.close_all("the test ends");
    until([&] { return sessions.size() == 0; });
  }

  // Lets time pass.
  void pass(std::chrono::milliseconds time) {
    clock.advance(time);
    while (shard().wheel().advance(shard().tick()).more) {
    }
    settle();
  }
  // The kernel hands over what was sent when it likes to: so many requests are with the session,
  // and all that can be done is done.
  void has_taken(std::uint64_t requests) {
    until([&] { return shard().counters.requests_total >= requests; });
    settle();
    CHECK(shard().counters.requests_total == requests);
  }
  // For clients of every id.
  void limit_producers(double bytes_a_second) {
    broker::QuotaEntity all;
    all.client_id = broker::QuotaName{true, {}};
    const auto key = broker::QuotaTable::row_key(all, broker::QuotaKind::produce);
    bool changed = false;
    asio::co_spawn(
        context,
        broker->live_security().change({{key, broker::QuotaTable::row_value(bytes_a_second)}}),
        [&](std::exception_ptr, const Result<>& result) { changed = result.has_value(); });
    until([&] { return changed; });
  }
  // Makes a topic whose partition is open.
  void make_topic(struct Client& client, const std::string& name);
  // Puts about so much into its partition.
  void fill(const std::string& name, std::size_t bytes) {
    auto* partition = shard().partitions().find({shard().topics().find(name)->id, 0});
    const Buffer value(100'000, 'v');
    for (std::size_t done = 0; done < bytes; done += value.size()) {
      records::BatchBuilder builder{records::BatchOptions{}};
      builder.append(clock.wall(), std::nullopt, Bytes(value), {});
      const Buffer batch = builder.finish();
      partition->append(batch, true, [](const broker::Appended& appended) {
        REQUIRE(appended.error == protocol::ErrorCode::none);
      });
    }
    until([&] { return partition->high_watermark() == partition->log_end(); });
  }

  Sessions sessions;
};

struct Client {
  // With small buffers the kernel takes little of what the client does not read.  With `speaks_tls`
  // the handshake is done and the client's bytes go through TLS.
  explicit Client(Sitting& its_sitting, bool small_buffers = false,
                  broker::ConnectionOrigin origin = {},
                  const std::shared_ptr<const TlsContext>& tls = nullptr, bool speaks_tls = false)
      : sitting(its_sitting), socket(sitting.context) {
    tcp::acceptor acceptor(sitting.context, {asio::ip::address_v4::loopback(), 0});
    socket.open(tcp::v4());
    if (small_buffers) socket.set_option(asio::socket_base::receive_buffer_size(4096));
    socket.connect(acceptor.local_endpoint());
    tcp::socket served = acceptor.accept();
    if (small_buffers) served.set_option(asio::socket_base::send_buffer_size(4096));
    socket.non_blocking(true);
    served.non_blocking(true);
    const int descriptor = served.release();
    auto session = tls ? std::make_unique<TlsSession>(tls, descriptor) : nullptr;
    if (speaks_tls) shake_hands(*session);
    sitting.sessions.take({.descriptor = LooseDescriptor(descriptor),
                           .protocol = tcp::v4(),
                           .peer = "a client",
                           .origin = std::move(origin),
                           .tls = std::move(session)});
  }
  void shake_hands(TlsSession& session) {
    ssl.reset(
        SSL_new(std::shared_ptr<SSL_CTX>(SSL_CTX_new(TLS_client_method()), SSL_CTX_free).get()),
        SSL_free);
    REQUIRE(SSL_set_fd(ssl.get(), socket.native_handle()) == 1);
    SSL_set_connect_state(ssl.get());
    // OpenSSL would tell the broker that its end came without being told.
    SSL_set_options(ssl.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
    sitting.until([&] {
      (void)SSL_do_handshake(ssl.get());
      const auto step = session.handshake();
      REQUIRE(step.has_value());
      return *step == TlsSession::Step::done && SSL_is_init_finished(ssl.get()) == 1;
    });
  }

  void send(Bytes bytes) {
    sitting.until([&] {
      if (bytes.empty()) return true;
      boost::system::error_code error;
      std::size_t sent = 0;
      if (ssl) {
        (void)SSL_write_ex(ssl.get(), bytes.data(), bytes.size(), &sent);
      } else {
        sent = socket.write_some(asio::buffer(bytes.data(), bytes.size()), error);
      }
      REQUIRE((!error || error == asio::error::would_block));
      bytes = bytes.subspan(sent);
      return bytes.empty();
    });
    sitting.settle();
  }
  // Reads all that has come so far into `come`.
  void read() {
    std::uint8_t buffer[65536];
    while (!ended) {
      boost::system::error_code error;
      std::size_t got = 0;
      ERR_clear_error();
      if (!ssl) {
        got = socket.read_some(asio::buffer(buffer), error);
      } else if (const int result = SSL_read_ex(ssl.get(), buffer, sizeof(buffer), &got);
                 result != 1) {
        if (SSL_get_error(ssl.get(), result) == SSL_ERROR_WANT_READ) return;
        error = asio::error::eof;
      }
      come.insert(come.end(), buffer, buffer + got);
      if (error == asio::error::would_block) return;
      if (error) ended = true;
    }
  }
  // The correlation id of the next answer.
  std::int32_t answer() { return load_be<std::int32_t>(answer_frame().data()); }
  Buffer answer_frame() {
    Buffer frame;
    sitting.until([&] {
      read();
      if (come.size() < 4) return false;
      const auto size = load_be<std::uint32_t>(come.data());
      if (come.size() < 4 + size) return false;
      frame.assign(come.begin() + 4, come.begin() + 4 + size);
      come.erase(come.begin(), come.begin() + 4 + size);
      return true;
    });
    return frame;
  }
  bool has_nothing() {
    sitting.settle();
    read();
    return come.empty() && !ended;
  }
  void wait_for_end() {
    sitting.until([&] {
      read();
      return ended;
    });
  }

  Sitting& sitting;
  tcp::socket socket;
  std::shared_ptr<SSL> ssl;  // Null: plain text, or bytes that a test makes.
  Buffer come;
  bool ended = false;
};

void Sitting::make_topic(Client& client, const std::string& name) {
  client.send(ask_metadata(-1, name));
  CHECK(client.answer() == -1);
  // A partition is opened when it is first asked for, by a thread that knows nothing of our clock.
  client.send(ask_fetch(-2, name, 0));
  CHECK(client.answer() == -2);
}

Buffer joined(std::initializer_list<Buffer> frames) {
  Buffer all;
  for (const auto& frame : frames) append_bytes(all, frame);
  return all;
}

TEST_SUITE("session") {
  TEST_CASE("a frame may be cut at any byte") {
    Sitting sitting;
    Client client(sitting);
    const Buffer frames = joined({ask_versions(1), ask_versions(2)});
    for (std::size_t cut = 0; cut <= frames.size(); ++cut) {
      INFO("cut: ", cut);
      client.send(Bytes(frames).first(cut));
      client.send(Bytes(frames).subspan(cut));
      CHECK(client.answer() == 1);
      CHECK(client.answer() == 2);
    }
    for (const auto& byte : frames) client.send({&byte, 1});
    CHECK(client.answer() == 1);
    CHECK(client.answer() == 2);
  }

  TEST_CASE("a shard counts the bytes that it received and sent, of all its connections") {
    Sitting sitting;
    Client first(sitting), second(sitting);
    const auto ask = ask_versions(7);
    std::size_t answered = 0;
    for (Client* client : {&first, &second, &first}) {
      client->send(ask);
      answered += 4 + client->answer_frame().size();
    }
    CHECK(sitting.shard().counters.received_bytes_total == 3 * ask.size());
    CHECK(sitting.shard().counters.sent_bytes_total == answered);
  }

  TEST_CASE("many frames in one segment are answered in order") {
    Sitting sitting;
    Client client(sitting);
    Buffer frames;
    for (int i = 0; i < 900; ++i) append_bytes(frames, ask_versions(i));
    client.send(frames);
    for (int i = 0; i < 900; ++i) REQUIRE(client.answer() == i);
    CHECK(sitting.shard().counters.requests_total == 900);
  }

  // A client of a listener where alice and bob log in, for half a minute.
  struct LoginClient : Client {
    explicit LoginClient(Sitting& its_sitting) : Client(its_sitting, false, origin()) {}
    static broker::ConnectionOrigin origin() {
      auto listener = std::make_shared<broker::ListenerInfo>();
      listener->protocol = broker::SecurityProtocol::sasl_plaintext;
      listener->mechanisms = {"PLAIN", "SCRAM-SHA-256"};
      listener->sasl_settings = {
          {"connections.max.reauth.ms", "60000"},
          {"plain.connections.max.reauth.ms", "30000"},
          {"plain.sasl.jaas.config", "PlainLoginModule required user_alice=a user_bob=b;"}};
      broker::ConnectionOrigin origin;
      origin.listener = std::move(listener);
      return origin;
    }
    std::int16_t shake_hands(std::string_view mechanism = "PLAIN") {
      send(Request(17, 1, 1).text(mechanism).done());
      return load_be<std::int16_t>(answer_frame().data() + 4);
    }
    void ask_to_log_in(std::string_view user, std::string_view password) {
      const auto token = fmt::format("{}{}{}{}", '\0', user, '\0', password);
      Request request(36, 1, 2);
      request.be(static_cast<std::int32_t>(token.size()));
      for (const char c : token) request.be(static_cast<std::int8_t>(c));
      send(request.done());
      for (int i = 0; i < 20; ++i) sitting.pass(std::chrono::milliseconds{10});
    }
    // The error, and for how long it holds.
    std::pair<std::int16_t, std::int64_t> login_answer() {
      const auto frame = answer_frame();
      return {load_be<std::int16_t>(frame.data() + 4),
              load_be<std::int64_t>(frame.data() + frame.size() - 8)};
    }
    std::pair<std::int16_t, std::int64_t> log_in(std::string_view user, std::string_view password) {
      ask_to_log_in(user, password);
      return login_answer();
    }
  };

  TEST_CASE("a login ends in time, and then nothing but another is served") {
    using namespace std::chrono_literals;
    Sitting sitting;
    LoginClient late(sitting), again(sitting);
    for (auto* client : {&late, &again}) {
      CHECK(client->shake_hands() == 0);
      CHECK(client->log_in("alice", "a") == std::pair<std::int16_t, std::int64_t>(0, 30'000));
      // Not within a second of the last.
      CHECK(client->shake_hands() == 34);
    }
    sitting.pass(20s);
    CHECK(again.shake_hands() == 0);
    CHECK(again.log_in("alice", "a") == std::pair<std::int16_t, std::int64_t>(0, 30'000));
    late.send(ask_versions(3));
    CHECK(late.answer() == 3);
    sitting.pass(10s);
    late.send(ask_versions(4));
    late.wait_for_end();
    CHECK(sitting.shard().counters.expired_logins_total == 1);
    // A login that was asked for again begins again; also when it has ended before.
    again.send(ask_versions(5));
    CHECK(again.answer() == 5);
    sitting.pass(40s);
    CHECK(again.shake_hands() == 0);
    CHECK(again.log_in("alice", "a").first == 0);
    again.send(ask_versions(6));
    CHECK(again.answer() == 6);
  }

  TEST_CASE(
      "a right password waits with the failures of its address while there is a flood of them") {
    using namespace std::chrono_literals;
    Sitting sitting;
    auto& failed = sitting.broker->failed_logins();
    const auto now = sitting.shard().clock().mono();
    LoginClient client(sitting);
    const std::string_view host = "/a client";
    while (failed.wait_of_success(host, now, 100ms) < 1s) failed.wait_of_failure(host, now, 100ms);
    CHECK(client.shake_hands() == 0);
    // A fifth of a second passes, which is less than the password has to wait.
    client.ask_to_log_in("alice", "a");
    CHECK(client.has_nothing());
    sitting.pass(5s);
    CHECK(client.login_answer().first == 0);
    // A connection that is logged in does not wait for another login.
    sitting.pass(2s);
    const auto later = sitting.shard().clock().mono();
    while (failed.wait_of_success(host, later, 100ms) < 1s)
      failed.wait_of_failure(host, later, 100ms);
    CHECK(client.shake_hands() == 0);
    CHECK(client.log_in("alice", "a").first == 0);
  }

  TEST_CASE("a failed login of a client that has gone holds nothing until its answer is due") {
    using namespace std::chrono_literals;
    Sitting sitting;
    auto& failed = sitting.broker->failed_logins();
    const auto now = sitting.shard().clock().mono();
    // The next failure of the address is answered in eight seconds.
    while (failed.wait_of_failure("/a client", now, 100ms) < broker::FailedLogins::max_wait) {
    }
    LoginClient client(sitting);
    CHECK(client.shake_hands() == 0);
    client.ask_to_log_in("alice", "wrong");
    CHECK(client.has_nothing());
    // A reset, which no half-closed client sends.
    client.socket.set_option(asio::socket_base::linger(true, 0));
    client.socket.close();
    const auto gone = sitting.clock.mono();
    sitting.until([&] {
      sitting.pass(1ms);
      return sitting.sessions.size() == 0;
    });
    CHECK(sitting.clock.mono() - gone < 1s);
    // What it has failed still counts.
    CHECK(failed.wait_of_success("/a client", sitting.clock.mono(), 100ms) > 1s);
  }

  TEST_CASE("whatever is refused for want of a login is a line of the category audit") {
    using namespace std::chrono_literals;
    CapturedLog log;
    Sitting sitting;
    LoginClient early(sitting);
    early.send(ask_metadata(1, "t"));
    early.wait_for_end();
    CHECK(log.count("audit: a client from a client on listener") == 1);
    CHECK(log.count("sent a Metadata request before its login: refused") == 1);

    LoginClient unknown(sitting);
    CHECK(unknown.shake_hands("GSSAPI") == 33);
    unknown.wait_for_end();
    CHECK(log.count("audit: a login with GSSAPI from a client") == 1);

    LoginClient late(sitting), other_mechanism(sitting);
    for (auto* client : {&late, &other_mechanism}) {
      CHECK(client->shake_hands() == 0);
      CHECK(client->log_in("alice", "a").first == 0);
    }
    sitting.pass(2s);
    CHECK(other_mechanism.shake_hands("SCRAM-SHA-256") == 34);
    other_mechanism.wait_for_end();
    CHECK(log.count("audit: User:alice from a client on listener") == 1);
    CHECK(log.count("may not log in again with SCRAM-SHA-256: its login was with PLAIN") == 1);
    sitting.pass(30s);
    late.send(ask_versions(4));
    late.wait_for_end();
    CHECK(log.count("audit: User:alice from a client on listener") == 2);
    CHECK(log.count("request after its login had ended (connections.max.reauth.ms): refused") == 1);
  }

  TEST_CASE("a client logs in again as the same user, by the same mechanism, and in one go") {
    using namespace std::chrono_literals;
    Sitting sitting;
    LoginClient other_user(sitting), other_mechanism(sitting), wrong(sitting), between(sitting);
    for (auto* client : {&other_user, &other_mechanism, &wrong, &between}) {
      CHECK(client->shake_hands() == 0);
      CHECK(client->log_in("alice", "a").first == 0);
    }
    sitting.pass(2s);
    CHECK(other_user.shake_hands() == 0);
    CHECK(other_user.log_in("bob", "b").first == 58);
    other_user.wait_for_end();
    CHECK(other_mechanism.shake_hands("SCRAM-SHA-256") == 34);
    other_mechanism.wait_for_end();
    CHECK(wrong.shake_hands() == 0);
    CHECK(wrong.log_in("alice", "b").first == 58);
    wrong.wait_for_end();
    CHECK(between.shake_hands() == 0);
    between.send(ask_versions(7));
    between.wait_for_end();
  }

  TEST_CASE("a frame larger than one read comes whole") {
    Sitting sitting;
    Client client(sitting);
    // A Metadata request for a name that is too long for a topic, again and again.
    Request large(metadata, 4, 7);
    constexpr std::int32_t names = 100;
    large.be(names);
    for (int i = 0; i < names; ++i) large.text(std::string(10'000, 'x'));
    large.be<std::int8_t>(0);
    client.send(joined({ask_versions(6), large.done(), ask_versions(8)}));
    CHECK(client.answer() == 6);
    CHECK(client.answer() == 7);
    CHECK(client.answer() == 8);
  }

  TEST_CASE("a frame that claims too much, or less than nothing, ends the connection at once") {
    SessionLimits limits;
    limits.frame_bytes = 1000;
    Sitting sitting(limits);
    for (const std::int32_t size : {1001, 2'147'483'647, -1, -2'147'483'647 - 1}) {
      INFO("size: ", size);
      Client client(sitting);
      Buffer claim;
      append_be(claim, size);
      client.send(claim);
      client.wait_for_end();
    }
    CHECK(sitting.sessions.size() == 0);
  }

  TEST_CASE("above the limit for all clients only the connection that holds the most memory ends") {
    Sitting sitting({}, 4 << 20);
    Client small(sitting), large(sitting), last(sitting);
    // Large by its records, which are none, of a topic that is not there.
    const auto with_records = [&](std::int32_t correlation, std::size_t size) {
      Request request(produce, 3, correlation);
      request.be<std::int16_t>(-1).be<std::int16_t>(-1).be<std::int32_t>(1000);
      request.be<std::int32_t>(1).text("t").be<std::int32_t>(1).be<std::int32_t>(0);
      request.be(static_cast<std::int32_t>(size));
      for (std::size_t i = 0; i < size / 8; ++i) request.be<std::int64_t>(0);
      return request.done();
    };
    const Buffer first = with_records(1, 2'000'000), second = with_records(2, 2'400'000);
    small.send(Bytes(first).first(1'600'000));
    large.send(Bytes(second).first(2'000'000));
    CHECK(small.has_nothing());
    CHECK(large.has_nothing());
    last.send(Bytes(first).first(1'000'000));
    large.wait_for_end();
    small.send(Bytes(first).subspan(1'600'000));
    CHECK(small.answer() == 1);
    last.send(Bytes(first).subspan(1'000'000));
    CHECK(last.answer() == 1);
    // A session that has ended holds nothing; the others hold themselves.
    sitting.settle();
    CHECK(sitting.sessions.size() == 2);
    CHECK(sitting.shard().ledger().used() < 10'000);
    Client again(sitting);
    again.send(second);
    CHECK(again.answer() == 2);
  }

  TEST_CASE("of very many connections that hold little each, those that hold the most end, too") {
    constexpr std::size_t limit = 4 << 20;
    Sitting sitting({}, limit);
    Client idle(sitting);
    // Parts of requests, of which no client has the memory of 256 KB that few may hold.
    std::list<Client> holders;
    for (int i = 0; i < 64; ++i) holders.emplace_back(sitting).send(part_of_produce(100'000));
    sitting.settle();
    CHECK(sitting.shard().ledger().used() < limit + limit / 8);
    CHECK(sitting.sessions.size() < 1 + holders.size());
    CHECK(sitting.sessions.size() > holders.size() / 2);
    CHECK(idle.has_nothing());
    // Until the memory is given back an idle one is served as ever.
    idle.send(ask_versions(7));
    CHECK(idle.answer() == 7);
  }

  TEST_CASE("parked requests of a few bytes count with all the memory that they need") {
    Sitting sitting({}, 8 << 20);
    Client first(sitting), second(sitting);
    sitting.make_topic(first, "t");
    const auto park = [&](Client& client, std::int32_t count, std::uint64_t then_waiting) {
      Buffer frames;
      for (std::int32_t i = 0; i < count; ++i) {
        Buffer one = ask_fetch(i, "t", 3'600'000);
        store_be(one.data() + 26, std::int32_t{1});  // Most bytes.
        append_bytes(frames, one);
      }
      client.send(frames);
      sitting.until([&] {
        // A session that waits for memory looks again after a while.
        pass_time(sitting.clock);
        sitting.shard().wheel().advance(sitting.shard().tick());
        return sitting.shard().purgatory().metrics(broker::fetch_kind).waiting == then_waiting;
      });
    };
    const std::size_t before = sitting.shard().ledger().used();
    park(first, 1000, 1000);
    CHECK(sitting.shard().ledger().used() - before > 4'400'000);
    CHECK(sitting.shard().ledger().used() - before < 5'500'000);
    CHECK(first.has_nothing());
    park(second, 900, 900);  // There is no room for both, and the first holds more.
    first.wait_for_end();
    CHECK(second.has_nothing());
  }

  TEST_CASE("a session that waits for memory looks ever more seldom, until it got some") {
    Sitting sitting({}, 8 << 20);
    Client client(sitting);
    sitting.make_topic(client, "t");
    broker::Charge held(sitting.shard().ledger(), nullptr);
    const std::size_t too_much = 9 << 20;
    const auto waiting = [&] {
      return sitting.shard().purgatory().metrics(broker::fetch_kind).waiting;
    };
    const auto pass = [&](int ms) {
      for (; ms > 0; ms -= 10) sitting.pass(std::chrono::milliseconds{10});
    };
    client.send(ask_fetch(1, "t", 3'600'000));
    sitting.has_taken(2 + 1);
    CHECK(waiting() == 1);

    held.set(too_much);
    client.send(ask_fetch(2, "t", 3'600'000));
    sitting.has_taken(2 + 2);
    pass(20 + 40 + 80 + 160 + 320 + 500);
    CHECK(waiting() == 1);
    held.set(0);
    pass(490);
    CHECK(waiting() == 1);
    pass(10);
    CHECK(waiting() == 2);

    held.set(too_much);
    client.send(ask_fetch(3, "t", 3'600'000));
    sitting.has_taken(2 + 3);
    held.set(0);
    pass(10);
    CHECK(waiting() == 2);
    pass(10);
    CHECK(waiting() == 3);
  }

  TEST_CASE("the end of a wait for memory does not end that of a quota") {
    Sitting sitting({}, 8 << 20);
    Client client(sitting);
    sitting.make_topic(client, "t");
    sitting.limit_producers(100);
    broker::Charge held(sitting.shard().ledger(), nullptr);
    held.set(9 << 20);
    // The session waits for memory while the first is at work, for some 10 s when it is answered.
    client.send(joined({ask_produce(1, "t", 2000), ask_versions(2)}));
    CHECK(client.answer() == 1);
    held.set(0);
    sitting.pass(std::chrono::seconds{9});
    CHECK(client.has_nothing());
    sitting.pass(std::chrono::seconds{3});
    CHECK(client.answer() == 2);
  }

  TEST_CASE("a connection counts for itself, and what its client says of itself is cut off") {
    Sitting sitting;
    const std::size_t before = sitting.shard().ledger().used();
    std::list<Client> clients;
    for (int i = 0; i < 10; ++i) clients.emplace_back(sitting);
    const std::size_t ten = sitting.shard().ledger().used() - before;
    CHECK(ten > 10 * 1024);
    CHECK(ten < 10 * 4096);
    Request request(api_versions, 3, 7);
    request.be<std::int8_t>(0);  // No tagged fields; then two strings of 20 000 bytes.
    for (int i = 0; i < 2; ++i)
      request.raw(Buffer{0xa1, 0x9c, 0x01}).raw(Buffer(20'000, std::uint8_t{'x'}));
    clients.back().send(request.be<std::int8_t>(0).done());
    CHECK(clients.back().answer() == 7);
    const auto& told = sitting.shard().clients.front();
    CHECK(told.client_software_name == std::string(255, 'x'));
    CHECK(told.client_software_version == std::string(255, 'x'));
    clients.clear();
    sitting.until([&] { return sitting.sessions.size() == 0; });
    CHECK(sitting.shard().ledger().used() == before);
  }

  TEST_CASE("a TLS connection counts with what OpenSSL takes for it, and for part of a record") {
    Sitting sitting;
    ListenerConfig listener;
    listener.settings = {{"ssl.keystore.certificate.chain", std::string(certificate_of_test)},
                         {"ssl.keystore.key", std::string(key_of_test)}};
    const auto context = TlsContext::make(listener, sitting.clock.wall());
    REQUIRE_MESSAGE(context.has_value(), context.error().message);
    const auto used = [&] { return sitting.shard().ledger().used(); };
    const std::size_t before = used();
    const Client plain(sitting);
    const std::size_t of_plain = used() - before;
    Client with_tls(sitting, false, {}, *context);
    const std::size_t of_both = used() - before;
    CHECK(of_both > 2 * of_plain + 12'000);
    CHECK(of_both < 2 * of_plain + 20'000);
    // The header of a record of 16 KB, which is part of a ClientHello; then some of its body.
    with_tls.send(Buffer{0x16, 0x03, 0x01, 0x40, 0x00});
    sitting.until([&] { return used() - before > of_both + 16'000; });
    with_tls.send(Buffer(1000, std::uint8_t{0}));
    CHECK(used() - before > of_both + 16'000);
    CHECK(used() - before < of_both + 20'000);
  }

  TEST_CASE("a TLS client that ends its stream and reads late gets its answer whole") {
    Sitting sitting;
    ListenerConfig listener;
    listener.settings = {{"ssl.keystore.certificate.chain", std::string(certificate_of_test)},
                         {"ssl.keystore.key", std::string(key_of_test)}};
    const auto context = TlsContext::make(listener, sitting.clock.wall());
    REQUIRE_MESSAGE(context.has_value(), context.error().message);
    Client plain(sitting);
    for (int i = 1; i <= 10; ++i) {
      // The last TLS record of each answer has another size.
      const std::string topic = "t" + std::to_string(i);
      const std::size_t bytes = 40'000 + 1'700 * static_cast<std::size_t>(i);
      sitting.make_topic(plain, topic);
      plain.send(ask_produce(1, topic, bytes));
      CHECK(plain.answer() == 1);
      Client client(sitting, true, {}, *context, true);
      client.send(ask_fetch(7, topic, 0));
      client.socket.shutdown(tcp::socket::shutdown_send);
      sitting.settle();
      client.wait_for_end();
      REQUIRE(client.come.size() > bytes);
      CHECK(client.come.size() == 4 + load_be<std::uint32_t>(client.come.data()));
    }
  }

  TEST_CASE(
      "work that finds no memory waits, then continues with the memory of the largest connection") {
    Sitting sitting({}, 4 << 20);
    Client holder(sitting), asking(sitting);
    holder.send(part_of_produce(3'300'000));
    asking.send(ask_for_names(7, 140));
    CHECK(asking.has_nothing());
    for (int i = 0; i < 25; ++i) sitting.pass(std::chrono::milliseconds{10});
    CHECK(asking.has_nothing());
    CHECK(holder.has_nothing());
    for (int i = 0; i < 10; ++i) sitting.pass(std::chrono::milliseconds{10});
    holder.wait_for_end();
    for (int i = 0; i < 5; ++i) sitting.pass(std::chrono::milliseconds{10});
    CHECK(asking.answer() == 7);
  }

  TEST_CASE(
      "work that wants more memory than anybody holds ends nobody, and is refused in a second") {
    Sitting sitting({}, 4 << 20);
    std::list<Client> holders;
    for (int i = 0; i < 11; ++i) holders.emplace_back(sitting).send(part_of_produce(300'000));
    Client asking(sitting);
    asking.send(ask_for_names(7, 140));
    for (int i = 0; i < 90; ++i) sitting.pass(std::chrono::milliseconds{10});
    CHECK(asking.has_nothing());
    for (int i = 0; i < 20; ++i) sitting.pass(std::chrono::milliseconds{10});
    asking.wait_for_end();
    for (Client& holder : holders) CHECK(holder.has_nothing());
    // A small request beside them was never in want.
    Client small(sitting);
    small.send(ask_for_names(8, 2));
    CHECK(small.answer() == 8);
  }

  TEST_CASE("an unknown request ends its connection, and only that one") {
    Sitting sitting;
    Client other(sitting);
    for (const Buffer& bytes :
         {Request(9999, 0, 1).done(), Request(produce, 99, 1).done(), Request(-1, 0, 1).done(),
          Buffer{0, 0, 0, 0}, Buffer{0, 0, 0, 3, 1, 2, 3}}) {
      Client client(sitting);
      client.send(bytes);
      client.wait_for_end();
      CHECK(client.come.empty());
    }
    other.send(ask_versions(5));
    CHECK(other.answer() == 5);
  }

  TEST_CASE(
      "a storm of bad frames is twenty lines in ten seconds, which hide no other kind of line") {
    Sitting sitting;
    CapturedLog log;
    const auto end_with = [&](const Buffer& bytes) {
      Client client(sitting);
      client.send(bytes);
      client.wait_for_end();
    };
    const Buffer bad_frame{0xff, 0xff, 0xff, 0xff};
    for (int i = 0; i < 100; ++i) end_with(bad_frame);
    CHECK(log.count("the client sent a request of -1 bytes") == 20);
    end_with(Request(9999, 0, 1).done());
    CHECK(log.count("connection from a client ended: ") == 21);
    sitting.pass(std::chrono::seconds{10});
    end_with(bad_frame);
    CHECK(log.count("(80 more since the last such line)") == 1);
  }

  TEST_CASE("a topic's name in the line about an acks=0 error cannot begin a line of its own") {
    Sitting sitting;
    CapturedLog log;
    Client client(sitting);
    client.send(Request(produce, 3, 1)
                    .be<std::int16_t>(-1)  // No transactional id.
                    .be<std::int16_t>(0)   // acks
                    .be<std::int32_t>(1000)
                    .be<std::int32_t>(1)
                    .text("a\n2026 E forged \x1b[2J \\x0a")
                    .be<std::int32_t>(1)
                    .be<std::int32_t>(0)
                    .be<std::int32_t>(-1)
                    .done());
    client.wait_for_end();
    const auto text = log.text();
    CHECK(text.find("a\\x0a2026 E forged \\x1b[2J \\x5cx0a-0") != text.npos);
    CHECK(std::ranges::count(text, '\n') == 1);
    CHECK(text.find('\x1b') == text.npos);
  }

  TEST_CASE(
      "a request that ends its connection takes no finished answer of an earlier one with it") {
    Sitting sitting;
    Client client(sitting, true);
    sitting.make_topic(client, "t");
    sitting.fill("t", 900'000);
    CapturedLog log;
    // The answer is larger than the socket's buffers, so most of it is still here when the next
    // request is refused; the one behind that is not served.
    client.send(
        joined({ask_fetch(1, "t", 0), ask_produce(2, "no-such-topic", 100, 0), ask_versions(3)}));
    sitting.has_taken(5);
    CHECK(sitting.sessions.size() == 1);
    const Buffer answer = client.answer_frame();
    CHECK(load_be<std::int32_t>(answer.data()) == 1);
    CHECK(answer.size() > 900'000);
    client.wait_for_end();
    CHECK(client.come.empty());
    CHECK(log.count("connection from a client ended: ") == 1);
  }

  TEST_CASE("an array that claims 10^9 elements ends the connection and takes no memory") {
    Sitting sitting;
    Client client(sitting);
    client.send(Request(metadata, 4, 1).be<std::int32_t>(1'000'000'000).done());
    client.wait_for_end();
  }

  TEST_CASE("answers leave in the order of the requests though a later one is ready first") {
    Sitting sitting;
    Client client(sitting);
    sitting.make_topic(client, "t");
    client.send(joined(
        {ask_fetch(1, "t", 10'000), ask_fetch(2, "t", 0), ask_versions(3), ask_fetch(4, "t", 0)}));
    sitting.settle();
    CHECK(client.has_nothing());
    sitting.pass(std::chrono::milliseconds{9'990});
    CHECK(client.has_nothing());
    sitting.pass(std::chrono::milliseconds{20});
    for (const int expected : {1, 2, 3, 4}) CHECK(client.answer() == expected);
  }

  TEST_CASE("past the requests in flight nothing more is taken until one is answered") {
    SessionLimits limits;
    limits.requests_in_flight = 3;
    Sitting sitting(limits);
    Client client(sitting);
    sitting.make_topic(client, "t");
    Buffer frames;
    for (int i = 0; i < 10; ++i) append_bytes(frames, ask_fetch(i, "t", 1000 * (i + 1)));
    client.send(frames);
    sitting.has_taken(2 + 3);
    sitting.pass(std::chrono::milliseconds{1'010});
    CHECK(client.answer() == 0);
    sitting.has_taken(2 + 4);
    for (int i = 1; i < 10; ++i) {
      sitting.pass(std::chrono::milliseconds{20'000});
      CHECK(client.answer() == i);
    }
  }

  TEST_CASE("past the bytes in flight nothing more is taken until some are answered") {
    SessionLimits limits;
    limits.bytes_in_flight = 3 * ask_fetch(0, "t", 0).size() - 20;
    Sitting sitting(limits);
    Client client(sitting);
    sitting.make_topic(client, "t");
    for (int i = 0; i < 6; ++i) client.send(ask_fetch(i, "t", 1000));
    sitting.has_taken(2 + 3);
    // There is no room for what they may be answered either, so one waits after the other.
    for (int i = 0; i < 6; ++i) {
      sitting.pass(std::chrono::milliseconds{1'010});
      CHECK(client.answer() == i);
      sitting.has_taken(std::min<std::uint64_t>(2 + 6, 2 + 4 + static_cast<std::uint64_t>(i)));
    }
  }

  TEST_CASE(
      "a connection that cannot go to another shard for want of memory is closed and counted") {
    TestWorld elsewhere;
    Sitting sitting;
    int moves = 0, ended = 0;
    sitting.sessions.move_to = [&](broker::Shard&, ConnectionHandoff) {
      ++moves;
      throw std::bad_alloc();
    };
    sitting.sessions.on_ended = [&](std::string_view) { ++ended; };
    Client client(sitting);
    // As after enough requests for partitions of that shard.
    for (int i = 0; i < 8; ++i) sitting.shard().clients.front().note_shard(&elsewhere.shard());
    client.send(ask_versions(1));
    CHECK(client.answer() == 1);
    client.wait_for_end();
    sitting.until([&] { return sitting.sessions.size() == 0; });
    CHECK(moves == 1);
    CHECK(ended == 1);
    sitting.sessions.on_ended = nullptr;
  }

  // With kernel TLS it is open for a moment after its last answer.
  TEST_CASE("a connection that ends with its last answer goes to no other shard before") {
    TestWorld elsewhere;
    Sitting sitting;
    int moves = 0;
    sitting.sessions.move_to = [&](broker::Shard&, ConnectionHandoff) { ++moves; };
    ListenerConfig listener;
    listener.settings = {{"ssl.keystore.certificate.chain", std::string(certificate_of_test)},
                         {"ssl.keystore.key", std::string(key_of_test)}};
    const auto context = TlsContext::make(listener, sitting.clock.wall());
    REQUIRE_MESSAGE(context.has_value(), context.error().message);
    Client plain(sitting);
    sitting.make_topic(plain, "t");
    Client client(sitting, false, {}, *context, true);
    client.send(ask_fetch(7, "t", 1000));
    sitting.has_taken(2 + 1);
    broker::Connection& connection = sitting.shard().clients.front();
    // As after enough requests for partitions of that shard, and a login that was refused.
    for (int i = 0; i < 8; ++i) connection.note_shard(&elsewhere.shard());
    connection.ends_when_answered = true;
    sitting.pass(std::chrono::milliseconds{1'010});
    CHECK(client.answer() == 7);
    client.wait_for_end();
    CHECK(moves == 0);
  }

  TEST_CASE("a connection is closed when it was idle for so long, and every request moves that") {
    SessionLimits limits;
    limits.idle = std::chrono::milliseconds{1000};
    Sitting sitting(limits);
    Client silent(sitting), busy(sitting);
    sitting.pass(std::chrono::milliseconds{900});
    busy.send(ask_versions(1));
    CHECK(busy.answer() == 1);
    CHECK(silent.has_nothing());
    sitting.pass(std::chrono::milliseconds{200});
    silent.wait_for_end();
    CHECK(sitting.sessions.size() == 1);
    sitting.pass(std::chrono::milliseconds{700});
    CHECK(busy.has_nothing());
    sitting.pass(std::chrono::milliseconds{200});
    busy.wait_for_end();
  }

  TEST_CASE("half a frame and then silence is idle too") {
    SessionLimits limits;
    limits.idle = std::chrono::milliseconds{1000};
    Sitting sitting(limits);
    Client client(sitting);
    client.send(Bytes(ask_versions(1)).first(9));
    sitting.pass(std::chrono::milliseconds{1'010});
    client.wait_for_end();
  }

  TEST_CASE("a client that does not read its answers is disconnected, one that does is served on") {
    SessionLimits limits;
    limits.write_stall = std::chrono::milliseconds{1000};
    Sitting sitting(limits);
    Client deaf(sitting, true), slow(sitting, true);
    Buffer frames;
    constexpr int requests = 900;
    for (int i = 0; i < requests; ++i) append_bytes(frames, ask_versions(i));
    deaf.send(frames);
    slow.send(frames);
    sitting.has_taken(2 * requests);
    sitting.pass(std::chrono::milliseconds{900});
    // The answers that it takes now give it time anew.
    for (int i = 0; i < requests / 2; ++i) REQUIRE(slow.answer() == i);
    sitting.pass(std::chrono::milliseconds{200});
    CHECK(sitting.sessions.size() == 1);
    for (int i = requests / 2; i < requests; ++i) REQUIRE(slow.answer() == i);
  }

  TEST_CASE("answers count from when they are made, whether the client reads them or not") {
    SessionLimits limits;
    limits.bytes_in_flight = 4 << 20;
    Sitting sitting(limits);
    Client client(sitting, true);
    sitting.make_topic(client, "t");
    sitting.fill("t", 2 << 20);
    Buffer frames;
    constexpr int requests = 200;
    for (int i = 0; i < requests; ++i) append_bytes(frames, ask_fetch(i, "t", 1000));
    client.send(frames);
    std::size_t most = 0;
    const auto look = [&] { most = std::max(most, sitting.sessions.bytes_in_flight()); };
    for (int i = 0; i < 100; ++i) {
      sitting.settle();
      look();
    }
    CHECK(most > 3 << 20);
    // It holds no more while it reads.
    for (int i = 0; i < requests; ++i) {
      REQUIRE(client.answer() == i);
      look();
    }
    CHECK(most <= limits.bytes_in_flight + (1 << 20));
  }

  TEST_CASE("of a long answer a part is sent in one turn, and others have theirs between") {
    Sitting sitting;
    Client client(sitting);
    sitting.make_topic(client, "t");
    constexpr std::size_t long_answer = 900'000;  // Of the MiB that is asked for.
    sitting.fill("t", 2 << 20);
    const auto ask = ask_fetch(1, "t", 0);
    REQUIRE(client.socket.write_some(asio::buffer(ask)) == ask.size());
    const auto sent = [&] { return sitting.shard().counters.sent_bytes_total; };
    const auto begin = sent();
    auto most = begin - begin;
    const auto end = std::chrono::steady_clock::now() + patience;
    while (sent() < begin + long_answer) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      const auto before = sent();
      sitting.context.restart();
      if (sitting.context.poll_one() == 0) std::this_thread::yield();
      most = std::max(most, sent() - before);
      // What was sent is taken off what is counted once, not from the views of the log too.
      REQUIRE(sitting.shard().ledger().used() < 2 * long_answer);
      client.read();
    }
    CHECK(most <= 256 * 1024);
  }

  TEST_CASE("a small request waits for a part of the large ones that have come, not for all") {
    Sitting sitting;
    Client small(sitting);
    std::list<Client> large;
    constexpr std::size_t each = 1 << 20;
    const Buffer begin = part_of_produce(each);
    for (int i = 0; i < 40; ++i) large.emplace_back(sitting).send(Bytes(begin).first(10'000));
    // The kernel takes these before the shard runs again.
    std::size_t come = 0;
    for (Client& client : large)
      come += client.socket.write_some(asio::buffer(begin.data() + 10'000, each - 10'000));
    REQUIRE(come > large.size() * 64 * 1024);
    const auto ask = ask_versions(7);
    REQUIRE(small.socket.write_some(asio::buffer(ask)) == ask.size());
    const auto received = [&] { return sitting.shard().counters.received_bytes_total; };
    const auto before = received();
    const auto end = std::chrono::steady_clock::now() + patience;
    while (small.come.empty()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      sitting.context.restart();
      sitting.context.poll_one();
      small.read();
    }
    CHECK(received() - before < come / 4);
    // Nothing of them is lost.
    sitting.until([&] { return received() - before == come + ask.size(); });
  }

  TEST_CASE("of large requests that have come whole one begins in a turn") {
    Sitting sitting;
    std::list<Client> large;
    const Buffer ask = ask_for_names(1, 1'000);
    const std::size_t rest = ask.size() - 10'000;
    for (int i = 0; i < 6; ++i) large.emplace_back(sitting).send(Bytes(ask).first(10'000));
    for (Client& client : large)
      REQUIRE(client.socket.write_some(asio::buffer(ask.data() + 10'000, rest)) == rest);
    const auto requests = [&] { return sitting.shard().counters.requests_total; };
    const auto before = requests();
    const auto end = std::chrono::steady_clock::now() + patience;
    while (requests() < before + large.size()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      const auto so_far = requests();
      sitting.context.restart();
      if (sitting.context.poll_one() == 0) std::this_thread::yield();
      CHECK(requests() - so_far <= 1);
    }
  }

  TEST_CASE("a small request waits for the beginnings of many long answers, not for their ends") {
    Sitting sitting;
    Client small(sitting);
    sitting.make_topic(small, "t");
    constexpr std::size_t long_answer = 900'000;  // Of the MiB that is asked for.
    sitting.fill("t", 2 << 20);
    std::list<Client> readers;
    const auto ask_much = ask_fetch(1, "t", 0);
    for (int i = 0; i < 40; ++i) {
      Client& reader = readers.emplace_back(sitting);
      REQUIRE(reader.socket.write_some(asio::buffer(ask_much)) == ask_much.size());
    }
    const auto sent = [&] { return sitting.shard().counters.sent_bytes_total; };
    const auto before = sent();
    const auto end = std::chrono::steady_clock::now() + patience;
    const auto run_one = [&] {
      REQUIRE(std::chrono::steady_clock::now() < end);
      sitting.context.restart();
      if (sitting.context.poll_one() == 0) std::this_thread::yield();
    };
    while (sent() == before) run_one();
    const auto ask = ask_versions(7);
    REQUIRE(small.socket.write_some(asio::buffer(ask)) == ask.size());
    while (small.come.empty()) {
      run_one();
      small.read();
    }
    CHECK(sent() - before < readers.size() * long_answer / 6);
    sitting.until([&] {
      for (Client& reader : readers) reader.read();
      return sent() - before > readers.size() * long_answer;
    });
  }

  TEST_CASE("one answer that is larger than all that is allowed is given") {
    SessionLimits limits;
    limits.bytes_in_flight = 1000;
    Sitting sitting(limits);
    Client client(sitting);
    sitting.make_topic(client, "t");
    sitting.fill("t", 2 << 20);
    client.send(joined({ask_fetch(1, "t", 0), ask_fetch(2, "t", 0), ask_versions(3)}));
    CHECK(client.answer() == 1);
    CHECK(client.answer() == 2);
    CHECK(client.answer() == 3);
  }

  TEST_CASE("a socket that cannot be served is closed and counts no more") {
    Sitting sitting;
    int ended = 0;
    sitting.sessions.on_ended = [&](std::string_view) { ++ended; };
    const int no_socket = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    REQUIRE(::close(no_socket) == 0);
    sitting.sessions.take({LooseDescriptor(no_socket), tcp::v4(), "nobody"});
    CHECK(ended == 1);
    CHECK(sitting.sessions.size() == 0);
    sitting.sessions.on_ended = nullptr;
  }

  TEST_CASE("a connection that comes after the end is closed, and the end is reported once") {
    Sitting sitting;
    Client client(sitting);
    int told = 0, ended = 0;
    sitting.sessions.on_ended = [&](std::string_view) { ++ended; };
    sitting.sessions.end("the test ends them", [&] { ++told; });
    client.wait_for_end();
    sitting.until([&] { return told == 1; });
    Client late(sitting);
    late.wait_for_end();
    CHECK(sitting.sessions.size() == 0);
    CHECK(told == 1);
    CHECK(ended == 2);
    sitting.sessions.on_ended = nullptr;
  }

  TEST_CASE("a client that has ended its stream gets all of its answers, and then the end") {
    Sitting sitting;
    Client client(sitting);
    sitting.make_topic(client, "t");
    client.send(joined({ask_fetch(1, "t", 5'000), ask_versions(2), ask_produce(3, "t", 100),
                        ask_fetch(4, "t", 0)}));
    client.socket.shutdown(tcp::socket::shutdown_send);
    CHECK(client.has_nothing());
    sitting.pass(std::chrono::seconds{5});
    for (const int id : {1, 2, 3, 4}) CHECK(client.answer() == id);
    client.wait_for_end();
    CHECK(client.come.empty());
    sitting.until([&] { return sitting.sessions.size() == 0; });
  }

  TEST_CASE("the same when it was at its limit and was not read") {
    SessionLimits limits;
    limits.requests_in_flight = 2;
    Sitting sitting(limits);
    Client client(sitting);
    sitting.make_topic(client, "t");
    Buffer frames;
    for (int i = 0; i < 5; ++i) append_bytes(frames, ask_fetch(i, "t", 8'000));
    client.send(frames);
    client.socket.shutdown(tcp::socket::shutdown_send);
    sitting.has_taken(2 + 2);
    for (int i = 0; i < 5; i += 2) {
      CHECK(client.has_nothing());
      sitting.pass(std::chrono::seconds{8});
      CHECK(client.answer() == i);
      if (i < 4) CHECK(client.answer() == i + 1);
    }
    client.wait_for_end();
  }

  TEST_CASE("a client that has ended its stream and is owed nothing is closed at once") {
    Sitting sitting;
    Client client(sitting);
    client.send(ask_versions(1));
    CHECK(client.answer() == 1);
    client.socket.shutdown(tcp::socket::shutdown_send);
    client.wait_for_end();
  }

  TEST_CASE("when a client has gone its waiting requests end after ten seconds without an answer") {
    Sitting sitting;
    {
      Client client(sitting);
      sitting.make_topic(client, "t");
      client.send(joined({ask_fetch(1, "t", 3'600'000), ask_fetch(2, "t", 3'600'000)}));
      sitting.has_taken(2 + 2);
      client.socket.close();
      sitting.settle();
    }
    sitting.pass(std::chrono::seconds{9});
    CHECK(sitting.sessions.size() == 1);
    sitting.pass(std::chrono::seconds{2});
    sitting.until([&] { return sitting.sessions.size() == 0; });
    CHECK(sitting.shard().purgatory().metrics(broker::fetch_kind).waiting == 0);
  }

  TEST_CASE("when a connection is broken its waiting requests end at once") {
    SessionLimits limits;
    limits.requests_in_flight = 3;
    for (const bool ended_before : {false, true}) {
      for (const int sent : {2, 3, 5}) {
        CAPTURE(ended_before);
        CAPTURE(sent);
        Sitting sitting(limits);
        {
          Client client(sitting);
          sitting.make_topic(client, "t");
          Buffer frames;
          for (int i = 0; i < sent; ++i) append_bytes(frames, ask_fetch(i, "t", 3'600'000));
          client.send(frames);
          sitting.has_taken(2 + static_cast<std::uint64_t>(std::min(sent, 3)));
          if (ended_before) {
            client.socket.shutdown(tcp::socket::shutdown_send);
            CHECK(client.has_nothing());
          }
          // Closes by a reset; its destructor would not.
          client.socket.set_option(asio::socket_base::linger(true, 0));
          client.socket.close();
        }
        sitting.until([&] { return sitting.sessions.size() == 0; });
      }
    }
  }

  TEST_CASE(
      "a client that goes while it holds as much as it may, is not read and has more to say ends "
      "too") {
    SessionLimits limits;
    limits.requests_in_flight = 3;
    for (const int sent : {3, 4, 20}) {
      CAPTURE(sent);
      Sitting sitting(limits);
      {
        Client client(sitting);
        sitting.make_topic(client, "t");
        Buffer frames;
        for (int i = 0; i < sent; ++i) append_bytes(frames, ask_fetch(i, "t", 3'600'000));
        client.send(frames);
        sitting.has_taken(2 + 3);
        CHECK(sitting.shard().purgatory().metrics(broker::fetch_kind).waiting == 3);
      }
      sitting.settle();
      sitting.pass(std::chrono::seconds{11});
      sitting.until([&] { return sitting.sessions.size() == 0; });
      CHECK(sitting.shard().purgatory().metrics(broker::fetch_kind).waiting == 0);
    }
  }

  TEST_CASE("a request whose client goes while it waits for its first step does not begin") {
    Sitting sitting;
    Client client(sitting);
    // Bytes behind the request make it one of those that wait for their turn.
    const Buffer frame = Request(metadata, 4, 1)
                             .be<std::int32_t>(1)
                             .text("made")
                             .be<std::int8_t>(1)
                             .raw(Buffer(20'000, std::uint8_t{'x'}))
                             .done();
    REQUIRE(client.socket.write_some(asio::buffer(frame.data(), frame.size())) == frame.size());
    const auto end = std::chrono::steady_clock::now() + patience;
    while (sitting.shard().steps().waiting() == 0) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      sitting.context.restart();
      sitting.context.poll_one();
    }
    sitting.sessions.close_all("the client goes");
    sitting.until([&] { return sitting.sessions.size() == 0; });
    sitting.settle();
    const bool is_made = sitting.shard().topics().find("made") != nullptr;
    CHECK_FALSE(is_made);
  }

  TEST_CASE("a session that is closed from within takes its requests with it") {
    Sitting sitting;
    Client client(sitting);
    sitting.make_topic(client, "t");
    client.send(joined({ask_fetch(1, "t", 3'600'000), Request(9999, 0, 1).done()}));
    client.wait_for_end();
    sitting.until([&] { return sitting.sessions.size() == 0; });
  }

  TEST_CASE("a client that exceeds a quota is answered at once, and not read until it has waited") {
    Sitting sitting;
    Client client(sitting), other(sitting);
    sitting.make_topic(client, "t");
    sitting.limit_producers(100);
    // 10 s' worth, and about as much again: it waits for some 10 s.
    client.send(joined({ask_produce(1, "t", 2000), ask_versions(2)}));
    CHECK(client.answer() == 1);
    client.send(ask_versions(3));
    CHECK(client.has_nothing());
    sitting.pass(std::chrono::seconds{9});
    CHECK(client.has_nothing());
    other.send(ask_versions(4));
    CHECK(other.answer() == 4);
    sitting.pass(std::chrono::seconds{3});
    CHECK(client.answer() == 2);
    CHECK(client.answer() == 3);
  }

  TEST_CASE("the first request of a principal waits for its number, and none overtakes it") {
    Sitting sitting;
    broker::ListenerInfo tls;
    tls.protocol = broker::SecurityProtocol::ssl;
    broker::ConnectionOrigin origin;
    origin.listener = std::make_shared<const broker::ListenerInfo>(tls);
    origin.tls_principal = "CN=alice";
    Client anonymous(sitting), client(sitting, false, origin);
    sitting.make_topic(anonymous, "t");
    anonymous.send(ask_produce(7, "t", 10));
    CHECK(anonymous.answer() == 7);
    const auto& security = sitting.broker->security(sitting.shard());
    CHECK(security.image->principals().empty());
    client.send(joined({ask_produce(1, "t", 10), ask_produce(2, "t", 20), ask_produce(3, "t", 30),
                        ask_versions(4)}));
    const auto base_offset = [](const Buffer& produced) {
      constexpr std::size_t place = 4 + 4 + (2 + 1) + 4 + 4 + 2;
      return load_be<std::int64_t>(produced.data() + place);
    };
    for (std::int32_t number = 1; number <= 3; ++number) {
      const auto frame = client.answer_frame();
      CHECK(load_be<std::int32_t>(frame.data()) == number);
      CHECK(base_offset(frame) == number);
    }
    CHECK(client.answer() == 4);
    CHECK(security.image->find_principal("User:CN=alice") == 3);
    const auto image = security.image;
    Client again(sitting, false, origin);
    again.send(ask_produce(5, "t", 10));
    CHECK(again.answer() == 5);
    CHECK(security.image == image);
  }

  TEST_CASE("a producer that wants no answers is muted all the same, and may go while it is") {
    Sitting sitting;
    Client client(sitting);
    sitting.make_topic(client, "t");
    sitting.limit_producers(100);
    client.send(ask_produce(1, "t", 2000, 0));
    sitting.until(
        [&] { return sitting.shard().counters.throttled_by_produce.requests_total == 1; });
    client.send(ask_versions(2));
    CHECK(client.has_nothing());
    client.socket.close();
    sitting.pass(std::chrono::seconds{12});
    sitting.until([&] { return sitting.sessions.size() == 0; });
  }
}

}  // namespace
}  // namespace tarry::server
