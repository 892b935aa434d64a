#pragma once

// HttpServer: serves the admin.  HTTP/1.1 on a few connections, for people, scripts and Prometheus.
//
//   auto admin = HttpServer::open(shard_0_executor, options);   // Takes the address.
//   ...                                                         // The broker opens and starts.
//   (*admin)->start(broker, kafka_facts);                       // From now on it answers.
//   (*admin)->stop();                                           // Before the broker stops.
//
// Taking the address and answering are two steps, so that a port in use is detected
// before anything on disk is touched.
//
// All input has bounds: connections, the size of a header and of a body, the time that a request
// takes to arrive, the time that a connection stays without one.  A request beyond a bound gets an
// answer that names the bound, where that is possible, and the connection ends.
//
// Health checks have connections of their own, so that an orchestrator does not get 503 because
// other clients keep theirs open.  A connection beyond max_connections is accepted for one request,
// which must be /healthz or /readyz and arrive soon; when those are full too, a new one closes the
// oldest that has sent nothing.
//
// Runs on shard 0's executor alone; start() and stop() are called there, or before its thread
// runs.  After stop() no connection is open any more; a handler that is still waiting for another
// shard ends by itself, so broker and executor live until the executor has run dry or is gone.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"

struct ssl_ctx_st;

namespace tarry::broker {
class Broker;
}

namespace tarry::admin {

struct HttpOptions {
  std::string host = "127.0.0.1";  // Name, address without brackets, "localhost", or empty: any.
  std::uint16_t port = 8080;       // 0: a free one.
  std::vector<std::string> allowed_hosts = {};  // tarry.admin.allowed.hosts
  bool open_reads = false;                      // tarry.admin.open.reads

  std::size_t max_connections = 100;
  // Further connections, for health checks alone: enough that a check has sent its request before
  // so many newer connections push it out.
  std::size_t health_connections = 16;
  std::chrono::milliseconds health_timeout{2'000};  // For the one request of such a connection.
  std::size_t header_bytes = 8 * 1024;              // Request line and headers.
  std::size_t header_count = 64;
  std::size_t body_bytes = 1024 * 1024;
  std::chrono::milliseconds request_timeout{10'000};  // For a request to come, an answer to go.
  std::chrono::milliseconds idle_timeout{60'000};     // Between two requests.
  std::size_t event_streams = 32;                     // Of max_connections.
  std::chrono::milliseconds event_interval{1'000};
  std::chrono::milliseconds wrong_login_delay{1'000};  // Before the answer to a wrong token.
};

// The addresses where Kafka's clients connect.
struct KafkaFacts {
  std::string address;    // The first listener's.
  std::string listeners;  // All: "INTERNAL://127.0.0.1:9092,...".
  std::size_t max_connections;
};

class HttpServer {
 public:
  // Takes the address.  The error (in_use, invalid, io) is one line that names key and address.
  // Asks for a host's addresses: may block.
  static Result<std::unique_ptr<HttpServer>> open(boost::asio::any_io_executor executor,
                                                  HttpOptions options);
  ~HttpServer();

  // Reads the token, or makes it, and answers from then on; `kafka` is shown in /status.  The error
  // names the token's file and what is wrong with it.
  Result<> start(broker::Broker& broker, KafkaFacts kafka);
  void stop();

  // New connections have TLS from now on, with these certificates.
  void use_tls(std::shared_ptr<ssl_ctx_st> context);

  // "127.0.0.1:8080", "[::1]:8080"; as asked for, with the port that was found.
  const std::string& address() const;

  // The open streams of GET /events, and how often their data was computed.  Any thread.
  std::size_t event_streams() const;
  std::uint64_t event_rounds() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> inside);

  const std::shared_ptr<Impl> impl_;  // Its connections hold it, too.
};

}  // namespace tarry::admin
