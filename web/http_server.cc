#include "web/http_server.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <list>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/log.h"
#include "web/http_stream.h"
#include "web/reply_stream.h"
#include "web/routes.h"

namespace tarry::web {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// Connections that wait to be accepted.  If this is full, the kernel drops the next one's first
// packet, and that client waits a second before it sends another.
constexpr int backlog = 4096;

// Port 0 on two addresses: the port that one has may be taken on the other.
constexpr int ports_tried = 16;

// After an accept() that failed, which is for want of descriptors.
constexpr std::chrono::milliseconds accept_pause{100};

// How long, and how many bytes, are read and dropped from a client after it is refused,
// since closing on it would destroy the answer that is on its way.
constexpr std::chrono::milliseconds lingering{1'000};
constexpr std::size_t lingering_bytes = 1 << 20;

std::string host_port_text(const std::string& host, std::uint16_t port) {
  return host.contains(':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<std::vector<tcp::endpoint>> endpoints_of(const asio::any_io_executor& executor,
                                                const HttpOptions& options) {
  const auto at = [&](const asio::ip::address& a) { return tcp::endpoint(a, options.port); };
  using V4 = asio::ip::address_v4;
  using V6 = asio::ip::address_v6;
  if (options.host.empty()) return std::vector{at(V4::any()), at(V6::any())};
  if (options.host == "localhost") return std::vector{at(V4::loopback()), at(V6::loopback())};
  error_code error;
  if (const auto literal = asio::ip::make_address(options.host, error); !error)
    return std::vector{at(literal)};
  const auto found = tcp::resolver(executor).resolve(options.host, "", error);
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) {
    if (const auto endpoint = at(entry.endpoint().address());
        std::ranges::find(endpoints, endpoint) == endpoints.end())
      endpoints.push_back(endpoint);
  }
  if (error || endpoints.empty()) {
    return fail(Errc::invalid,
                fmt::format("{}={}: the host {} has no address: give an address of "
                            "this machine",
                            options.option, host_port_text(options.host, options.port),
                            printable(options.host)));
  }
  return endpoints;
}

// Without IPv6 on the machine "any" and localhost are of IPv4 alone.
bool has_no_such_family(const error_code& error) {
  return error.value() == EAFNOSUPPORT || error.value() == EADDRNOTAVAIL;
}

unsigned status_of(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

// One that comes twice means two things.
std::optional<std::string_view> single(const http::fields& fields, http::field name) {
  const auto [begin, end] = fields.equal_range(name);
  if (begin == end) return std::nullopt;
  if (std::next(begin) != end)
    throw Refused{400, fmt::format("the header {} is given twice", view(http::to_string(name)))};
  return view(begin->value());
}

using Request = http::request<http::string_body>;

Question question_of(const Request& request, std::size_t header_count) {
  const auto count = static_cast<std::size_t>(std::distance(request.begin(), request.end()));
  if (count > header_count) {
    throw Refused{431,
                  fmt::format("the request has {} headers; the limit is {}", count, header_count)};
  }
  if (request.version() != 10 && request.version() != 11)
    throw Refused{400, "only HTTP/1.1 and HTTP/1.0 are supported"};
  Question question;
  question.method = view(request.method_string());
  question.target = view(request.target());
  question.host = single(request, http::field::host);
  if (!question.host && request.version() == 11) throw Refused{400, "the header Host is missing"};
  question.origin = single(request, http::field::origin);
  question.fetch_site = single(request, http::field::sec_fetch_site).value_or("");
  question.authorization = single(request, http::field::authorization).value_or("");
  question.cookie = single(request, http::field::cookie).value_or("");
  question.accept_encoding = view(request[http::field::accept_encoding]);
  question.accept = view(request[http::field::accept]);
  question.if_none_match = view(request[http::field::if_none_match]);
  if (const auto coding = single(request, http::field::transfer_encoding);
      coding && !beast::iequals(beast::string_view(coding->data(), coding->size()), "chunked"))
    throw Refused{400, "the only transfer encoding is chunked"};
  question.body = request.body();
  return question;
}

// The kernel's send buffer for an answer that is made while it is sent. It is small, so that a
// client that reads nothing is noticed soon and costs little until then.
constexpr int stream_buffer_bytes = 64 * 1024;

// Smaller answers are sent whatever the others take: health checks among them.
constexpr std::size_t always_sent_bytes = 64 * 1024;

// Smaller bodies are read whatever memory there is: commands of operators are.
constexpr std::size_t always_read_bytes = 16 * 1024;

// What is read at once of a body that comes in chunks, at most.
constexpr std::size_t read_bytes = 64 * 1024;

// The memory of one request's body, where the server's owner counts it.
class BodyMemory {
 public:
  explicit BodyMemory(HttpServer::TakeMemory& take) : take_(take) {}

  // Whether there is room for a body of so many bytes in all.
  bool grow_to(std::size_t bytes) {
    if (!take_ || bytes <= always_read_bytes || bytes <= bytes_) return true;
    auto more = take_(bytes - bytes_);
    if (!more) return false;
    pieces_.push_back(std::move(more));
    bytes_ = bytes;
    return true;
  }

 private:
  HttpServer::TakeMemory& take_;  // Empty: it is not counted.
  std::size_t bytes_ = 0;
  std::vector<std::shared_ptr<void>> pieces_;
};

using Parser = http::request_parser<http::string_body>;

// The memory that the body takes at most after the next read.
std::size_t body_bytes_of(const Parser& parser) {
  if (const auto length = parser.content_length()) return static_cast<std::size_t>(*length);
  // A text that grows takes up to twice of what it has.
  return 2 * (parser.get().body().size() + read_bytes);
}

using Response = http::response<http::string_body>;

void set_headers(http::fields& to, const Reply& reply) {
  to.set(http::field::content_type,
         beast::string_view(reply.content_type.data(), reply.content_type.size()));
  // For every answer, whatever its route.  The reply's own headers come last and replace these: a
  // page needs a policy that lets its scripts run.
  to.set(http::field::cache_control, "no-store");
  to.set("X-Content-Type-Options", "nosniff");
  to.set(http::field::x_frame_options, "DENY");
  to.set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
  to.set("Referrer-Policy", "no-referrer");
  for (const auto& [name, value] : reply.headers)
    to.set(beast::string_view(name.data(), name.size()), value);
}

Response response_of(Reply reply, unsigned version, bool keep_alive) {
  Response response(http::int_to_status(reply.status), version);
  set_headers(response, reply);
  response.keep_alive(keep_alive);
  response.body() = std::move(reply.body);
  response.prepare_payload();
  // These have no body, and no length of one.
  if (reply.status == 204 || reply.status == 304) response.erase(http::field::content_length);
  return response;
}

auto into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

std::string endpoint_text(const tcp::endpoint& endpoint) {
  auto address = endpoint.address();
  if (address.is_v6()) {
    const auto six = address.to_v6();
    if (six.is_v4_mapped()) {
      address = asio::ip::make_address_v4(asio::ip::v4_mapped, six);
    } else {
      address = asio::ip::address_v6(six.to_bytes());  // Scopes have other names elsewhere.
    }
  }
  return host_port_text(address.to_string(), endpoint.port());
}

// The address that the client sees, however the socket is bound: the client's proof stands on it.
std::string local_address(const tcp::socket& socket) {
  error_code error;
  const auto local = socket.local_endpoint(error);
  return error ? std::string() : endpoint_text(local);
}

std::string peer_address(const tcp::socket& socket) {
  error_code error;
  const auto peer = socket.remote_endpoint(error);
  return error ? std::string("a client that has disconnected") : endpoint_text(peer);
}

// Connections as stop() finds them; one is in a list as long as it is served.
using Stream = HttpStream;
// A connection that is taken beyond max_connections.
struct HealthCheck {
  Stream& stream;
  bool silent = true;  // Its request has not come yet.
  bool pushed_out = false;
};

// The bytes of an answer, for as long as it is sent.
class BytesOnTheirWay {
 public:
  BytesOnTheirWay(std::size_t& all, std::size_t bytes) : all_(all), bytes_(bytes) { all_ += bytes; }
  ~BytesOnTheirWay() { all_ -= bytes_; }
  BytesOnTheirWay(const BytesOnTheirWay&) = delete;
  BytesOnTheirWay& operator=(const BytesOnTheirWay&) = delete;

 private:
  std::size_t& all_;
  const std::size_t bytes_;
};

class ListEntry {
 public:
  ListEntry(std::list<Stream*>& list, Stream& stream)
      : list_(list), at_(list.insert(list.end(), &stream)) {}
  ~ListEntry() { list_.erase(at_); }
  ListEntry(const ListEntry&) = delete;
  ListEntry& operator=(const ListEntry&) = delete;

 private:
  std::list<Stream*>& list_;
  const std::list<Stream*>::iterator at_;
};

}  // namespace

// Each coroutine is given the shared_ptr that keeps what it works on.
struct HttpServer::Impl {
  Impl(asio::any_io_executor on, HttpOptions given)
      : executor(std::move(on)), options(std::move(given)) {}

  Result<> bind();
  asio::awaitable<void> accept(std::shared_ptr<Impl> self, tcp::acceptor& acceptor);
  asio::awaitable<void> accept_one(std::shared_ptr<Impl> self, tcp::acceptor& acceptor,
                                   error_code& error);
  asio::awaitable<void> serve(std::shared_ptr<Impl> self, tcp::socket socket);
  asio::awaitable<void> serve_health_check(std::shared_ptr<Impl> self, tcp::socket socket);
  void evict_health_check();
  asio::awaitable<bool> answer_one(Stream& stream, beast::flat_buffer& buffer, HealthCheck* check);
  asio::awaitable<bool> read(Stream& stream, beast::flat_buffer& buffer, Parser& parser,
                             BodyMemory& memory, error_code& error);
  asio::awaitable<bool> write(Stream& stream, Response response, bool is_head);
  asio::awaitable<bool> write_stream(Stream& stream, Reply reply, bool keep_alive);
  asio::awaitable<void> end(Stream& stream);

  const asio::any_io_executor executor;
  const HttpOptions options;
  std::string address;
  std::uint16_t port = 0;
  bool loopback = false;
  std::vector<tcp::acceptor> acceptors;
  std::optional<asio::steady_timer> pause;  // While there are no descriptors.
  std::shared_ptr<SSL_CTX> tls;             // The context of new connections; null: plain HTTP.
  std::list<Stream*> streams;               // The streams that are served,
  std::list<HealthCheck> health_checks;     // and those beyond, in the order in which they came.
  std::size_t answer_bytes = 0;             // Taken by answers that are being sent.
  // From start() on.
  Handler handler;
  TakeMemory take_memory;
  bool stopped = false;
};

// --- Listening
// ------------------------------------------------------------------------------------

Result<> HttpServer::Impl::bind() {
  // All addresses or none.  With port 0 all of them have the free port of the first one; if that
  // port is taken on a later address, the next try gets another.
  auto endpoints = endpoints_of(executor, options);
  if (!endpoints) return std::unexpected(endpoints.error());
  const bool spare_family = options.host.empty() || options.host == "localhost";
  for (int tried = 1;; ++tried) {
    acceptors.clear();
    port = options.port;
    error_code error;
    for (auto endpoint : *endpoints) {
      endpoint.port(port);
      tcp::acceptor acceptor(executor);
      acceptor.open(endpoint.protocol(), error);
      // A restart would have to wait for the last run's closed connections (TIME_WAIT).
      if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
      // Without it [::] takes the port on IPv4 too, where the other socket has it.
      if (!error && endpoint.address().is_v6() && endpoints->size() > 1)
        acceptor.set_option(asio::ip::v6_only(true), error);
      if (!error) acceptor.bind(endpoint, error);
      if (error && spare_family && endpoint.address().is_v6() && has_no_such_family(error)) {
        error = {};
        continue;
      }
      if (error) break;
      if (port == 0) port = acceptor.local_endpoint(error).port();
      acceptors.push_back(std::move(acceptor));
    }
    const bool in_use = error.value() == EADDRINUSE;
    if (in_use && options.port == 0 && tried < ports_tried) continue;
    const std::string where =
        host_port_text(options.host == "localhost" ? "127.0.0.1" : options.host, port);
    if (error || acceptors.empty()) {
      return fail(
          in_use ? Errc::in_use : Errc::io,
          in_use ? fmt::format("{}={}: the address is in use: stop the process that uses it, or {}",
                               options.option, where, options.remedy)
                 : fmt::format("{}={}: {}: {}", options.option, where, error.message(),
                               options.remedy));
    }
    address = where;
    loopback = std::ranges::all_of(
        *endpoints, [](const auto& endpoint) { return endpoint.address().is_loopback(); });
    return {};
  }
}

asio::awaitable<void> HttpServer::Impl::accept(std::shared_ptr<Impl> self,
                                               tcp::acceptor& acceptor) {
  while (!stopped) {
    error_code error;
    try {
      co_await accept_one(self, acceptor, error);
    } catch (const std::bad_alloc&) {
      // An acceptor that ended here would never be heard of again: nobody waits for its coroutine.
      error = asio::error::no_memory;
    }
    if (stopped) co_return;
    if (error) {
      // Most often for want of descriptors: not at once again, or this would be all we do.
      log_warn("web", "a connection could not be accepted: {}", error.message());
      // One for all addresses: whoever waits for it already goes on waiting.
      if (!pause || pause->expiry() <= std::chrono::steady_clock::now())
        pause.emplace(executor, accept_pause);
      co_await pause->async_wait(into(error));
    }
  }
}

asio::awaitable<void> HttpServer::Impl::accept_one(std::shared_ptr<Impl> self,
                                                   tcp::acceptor& acceptor, error_code& error) {
  tcp::socket socket = co_await acceptor.async_accept(into(error));
  if (stopped || error) co_return;
  // Beyond the limit it is accepted all the same, for it may be a health check.
  const bool full = streams.size() >= options.max_connections;
  if (full) evict_health_check();
  asio::co_spawn(
      executor, full ? serve_health_check(self, std::move(socket)) : serve(self, std::move(socket)),
      [](std::exception_ptr failure) {
        if (!failure) return;
        try {
          std::rethrow_exception(failure);
        } catch (const std::exception& why) {
          log_error("web", "a connection ended: {}", why.what());
        }
      });
}

// The oldest that is silent, else the oldest: it has had most of its time.
void HttpServer::Impl::evict_health_check() {
  const auto stays = [](const HealthCheck& check) { return !check.pushed_out; };
  const auto count = std::ranges::count_if(health_checks, stays);
  if (static_cast<std::size_t>(count) < options.health_connections) return;
  auto oldest = std::ranges::find_if(
      health_checks, [&](const auto& check) { return stays(check) && check.silent; });
  if (oldest == health_checks.end()) oldest = std::ranges::find_if(health_checks, stays);
  oldest->pushed_out = true;
  oldest->stream.close();
}

asio::awaitable<void> HttpServer::Impl::serve_health_check(std::shared_ptr<Impl>,
                                                           tcp::socket socket) {
  Stream stream(std::move(socket), tls);
  const auto check = health_checks.insert(health_checks.end(), HealthCheck{stream});
  // Leaves the list however this coroutine ends, also by an exception.
  const std::shared_ptr<void> listed(nullptr, [&](void*) { health_checks.erase(check); });
  beast::flat_buffer buffer(options.header_bytes + options.body_bytes + 64 * 1024);
  if (!co_await stream.begin(options.health_timeout) || stopped) co_return;
  co_await answer_one(stream, buffer, &*check);
  if (!stopped && !check->pushed_out) co_await end(stream);
}

// --- One connection
// -------------------------------------------------------------------------------

asio::awaitable<void> HttpServer::Impl::serve(std::shared_ptr<Impl>, tcp::socket socket) {
  Stream stream(std::move(socket), tls);
  const ListEntry entry(streams, stream);
  error_code ignored;
  // An answer may be several writes, and each of them would wait for the last one's
  // acknowledgement.
  stream.socket().set_option(tcp::no_delay(true), ignored);
  if (!co_await stream.begin(options.request_timeout) || stopped) co_return;

  // A request and what is read of the next one with it.
  beast::flat_buffer buffer(options.header_bytes + options.body_bytes + 64 * 1024);
  while (!stopped) {
    // Until a request begins, idle_timeout counts; from its first byte on the shorter
    // request_timeout.
    if (buffer.size() == 0) {
      stream.expires_after(options.idle_timeout);
      error_code error;
      const auto got =
          co_await stream.async_read_some(buffer.prepare(options.header_bytes), into(error));
      if (error || got == 0) co_return;
      buffer.commit(got);
    }
    const bool goes_on = co_await answer_one(stream, buffer, nullptr);
    if (!goes_on) break;
  }
  if (!stopped) co_await end(stream);
}

// Whether there was room for the body; else it is not read.
asio::awaitable<bool> HttpServer::Impl::read(Stream& stream, beast::flat_buffer& buffer,
                                             Parser& parser, BodyMemory& memory,
                                             error_code& error) {
  co_await http::async_read_header(stream, buffer, parser, into(error));
  parser.eager(true);
  while (!error && !stopped && !parser.is_done()) {
    if (!memory.grow_to(body_bytes_of(parser))) co_return false;
    co_await http::async_read_some(stream, buffer, parser, into(error));
  }
  co_return true;
}

// Reads a request and answers it; whether another one may follow.
asio::awaitable<bool> HttpServer::Impl::answer_one(Stream& stream, beast::flat_buffer& buffer,
                                                   HealthCheck* check) {
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(options.header_bytes));
  parser.body_limit(options.body_bytes);
  stream.expires_after(check == nullptr ? options.request_timeout : options.health_timeout);
  error_code error;
  BodyMemory memory(take_memory);  // Until the answer is sent.
  const bool has_room = co_await read(stream, buffer, parser, memory, error);
  if (stopped) co_return false;
  if (check != nullptr) check->silent = false;
  if (error && error.category() != http::make_error_code(http::error::bad_value).category())
    co_return false;  // The connection is gone, or the time is up.
  if (error == http::error::end_of_stream) co_return false;

  Reply reply;
  bool keep_alive = false;
  bool is_head = false;
  unsigned version = 11;
  if (!has_room) {
    reply = refusal(503, "there is no memory for a body of this size: ask again");
  } else if (error) {
    const unsigned status = status_of(error);
    reply = refusal(
        status,
        status == 431   ? fmt::format("the headers are larger than {} bytes", options.header_bytes)
        : status == 413 ? fmt::format("the body is larger than {} bytes", options.body_bytes)
                        : fmt::format("this is not an HTTP request: {}", error.message()));
  } else {
    const Request request = parser.release();
    is_head = request.method() == http::verb::head;
    std::optional<Question> question;
    try {
      question = question_of(request, options.header_count);
    } catch (const Refused& refused) {
      reply = refusal(refused.status, refused.why);
    }
    if (question && check != nullptr && !is_health_check(question->target)) {
      reply = refusal(503, fmt::format("{} connections are open, which is the limit; above it only "
                                       "/healthz and /readyz are answered",
                                       options.max_connections));
    } else if (question) {
      version = request.version();
      keep_alive = request.keep_alive() && check == nullptr;
      const std::string local = local_address(stream.socket());
      const std::string peer = peer_address(stream.socket());
      question->local = local;
      question->peer = peer;
      question->has_tls = stream.has_tls();
      reply = co_await handler(std::move(*question));
    }
  }
  keep_alive = keep_alive && !stopped;
  // HEAD is answered by the headers alone: no piece of the body is ever made.
  if (is_head) reply.stream.reset();
  // A client of HTTP/1.0 knows the end of it by that of the connection.
  if (reply.stream)
    co_return co_await write_stream(stream, std::move(reply), keep_alive && version == 11);
  if (reply.body.size() > always_sent_bytes && answer_bytes > 0 &&
      answer_bytes + reply.body.size() > options.answer_bytes) {
    reply = refusal(
        503, fmt::format("the answers that other clients are reading have {} bytes, "
                         "with this one {}; the limit is {}: ask again",
                         answer_bytes, answer_bytes + reply.body.size(), options.answer_bytes));
  }
  const BytesOnTheirWay counted(answer_bytes, reply.body.size());
  const bool written =
      co_await write(stream, response_of(std::move(reply), version, keep_alive), is_head);
  co_return written&& keep_alive;
}

asio::awaitable<bool> HttpServer::Impl::write(Stream& stream, Response response, bool is_head) {
  stream.expires_after(options.request_timeout);
  error_code error;
  http::response_serializer<http::string_body> serializer(response);
  if (is_head) {
    serializer.split(true);
    co_await http::async_write_header(stream, serializer, into(error));
  } else {
    co_await http::async_write(stream, serializer, into(error));
  }
  co_return !error;
}

// Whether all of it was sent and another request may follow.
asio::awaitable<bool> HttpServer::Impl::write_stream(Stream& stream, Reply reply, bool keep_alive) {
  http::response<http::empty_body> head(http::int_to_status(reply.status), keep_alive ? 11 : 10);
  set_headers(head, reply);
  head.keep_alive(keep_alive);
  head.chunked(keep_alive);
  http::response_serializer<http::empty_body> serializer(head);
  stream.expires_after(options.request_timeout);
  error_code error;
  stream.socket().set_option(tcp::socket::send_buffer_size(stream_buffer_bytes), error);
  co_await http::async_write_header(stream, serializer, into(error));
  // One piece at a time: the next one is made when this one is written, so that a slow client costs
  // no more memory than one.  Each piece has request_timeout to leave.
  while (!error && !stopped) {
    const auto piece = co_await reply.stream->next();
    // stop() may have closed the connection while the piece was being made.
    if (stopped) break;
    stream.expires_after(options.request_timeout);
    if (!piece) {
      if (keep_alive) co_await asio::async_write(stream, http::make_chunk_last(), into(error));
      co_return !error && keep_alive;
    }
    const auto bytes = asio::buffer(*piece);
    if (keep_alive) {
      co_await asio::async_write(stream, http::make_chunk(bytes), into(error));
    } else {
      co_await asio::async_write(stream, bytes, into(error));
    }
  }
  co_return false;
}

asio::awaitable<void> HttpServer::Impl::end(Stream& stream) {
  co_await stream.end(lingering);
  // With TLS, stream.end() has waited for the client's end of the session already.
  if (stopped || stream.has_tls()) co_return;
  error_code error;
  stream.expires_after(lingering);
  std::vector<char> dropped(16 * 1024);
  for (std::size_t total = 0; !error && total < lingering_bytes;)
    total += co_await stream.async_read_some(asio::buffer(dropped), into(error));
}

// --- From outside
// -----------------------------------------------------------------------------------

HttpServer::HttpServer(std::shared_ptr<Impl> inside) : impl_(std::move(inside)) {}

HttpServer::~HttpServer() {
  stop();
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(boost::asio::any_io_executor executor,
                                                     HttpOptions options) {
  auto inside = std::make_shared<Impl>(std::move(executor), std::move(options));
  if (const auto bound = inside->bind(); !bound) return std::unexpected(bound.error());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(inside)));
}

