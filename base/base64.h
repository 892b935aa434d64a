#pragma once

// Base64 with the standard alphabet and padding (RFC 4648 section 4).  Any thread.

#include <optional>
#include <string>
#include <string_view>

namespace tarry {

std::string base64(std::string_view bytes);
// Empty for text that is not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tarry
