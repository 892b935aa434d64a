#include "cli/local_time.h"

#include <time.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <fmt/core.h>

#include "base/time_text.h"

namespace tarry::cli {
namespace {

// "2026-11-21T11:00:00.250+01:00"; empty where the zone cannot tell it.  `zone` gets its name.
std::string zoned(WallTime time, bool with_milliseconds, std::string* zone) {
  using namespace std::chrono;
  const auto second = floor<seconds>(time);
  const std::time_t since_epoch = second.time_since_epoch().count();
  std::tm local{};
  // localtime_r() need not look at $TZ by itself.
  ::tzset();
  if (::localtime_r(&since_epoch, &local) == nullptr) return {};
  const int year = local.tm_year + 1900;
  // RFC 3339 has four digits for a year.
  if (year < 0 || year > 9999) return {};
  // RFC 3339 has whole minutes; zones had seconds only before they were standardised.
  const long offset = std::labs(local.tm_gmtoff) / 60;
  if (zone != nullptr) *zone = local.tm_zone;
  return fmt::format(
      "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}{}{:02}:{:02}", year, local.tm_mon + 1, local.tm_mday,
      local.tm_hour, local.tm_min, local.tm_sec,
      with_milliseconds ? fmt::format(".{:03}", (time - second).count()) : std::string(),
      local.tm_gmtoff < 0 ? '-' : '+', offset / 60, offset % 60);
}

}  // namespace

std::string local_time(WallTime time, bool with_milliseconds) {
  const std::string text = zoned(time, with_milliseconds, nullptr);
  return text.empty() ? format_time(time) : text;
}

std::string local_text(WallTime time) {
  std::string zone;
  const std::string text = zoned(time, true, &zone);
  return text.empty() ? text : fmt::format("{} ({})", text, zone);
}

std::string shown_time(WallTime time, bool is_terminal) {
  return is_terminal ? local_time(time, true) : format_time(time);
}

std::string rough_duration(std::chrono::milliseconds duration) {
  const std::int64_t total = duration.count() / 1000;
  // Unsigned: the most negative number has no positive counterpart.
  const std::uint64_t seconds =
      total < 0 ? 0 - static_cast<std::uint64_t>(total) : static_cast<std::uint64_t>(total);
  struct Unit {
    std::uint64_t seconds;
    char name;
    std::uint64_t alone_from;  // From so many on the next smaller unit says nothing more.
  };
  constexpr std::array<Unit, 4> units{Unit{86'400, 'd', 100}, Unit{3600, 'h', 100},
                                      Unit{60, 'm', 10}, Unit{1, 's', 0}};
  const std::string sign = total < 0 ? "-" : "";
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::uint64_t count = seconds / units[i].seconds;
    if (count == 0 && i + 1 < units.size()) continue;
    std::string text = fmt::format("{}{}{}", sign, count, units[i].name);
    if (count >= units[i].alone_from) return text;
    const std::uint64_t rest = seconds % units[i].seconds / units[i + 1].seconds;
    return rest == 0 ? text : fmt::format("{}{}{}", text, rest, units[i + 1].name);
  }
  return "0s";
}

std::string rough_distance(std::chrono::milliseconds until) {
  if (until.count() < 0) return rough_duration(std::chrono::abs(until)) + " ago";
  return "in " + rough_duration(until);
}

}  // namespace tarry::cli
