#pragma once

// JSON as all handlers answer it: fields in the order in which they were put in.  For .cc files
// alone: it brings nlohmann/json with it.

#include <nlohmann/json.hpp>

#include "admin/call.h"

namespace tarry::admin {

using Json = nlohmann::ordered_json;

inline Reply json_reply(const Json& body, unsigned status = 200) {
  // What is not UTF-8 was shown in base64; this is for what nobody thought of.
  return {status, body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

}  // namespace tarry::admin
