// SaslAuthenticate (key 36), versions 0 to 2, and the bare tokens of older clients: a step of a
// login by PLAIN, SCRAM or OAUTHBEARER.
//
// A failure is answered after a while (security/failed_logins.h), with words that do not say
// whether there is such a user, and ends the connection.  A right password waits too while its
// address fails on many connections.  The log says who tried, and never the password.

#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
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
#include "broker/security/token_logins.h"
#include "protocol/messages/sasl_authenticate.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// A step of a login: an answer, and after the last one the user.
struct LoginStep {
  std::string token;
  std::string user;
  std::optional<WallTime> expires = std::nullopt;  // When the shown credential ends.
  std::optional<std::chrono::milliseconds> lifetime = std::nullopt;  // How long the login lasts.
  std::string refused = {};  // The reason, if the token gives one and the error comes later.
};

Result<LoginStep> take_plain(const RequestContext& context, std::string_view token) {
  const auto& settings = context.connection.listener().sasl_settings;
  const auto line = settings.find("plain.sasl.jaas.config");
  auto users = parse_plain_users(line == settings.end() ? std::string() : line->second);
  if (!users) return std::unexpected(users.error());
  auto user = check_plain(*users, token);
  // For the log; the client gets the same words whatever is wrong.
  if (user.empty()) return fail(Errc::invalid, "no such user, or a wrong password");
  return LoginStep{{}, std::move(user)};
}

Result<LoginStep> take_scram(const RequestContext& context, SaslExchange& exchange,
                             std::string_view token) {
  auto& scram = *exchange.scram;
  if (!scram.has_begun()) {
    const auto mechanism = *scram_mechanism_named(exchange.mechanism);
    // The image is used before the first wait, so it need not be kept.
    const auto& image = *context.broker.security(context.shard).image;
    auto answer = scram.first(
        token, [&](std::string_view name) { return image.find_user(name, mechanism); },
        [&](std::uint64_t number) { return image.example_user(number, mechanism); });
    if (!answer) return std::unexpected(answer.error());
    return LoginStep{std::move(*answer), {}};
  }
  auto answer = scram.final(token);
  if (!answer) return std::unexpected(answer.error());
  return LoginStep{std::move(*answer), scram.user()};
}

// A token that is refused is answered with RFC 7628's JSON; the client sends ^A, and then fails.
// Checking a signature takes a tenth of a millisecond, so that it may be done here; the file of
// keys is read elsewhere.
asio::awaitable<Result<LoginStep>> take_bearer(RequestContext& context, SaslExchange& exchange,
                                               std::string_view message) {
  // Kept: others may replace the keys while the file is read.
  const std::shared_ptr<TokenLogins> logins = context.connection.listener().token_logins;
  auto& shard = context.shard;
  if (exchange.token_refused) co_return fail(Errc::invalid, "its token was refused");
  auto parsed = parse_bearer_message(message);
  if (!parsed) co_return std::unexpected(parsed.error());
  if (logins->is_due(shard.clock().mono())) {
    auto look = [logins] {
      logins->read_again(false);
      return true;
    };
    co_await shard.blocking(std::move(look));
  }
  auto user = check_token(parsed->token, *logins->keys(), logins->terms(), shard.clock().wall());
  // Nobody may act for another user, as there is no rule that would allow it.
  if (user && !parsed->acts_as.empty() && parsed->acts_as != user->name)
    user = fail(Errc::invalid, "the client asks to act as another user");
  LoginStep step;
  if (user) {
    step.user = std::move(user->name);
    step.expires = user->expires;
  } else {
    exchange.token_refused = true;
    step.token = R"({"status":"invalid_token"})";
    step.refused = user.error().message;
  }
  co_return step;
}

asio::awaitable<Result<LoginStep>> take_step(RequestContext& context, SaslExchange& exchange,
                                             std::string_view token) {
  if (exchange.scram) co_return take_scram(context, exchange, token);
  if (exchange.mechanism == "PLAIN") co_return take_plain(context, token);
  Result<LoginStep> step = co_await take_bearer(context, exchange, token);
  co_return step;
}

enum class LoginEnd : std::uint8_t { failed, succeeded };

// Waits until it is a login's turn to be answered, or its client has gone.  A client that had not
// to stay would leave requests behind that nobody reads the answers of, on more connections than an
// address may have, and the broker would stop late.
class LoginTurn final : private Connection::CloseListener {
 public:
  LoginTurn(const RequestContext& context, std::chrono::milliseconds delay)
      : CloseListener(&context.connection), shard_(context.shard) {
    // A client that has gone before would never call on_close().
    if (context.connection.closed()) delay = std::chrono::milliseconds{0};
    shard_.wheel().schedule(timer_, shard_.tick_after(delay));
  }
  auto comes() { return come_.wait(); }

