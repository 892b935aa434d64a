#pragma once

// JSON as commands print it.  Only .cc files include it (base/json.h).

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/io/text.h"

namespace tarry::cli {

using tarry::text_of;

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
