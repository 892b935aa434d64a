// SaslAuthenticate (key 36), versions 0 to 2, and the bare tokens of older clients: a step of a
// login by PLAIN or SCRAM.
//
// A failure is answered after a while (security/failed_logins.h), with words that do not tell
// whether there is such a user, and ends the connection.  The log says who tried, and never the
// password.

#include <memory>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/one_shot_event.h"
#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "broker/security/plain_users.h"
#include "broker/security/sasl_exchange.h"
#include "protocol/messages/sasl_authenticate.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// A step of a login: an answer, and after the last one the user.
struct LoginStep {
  std::string token;
  std::string user;
};

Result<LoginStep> take_plain(const RequestContext& context, std::string_view token) {
  const auto& settings = context.connection.listener().sasl_settings;
  const auto line = settings.find("plain.sasl.jaas.config");
  auto users = parse_plain_users(line == settings.end() ? std::string() : line->second);
  if (!users) return std::unexpected(users.error());
  auto user = check_plain(*users, token);
  if (user.empty()) return fail(Errc::invalid, "no such user, or a wrong password");
  return LoginStep{{}, std::move(user)};
}

Result<LoginStep> take_scram(const RequestContext& context, SaslExchange& exchange,
                             std::string_view token) {
  auto& scram = *exchange.scram;
  if (!scram.has_begun()) {
    const auto mechanism = *scram_mechanism_named(exchange.mechanism);
    const auto& image = *context.broker.security(context.shard).image;
    auto answer =
        scram.first(token, [&](std::string_view name) { return image.find_user(name, mechanism); });
    if (!answer) return std::unexpected(answer.error());
    return LoginStep{std::move(*answer), {}};
  }
  auto answer = scram.final(token);
  if (!answer) return std::unexpected(answer.error());
  return LoginStep{std::move(*answer), scram.user()};
}

asio::awaitable<void> wait_for_a_failure(const RequestContext& context) {
  auto& shard = context.shard;
  auto& failed = context.broker.security(shard).failed_logins;
  const auto delay = failed.delay_of_next(context.connection.host(), shard.clock().mono(),
                                          shard.config().failed_login_delay);
  if (delay.count() == 0) co_return;
  OneShotEvent passed;
  timing::CallbackTimer timer([&] { passed.fire(); });
  shard.wheel().schedule(timer, shard.tick_after(delay));
  co_await passed.wait();
}

// The next step, and what it changes of the connection.
asio::awaitable<Result<LoginStep>> take_token(RequestContext& context, std::string_view token) {
  auto& connection = context.connection;
  const auto exchange = connection.sasl;
  auto step = exchange->scram ? take_scram(context, *exchange, token) : take_plain(context, token);
  if (!step) {
    ++context.shard.counters.failed_logins_total;
    context.broker.security(context.shard)
        .log_failed_logins.warn(
            context.shard.clock().mono(), "broker",
            fmt::format("a login by {} from {} on listener {} failed: {}", exchange->mechanism,
                        connection.peer(), connection.listener().name, step.error().message));
    co_await wait_for_a_failure(context);
    connection.ends_when_answered = true;
    co_return step;
  }
  if (!step->user.empty()) {
    log_debug("broker", "{} has logged in as {} by {}", connection.peer(), printable(step->user),
              exchange->mechanism);
    connection.logged_in_as(step->user);
    connection.sasl = nullptr;
    connection.takes_raw_tokens = false;
  }
  co_return step;
}

std::string failure_text(std::string_view mechanism) {
  if (mechanism == "PLAIN") return "Authentication failed: Invalid username or password";
  return fmt::format(
      "Authentication failed during authentication due to invalid credentials with SASL mechanism "
      "{}",
      mechanism);
}

asio::awaitable<protocol::SaslAuthenticateResponse> sasl_authenticate(
    RequestContext& context, const protocol::SaslAuthenticateRequest& request) {
  protocol::SaslAuthenticateResponse response;
  if (!context.connection.sasl) {
    response.error_code = ErrorCode::illegal_sasl_state;
    response.error_message = "SaslAuthenticate request received without a SaslHandshake before it";
    context.connection.ends_when_answered = context.connection.needs_login();
    co_return response;
  }
  const std::string mechanism = context.connection.sasl->mechanism;
  const auto step = co_await take_token(context, as_text(request.auth_bytes));
  if (!step) {
    response.error_code = ErrorCode::sasl_authentication_failed;
    response.error_message = failure_text(mechanism);
    co_return response;
  }
  append_bytes(response.auth_bytes, as_bytes(step->token));
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_sasl_authenticate(RequestContext context) {
  return run<protocol::SaslAuthenticateRequest, sasl_authenticate>(std::move(context));
}

asio::awaitable<Answer> run_raw_token(RequestContext context) {
  if (!context.connection.sasl) co_return Answer{{}, "a token of SASL after the login"};
  const auto step = co_await take_token(context, as_text(context.header.body));
  // There is no way to tell the client why.
  if (!step) co_return Answer{{}, "its login failed"};
  Buffer frame;
  append_be(frame, static_cast<std::int32_t>(step->token.size()));
  append_bytes(frame, as_bytes(step->token));
  Answer answer;
  answer.frame.emplace_back(std::move(frame));
  co_return answer;
}

}  // namespace tarry::broker
