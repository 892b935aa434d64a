#include "cli/message_dump.h"

#include <charconv>
#include <cstdint>

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/log_thread.h"
#include "base/result.h"
#include "protocol/dump.h"

namespace tarry::cli {
namespace {

// A line may have been written on a system that ends lines with \r\n.
std::string_view take_word(std::string_view& rest) {
  const auto from = rest.find_first_not_of(" \t\r");
  if (from == rest.npos) {
    rest = {};
    return {};
  }
  rest.remove_prefix(from);
  const std::string_view word = rest.substr(0, rest.find_first_of(" \t\r"));
  rest.remove_prefix(word.size());
  return word;
}

// Keys and versions have 16 bits in the protocol, so a larger number is refused here.
Result<int> number(std::string_view what, std::string_view word) {
  std::int16_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc{} || end != word.data() + word.size())
    return fail(Errc::invalid, fmt::format("{} is '{}', which is not a number; a line is KEY q|p "
                                           "VERSION HEX",
                                           what, printable(word, 64)));
  return value;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

Result<Buffer> bytes_of(std::string_view hex) {
  Buffer bytes;
  // A message may be empty, but its place in the line must not be.
  if (hex == "-") return bytes;
  if (hex.size() % 2 != 0)
    return fail(Errc::invalid, fmt::format("HEX has {} digits, which is odd", hex.size()));
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) {
      return fail(Errc::invalid, fmt::format("HEX has '{}' at {}, which is not a byte",
                                             printable(hex.substr(i, 2)), i));
    }
    bytes.push_back(static_cast<std::uint8_t>(high << 4 | low));
  }
  return bytes;
}

Result<protocol::Dumped> dump(std::string_view line) {
  const auto key = number("KEY", take_word(line));
  if (!key) return std::unexpected(key.error());
  const std::string_view kind = take_word(line);
  if (kind != "q" && kind != "p")
    return fail(Errc::invalid, fmt::format("'{}' is neither q (a request) nor p (a response)",
                                           printable(kind, 64)));
  const auto version = number("VERSION", take_word(line));
  if (!version) return std::unexpected(version.error());
  const auto body = bytes_of(take_word(line));
  if (!body) return std::unexpected(body.error());
  return protocol::dump_message(*key, kind == "q", *version, *body);
}

}  // namespace

std::string dumped_message(std::string_view line) {
  const auto dumped = dump(line);
  if (!dumped) return "error: " + escape_control_characters(dumped.error().message);
  // The bytes that our encoder makes of the fields follow: where they are not those of the line,
  // decoder and encoder disagree, which no eye would see in the JSON.
  std::string text = dumped->json + '\t';
  if (dumped->bytes.empty()) text += '-';
  constexpr char digits[] = "0123456789abcdef";
  for (const std::uint8_t byte : dumped->bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace tarry::cli
