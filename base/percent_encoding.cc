#include "base/percent_encoding.h"

#include <fmt/core.h>

namespace tarry {

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    // The unreserved characters of RFC 3986: all others may mean something in some part of an
    // address.
    const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (stays) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace tarry
