#pragma once

// How bytes are shown in JSON: as text when they are UTF-8, else in base64.

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace tarry::admin {

// Whether `text` is well-formed: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

std::string base64(Bytes bytes);  // RFC 4648 section 4, padded.

}  // namespace tarry::admin
