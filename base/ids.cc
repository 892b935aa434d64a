#include "base/ids.h"

namespace tarry {
namespace {

// Base64 for file names and addresses, in which Kafka's tools show a topic's id too.
constexpr std::string_view alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

}  // namespace

std::string TopicId::text() const {
  std::string out;
  unsigned bits = 0, held = 0;
  for (const auto byte : bytes) {
    held = (held << 8) | byte;
    for (bits += 8; bits >= 6;) out += alphabet[(held >> (bits -= 6)) & 63];
  }
  out += alphabet[(held << (6 - bits)) & 63];  // 128 bits leave 2 over.
  return out;
}

std::optional<TopicId> TopicId::parse(std::string_view text) {
  if (text.size() != 22) return std::nullopt;
  TopicId id;
  unsigned bits = 0, held = 0;
  std::size_t at = 0;
  for (const char c : text) {
    const auto digit = alphabet.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    held = (held << 6) | static_cast<unsigned>(digit);
    bits += 6;
    if (bits >= 8 && at < id.bytes.size())
      id.bytes[at++] = static_cast<std::uint8_t>(held >> (bits -= 8));
  }
  if ((held & 15) != 0) return std::nullopt;  // The last character's spare bits.
  return id;
}

}  // namespace tarry
