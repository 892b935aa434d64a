#include "relay/peer_client.h"

#include <utility>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace tarry::relay {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

}  // namespace

asio::awaitable<Result<PeerAnswer>> ask_peer(PeerAsked asked) {
  boost::system::error_code error;
  const auto failed = [&] { return fail(Errc::io, error.message()); };
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
  beast::tcp_stream stream(executor);
  // One deadline for connecting, writing and reading together.
  stream.expires_after(asked.timeout);
  co_await stream.async_connect(found, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return not_reached();
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

}  // namespace tarry::relay
