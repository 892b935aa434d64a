#include "protocol/json.h"

#include <fmt/core.h>

namespace tarry::protocol {
namespace {

// Returns how many bytes of `text` from `at` on form one UTF-8 character, 0 when they form none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0 && follows(1)) return 2;
  if (first >= 0xe0 && first < 0xf0 && follows(1) && follows(2)) {
    if (first == 0xe0 && byte(1) < 0xa0) return 0;  // Too long for what it says.
    if (first == 0xed && byte(1) > 0x9f) return 0;  // Half of a pair of UTF-16.
    return 3;
  }
  if (first >= 0xf0 && first < 0xf5 && follows(1) && follows(2) && follows(3)) {
    if (first == 0xf0 && byte(1) < 0x90) return 0;
    // Unicode ends with U+10FFFF.
    if (first == 0xf4 && byte(1) > 0x8f) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

// Names are those of the schema, in which nothing has to be escaped.
Json& Json::key(std::string_view name) {
  separate();
  text_ += '"';
  text_ += name;
  text_ += "\":";
  comma_ = false;
  return *this;
}

void Json::value(double number) {
  separate();
  std::string text = fmt::format("{}", number);
  // A whole number keeps its .0, so that a reader can tell the two kinds of field apart.
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  text_ += text;
}

void Json::value(std::string_view text) {
  separate();
  text_ += '"';
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    const std::size_t length = utf8_length(text, at);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char hex[] = "0123456789abcdef";
      text_ += "\\u00";
      text_ += hex[c >> 4];
      text_ += hex[c & 15];
    } else if (length == 0) {
      // U+FFFD: a text of JSON may hold nothing but UTF-8.
      text_ += "\xef\xbf\xbd";
    } else {
      text_ += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  text_ += '"';
}

void Json::value(Bytes bytes) {
  base64({bytes});
}

void Json::value(const Records& records) {
  if (records.null) return null();
  std::vector<Bytes> pieces;
  for (const SharedBytes& piece : records.pieces) pieces.push_back(piece.view());
  base64(pieces);
}

// base/base64 takes one text: here a group of three may lie across two pieces, and records need not
// be copied into one.
void Json::base64(const std::vector<Bytes>& pieces) {
  constexpr char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  separate();
  text_ += '"';
  std::uint32_t group = 0;  // The bytes of a group of three that have come.
  int in_group = 0;
  const auto put = [&](int characters) {
    for (int i = 0; i < characters; ++i) text_ += alphabet[(group >> (18 - 6 * i)) & 63];
    text_.append(static_cast<std::size_t>(4 - characters), '=');
    group = 0;
    in_group = 0;
  };
  for (const Bytes piece : pieces) {
    for (const std::uint8_t byte : piece) {
      group |= static_cast<std::uint32_t>(byte) << (16 - 8 * in_group);
      if (++in_group == 3) put(4);
    }
  }
  if (in_group > 0) put(in_group + 1);
  text_ += '"';
}

}  // namespace tarry::protocol
