#pragma once

// HttpServer: HTTP/1.1 on a few connections, for people, scripts and Prometheus.
//
//   auto http = HttpServer::open(executor, options);   // Takes the address.
//   ...                                                // The owner opens and starts its parts.
//   (*http)->start(handler);                           // From now on it answers.
//   (*http)->stop();                                   // Before that stops.
//
// Taking the address and answering are two steps, so that a port in use is detected
// before anything on disk is touched.
//
// All input has bounds: connections, the size of a header and of a body, the time that a request
// takes to arrive, the time that a connection stays without one; and so have the answers that
// clients are slow to read, all together.  The memory of a body is asked for before it is read
// (count_bodies()).  A request beyond a bound gets an answer that names the bound, where that is
// possible, and the connection ends.
//
// Health checks have connections of their own, so that an orchestrator does not get 503 because
// other clients keep theirs open.  A connection beyond max_connections is accepted for one request,
// which must be /healthz or /readyz and arrive soon; when those are full too, a new one closes the
// oldest that has sent nothing.
//
// Runs on one thread, that of the executor; start() and stop() are called there, or before it runs.
// After stop() no connection is open any more; a handler that is still waiting for something ends
// by itself, so what it uses lives until the executor has run dry or is gone.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "web/question.h"

struct ssl_ctx_st;

namespace tarry::web {

struct HttpOptions {
  std::string host = "127.0.0.1";  // Name, address without brackets, "localhost", or empty: any.
  std::uint16_t port = 8080;       // 0: a free one.
  // The option that chose the address, for errors, and the words for another choice.
  std::string option = "--admin";
  std::string remedy = "choose another one with --admin HOST:PORT";

  std::size_t max_connections = 100;
  // Further connections, for health checks alone: enough that a check has sent its request before
  // so many newer connections push it out.
  std::size_t health_connections = 16;
  std::chrono::milliseconds health_timeout{2'000};  // For the one request of such a connection.
  std::size_t header_bytes = 8 * 1024;              // Request line and headers.
  std::size_t header_count = 64;
  std::size_t body_bytes = 1024 * 1024;
  // All answers on their way together.  One alone may be larger; another that finds no room is
  // replaced by 503.
  std::size_t answer_bytes = 64 * 1024 * 1024;
  std::chrono::milliseconds request_timeout{10'000};  // For a request to come, an answer to go.
  std::chrono::milliseconds idle_timeout{60'000};     // Between two requests.
};

class HttpServer {
 public:
  // Takes the address.  The error (in_use, invalid, io) is one line that names key and address.
  // Asks for a host's addresses: may block.
  static Result<std::unique_ptr<HttpServer>> open(boost::asio::any_io_executor executor,
                                                  HttpOptions options);
  ~HttpServer();

  // Handlers do not throw but for a failure, which ends the connection.
  using Handler = std::move_only_function<boost::asio::awaitable<Reply>(Question)>;
  // Answers from then on.
  Result<> start(Handler handler);
  void stop();

  // Takes so many bytes where the owner counts memory, and gives them back when what it returns
  // goes, which may be after stop(); null: there is no room.
  using TakeMemory = std::move_only_function<std::shared_ptr<void>(std::size_t bytes)>;
  // From then on bodies take their memory there first: those above 16 KiB by their Content-Length,
  // those in chunks as they grow.  One that finds no room is answered 503.  Before start().
  void count_bodies(TakeMemory take);

  // New connections have TLS from now on, with these certificates.
  void use_tls(std::shared_ptr<ssl_ctx_st> context);

  // "127.0.0.1:8080", "[::1]:8080"; as asked for, with the port that was found.
  const std::string& address() const;
  std::uint16_t port() const;
  // Nobody but this machine can reach it.
  bool is_loopback() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> inside);

  const std::shared_ptr<Impl> impl_;  // Its connections hold it, too.
};

}  // namespace tarry::web
