#include "cli/io/text.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::cli {
namespace {

constexpr std::string_view letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr auto values = [] {
  std::array<std::int8_t, 256> of{};
  of.fill(-1);
  for (std::size_t i = 0; i < letters.size(); ++i)
    of[static_cast<unsigned char>(letters[i])] = static_cast<std::int8_t>(i);
  return of;
}();

std::uint32_t byte(char c) {
  return static_cast<unsigned char>(c);
}

// The size of the UTF-8 character at the front; 0 when the bytes are not one.
std::size_t character(std::string_view text) {
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
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < smallest || code > 0x10ffff || is_surrogate ? 0 : size;
}

// Characters that move a terminal's cursor, or turn the text around.
bool is_control(std::string_view character) {
  const std::uint32_t first = byte(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  if (character.size() == 2) return first == 0xc2 && byte(character[1]) < 0xa0;
  if (character.size() != 3 || first != 0xe2) return false;
  const std::uint32_t low = (byte(character[1]) & 0x3f) << 6 | (byte(character[2]) & 0x3f);
  return (low >= 0x28 && low <= 0x2e) || (low >= 0x66 && low <= 0x69);  // U+2028.., U+2066..
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = character(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = bytes.size() - i;
    const std::uint32_t three = byte(bytes[i]) << 16 | (left > 1 ? byte(bytes[i + 1]) << 8 : 0) |
                                (left > 2 ? byte(bytes[i + 2]) : 0);
    out += letters[three >> 18];
    out += letters[three >> 12 & 63];
    out += left > 1 ? letters[three >> 6 & 63] : '=';
    out += left > 2 ? letters[three & 63] : '=';
  }
  return out;
}

Result<std::string> from_base64(std::string_view text) {
  const auto wrong = [&] {
    return fail(Errc::invalid, fmt::format("'{}' is not base64", printable(text, 64)));
  };
  if (text.size() % 4 != 0) return wrong();
  std::size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) return wrong();
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xff);
    }
  }
  return out;
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    stays ? void(out += c) : void(out += fmt::format("%{:02X}", byte(c)));
  }
  return out;
}

std::string cell(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = std::max<std::size_t>(1, character(text));
    const std::string_view one = text.substr(0, size);
    if (one == "\n") {
      out += "\\n";
    } else if (one == "\t") {
      out += "\\t";
    } else if (one == "\\") {
      out += "\\\\";
    } else if (character(text) == 0 || is_control(one)) {
      for (const char c : one) out += fmt::format("\\x{:02x}", byte(c));
    } else {
      out += one;
    }
    text.remove_prefix(size);
  }
  return out;
}

std::size_t width_of(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char c) { return (byte(c) & 0xc0) != 0x80; }));
}

}  // namespace tarry::cli
