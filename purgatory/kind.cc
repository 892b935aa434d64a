#include "purgatory/kind.h"

#include <algorithm>
#include <limits>

#include "base/assert.h"

namespace tarry::purgatory {

namespace {

// The name of every kind, at its index.  It changes before main() alone, so threads may read it.
// It stands in a function, since a kind of another file may come before this file's variables.
std::vector<std::string_view>& names() {
  static std::vector<std::string_view> names;
  return names;
}

}  // namespace

Kind::Kind(std::string_view name) : index_(static_cast<std::uint8_t>(names().size())) {
  TARRY_ASSERT(names().size() < std::numeric_limits<std::uint8_t>::max(), "a kind fits a byte");
  TARRY_ASSERT(std::ranges::find(names(), name) == names().end(), "a kind is registered once");
  names().push_back(name);
}

std::string_view Kind::name() const {
  return names()[index_];
}

std::size_t kind_count() {
  return names().size();
}

std::vector<Kind> kinds() {
  std::vector<Kind> kinds;
  for (std::size_t i = 0; i < kind_count(); ++i)
    kinds.push_back(Kind(static_cast<std::uint8_t>(i)));
  // Kinds are registered in the order of the linker, which pages must not show.
  std::ranges::sort(kinds, [](Kind a, Kind b) { return a.name() < b.name(); });
  return kinds;
}

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::satisfied:
      return "satisfied";
    case Outcome::expired:
      return "expired";
    case Outcome::cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace tarry::purgatory
