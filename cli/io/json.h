#pragma once

// JSON as commands print it, with fields in the order in which they were added.  Only .cc files
// include it: nlohmann/json is slow to compile.

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "cli/io/text.h"

namespace tarry::cli {

using Json = nlohmann::ordered_json;

inline std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Text as it is; other bytes in base64, with "NAME_base64": true beside them.
inline void put_bytes(Json& to, const std::string& name,
                      const std::optional<std::string_view>& bytes) {
  if (!bytes) {
    to[name] = nullptr;
  } else if (is_utf8(*bytes)) {
    to[name] = *bytes;
  } else {
    to[name] = base64(*bytes);
    to[name + "_base64"] = true;
  }
}

}  // namespace tarry::cli
