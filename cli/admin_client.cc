#include "cli/admin_client.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "base/log.h"
#include "base/log_thread.h"
#include "base/time_text.h"
#include "base/token_proof.h"
#include "cli/io/host_port.h"
#include "cli/io/json.h"
#include "cli/io/text.h"
#include "web/http_stream.h"

namespace tarry::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

auto into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

using Request = http::request<http::string_body>;
using Parser = http::response_parser<http::string_body>;

constexpr auto between_tries = std::chrono::milliseconds{100};
// WWW-Authenticate in the refusals of Tarry's admins, the relay's too, and of nobody else.
constexpr std::string_view our_challenge = "Bearer realm=\"tarry\"";

constexpr std::size_t max_proof_bytes = std::size_t{64} << 10;

// One question, and its answer or error.
struct Conversation {
  HostPort at;
  Request request;
  std::string token;  // Empty: none.
  bool waits_for_start;
  const AdminClient::TakeLine* take;  // Null: the answer is wanted as a whole.
  std::size_t pieces = 0;             // Pieces of the answer that have come.
  Parser parser{};
  error_code error{};
  std::string refused{};  // The reason why the token was not sent; empty: none.
  // Null: plain HTTP.
  std::optional<asio::ssl::context> tls{};
  std::string wrong_certificate{};  // The fault of the admin's; empty: none.
};

std::string host_of(const HostPort& at) {
  return (at.host.contains(':') ? "[" + at.host + "]" : at.host) + ":" + at.port;
}

// The address in the form in which the admin names its end of the connection.
std::string address_text(const asio::ip::tcp::endpoint& endpoint) {
  auto address = endpoint.address();
  if (address.is_v6()) {
    const auto six = address.to_v6();
    if (six.is_v4_mapped()) {
      address = asio::ip::make_address_v4(asio::ip::v4_mapped, six);
    } else {
      // Without the scope, which has another name at the other end.
      address = asio::ip::address_v6(six.to_bytes());
    }
  }
  return host_of({address.to_string(), std::to_string(endpoint.port())});
}

