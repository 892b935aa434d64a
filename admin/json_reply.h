#pragma once

// JSON answers of all handlers: fields in the order in which they were added.  Only for .cc files,
// because it includes nlohmann/json.

#include <nlohmann/json.hpp>

#include "admin/call.h"

namespace tarry::admin {

using Json = nlohmann::ordered_json;

inline Reply json_reply(const Json& body, unsigned status = 200) {
  // Handlers show bytes that are not UTF-8 in base64; this replaces any that they missed.
  return {status, body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

}  // namespace tarry::admin
