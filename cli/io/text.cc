#include "cli/io/text.h"

#include <algorithm>
#include <cstdint>

#include <fmt/core.h>

#include "base/log.h"
#include "base/utf8.h"

namespace tarry::cli {
namespace {

std::uint32_t byte(char c) {
  return static_cast<unsigned char>(c);
}

}  // namespace

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

std::optional<std::string> shell_word(const std::string& text) {
  if (text.empty() || cell(text) != text) return std::nullopt;
  const bool is_plain = std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("-._:/@%+,=").contains(c);
  });
  if (is_plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shortened(std::string_view utf8, std::size_t width) {
  if (width_of(utf8) <= width || width == 0) return std::string(utf8);
  std::size_t end = 0;
  // A byte of the form 10xxxxxx continues a code point.
  for (std::size_t points = 0; end < utf8.size(); ++end)
    if ((byte(utf8[end]) & 0xc0) != 0x80 && points++ == width - 1) break;
  return std::string(utf8.substr(0, end)) + "…";
}

std::vector<std::string> wrapped(std::string_view utf8, std::size_t width) {
  std::vector<std::string> parts;
  std::size_t begin = 0, points = 0;  // Of the part that is being filled.
  std::optional<std::size_t> space;   // The last one within it, at which it can be broken.
  const auto end_part = [&](std::size_t end, std::size_t next) {
    parts.emplace_back(utf8.substr(begin, end - begin));
    begin = next;
    space.reset();
  };
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    if ((byte(utf8[i]) & 0xc0) == 0x80) continue;  // It continues a code point.
    if (points == width) {
      if (utf8[i] == ' ') {
        end_part(i, i + 1);
        points = 0;
        continue;
      }
      if (space) {
        end_part(*space, *space + 1);
      } else {
        end_part(i, i);
      }
      points = width_of(utf8.substr(begin, i - begin));
    }
    if (utf8[i] == ' ' && i > begin) space = i;
    ++points;
  }
  if (begin < utf8.size() || parts.empty()) parts.emplace_back(utf8.substr(begin));
  return parts;
}

// Code points are counted and no display widths: wide characters are rare in names and ids, and a
// table of them would have to follow Unicode's versions.
std::size_t width_of(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char c) { return (byte(c) & 0xc0) != 0x80; }));
}

}  // namespace tarry::cli
