#pragma once

// JSON answers of all handlers.  Only for .cc files (base/json.h).

#include "base/json.h"
#include "web/question.h"

namespace tarry::web {

inline Reply json_reply(const Json& body, unsigned status = 200) {
  // Handlers show bytes that are not UTF-8 in base64; this replaces any that they missed.
  return {status, text_of(body) + "\n"};
}

}  // namespace tarry::web
