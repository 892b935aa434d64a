#include "storage/pending.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace tarry::storage {

// Handle: '@', one digit that says how many digits of due time follow, those, and the sequence
// number's; digits to the base 62, none for 0 and none in front that is 0, so that every key has
// one text.

namespace {

constexpr std::string_view digits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// The digits of the largest number.
constexpr std::size_t max_digits = 11;
static_assert(max_handle_bytes == 2 + 2 * max_digits);

char* put_digits(std::uint64_t number, char* to) {
  char* const begin = to;
  for (; number > 0; number /= digits.size()) *to++ = digits[number % digits.size()];
  std::reverse(begin, to);
  return to;
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

char* put_handle_begin(WallTime first_due, char* to) {
  char* const due = to + 2;
  char* const end = put_digits(static_cast<std::uint64_t>(to_ms(first_due)), due);
  to[0] = '@';
  to[1] = digits[static_cast<std::size_t>(end - due)];
  return end;
}

char* put_handle_end(Sequence sequence, char* to) {
  return put_digits(sequence, to);
}

std::string encode_handle(PendingKey first) {
  std::array<char, max_handle_bytes> text;
  return {text.data(), put_handle_end(first.sequence, put_handle_begin(first.due, text.data()))};
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
