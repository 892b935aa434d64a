#pragma once

// AdminServer: the admin of a broker over HTTP (web/http_server.h), with all that its handlers
// share.
//
//   auto admin = AdminServer::open(shard_0_executor, options);   // Takes the address.
//   ...                                                          // The broker opens and starts.
//   (*admin)->start(broker, kafka_facts);                        // From now on it answers.
//   (*admin)->stop();                                            // Before the broker stops.
//
// Runs on shard 0's executor alone; start() and stop() are called there, or before its thread
// runs.  After stop() no connection is open any more; a handler that is still waiting for another
// shard ends by itself, so broker and executor live until the executor has run dry or is gone.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "web/http_server.h"

struct ssl_ctx_st;

namespace tarry::broker {
class Broker;
}

namespace tarry::admin {

struct AdminOptions : web::HttpOptions {
  std::vector<std::string> allowed_hosts = {};  // tarry.admin.allowed.hosts
  bool open_reads = false;                      // tarry.admin.open.reads
  bool loopback_reads = true;                   // tarry.admin.loopback.reads=open
  std::size_t event_streams = 32;               // Part of max_connections.
  std::chrono::milliseconds event_interval{1'000};
  std::chrono::milliseconds wrong_login_delay{1'000};  // Before the answer to a wrong token.
};

// The addresses where Kafka clients connect, and the limits of their connections.
struct KafkaFacts {
  std::string address;                      // The first listener's.
  std::string listeners;                    // All: "INTERNAL://127.0.0.1:9092,...".
  std::vector<std::string> open_listeners;  // The addresses beyond loopback without a login.
  // max.connections as it is now, and how many of them the limit of open files allows.
  std::function<std::size_t()> wanted_connections, max_connections;
  std::string advertised = {};  // The addresses that clients are told, as in `listeners`.
};

class AdminServer {
 public:
  // Takes the address.  The error (in_use, invalid, io) is one line that names key and address.
  // Asks for a host's addresses: may block.
  static Result<std::unique_ptr<AdminServer>> open(boost::asio::any_io_executor executor,
                                                   AdminOptions options);
  ~AdminServer();

  // Reads the tokens, or makes them, and answers from then on; `kafka` is shown in /status.  The
  // error names a token's file and what is wrong with it.
  Result<> start(broker::Broker& broker, KafkaFacts kafka);
  void stop();

  // New connections have TLS from now on, with these certificates.
  void use_tls(std::shared_ptr<ssl_ctx_st> context);

  // "127.0.0.1:8080", "[::1]:8080"; as asked for, with the port that was found.
  const std::string& address() const;

  // A second has passed: what the page's charts show is noted, if it may have changed.  `turns` is
  // the number of turns that the shards' threads have made, and is asked later, too.  Any thread.
  void second_passed(std::function<std::uint64_t()> turns);

  // The open streams of GET /events, and how often their data was computed.  Any thread.
  std::size_t event_streams() const;
  std::uint64_t event_rounds() const;

 private:
  struct State;
  AdminServer(AdminOptions options, boost::asio::any_io_executor executor,
              std::unique_ptr<web::HttpServer> http);

  const AdminOptions options_;
  const boost::asio::any_io_executor executor_;
  const std::unique_ptr<web::HttpServer> http_;
  const std::shared_ptr<State> state_;
};

}  // namespace tarry::admin
