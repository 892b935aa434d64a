#include "server/properties_file.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/read_small_file.h"

namespace tarry::server {
namespace {

// A longer file is not a configuration.
constexpr std::size_t max_file_bytes = 1 << 20;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\f';
}

void append_utf8(std::string& to, std::uint32_t code) {
  if (code < 0x80) {
    to += static_cast<char>(code);
  } else if (code < 0x800) {
    to += static_cast<char>(0xc0 | (code >> 6));
    to += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    to += static_cast<char>(0xe0 | (code >> 12));
    to += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    to += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    to += static_cast<char>(0xf0 | (code >> 18));
    to += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    to += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    to += static_cast<char>(0x80 | (code & 0x3f));
  }
}

std::optional<std::uint32_t> four_hex_digits(std::string_view text) {
  if (text.size() < 4) return std::nullopt;
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, code, 16);
  // Four exactly, as in Java: from_chars() alone would be content with fewer.
  if (error != std::errc{} || end != text.data() + 4) return std::nullopt;
  return code;
}

// Parses one logical line: separates key and value, and replaces escapes.
class LineParser {
 public:
  explicit LineParser(std::string_view line) : left_(line) {}

  Result<std::pair<std::string, std::string>> parse() {
    std::string key, value;
    // As in Java's properties, which Kafka's are: a blank, = or : ends a key, unless it is escaped.
    while (!left_.empty() && !is_blank(left_[0]) && left_[0] != '=' && left_[0] != ':') {
      if (auto taken = take(key); !taken) return std::unexpected(taken.error());
    }
    skip_blanks();
    if (!left_.empty() && (left_[0] == '=' || left_[0] == ':')) left_.remove_prefix(1);
    skip_blanks();
    std::size_t end = 0;  // The value's size without the blanks behind it.
    while (!left_.empty()) {
      const bool blank = is_blank(left_[0]);
      if (auto taken = take(value); !taken) return std::unexpected(taken.error());
      if (!blank) end = value.size();
    }
    value.resize(end);
    return std::pair(std::move(key), std::move(value));
  }

 private:
  void skip_blanks() {
    while (!left_.empty() && is_blank(left_[0])) left_.remove_prefix(1);
  }

  // The next character, which may be written as an escape.
  Result<> take(std::string& to) {
    const char c = left_[0];
    left_.remove_prefix(1);
    if (c != '\\') {
      to += c;
      return {};
    }
    if (left_.empty()) return {};  // A backslash at the end of the file has no line to join.
    const char escaped = left_[0];
    left_.remove_prefix(1);
    switch (escaped) {
      case 't':
        to += '\t';
        return {};
      case 'n':
        to += '\n';
        return {};
      case 'r':
        to += '\r';
        return {};
      case 'f':
        to += '\f';
        return {};
      case 'u':
        return take_code(to);
      default:
        to += escaped;
        return {};
    }
  }

  // Java writes a character above U+FFFF as two escapes, a surrogate pair.
  Result<> take_code(std::string& to) {
    const auto wrong = [] {
      return fail(Errc::invalid, "\\u needs four hex digits, as in \\u00e9");
    };
    auto code = four_hex_digits(left_);
    // The second half of a pair means nothing alone.
    if (!code || (*code >= 0xdc00 && *code < 0xe000)) return wrong();
    left_.remove_prefix(4);
    if (*code >= 0xd800 && *code < 0xdc00) {
      const auto low = left_.starts_with("\\u") ? four_hex_digits(left_.substr(2)) : std::nullopt;
      if (!low || *low < 0xdc00 || *low >= 0xe000) return wrong();
      left_.remove_prefix(6);
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
    }
    append_utf8(to, *code);
    return {};
  }

  std::string_view left_;
};

// Whether the line ends in a backslash that is not escaped itself.
bool is_continued(std::string_view line) {
  // Two backslashes are one that stands for itself, so only an odd number joins lines.
  const auto last = line.find_last_not_of('\\');
  const auto backslashes = line.size() - (last == std::string_view::npos ? 0 : last + 1);
  return backslashes % 2 == 1;
}

}  // namespace

Result<std::vector<Setting>> parse_properties(std::string_view text, std::string_view name) {
  std::vector<Setting> settings;
  std::string logical;     // The logical line: several, when they end in a backslash.
  std::size_t number = 0;  // The line that was read last.
  std::size_t begun = 0;   // The first line of the logical line.
  bool joining = false;

  while (!text.empty()) {
    const auto end = text.find_first_of("\r\n");
    std::string_view line = text.substr(0, end);
    if (end == std::string_view::npos) {
      text = {};
    } else {
      text.remove_prefix(end + (text.substr(end).starts_with("\r\n") ? 2 : 1));
    }
    ++number;
    while (!line.empty() && is_blank(line[0])) line.remove_prefix(1);
    // A line that continues another one is part of its value, even if it begins with #.
    if (!joining) {
      if (line.empty() || line[0] == '#' || line[0] == '!') continue;
      logical.clear();
      begun = number;
    }
    joining = is_continued(line) && !text.empty();
    logical += joining ? line.substr(0, line.size() - 1) : line;
    if (joining) continue;

    auto read = LineParser(logical).parse();
    if (!read) {
      return fail(Errc::invalid, fmt::format("{}:{}: {}: {}", name, begun, value_text(logical),
                                             read.error().message));
    }
    settings.push_back(
        {fmt::format("{}:{}", name, begun), std::move(read->first), std::move(read->second)});
  }
  return settings;
}

Result<std::vector<Setting>> read_properties(const std::string& path) {
  const auto text = read_small_file(path, max_file_bytes);
  if (!text)
    return fail(text.error().code, fmt::format("--config {}: {}", path, text.error().message));
  return parse_properties(*text, path);
}

}  // namespace tarry::server
