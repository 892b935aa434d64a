#pragma once

// Sessions: those of one shard, and the connections on their way to it.
//
//   listener --take()--> Session --move_to--> the sessions of another shard
//
// Belongs to its shard's thread.

#include <cstddef>
#include <functional>
#include <string_view>

#include "broker/broker.h"
#include "broker/shard.h"
#include "server/connection_handoff.h"
#include "server/session_context.h"
#include "server/session_limits.h"

namespace tarry::server {

class Sessions : private SessionContext {
 public:
  Sessions(broker::Broker& its_broker, broker::Shard& its_shard, const SessionLimits& its_limits)
      : SessionContext(its_broker, its_shard, its_limits) {}
  ~Sessions();
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  using SessionContext::move_to;
  using SessionContext::on_ended;

  // A connection that cannot be served is closed, with a line in the log, and counts as ended.
  void take(ConnectionHandoff handoff);
  void close_all(std::string_view reason);
  // Closes them all, and whatever is still on its way here; `then` is called when none is left.
  void end(std::string_view reason, std::move_only_function<void()> then);

  // From here on; a connection that is idle now may be so as long as was allowed before.
  void set_limits(const SessionLimits& now) { limits = now; }

  std::size_t size() const { return open; }
  // The bytes of unanswered requests and unwritten answers of all sessions.
  std::size_t bytes_in_flight() const;
};

}  // namespace tarry::server
