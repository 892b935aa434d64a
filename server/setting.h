#pragma once

// Setting: a key and a value as they were given, and where.

#include <string>
#include <string_view>

#include "base/log.h"

namespace tarry::server {

struct Setting {
  std::string where;  // "tarry.properties:12", "--set", "--shards".
  std::string key;
  std::string value;
};

// A value as an error shows it: as it was given, but without control characters.
inline std::string value_text(std::string_view value) {
  return value.empty() ? "(nothing)" : printable(value);
}

}  // namespace tarry::server