Result<> HttpServer::start(Handler handler) {
  Impl& in = *impl_;
  in.handler = std::move(handler);
  for (auto& acceptor : in.acceptors) {
    error_code error;
    // Linux lets several sockets with SO_REUSEADDR bind one port while none of them listens.  The
    // second process to start then learns only here that the port is in use.
    acceptor.listen(backlog, error);
    if (error) {
      return fail(error.value() == EADDRINUSE ? Errc::in_use : Errc::io,
                  fmt::format("{}={}: {}", in.options.option, in.address, error.message()));
    }
  }
  for (auto& acceptor : in.acceptors)
    asio::co_spawn(in.executor, in.accept(impl_, acceptor), asio::detached);
  return {};
}

void HttpServer::stop() {
  Impl& in = *impl_;
  if (std::exchange(in.stopped, true)) return;
  error_code ignored;
  for (auto& acceptor : in.acceptors) acceptor.close(ignored);
  if (in.pause) in.pause->cancel();
  // close() only ends what they wait for.  The coroutines leave the lists later, in turns of their
  // own, so the lists do not change under these loops.
  for (auto* stream : in.streams) stream->close();
  for (auto& check : in.health_checks) check.stream.close();
}

void HttpServer::count_bodies(TakeMemory take) {
  impl_->take_memory = std::move(take);
}

void HttpServer::use_tls(std::shared_ptr<ssl_ctx_st> context) {
  impl_->tls = std::move(context);
}

const std::string& HttpServer::address() const {
  return impl_->address;
}

std::uint16_t HttpServer::port() const {
  return impl_->port;
}

bool HttpServer::is_loopback() const {
  return impl_->loopback;
}

}  // namespace tarry::web
