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
// Memory: before a handshake computes anything it takes `bytes` of tarry.memory.bytes, of which all
// handshakes together have at most an eighth (broker/context/pool_part.h), and those of one thread
// their share of that, or one of them.  They keep it until they end.  One that finds no room waits
// for it, still with its socket alone, and the newest gets the next that becomes free; the one that
// has held memory longest is ended for it if it has had its chance since then.
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
#include "broker/context/pool_part.h"
#include "server/connection_handoff.h"
#include "server/tls_context.h"

namespace tarry::server {

struct TlsHandshakeLimits {
  // The bound of each thread.
  std::size_t under_way = 1024;
  // What a handshake may take: some 20 KB while it computes, and as much as OpenSSL accepts of one
  // message of a client, which is 131 KB of a ClientHello; it takes them as soon as a client says
  // that so many will come.
  std::size_t bytes = std::size_t{160} << 10;
  std::chrono::milliseconds time{10'000};
  std::chrono::milliseconds chance{2'000};
};

class TlsHandshakes {
 public:
  // The handoff has its TlsSession and the principal of its certificate.
  using Done = std::function<void(ConnectionHandoff handoff)>;
  using Failed = std::function<void(const std::string& peer)>;

  TlsHandshakes(const Clock& clock, std::size_t threads, TlsHandshakeLimits limits,
                std::shared_ptr<broker::MemoryPool> memory, Done done, Failed failed);
  ~TlsHandshakes();  // stop()

  // Takes the socket over.
  void begin(ConnectionHandoff handoff, std::shared_ptr<const TlsContext> context);
  // Ends those that are under way, and the threads.  Nothing is called back after it.
  void stop();

  std::size_t under_way() const;
  // The bytes that they hold, and how many wait for some.
  std::size_t memory() const { return memory_.used(); }
  std::size_t waiting() const;

 private:
  class Worker;
  broker::PoolPart memory_;
  const Done done_;
  const Failed failed_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace tarry::server
