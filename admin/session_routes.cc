#include "admin/session_routes.h"

#include <chrono>
#include <string>

#include <fmt/core.h>

#include "admin/call.h"
#include "broker/broker.h"
#include "web/json_reply.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

// `key` for `seconds`; a key of no time ends the cookie.
Reply with_cookie(const Call& call, const std::string& key, std::chrono::seconds time) {
  Reply reply;
  reply.status = 204;
  // No script reads the cookie, and no page of another site makes a browser send it.
  reply.headers.emplace_back(
      "Set-Cookie",
      fmt::format("{}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{}",
                  call.context.cookie_name, key, time.count(), call.came_by_tls ? "; Secure" : ""));
  return reply;
}

}  // namespace

asio::awaitable<Reply> log_in(Call& call) {
  auto& context = call.context;
  const Json body = parse_json(call.body);
  const auto given = body.is_object() ? body.find("token") : body.end();
  if (!body.is_object() || body.size() != 1 || given == body.end() || !given->is_string())
    throw Refused{400, R"(the body has to be {"token": "..."}, with the text of admin.token or )"
                       "admin.read.token in the data directory"};
  const auto token = given->get<std::string>();
  const auto* const holder = context.tokens.with_token(token);
  if (holder == nullptr) {
    // So a connection tries one token in this time; what is right is answered at once.
    co_await context.pauses->wait(context.wrong_login_delay);
    throw Refused{401,
                  "this is not the token; the token is the text of admin.token (or, for reading "
                  "only, admin.read.token) in the broker's data directory"};
  }
  auto& broker = context.broker;
  const auto key = context.sessions.begin(broker.random(), broker.clock().mono(), *holder);
  co_return with_cookie(call, key, Sessions::lifetime);
}

asio::awaitable<Reply> log_out(Call& call) {
  call.context.sessions.end(call.session);
  co_return with_cookie(call, "", std::chrono::seconds(0));
}

asio::awaitable<Reply> get_session(Call& call) {
  co_return json_reply(Json{{"reading", call.may_read},
                            {"token_needed_to_read", !call.context.hosts.reads_are_open()}});
}

}  // namespace tarry::admin
