#include "admin/encoding.h"

#include <cstdint>

namespace tarry::admin {

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    std::size_t more;
    std::uint32_t code, smallest;
    if (first < 0x80) {
      ++i;
      continue;
    } else if ((first & 0xe0) == 0xc0) {
      more = 1, code = first & 0x1f, smallest = 0x80;
    } else if ((first & 0xf0) == 0xe0) {
      more = 2, code = first & 0x0f, smallest = 0x800;
    } else if ((first & 0xf8) == 0xf0) {
      more = 3, code = first & 0x07, smallest = 0x10000;
    } else {
      return false;
    }
    if (text.size() - i <= more) return false;
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    if (code < smallest || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
    i += more + 1;
  }
  return true;
}

std::string base64(Bytes bytes) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = bytes.size() - i;
    const std::uint32_t three = static_cast<std::uint32_t>(bytes[i]) << 16 |
                                (left > 1 ? static_cast<std::uint32_t>(bytes[i + 1]) << 8 : 0) |
                                (left > 2 ? bytes[i + 2] : 0u);
    out += letters[three >> 18];
    out += letters[three >> 12 & 63];
    out += left > 1 ? letters[three >> 6 & 63] : '=';
    out += left > 2 ? letters[three & 63] : '=';
  }
  return out;
}

}  // namespace tarry::admin
