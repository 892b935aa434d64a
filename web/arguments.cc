#include "web/arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "base/time_text.h"
#include "web/question.h"

namespace tarry::web {
namespace {

// From the year 2026 it is long before and long after all times that there are for records.
constexpr std::chrono::milliseconds max_shift = std::chrono::hours(24) * 365'000;

// As for a due time in a header.
constexpr WallTime first_due = std::chrono::sys_days{std::chrono::year{2000} / 1 / 1};
constexpr WallTime due_end = std::chrono::sys_days{std::chrono::year{10'000} / 1 / 1};

std::chrono::milliseconds shift_given(const char* name, std::string_view text) {
  const auto by = parse_duration(text);
  if (!by) throw Refused{400, fmt::format("{}: {}", name, by.error().message)};
  if (*by > max_shift)
    throw Refused{400, fmt::format("{}: {} is more than a thousand years", name, printable(text))};
  return *by;
}

// For an error.  Nested values are not written out: dump() calls itself for each level.
std::string text_of_wrong(const Json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return printable(value.dump(), 64);
}

}  // namespace

std::size_t number_given(const char* name, const std::string& text, std::size_t min,
                         std::size_t max) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < min || value > max) {
    throw Refused{400, fmt::format("{}={}: a number from {} to {} is expected, as in {}={}", name,
                                   printable(text), min, max, name, min)};
  }
  return value;
}

std::size_t page_size_given(const std::string& limit, std::size_t max) {
  return std::min(number_given("limit", limit, 1, std::numeric_limits<std::int32_t>::max()), max);
}

WallTime time_given(const char* name, const std::string& text, WallTime now) {
  std::string given = text;
  // A + that was not escaped came as a blank, which stands in no time.
  std::ranges::replace(given, ' ', '+');
  if (given == "now") return now;
  // A text that is no duration goes on to parse_time(), whose error shows the whole text.
  if (given.starts_with('+') || given.starts_with('-')) {
    const auto by = std::string_view(given).substr(1);
    if (parse_duration(by)) {
      const auto shift = shift_given(name, by);
      return given.front() == '-' ? now - shift : now + shift;
    }
  }
  const auto time = parse_time(given);
  if (!time) throw Refused{400, fmt::format("{}: {}", name, time.error().message)};
  return *time;
}

std::string pattern_given(const char* name, const std::string& text) {
  if (text.empty()) {
    throw Refused{
        400, fmt::format("{} is empty: give a text, or a pattern as in {}=order-*", name, name)};
  }
  if (text.size() > max_pattern_bytes) {
    throw Refused{
        400, fmt::format("{} has {} bytes; the limit is {}", name, text.size(), max_pattern_bytes)};
  }
  return text;
}

bool flag_given(const char* name, const std::string& text) {
  if (text != "true" && text != "false")
    throw Refused{400, fmt::format("{}={}: give true or false", name, printable(text))};
  return text == "true";
}

std::chrono::minutes unit_given(const std::string& by) {
  using namespace std::chrono;
  if (by == "minute") return minutes(1);
  if (by == "hour") return hours(1);
  if (by == "day") return hours(24);
  throw Refused{400, fmt::format("by={}: give minute, hour or day", printable(by))};
}

// --- A body.

Json object_in(const std::string& body, std::initializer_list<std::string_view> allowed,
               std::string_view example) {
  Json json = parse_json(body);
  if (!json.is_object())
    throw Refused{400, fmt::format("the body has to be a JSON object, as in {}", example)};
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(allowed, key) == allowed.end()) {
      throw Refused{400, fmt::format("unknown key '{}' in the body; it takes {}", printable(key),
                                     fmt::join(allowed, ", "))};
    }
  }
  return json;
}

const Json* value_in(const Json& body, const char* key) {
  const auto found = body.find(key);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> word_in(const Json& body, const char* key) {
  const Json* value = value_in(body, key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  // Milliseconds may be given as a number of JSON, too.
  if (value->is_number_integer()) return value->dump();
  throw Refused{
      400, fmt::format("{}: {} is neither a text nor a whole number", key, text_of_wrong(*value))};
}

bool flag_in(const Json& body, const char* key) {
  const Json* value = value_in(body, key);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  throw Refused{400, fmt::format("{}: {} is not true or false", key, text_of_wrong(*value))};
}

std::variant<WallTime, std::chrono::milliseconds> new_due_in(const Json& body, WallTime now) {
  const auto due = word_in(body, "due");
  const auto by = word_in(body, "by");
  if (due.has_value() == by.has_value()) {
    throw Refused{
        400, R"(a move needs either "due", a time, or "by", a duration, as in {"by": "-10m"})"};
  }
  if (due) {
    const WallTime time = time_given("due", *due, now);
    // A duration leads to a time that depends on the record.
    if (time < first_due || time >= due_end)
      throw Refused{400,
                    fmt::format("due: {} is not in the years 2000 to 9999", format_time(time))};
    return time;
  }
  const bool is_earlier = by->starts_with('-');
  const auto shift =
      shift_given("by", std::string_view(*by).substr(is_earlier || by->starts_with('+') ? 1 : 0));
  return is_earlier ? -shift : shift;
}

}  // namespace tarry::web
