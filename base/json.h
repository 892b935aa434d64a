#pragma once

// JSON: objects keep their fields in the order in which they were added.
//
// nlohmann/json is slow to compile.  Only .cc files include this header, and what they use of the
// library is compiled once, in json.cc, as far as it is not a template of its own.

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/bytes.h"

extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace tarry {

using Json = nlohmann::ordered_json;

// Text that is not JSON gives a value for which is_discarded() is true.  Values may be nested as
// deep as `text` has bytes, and each field of an object is compared with all before it: a caller
// that reads untrusted bytes bounds their number first.
Json parse_json(std::string_view text);

// One line.  Bytes that are not UTF-8 are replaced by U+FFFD.
std::string text_of(const Json& json);

// `to`[`name`]: null, text as it is, or other bytes in base64 with "NAME_base64": true beside them.
void put_bytes(Json& to, const std::string& name, std::optional<std::string_view> bytes);
void put_bytes(Json& to, const std::string& name, std::optional<Bytes> bytes);

}  // namespace tarry
