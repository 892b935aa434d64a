#include "cli/io/text.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/core.h>

#include "base/log.h"
#include "base/utf8.h"

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

}  // namespace

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
    const std::int8_t value = values[static_cast<unsigned char>(c)];
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
    const std::size_t character = utf8_character_size(text);
    const std::size_t size = std::max<std::size_t>(1, character);
    const std::string_view one = text.substr(0, size);
    if (one == "\n") {
      out += "\\n";
    } else if (one == "\t") {
      out += "\\t";
    } else if (one == "\\") {
      out += "\\\\";
    } else if (character == 0 || is_control_character(one)) {
      for (const char c : one) out += fmt::format("\\x{:02x}", byte(c));
    } else {
      out += one;
    }
    text.remove_prefix(size);
  }
  return out;
}

std::string shortened(std::string_view utf8, std::size_t width) {
  if (width_of(utf8) <= width || width == 0) return std::string(utf8);
  std::size_t end = 0;
  for (std::size_t points = 0; end < utf8.size(); ++end)
    if ((byte(utf8[end]) & 0xc0) != 0x80 && points++ == width - 1) break;
  return std::string(utf8.substr(0, end)) + "…";
}

std::size_t width_of(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char c) { return (byte(c) & 0xc0) != 0x80; }));
}

}  // namespace tarry::cli
