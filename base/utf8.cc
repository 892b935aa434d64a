#include "base/utf8.h"

#include <cstdint>

namespace tarry {
namespace {

std::uint32_t byte(char c) {
  return static_cast<unsigned char>(c);
}

}  // namespace

std::size_t utf8_character_size(std::string_view text) {
  const std::uint32_t first = byte(text[0]);
  if (first < 0x80) return 1;
  std::size_t size;
  std::uint32_t code, smallest;
  if ((first & 0xe0) == 0xc0) {
    size = 2, code = first & 0x1f, smallest = 0x80;
  } else if ((first & 0xf0) == 0xe0) {
    size = 3, code = first & 0x0f, smallest = 0x800;
  } else if ((first & 0xf8) == 0xf0) {
    size = 4, code = first & 0x07, smallest = 0x10000;
  } else {
    return 0;
  }
  if (text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    const std::uint32_t next = byte(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    code = code << 6 | (next & 0x3f);
  }
  // An overlong form would be a second spelling of a character, which a comparison of bytes misses.
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < smallest || code > 0x10ffff || is_surrogate ? 0 : size;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = utf8_character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

bool is_control_character(std::string_view character) {
  const std::uint32_t first = byte(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  // U+0080 to U+009F, with which terminals begin commands as they do with ESC.
  if (character.size() == 2) return first == 0xc2 && byte(character[1]) < 0xa0;
  if (character.size() != 3 || first != 0xe2) return false;
  const std::uint32_t low = (byte(character[1]) & 0x3f) << 6 | (byte(character[2]) & 0x3f);
  return (low >= 0x28 && low <= 0x2e) || (low >= 0x66 && low <= 0x69);  // U+2028.., U+2066..
}

}  // namespace tarry
