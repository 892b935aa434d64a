#include "base/edit_distance.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/ascii_case.h"

namespace tarry {

// Keeps one row of the table of all prefixes: after step i, row[j] is the distance between the
// first i characters of `a` and the first j of `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

// The part between the common beginning and the common end is the slip.
bool is_one_letter_off(std::string_view a, std::string_view b) {
  const auto equal = [](char x, char y) { return ascii_lower(x) == ascii_lower(y); };
  while (!a.empty() && !b.empty() && equal(a.front(), b.front())) {
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  while (!a.empty() && !b.empty() && equal(a.back(), b.back())) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
  if (a.size() + b.size() == 1) return true;
  if (a.size() == 1 && b.size() == 1) return true;
  return a.size() == 2 && b.size() == 2 && equal(a[0], b[1]) && equal(a[1], b[0]);
}

}  // namespace tarry