 private:
  // Not at once: what it resumes takes this listener away.
  void on_close() override { shard_.wheel().schedule(timer_, shard_.tick()); }

  Shard& shard_;
  OneShotEvent come_;
  timing::CallbackTimer timer_{[this] { come_.fire(); }};
};

asio::awaitable<void> wait_for_its_turn(const RequestContext& context, LoginEnd end) {
  auto& shard = context.shard;
  auto& failed = context.broker.failed_logins();
  const auto host = context.connection.host();
  const auto now = shard.clock().mono();
  const auto base = shard.config().failed_login_delay;
  const auto delay = end == LoginEnd::failed ? failed.wait_of_failure(host, now, base)
                                             : failed.wait_of_success(host, now, base);
  if (delay.count() == 0) co_return;
  LoginTurn turn(context, delay);
  co_await turn.comes();
}

std::chrono::milliseconds max_lifetime(const ListenerInfo& listener, std::string_view mechanism) {
  const auto text = listener.sasl_setting(mechanism, "connections.max.reauth.ms");
  std::int64_t ms = 0;  // Not given, or checked when it was.
  std::from_chars(text.data(), text.data() + text.size(), ms);
  return std::chrono::milliseconds{ms};
}

// The next step, and what it changes of the connection.
asio::awaitable<Result<LoginStep>> take_token(RequestContext& context, std::string_view token) {
  auto& connection = context.connection;
  // Kept here: the end of the login takes it from the connection.
  const auto exchange = connection.sasl;
  const bool was_refused = exchange->token_refused;  // It has been logged and waited for.
  Result<LoginStep> step = co_await take_step(context, *exchange, token);
  // A second login on a connection has to be the same user's.
  const auto& before = connection.origin().sasl_user;
  if (step && !step->user.empty() && !before.empty() && step->user != before)
    step = fail(Errc::invalid,
                fmt::format("the client is already logged in as {}", printable(before)));
  const std::string why = step ? step->refused : step.error().message;
  if (!why.empty() && !was_refused) {
    ++context.shard.counters.failed_logins_total;
    context.broker.security(context.shard)
        .log_failed_logins.warn(
            context.shard.clock().mono(), "audit",
            fmt::format("a login with {} from {} on listener {} failed: {}", exchange->mechanism,
                        connection.peer(), connection.listener().name, why));
    co_await wait_for_its_turn(context, LoginEnd::failed);
  }
  // A token that is refused in an answer is no end yet: the client has to send one more message.
  if (!step) connection.ends_when_answered = true;
  if (!why.empty()) co_return step;
  if (!step->user.empty()) {
    // Nobody guesses a signed token, or tries on a connection that is logged in already.
    const bool is_password = exchange->scram || exchange->mechanism == "PLAIN";
    if (is_password && before.empty()) co_await wait_for_its_turn(context, LoginEnd::succeeded);
    log_debug("broker", "{} has logged in as {} with {}", connection.peer(), printable(step->user),
              exchange->mechanism);
    const auto& clock = context.shard.clock();
    step->lifetime = login_lifetime(max_lifetime(connection.listener(), exchange->mechanism),
                                    step->expires, clock.wall());
    const auto now = clock.mono();
    connection.logged_in(step->user, exchange->mechanism, now,
                         step->lifetime ? std::optional(now + *step->lifetime) : std::nullopt);
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
    // After a login this is an error of one request, and ends nothing.
    context.connection.ends_when_answered = context.connection.needs_login();
    co_return response;
  }
  // A copy, because after the last step there is no exchange.
  const std::string mechanism = context.connection.sasl->mechanism;
  const auto step = co_await take_token(context, as_text(request.auth_bytes));
  if (!step) {
    response.error_code = ErrorCode::sasl_authentication_failed;
    response.error_message = failure_text(mechanism);
    co_return response;
  }
  append_bytes(response.auth_bytes, as_bytes(step->token));
  if (step->lifetime) response.session_lifetime_ms = step->lifetime->count();
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_sasl_authenticate(RequestContext context) {
  return run<protocol::SaslAuthenticateRequest, sasl_authenticate>(std::move(context));
}

asio::awaitable<Answer> run_raw_token(RequestContext context) {
  if (!context.connection.sasl) co_return Answer{{}, "a SASL token after the login"};
  const auto step = co_await take_token(context, as_text(context.header.body));
  // The protocol has no place for the reason.
  if (!step) co_return Answer{{}, "its login failed"};
  Buffer frame;
  append_be(frame, static_cast<std::int32_t>(step->token.size()));
  append_bytes(frame, as_bytes(step->token));
  Answer answer;
  answer.frame.emplace_back(std::move(frame));
  co_return answer;
}

}  // namespace tarry::broker
