#include "cli/admin_client.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "base/log.h"
#include "base/time_text.h"
#include "cli/json.h"

namespace tarry::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

auto into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

using Request = http::request<http::empty_body>;
using Parser = http::response_parser<http::string_body>;

// One connection for one question.
asio::awaitable<void> converse(asio::io_context& io, HostPort at, Request request, Parser& parser,
                               error_code& error) {
  asio::ip::tcp::resolver resolver(io);
  const auto addresses = co_await resolver.async_resolve(at.host, at.port, into(error));
  if (error) co_return;
  beast::tcp_stream stream(io);
  co_await stream.async_connect(addresses, into(error));
  if (error) co_return;
  co_await http::async_write(stream, request, into(error));
  if (error) co_return;
  beast::flat_buffer buffer;
  co_await http::async_read(stream, buffer, parser, into(error));
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const auto colon = rest.rfind(':');
  const auto wrong = [&] {
    return fail(Errc::invalid,
                fmt::format("{}: give it as HOST:PORT, as in 127.0.0.1:8080", printable(text)));
  };
  if (colon == rest.npos || colon == 0) return wrong();
  HostPort at{std::string(rest.substr(0, colon)), std::string(rest.substr(colon + 1))};
  if (at.host.starts_with('[') && at.host.ends_with(']')) {
    at.host = at.host.substr(1, at.host.size() - 2);
  } else if (at.host.find_first_of(":/[]") != at.host.npos) {
    return wrong();
  }
  const bool is_number = at.port.find_first_not_of("0123456789") == at.port.npos;
  if (at.host.empty() || at.port.empty() || at.port.size() > 5 || !is_number ||
      std::stoi(at.port) > 65535) {
    return wrong();
  }
  return at;
}

bool HostPort::is_loopback() const {
  if (host == "localhost") return true;
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

AdminClient::AdminClient(std::string address, std::chrono::milliseconds timeout)
    : address_(std::move(address)), timeout_(timeout) {}

Result<AdminClient::Answer> AdminClient::ask(std::string_view method, std::string_view target,
                                             std::string_view token) {
  const auto at = parse_host_port(address_);
  if (!at) return std::unexpected(at.error());
  Request request;
  request.method_string({method.data(), method.size()});
  request.target({target.data(), target.size()});
  request.version(11);
  request.set(http::field::host, at->host.find(':') == std::string::npos
                                     ? at->host + ":" + at->port
                                     : "[" + at->host + "]:" + at->port);
  request.set(http::field::user_agent, "tarry");
  request.set(http::field::connection, "close");
  if (!token.empty()) request.set(http::field::authorization, fmt::format("Bearer {}", token));

  Parser parser;
  parser.body_limit(largest_answer);
  error_code error;
  bool ended = false;
  asio::io_context io;  // Goes first: a conversation that did not end goes with it.
  asio::co_spawn(io, converse(io, *at, std::move(request), parser, error),
                 [&](std::exception_ptr) { ended = true; });
  io.run_for(timeout_);
  if (!ended) {
    return fail(Errc::io, fmt::format("no answer from the admin at {} within {}",
                                      printable(address_), format_duration(timeout_)));
  }
  if (error) {
    return fail(Errc::io, fmt::format("the admin at {}: {}", printable(address_), error.message()));
  }
  return Answer{parser.get().result_int(), std::move(parser.get().body())};
}

Result<std::string> AdminClient::body_of(Result<Answer> answer) const {
  if (!answer) return std::unexpected(answer.error());
  if (answer->status >= 200 && answer->status < 300) return std::move(answer->body);
  const Json body = Json::parse(answer->body, nullptr, false);
  std::string why = body.is_object() && body.contains("error") && body["error"].is_string()
                        ? cell(body["error"].get<std::string>())
                        : fmt::format("the admin at {} answers with status {}", printable(address_),
                                      answer->status);
  if (answer->status == 401) why += "; the token is taken from $TARRY_ADMIN_TOKEN";
  return fail(answer->status == 404 ? Errc::not_found : Errc::invalid, std::move(why));
}

Result<std::string> AdminClient::get(std::string_view target) {
  // Off loopback the admin asks for the token for reading too.
  const char* given = std::getenv("TARRY_ADMIN_TOKEN");
  return body_of(ask("GET", target, given == nullptr ? "" : given));
}

Result<std::string> AdminClient::remove(std::string_view target) {
  const auto token = this->token();
  if (!token) return std::unexpected(token.error());
  return body_of(ask("DELETE", target, *token));
}

Result<std::string> AdminClient::token() {
  if (token_) return *token_;
  if (const char* given = std::getenv("TARRY_ADMIN_TOKEN"); given != nullptr && *given != '\0') {
    token_ = given;
    return *token_;
  }
  const auto at = parse_host_port(address_);
  if (!at) return std::unexpected(at.error());
  if (!at->is_loopback()) {
    return fail(Errc::invalid,
                fmt::format("the admin at {} wants its token: set TARRY_ADMIN_TOKEN to what stands "
                            "in admin.token in its data directory",
                            printable(address_)));
  }
  const auto status = get("/status");
  if (!status) return std::unexpected(status.error());
  const Json body = Json::parse(*status, nullptr, false);
  if (!body.is_object() || !body.contains("data") || !body["data"].is_string()) {
    return fail(Errc::io, fmt::format("the admin at {} does not name its data directory",
                                      printable(address_)));
  }
  const std::string path = body["data"].get<std::string>() + "/admin.token";
  errno = 0;
  const std::string token = first_line_of(path);
  if (token.empty() && (errno == ENOENT || errno == ENOTDIR)) {
    return fail(Errc::not_found,
                fmt::format("{} is not there, though the admin at {} names it: set "
                            "TARRY_ADMIN_TOKEN to what stands in it where the broker runs",
                            cell(path), printable(address_)));
  }
  if (token.empty()) {
    return fail(Errc::not_found,
                fmt::format("{} cannot be read: run this as its owner, or set TARRY_ADMIN_TOKEN to "
                            "what stands in it",
                            cell(path)));
  }
  token_ = token;
  return token;
}

}  // namespace tarry::cli
