#include "base/glob.h"

#include <utility>

namespace tarry {
namespace {

constexpr bool is_negation(char c) {
  return c == '!' || c == '^';
}

// Whether a class has `c`; `members` are between its brackets.
bool has_member(std::string_view members, char c) {
  const bool is_negated = is_negation(members.front());
  if (is_negated) members.remove_prefix(1);
  const auto byte = [](char of) { return static_cast<unsigned char>(of); };
  bool found = false;
  for (std::size_t i = 0; i < members.size() && !found; ++i) {
    const bool is_range = i + 2 < members.size() && members[i + 1] == '-';
    const char last = is_range ? members[i + 2] : members[i];
    found = byte(members[i]) <= byte(c) && byte(c) <= byte(last);
    if (is_range) i += 2;
  }
  return found != is_negated;
}

// The place behind the element at `p`, if that stands for `c` and is no star; else 0.
std::size_t behind_match(std::string_view pattern, std::size_t p, char c) {
  if (p == pattern.size()) return 0;
  if (const std::size_t end = glob_class_end(pattern, p); end != 0)
    return has_member(pattern.substr(p + 1, end - p - 2), c) ? end : 0;
  return pattern[p] == '?' || pattern[p] == c ? p + 1 : 0;
}

// The text that the first elements of a pattern spell out, and the place of the one that does not.
std::pair<std::string, std::size_t> spelt_out(std::string_view pattern) {
  std::string text;
  std::size_t at = 0;
  while (at < pattern.size() && pattern[at] != '*' && pattern[at] != '?') {
    const std::size_t end = glob_class_end(pattern, at);
    // A class of one byte has it between its brackets; no negated one is as short.
    if (end != 0 && end != at + 3) break;
    text += pattern[end == 0 ? at : at + 1];
    at = end == 0 ? at + 1 : end;
  }
  return {std::move(text), at};
}

}  // namespace

std::size_t glob_class_end(std::string_view pattern, std::size_t at) {
  if (pattern[at] != '[') return 0;
  std::size_t first = at + 1;
  if (first < pattern.size() && is_negation(pattern[first])) ++first;
  // Behind the first member, which may be a ] itself.
  const auto end = pattern.find(']', first + 1);
  return end == std::string_view::npos ? 0 : end + 1;
}

bool matches_glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, tried = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      tried = t;
    } else if (const std::size_t next = behind_match(pattern, p, text[t]); next != 0) {
      p = next;
      ++t;
    } else if (star != std::string_view::npos) {
      // The last star takes one byte more.  Earlier ones need not try again: the text up to the
      // last star matches already, and that star can take whatever they could.
      p = star + 1;
      t = ++tried;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::optional<std::string> only_match(std::string_view pattern) {
  auto spelt = spelt_out(pattern);
  if (spelt.second != pattern.size()) return std::nullopt;
  return std::move(spelt.first);
}

std::string common_beginning(std::string_view pattern) {
  return spelt_out(pattern).first;
}

}  // namespace tarry
