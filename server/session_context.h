#pragma once

// SessionContext: what the sessions of one shard share: their broker, their limits, the buffer that
// they read into, and how it is logged that they end.
//
// The Sessions own it and outlive their sessions.  It belongs to its shard's thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/log_throttle.h"
#include "broker/broker.h"
#include "broker/shard.h"
#include "server/bulk_queue.h"
#include "server/connection_handoff.h"
#include "server/peer_watch.h"
#include "server/session_limits.h"

namespace tarry::server {

class Session;

// The reasons to close a session; each except the first is logged.
enum class Ending {
  usual,          // The client went, or the broker stops.
  bad_frame,      // Not a frame, or one that is not allowed.
  bad_request,    // Not a request, or one that is not supported.
  refused,        // By its request's handler, which cannot answer it.
  cut_off,        // The client went in the middle of a frame.
  stalled,        // The client did not finish what it had begun.
  too_much_held,  // It holds the most of what all clients may hold.
  failed,         // It ran into an exception: no memory.
  speaks_tls,     // Where plain text is expected.
};
inline constexpr std::size_t ending_count = 9;

// The shared buffer has so many bytes.  One read takes at most so much: many small requests of a
// pipelining producer, or the beginning of a large one, whose rest is read in turn (BulkQueue).
inline constexpr std::size_t scratch_bytes = 64 * 1024;

struct SessionContext {
  SessionContext(broker::Broker& its_broker, broker::Shard& its_shard,
                 const SessionLimits& its_limits);

  void session_begun();
  void session_ended();
  // Logs why a session is closed, a bounded number of lines for each kind.
  void log_ending(Ending kind, std::string_view peer, std::string_view reason);

  broker::Broker& broker;
  broker::Shard& shard;
  SessionLimits limits;
  PeerWatch peers;                          // Watches the sessions that are full.
  BulkQueue bulk;                           // Large requests and answers, in turn.
  std::unique_ptr<std::uint8_t[]> scratch;  // The shared buffer that sockets are read into.
  Session* first = nullptr;                 // The head of the list of sessions.
  std::size_t open = 0;
  bool ending = false;                           // They all are.
  std::move_only_function<void()> on_all_ended;  // The callback of Sessions::end().

  // Called with the peer whenever a session has ended, and not when it went to another shard.
  std::move_only_function<void(std::string_view peer)> on_ended;

  // Gives a connection to the sessions of another shard; none: all stay.
  std::move_only_function<void(broker::Shard& there, ConnectionHandoff handoff)> move_to;

  // A client can cause these lines over and over; this many are enough to identify it.
  static constexpr unsigned lines_per_kind = 20;
  std::vector<LogThrottle> endings;  // One for each Ending.
  LogThrottle not_taken{lines_per_kind};
  LogThrottle failed_requests{lines_per_kind};
};

}  // namespace tarry::server
