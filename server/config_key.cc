#include "server/config_key.h"

#include <charconv>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "base/time_text.h"

namespace tarry::server {

using broker::ConfigType;

std::string ConfigKey::canonical(std::string_view value) const {
  const bool is_address = name == "listeners" || name == "advertised.listeners";
  // Kafka's form of an address names the listener first: PLAINTEXT://localhost:9092.
  if (is_address && !value.empty() && !value.contains("://"))
    return fmt::format("PLAINTEXT://{}", value);
  if (type == ConfigType::boolean) {
    std::string lower(value);
    for (char& c : lower) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return lower;
  }
  if (type == ConfigType::integer || type == ConfigType::long_) {
    if (const auto parsed = parse_whole_number(value)) return std::to_string(*parsed);
  }
  if (type == ConfigType::double_) {
    double parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error == std::errc{} && end == value.data() + value.size())
      return fmt::format("{}", parsed);
  }
  if (unit == "ms") {
    if (const auto parsed = parse_duration(value)) return std::to_string(parsed->count());
  } else if (unit == "bytes") {
    if (const auto parsed = parse_size(value)) return std::to_string(*parsed);
  }
  // A value that could not be read stays as it was written; the key's check refuses it.
  return std::string(value);
}

Result<> ConfigKey::apply(Config& config, std::string_view value) const {
  // An address without a name means the only listener, whatever that is called.
  const auto put =
      set(config, name == "advertised.listeners" ? std::string(value) : canonical(value));
  if (put) return put;
  std::string allowed = put.error().message;
  if (unit == "ms") allowed += ", in ms, or as in 90s and 7d";
  if (unit == "bytes") allowed += ", in bytes, or as in 64KiB and 1GiB";
  return fail(put.error().code, std::move(allowed));
}

std::string ConfigKey::allowed() const {
  // No key takes a line feed, so each says what it would take.
  Config scratch;
  const auto said = set(scratch, "\n");
  return said ? std::string() : said.error().message;
}

}  // namespace tarry::server
