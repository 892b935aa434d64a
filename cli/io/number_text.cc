#include "cli/io/number_text.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <iterator>

#include <fmt/core.h>

#include "base/time_text.h"

namespace tarry::cli {

// A space divides groups, because a comma and a point mean different things in different places.
std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ' ');
  return text;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string figure_text(double figure) {
  // {:.3g} turns to exponents when three digits are too few, after rounding.
  return std::abs(figure) < 999.5 ? fmt::format("{:.3g}", figure) : fmt::format("{:.0f}", figure);
}

std::string milliseconds_text(double milliseconds) {
  // A time that was measured is not shown as none.
  if (milliseconds != 0 && milliseconds < 0.001) return "0.001 ms";
  if (milliseconds < 999.5) return figure_text(milliseconds) + " ms";
  if (milliseconds < 59'950) return figure_text(milliseconds / 1000) + " s";
  return format_duration(std::chrono::round<std::chrono::seconds>(
      std::chrono::duration<double, std::milli>(milliseconds)));
}

std::string counted(std::uint64_t number, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", number, number == 1 ? one : many);
}

}  // namespace tarry::cli
