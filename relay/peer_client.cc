#include "relay/peer_client.h"

#include <algorithm>
#include <utility>

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "base/log.h"
#include "web/http_stream.h"

namespace tarry::relay {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

asio::awaitable<Result<PeerAnswer>> ask_over(web::HttpStream& stream, PeerCall& asked) {
  boost::system::error_code error;
  const auto failed = [&] { return fail(Errc::io, error.message()); };
  http::request<http::string_body> request;
  request.method_string(asked.method);
  request.target(asked.target);
  request.version(11);
  request.set(http::field::host, asked.address);
  request.set(http::field::authorization, asked.authorization);
  // Members ask each other seldom, and a connection that is kept may have gone unnoticed: the
  // request would be repeated without knowing whether it was carried out.
  request.set(http::field::connection, "close");
  request.body() = std::move(asked.body);
  request.prepare_payload();
  co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return failed();
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(asked.max_bytes);
  co_await http::async_read(stream, buffer, parser,
                            asio::redirect_error(asio::use_awaitable, error));
  if (error == http::error::body_limit)
    co_return fail(Errc::too_large, fmt::format("its answer has more than {} MiB; ask for less",
                                                asked.max_bytes >> 20));
  if (error) co_return failed();
  PeerAnswer answer;
  answer.status = parser.get().result_int();
  answer.body = std::move(parser.get().body());
  co_return answer;
}

asio::awaitable<Result<>> begin_tls(web::HttpStream& stream, const std::string& host) {
  SSL* const session = stream.session();
  // A host that is an address has to stand in the certificate as an address, any other as a name.
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) != 1) {
    SSL_set1_host(session, host.c_str());
    // This is SSL_set_tlsext_host_name() without its cast in the style of C.
    SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
             const_cast<char*>(host.c_str()));
  }
  const boost::system::error_code error = co_await stream.begin_as_client();
  if (!error) co_return Result<>{};
  if (const long wrong = SSL_get_verify_result(session); wrong != X509_V_OK) {
    co_return fail(Errc::not_found, fmt::format("its certificate is not accepted: {} (--admin-ca)",
                                                X509_verify_cert_error_string(wrong)));
  }
  co_return fail(Errc::not_found,
                 fmt::format("no TLS with it: {}; give all members --admin-tls-keystore, or none",
                             error.message()));
}

}  // namespace

struct PeerTrust {
  asio::ssl::context tls{asio::ssl::context::tls_client};
};

Result<std::shared_ptr<PeerTrust>> open_peer_trust(const std::string& ca) {
  auto trust = std::make_shared<PeerTrust>();
  boost::system::error_code error;
  trust->tls.set_verify_mode(asio::ssl::verify_peer);
  SSL_CTX_set_min_proto_version(trust->tls.native_handle(), TLS1_2_VERSION);
  if (ca.empty()) {
    trust->tls.set_default_verify_paths(error);
  } else {
    trust->tls.load_verify_file(ca, error);
  }
  if (!error) return trust;
  return fail(Errc::invalid, fmt::format("--admin-ca {}: {}: give a file with certificates in PEM",
                                         printable(ca), error.message()));
}

asio::awaitable<Result<PeerAnswer>> ask_peer(PeerCall asked) {
  boost::system::error_code error;
  // Only before the request has left is it certain that nothing was begun there (orders.cc).
  const auto not_reached = [&] { return fail(Errc::not_found, error.message()); };
  const auto executor = co_await asio::this_coro::executor;
  const auto colon = asked.address.rfind(':');
  std::string host = asked.address.substr(0, colon);
  // The resolver takes an IPv6 address without its brackets.
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string port = colon == std::string::npos ? "" : asked.address.substr(colon + 1);
  tcp::resolver resolver(executor);
  const auto found =
      co_await resolver.async_resolve(host, port, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return not_reached();
  // One deadline for connecting, writing and reading together.
  const auto deadline = std::chrono::steady_clock::now() + asked.timeout;
  beast::tcp_stream connecting(executor);
  connecting.expires_after(asked.timeout);
  co_await connecting.async_connect(found, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return not_reached();
  std::shared_ptr<SSL_CTX> tls;
  if (asked.trust) tls = {asked.trust, asked.trust->tls.native_handle()};
  web::HttpStream stream(connecting.release_socket(), tls);
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  stream.expires_after(std::max(left, std::chrono::milliseconds{0}));
  if (tls) {
    const Result<> begun = co_await begin_tls(stream, host);
    if (!begun) co_return std::unexpected(begun.error());
  }
  Result<PeerAnswer> answer = co_await ask_over(stream, asked);
  co_return answer;
}

}  // namespace tarry::relay
