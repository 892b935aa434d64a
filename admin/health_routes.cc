#include "admin/health_routes.h"

#include <string>

#include <fmt/core.h>

#include "admin/call.h"
#include "admin/overview.h"
#include "base/token_proof.h"
#include "broker/broker.h"
#include "web/json_reply.h"

namespace tarry::admin {

namespace asio = boost::asio;

asio::awaitable<Reply> get_health(Call&) {
  // Shard 0 has its turn: the process lives and does not hang.
  co_return json_reply(Json{{"status", "ok"}});
}

asio::awaitable<Reply> get_readiness(Call& call) {
  const auto shards = co_await broker::shard_statuses(call.context.broker, call.context.here);
  const auto state = state_of(call.context.broker, shards);
  Json body;
  body["status"] = state;
  if (state != "running") {
    body["error"] = state == disk_full ? "disk full: the broker accepts no records"
                                       : fmt::format("the broker is {}", state);
    // A load balancer looks at the status alone.
    co_return json_reply(body, 503);
  }
  co_return json_reply(body);
}

asio::awaitable<Reply> get_proof(Call& call) {
  const auto* nonce = call.parameter("nonce");
  if (nonce == nullptr || !is_proof_nonce(*nonce)) {
    throw Refused{400,
                  "give a nonce of 64 hexadecimal digits (0-9a-f), as in "
                  "/proof?nonce=" +
                      std::string(64, '0')};
  }
  const auto& holders = call.context.tokens.holders();
  // Whichever token a client has, it finds the proof of it.
  Json proofs = Json::array();
  for (const auto& holder : holders) proofs.push_back(holder.token.proof(*nonce, call.local));
  Json body{{"proof", proofs.front()}, {"address", call.local}};
  body["proofs"] = std::move(proofs);
  co_return json_reply(body);
}

}  // namespace tarry::admin
