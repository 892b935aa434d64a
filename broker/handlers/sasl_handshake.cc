// SaslHandshake (key 17), versions 0 and 1: the client says by which mechanism it logs in.  After
// version 1 it sends SaslAuthenticate, after version 0 bare tokens with their size before them.  A
// client that has logged in before logs in again by the same mechanism.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "base/base64.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "broker/security/sasl_exchange.h"
#include "protocol/messages/sasl_handshake.h"

namespace tarry::broker {

using protocol::ErrorCode;

namespace {

std::string new_nonce(Random& random) {
  std::string bytes(24, '\0');
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const auto number = random.u64();
    std::memcpy(bytes.data() + at, &number, 8);
  }
  return base64(bytes);
}

void note_refused(const RequestContext& context, std::string_view line) {
  auto& shard = context.shard;
  context.broker.security(shard).log_refused_mechanisms.warn(shard.clock().mono(), "audit", line);
}

protocol::SaslHandshakeResponse sasl_handshake(RequestContext& context,
                                               const protocol::SaslHandshakeRequest& request) {
  auto& connection = context.connection;
  protocol::SaslHandshakeResponse response;
  const auto& origin = connection.origin();
  // A client may log in again before its login ends, but not as often as it likes.
  const bool again = has_sasl(connection.listener().protocol) && !connection.needs_login() &&
                     context.shard.clock().mono() - origin.logged_in_at >= min_login_interval;
  // A handshake within a login would begin it anew, with another user's first step behind it.
  if (connection.sasl || (!connection.needs_login() && !again)) {
    response.error_code = ErrorCode::illegal_sasl_state;
    return response;
  }
  if (again && request.mechanism != origin.sasl_mechanism) {
    note_refused(
        context,
        fmt::format("{} from {} on listener {} may not log in again with {}: its login was "
                    "with {}",
                    printable(connection.principal()), connection.peer(),
                    connection.listener().name, printable(request.mechanism),
                    origin.sasl_mechanism));
    response.error_code = ErrorCode::illegal_sasl_state;
    connection.ends_when_answered = true;
    return response;
  }
  const auto& mechanisms = connection.listener().mechanisms;
  // With an error too: the client is told which mechanisms there are.
  response.mechanisms = mechanisms;
  const auto scram = scram_mechanism_named(request.mechanism);
  if (std::ranges::find(mechanisms, request.mechanism) == mechanisms.end() ||
      (!scram && request.mechanism != "PLAIN" && !connection.listener().token_logins)) {
    note_refused(
        context,
        fmt::format("a login with {} from {} on listener {} is refused: the mechanism is "
                    "not enabled (sasl.enabled.mechanisms)",
                    printable(request.mechanism), connection.peer(), connection.listener().name));
    response.error_code = ErrorCode::unsupported_sasl_mechanism;
    connection.ends_when_answered = true;
    return response;
  }
  auto exchange = std::make_shared<SaslExchange>();
  exchange->mechanism = request.mechanism;
  if (scram) {
    exchange->scram.emplace(*scram, new_nonce(context.broker.random()),
                            context.broker.login_secret());
  }
  connection.sasl = std::move(exchange);
  connection.takes_raw_tokens = context.version() == 0;
  return response;
}

}  // namespace

boost::asio::awaitable<Answer> run_sasl_handshake(RequestContext context) {
  return run_at_once<protocol::SaslHandshakeRequest, sasl_handshake>(std::move(context));
}

}  // namespace tarry::broker
