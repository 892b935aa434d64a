#pragma once

// Sessions: browsers that have shown a token at POST /login and may read since.
//
//   POST /login {"token": T} --> begin() --> Set-Cookie: KEY      (HttpOnly, SameSite=Strict)
//   GET /events, Cookie: KEY --> holder_of()   whose token it was
//
// A session may read and nothing else: changes always carry the token itself, so that a page of
// another site, whose requests a browser sends with our cookie, changes nothing.
//
// In memory alone: a restart of the broker ends all.  At most max_sessions; one more ends the
// oldest.  On shard 0's thread.

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/random.h"
#include "web/access_tokens.h"

namespace tarry::admin {

class Sessions {
 public:
  static constexpr std::size_t max_sessions = 64;
  static constexpr std::chrono::hours lifetime{12};

  // The key of a new one: 64 hexadecimal digits.  `holder` stays where it is.
  std::string begin(Random& random, MonoTime now, const web::AccessTokens::Holder& holder);
  // Null: there is no such session.
  const web::AccessTokens::Holder* holder_of(std::string_view key, MonoTime now) const;
  void end(std::string_view key);

  std::size_t size() const { return sessions_.size(); }

 private:
  struct Session {
    std::string key;
    MonoTime until;
    const web::AccessTokens::Holder* holder;
  };

  std::deque<Session> sessions_;  // The oldest first; some may be over.
};

// The value of a cookie in a Cookie header; empty: it has none.
std::string_view cookie_in(std::string_view header, std::string_view name);

}  // namespace tarry::admin