std::string random_nonce() {
  std::array<unsigned char, 32> bytes;
  // A nonce that somebody can guess would let him answer with an old proof.
  if (::getentropy(bytes.data(), bytes.size()) != 0)
    throw std::runtime_error("the system provides no random bytes");
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

void set_fields(Request& request, const HostPort& at, bool last) {
  request.version(11);
  request.set(http::field::host, host_of(at));
  request.set(http::field::user_agent, "tarry");
  request.set(http::field::connection, last ? "close" : "keep-alive");
}

bool has_proof(const Json& body, const std::string& expected) {
  if (!body.is_object() || !body.contains("proofs") || !body["proofs"].is_array()) return false;
  return std::ranges::any_of(body["proofs"], [&](const Json& each) {
    return each.is_string() && same_secret(each.get_ref<const std::string&>(), expected);
  });
}

// The reason not to send the token on this connection; empty when it may be sent.
asio::awaitable<std::string> check_proof(web::HttpStream& stream, const Conversation& talk,
                                         beast::flat_buffer& buffer, error_code& error) {
  const std::string nonce = random_nonce();
  Request request(http::verb::get, "/proof?nonce=" + nonce, 11);
  set_fields(request, talk.at, false);
  co_await http::async_write(stream, request, into(error));
  Parser parser;
  // It is not known yet who answers here.
  parser.body_limit(max_proof_bytes);
  if (!error) co_await http::async_read(stream, buffer, parser, into(error));
  if (error) co_return "";
  const auto& answer = parser.get();
  const Json body = parse_json(answer.body());
  const auto text = [&](const char* name) {
    return body.is_object() && body.contains(name) && body[name].is_string()
               ? body[name].get<std::string>()
               : std::string();
  };
  if (answer.result_int() != 200) {
    co_return fmt::format(
        "it answers {} when asked to prove that it knows the token: is it a program other than "
        "`tarry serve`, or an older one?",
        answer.result_int());
  }
  // The proof stands for an address, so nobody between can pass on one that he got from the broker.
  const std::string here = address_text(stream.socket().remote_endpoint(error));
  if (error) co_return "";
  const std::string proof = text("proof");
  const std::string expected = token_proof(talk.token, nonce, here);
  // A broker with several tokens proves each of them.
  if (same_secret(proof, expected) || has_proof(body, expected)) co_return "";
  const std::string there = text("address");
  // The other side knows the token, but answers for another address.
  if (there != here && same_secret(proof, token_proof(talk.token, nonce, there))) {
    co_return fmt::format(
        "the broker that knows the token is at {}, and something in between forwards connections "
        "from {}: run this where the broker runs (in its container), with --admin {}, or through a "
        "tunnel that has that address at this end, too",
        printable(there), here, printable(there));
  }
  co_return "it does not know this token: is it another broker? Give --data with that broker's "
            "data directory (tarry.data.dir in its settings), or set TARRY_ADMIN_TOKEN to the text "
            "of admin.token there";
}

// Gives away the whole lines of the body so far.
void take_lines(Conversation& talk) {
  std::string& body = talk.parser.get().body();
  std::size_t from = 0;
  for (auto end = body.find('\n'); end != body.npos; end = body.find('\n', from)) {
    (*talk.take)(std::string_view(body).substr(from, end - from));
    from = end + 1;
  }
  body.erase(0, from);
}

asio::awaitable<void> read_by_lines(web::HttpStream& stream, beast::flat_buffer& buffer,
                                    Conversation& talk) {
  // Lines leave the body as they come, so that the answer as a whole may be of any size; the loop
  // limits what has no end of line yet.
  talk.parser.body_limit(boost::none);
  co_await http::async_read_header(stream, buffer, talk.parser, into(talk.error));
  while (!talk.error && !talk.parser.is_done()) {
    co_await http::async_read_some(stream, buffer, talk.parser, into(talk.error));
    ++talk.pieces;
    // The body of an error is one object, which stays whole.
    if (talk.parser.get().result_int() == 200) take_lines(talk);
    if (talk.parser.get().body().size() > AdminClient::max_answer_bytes)
      talk.error = http::error::body_limit;
  }
}

// The question and its answer, on a connection that is ready for them.
asio::awaitable<void> ask_over(web::HttpStream& stream, Conversation& talk) {
  error_code& error = talk.error;
  beast::flat_buffer buffer;
  // A question without the token gives no secret away, so nothing has to be proved.
  if (!talk.token.empty()) {
    talk.refused = co_await check_proof(stream, talk, buffer, error);
    if (error || !talk.refused.empty()) co_return;
    // Only now, and on this connection: another one may lead to another program.
    talk.request.set(http::field::authorization, "Bearer " + talk.token);
  }
  co_await http::async_write(stream, talk.request, into(error));
  if (error) co_return;
  if (talk.take != nullptr) {
    co_await read_by_lines(stream, buffer, talk);
  } else {
    co_await http::async_read(stream, buffer, talk.parser, into(error));
  }
}

asio::awaitable<void> begin_tls(web::HttpStream& stream, Conversation& talk) {
  SSL* const session = stream.session();
  X509_VERIFY_PARAM* const expected = SSL_get0_param(session);
  // A host that is an address has to stand in the certificate as an address, any other as a name.
  if (X509_VERIFY_PARAM_set1_ip_asc(expected, talk.at.host.c_str()) != 1) {
    SSL_set1_host(session, talk.at.host.c_str());
    // This is SSL_set_tlsext_host_name() without its cast in the style of C.
    SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
             const_cast<char*>(talk.at.host.c_str()));
  }
  talk.error = co_await stream.begin_as_client();
  if (const long wrong = SSL_get_verify_result(session); talk.error && wrong != X509_V_OK)
    talk.wrong_certificate = X509_verify_cert_error_string(wrong);
}

