#include "storage/pending.h"

#include <algorithm>
#include <cstdint>

namespace tarry::storage {

// Handle: '@', one digit that says how many digits of due time follow, those, and the sequence
// number's; digits to the base 62, none for 0 and none in front that is 0, so that every key has
// one text.

namespace {

constexpr std::string_view digits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

std::string in_digits(std::uint64_t number) {
  std::string out;
  for (; number > 0; number /= digits.size()) out += digits[number % digits.size()];
  std::ranges::reverse(out);
  return out;
}

std::optional<std::uint64_t> from_digits(std::string_view text) {
  // A leading zero would give the same number a second text.
  if (text.starts_with('0')) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : text) {
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos || __builtin_mul_overflow(number, digits.size(), &number) ||
        __builtin_add_overflow(number, digit, &number))
      return std::nullopt;
  }
  return number;
}

}  // namespace

std::string encode_handle(PendingKey first) {
  const std::string due = in_digits(static_cast<std::uint64_t>(to_ms(first.due)));
  return std::string{'@', digits[due.size()]} + due + in_digits(first.sequence);
}

std::optional<PendingKey> parse_handle(std::string_view text) {
  if (text.size() < 2 || text[0] != '@') return std::nullopt;
  const auto due_digits = digits.find(text[1]);
  if (due_digits == std::string_view::npos || due_digits > text.size() - 2) return std::nullopt;
  const auto due = from_digits(text.substr(2, due_digits));
  const auto sequence = from_digits(text.substr(2 + due_digits));
  if (!due || !sequence) return std::nullopt;
  return PendingKey{from_ms(static_cast<std::int64_t>(*due)), *sequence};
}

}  // namespace tarry::storage
