#include "delay/header_value.h"

#include <charconv>
#include <system_error>

#include <fmt/format.h>

#include "base/log.h"
#include "base/time_text.h"

namespace tarry::delay {
namespace {

constexpr std::size_t max_shown_bytes = 64;

}  // namespace

std::string shown(const HeaderValue& value) {
  if (!value) return "null";
  return fmt::format("\"{}\"", printable(as_text(*value), max_shown_bytes));
}

std::string header_error(std::string_view name, const HeaderValue& value, std::string_view why) {
  return fmt::format("{}: {} {}", name, shown(value), why);
}

std::expected<WallTime, std::string> time_in(std::string_view name, const HeaderValue& value) {
  if (!value) return std::unexpected(header_error(name, value, "is not a time"));
  if (is_binary(*value)) return from_ms(load_be<std::int64_t>(value->data()));
  const auto time = parse_time(as_text(*value));
  if (!time) return std::unexpected(fmt::format("{}: {}", name, time.error().message));
  return *time;
}

std::expected<std::chrono::milliseconds, std::string> duration_in(std::string_view name,
                                                                  const HeaderValue& value) {
  if (!value) return std::unexpected(header_error(name, value, "is not a duration"));
  if (is_binary(*value)) return std::chrono::milliseconds{load_be<std::int64_t>(value->data())};
  const auto duration = parse_duration(as_text(*value));
  if (!duration) return std::unexpected(fmt::format("{}: {}", name, duration.error().message));
  return *duration;
}

std::expected<std::uint64_t, std::string> count_in(std::string_view name, const HeaderValue& value,
                                                   std::uint64_t max) {
  std::uint64_t count = 0;
  bool is_number = value.has_value();
  if (value && is_binary(*value)) {
    count = load_be<std::uint64_t>(value->data());
  } else if (value) {
    const std::string_view text = as_text(*value);
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, count);
    is_number = error == std::errc{} && rest == end;
  }
  if (is_number && count >= 1 && count <= max) return count;
  return std::unexpected(
      header_error(name, value, fmt::format("is not a whole number from 1 to {}", max)));
}

}  // namespace tarry::delay
