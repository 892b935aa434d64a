#include "server/session_context.h"

#include <utility>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::server {

SessionContext::SessionContext(broker::Broker& its_broker, broker::Shard& its_shard,
                               const SessionLimits& its_limits)
    : broker(its_broker),
      shard(its_shard),
      limits(its_limits),
      peers(shard.executor()),
      bulk(shard.executor()),
      scratch(std::make_unique_for_overwrite<std::uint8_t[]>(scratch_bytes)),
      endings(ending_count - 1, LogThrottle(lines_per_kind)) {
  // A wrong setting in one client repeats it for as long as that runs.
  endings.emplace_back(1);
}

void SessionContext::session_begun() {
  shard.counters.connections = ++open;
}

void SessionContext::session_ended() {
  --open;
  shard.counters.connections = open;
  if (open > 0 || !on_all_ended) return;
  std::exchange(on_all_ended, nullptr)();
}

void SessionContext::log_ending(Ending kind, std::string_view peer, std::string_view reason) {
  // A client that does not behave is worth a line; one that went is not.
  if (kind == Ending::usual) {
    log_debug("server", "connection from {} ended: {}", peer, reason);
    return;
  }
  endings[static_cast<std::size_t>(kind)].warn(
      shard.clock().mono(), "server", fmt::format("connection from {} ended: {}", peer, reason));
}

}  // namespace tarry::server
