#pragma once

// Lists in one line of text, as settings, headers and cookies have them: "a, b,c".
//
//   for (auto rest = value; !rest.empty();) {
//     const auto name = take_element(rest, ',');   // "a", "b", "c"
//   }
//
// A separator at the end adds no element.  Blanks around an element do not count.
//
// Pure; any thread.

#include <algorithm>
#include <string_view>

namespace tarry {

constexpr std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Takes the first element off `rest`, with the separator behind it.
constexpr std::string_view take_element(std::string_view& rest, char separator) {
  const auto element = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(rest.size(), element.size() + 1));
  return trimmed(element);
}

}  // namespace tarry
