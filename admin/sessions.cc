#include "admin/sessions.h"

#include <fmt/core.h>

#include "base/list_text.h"
#include "base/token_proof.h"

namespace tarry::admin {

std::string Sessions::begin(Random& random, MonoTime now, const web::AccessTokens::Holder& holder) {
  std::erase_if(sessions_, [&](const Session& session) { return session.until <= now; });
  // A flood of logins costs the oldest browser its session and no memory.
  if (sessions_.size() == max_sessions) sessions_.pop_front();
  std::string key;
  for (int i = 0; i < 4; ++i) key += fmt::format("{:016x}", random.u64());
  sessions_.push_back({key, now + lifetime, &holder});
  return key;
}

const web::AccessTokens::Holder* Sessions::holder_of(std::string_view key, MonoTime now) const {
  const web::AccessTokens::Holder* holder = nullptr;
  for (const Session& session : sessions_)
    // All are looked at, each in a time that does not depend on how much of it is right.
    if (same_secret(session.key, key) && now < session.until) holder = session.holder;
  return holder;
}

void Sessions::end(std::string_view key) {
  std::erase_if(sessions_, [&](const Session& session) { return same_secret(session.key, key); });
}

std::string_view cookie_in(std::string_view header, std::string_view name) {
  while (!header.empty()) {
    const auto pair = take_element(header, ';');
    const auto equals = pair.find('=');
    if (equals != pair.npos && pair.substr(0, equals) == name) return pair.substr(equals + 1);
  }
  return {};
}

}  // namespace tarry::admin
