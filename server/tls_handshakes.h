#pragma once

// TlsHandshakes: does the handshakes of new TLS connections, on threads of its own.
//
//   listener (shard 0) --> begin() --> a thread here: handshake --> done() --> a shard's sessions
//                                           '--> failed(): a bounded number of lines in the log
//
// A handshake takes about a millisecond of computing (a signature), so that a few hundred at once
// would hold up a shard.  These threads have a lower priority than the shards.
//
// Bounds: a handshake that is not done in time is ended.  At most so many are under way; when one
// more comes, the oldest is ended if it has had its chance, else the new one is refused.  A client
// that has sent nothing yet costs no more than its socket.
//
// begin() may be called by any thread; the callbacks come on these threads.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "server/connection_handoff.h"
#include "server/tls_context.h"

namespace tarry::server {

struct TlsHandshakeLimits {
  // The bound of each thread; a handshake takes some 20 KB while it computes.
  std::size_t under_way = 1024;
  std::chrono::milliseconds time{10'000};
  std::chrono::milliseconds chance{2'000};
};

class TlsHandshakes {
 public:
  // The handoff has its TlsSession and the principal of its certificate.
  using Done = std::function<void(ConnectionHandoff handoff)>;
  using Failed = std::function<void(const std::string& peer)>;

  TlsHandshakes(const Clock& clock, std::size_t threads, TlsHandshakeLimits limits, Done done,
                Failed failed);
  ~TlsHandshakes();  // stop()

  // Takes the socket over.
  void begin(ConnectionHandoff handoff, std::shared_ptr<const TlsContext> context);
  // Ends those that are under way, and the threads.  Nothing is called back after it.
  void stop();

  std::size_t under_way() const;

 private:
  class Worker;
  const Done done_;
  const Failed failed_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace tarry::server