// One connection for one question.
asio::awaitable<void> converse(asio::io_context& io, Conversation& talk) {
  asio::ip::tcp::resolver resolver(io);
  error_code& error = talk.error;
  const auto addresses = co_await resolver.async_resolve(talk.at.host, talk.at.port, into(error));
  if (error) co_return;
  beast::tcp_stream connecting(io);
  asio::steady_timer pause(io);
  for (;;) {
    co_await connecting.async_connect(addresses, into(error));
    // If the broker may be starting, only ask() ends the attempts.
    if (error != asio::error::connection_refused || !talk.waits_for_start) break;
    pause.expires_after(between_tries);
    co_await pause.async_wait(into(error));
  }
  if (error) co_return;
  // The stream takes a reference of its own.
  std::shared_ptr<SSL_CTX> tls;
  if (talk.tls) tls = {std::shared_ptr<void>(), talk.tls->native_handle()};
  web::HttpStream stream(connecting.release_socket(), tls);
  if (tls) co_await begin_tls(stream, talk);
  if (!error) co_await ask_over(stream, talk);
}

// The certificates by which an admin with TLS is checked.
Result<> trust(asio::ssl::context& tls, const std::string& ca) {
  error_code error;
  tls.set_verify_mode(asio::ssl::verify_peer);
  SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
  if (ca.empty()) {
    tls.set_default_verify_paths(error);
  } else {
    tls.load_verify_file(ca, error);
  }
  if (!error) return {};
  return fail(Errc::invalid, fmt::format("--admin-ca {}: {}: give a file with certificates in PEM",
                                         printable(ca), error.message()));
}

// Whether it can be a token, and so a part of a header line.
bool is_token(std::string_view text) {
  // A line break in it would begin a header of its own.
  return text.size() >= 32 && text.size() <= 256 &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

// A file that was edited elsewhere may have them.
std::string without_blanks_at_end(std::string line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return without_blanks_at_end(std::move(line));
}

// The token in a file that somebody else has named; empty: there is none.  Only a file of this user
// counts: with another one's, an impostor would prove that he knows what he wrote into it himself.
std::string own_token_in(const std::string& path) {
  // A pipe is opened without waiting, and not read.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return {};
  std::array<char, 512> text{};
  ssize_t got = 0;
  struct stat about {};
  if (::fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == ::geteuid())
    got = ::read(file, text.data(), text.size());
  ::close(file);
  if (got <= 0) return {};
  const std::string_view all(text.data(), static_cast<std::size_t>(got));
  std::string token = without_blanks_at_end(std::string(all.substr(0, all.find('\n'))));
  return is_token(token) ? token : std::string();
}

}  // namespace

AdminClient::AdminClient(AdminSettings settings)
    : settings_(std::move(settings)), address_(printable(settings_.address)) {}

