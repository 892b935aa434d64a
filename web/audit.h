#pragma once

// Audit: the lines of the category audit about an admin's requests: whatever was refused, and
// whatever was changed, each with who it was.
//
//   audit: night-shift with the role operate from 10.0.0.7:4711 on the admin: DELETE
//   /topics/orders:
//          denied (403)
//
// A client can cause either over and over, so a limited number is written.  No token is in them.
//
// Belongs to one thread.

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log_throttle.h"
#include "web/access_tokens.h"
#include "web/question.h"

namespace tarry::web {

class Audit {
 public:
  // By the token that came; null: nobody's.
  static std::string name_of(const AccessTokens::Holder* holder, const Question& question);

  // A request of `who` was answered.  `changes`: its route changes something.
  void note(std::string_view who, const Question& question, unsigned status, bool changes,
            MonoTime now);

 private:
  LogThrottle refused_{20};
  LogThrottle changes_{20};
};

}  // namespace tarry::web