Result<AdminClient::Answer> AdminClient::ask(Asked asked, const std::string& token) {
  refused_.clear();
  obstacle_ = Obstacle::other;
  const auto at = parse_host_port(settings_.address);
  if (!at) return std::unexpected(at.error());
  Conversation talk{*at, {}, token, settings_.waits_for_start, asked.take};
  if (at->is_https) {
    talk.tls.emplace(asio::ssl::context::tls_client);
    if (auto trusted = trust(*talk.tls, settings_.ca); !trusted)
      return std::unexpected(trusted.error());
  }
  talk.request.method_string({asked.method.data(), asked.method.size()});
  talk.request.target({asked.target.data(), asked.target.size()});
  // The connection is for this question alone, so the broker may close it.
  set_fields(talk.request, *at, true);
  if (!asked.body.empty()) {
    talk.request.set(http::field::content_type, "application/json");
    talk.request.body() = std::move(asked.body);
    talk.request.prepare_payload();
  }
  talk.parser.body_limit(max_answer_bytes);
  bool ended = false;
  asio::io_context io;  // Goes first: a conversation that did not end goes with it.
  asio::co_spawn(io, converse(io, talk), [&](std::exception_ptr thrown) {
    ended = true;
    if (thrown) talk.error = asio::error::fault;
  });
  // An answer by lines may take longer than the timeout, as long as something comes within it.
  for (std::size_t before = 1; !ended && before != talk.pieces;) {
    before = talk.pieces;
    io.run_for(time_left());
  }
  if (!ended) {
    return fail(Errc::io, fmt::format("no answer from the admin at {} within {}", address_,
                                      format_duration(settings_.timeout)));
  }
  refused_ = talk.refused;
  if (!talk.refused.empty()) {
    return fail(Errc::io, fmt::format("the admin at {} was not sent the token from {}: {}",
                                      address_, token_source_, talk.refused));
  }
  if (!talk.wrong_certificate.empty()) {
    return fail(Errc::io,
                fmt::format("the certificate of the admin at {} is not accepted: {}; give "
                            "--admin-ca with the authority that has signed it",
                            address_, talk.wrong_certificate));
  }
  if (talk.error == asio::error::connection_refused && at->is_loopback()) {
    obstacle_ = Obstacle::nothing_listens;
    return fail(Errc::io, fmt::format("nothing listens at {}, the address of the admin: is `tarry "
                                      "serve` running?",
                                      address_));
  }
  // A reset in the middle of an answer is that of an admin.
  if (talk.error == http::error::end_of_stream ||
      (talk.error == asio::error::connection_reset && !talk.parser.got_some())) {
    return fail(Errc::io, fmt::format("the admin at {}: it ended the connection without an answer: "
                                      "is it Kafka's port? --admin takes the admin's, -b takes "
                                      "Kafka's",
                                      address_));
  }
  if (talk.error)
    return fail(Errc::io, fmt::format("the admin at {}: {}", address_, talk.error.message()));
  if (const auto& reply = talk.parser.get(); reply.result_int() == 401) {
    const auto given = reply[http::field::www_authenticate];
    const std::string_view challenge(given.data(), given.size());
    obstacle_ = challenge == our_challenge ? Obstacle::wants_token : Obstacle::stranger;
  }
  return Answer{talk.parser.get().result_int(), std::move(talk.parser.get().body())};
}

std::chrono::milliseconds AdminClient::time_left() const {
  using std::chrono::milliseconds;
  if (!settings_.deadline) return settings_.timeout;
  const auto left = std::chrono::duration_cast<milliseconds>(*settings_.deadline -
                                                             std::chrono::steady_clock::now());
  return std::min(settings_.timeout, std::max(left, milliseconds{0}));
}

Result<std::string> AdminClient::body_of(Result<Answer> answer) const {
  if (!answer) return std::unexpected(answer.error());
  if (answer->status >= 200 && answer->status < 300) return std::move(answer->body);
  const Json body = parse_json(answer->body);
  std::string why =
      body.is_object() && body.contains("error") && body["error"].is_string()
          ? escape_control_characters(body["error"].get<std::string>())
          : fmt::format("the admin at {} answers with status {}", address_, answer->status);
  // 503: it is stopping, or its disk is full; the next request would get the same.
  const bool refuses_us = answer->status == 401 || answer->status == 403 || answer->status == 503;
  return fail(answer->status == 404 ? Errc::not_found
              : refuses_us          ? Errc::io
                                    : Errc::invalid,
              std::move(why));
}

std::unexpected<Error> AdminClient::stranger_error() const {
  return fail(Errc::io,
              fmt::format("something else answers at {}: its status 401 does not come from "
                          "a Tarry broker; give --admin with the address of the broker's "
                          "admin",
                          address_));
}

Result<std::string> AdminClient::get(std::string_view target) {
  const auto token = this->token();
  Result<> unsent;
  if (!token) unsent = std::unexpected(token.error());
  if (token && !reads_without_token_) {
    auto answer = ask({"GET", target}, *token);
    if (refused_.empty()) return body_of(std::move(answer));
    unsent = std::unexpected(answer.error());
  }
  // Most admins listen on loopback, where reading needs no token, and the file may not be readable
  // or be that of another broker.
  auto answer = ask({"GET", target}, "");
  if (answer && answer->status == 401 && !unsent) {
    // A missing token would send the user to look for one.
    if (!token && obstacle_ == Obstacle::stranger) return stranger_error();
    return std::unexpected(unsent.error());
  }
  reads_without_token_ = answer && answer->status != 401;
  const bool may_not = answer && answer->status == 403;
  auto body = body_of(std::move(answer));
  // By a rule, which the holder of a token may be exempt from.
  if (may_not && !body && !unsent) {
    return fail(body.error().code,
                fmt::format("{}; {}", body.error().message, unsent.error().message));
  }
  return body;
}

Result<AdminClient::Answer> AdminClient::ask_for_change(Asked asked) {
  auto token = this->token();
  if (!token) {
    // "Nothing listens" helps more than "no token".
    const auto status = ask({"GET", "/status"}, "");
    if (!status) return std::unexpected(status.error());
    if (!find_token_by(*status)) return std::unexpected(token.error());
    token = *token_;
  }
  return ask(std::move(asked), *token);
}

bool AdminClient::place_is_given() const {
  const char* given = std::getenv("TARRY_ADMIN_TOKEN");
  return settings_.data.has_value() || (given != nullptr && *given != '\0');
}

bool AdminClient::find_token_by(const Answer& status) {
  // The directory of an admin on another machine is not here.
  const auto at = parse_host_port(settings_.address);
  if (place_is_given() || !at || !at->is_loopback()) return false;
  const Json body = parse_json(status.body);
  if (!body.is_object() || !body.contains("data") || !body["data"].is_string()) return false;
  const std::string path = body["data"].get<std::string>() + "/admin.token";
  const std::string token = own_token_in(path);
  if (token.empty()) return false;
  token_source_ = cell(path);
  token_ = token;
  return true;
}

Result<std::string> AdminClient::change(std::string_view method, std::string_view target,
                                        std::string body) {
  return body_of(ask_for_change({method, target, std::move(body)}));
}

Result<> AdminClient::change_by_lines(std::string_view method, std::string_view target,
                                      std::string body, const TakeLine& take) {
  const auto rest = body_of(ask_for_change({method, target, std::move(body), &take}));
  if (!rest) return std::unexpected(rest.error());
  return {};
}

Result<std::string> AdminClient::token() {
  if (token_) return *token_;
  const char* given = std::getenv("TARRY_ADMIN_TOKEN");
  // --data was given for this command, so it counts more than the environment.
  if (!settings_.data && given != nullptr && *given != '\0') {
    if (!is_token(given)) {
      return fail(Errc::io,
                  "TARRY_ADMIN_TOKEN is not a token: set it to the text of admin.token in the "
                  "broker's data directory");
    }
    token_source_ = "$TARRY_ADMIN_TOKEN";
    token_ = given;
    return *token_;
  }
  const std::string path = settings_.data.value_or(default_data_directory) + "/admin.token";
  // A std::ifstream does not say why it could not open the file; errno does.
  errno = 0;
  std::string token = first_line_of(path);
  if (is_token(token)) {
    token_source_ = cell(path);
    token_ = token;
    return token;
  }
  const std::string todo =
      "give --data with the broker's data directory (tarry.data.dir in its settings), or set "
      "TARRY_ADMIN_TOKEN to the text of admin.token there";
  if (errno == ENOENT || errno == ENOTDIR) {
    return fail(Errc::io, fmt::format("this needs the admin's token, and {} is not there: {}",
                                      cell(path), todo));
  }
  if (errno != 0) {
    return fail(Errc::io,
                fmt::format("{} cannot be read: run this as its owner, or {}", cell(path), todo));
  }
  return fail(Errc::io, fmt::format("{} holds no token: {}", cell(path), todo));
}

}  // namespace tarry::cli
