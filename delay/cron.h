#pragma once

// Cron: the times that a cron expression names, in a time zone.
//
//      30    9    *    *  MON-FRI      five fields: minute, hour, day of month, month, day of week
//   15 30    9    *    *  MON-FRI      six: the second first
//   @daily                             @yearly @annually @monthly @weekly @daily @midnight @hourly
//
//   second, minute  0-59    hour  0-23    day of month  1-31
//   month           1-12 or JAN-DEC       day of week   0-7 or SUN-SAT; 0 and 7 are Sunday
//
// A field is a list of items with commas between them: a value, a range 10-20, `*` for all, or `?`
// for all in a day field.  A step goes behind a range or `*`: 10-20/5; N/5 counts from N to the
// end. A range of days may end with Sunday (FRI-SUN); no other range runs backwards.  Names are
// read in any case.
//
// Days, as in Vixie's cron: if day of month and day of week are both restricted, a day that matches
// either of them counts.  A field that begins with `*` or `?` is not restricted, and then a day has
// to match both.
//
// Summer time, by what the hour field says:
//   - It allows all 24 hours (`*`, 0-23): the expression names no hour and goes on by real time.
//     It matches whatever the clock shows.  */15 fires each quarter of an hour of either pass
//     through an hour that comes twice; what would lie in a skipped hour is not made up for.
//   - It names hours (9, 2-4, */2): each named time counts once.  A time that is skipped fires
//     once, at the first moment after the gap, whatever number of times was skipped and also if
//     that moment is named itself.  A time that comes twice fires the first time only.
// So the period of a schedule that runs all day stays what it was, and no nightly job is left out
// or runs twice.
//
// Invariant: a parsed expression fires at some time, so 30 February is refused.  next() and
// previous() never look at one second, minute or day after the other, nor at one change of the
// clocks: they take a few steps of bits per month that has a matching day, at most 40 years of
// those (29 February on one day of the week).
//
// Immutable; pure; any thread.

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "delay/time_zone.h"

namespace tarry::delay {

class Cron {
 public:
  static constexpr std::size_t max_text_bytes = 255;
  // The last year in which an expression fires.
  static constexpr int last_year = 9999;

  // The error names the field, the value and what is allowed: "minute 61 is not in 0-59".
  static std::expected<Cron, std::string> parse(std::string_view text);

  // The expression as it was given, with one space between fields.
  const std::string& text() const { return text_; }

  // The first time after `after`, and the last time before `before`, between the years 0 and 9999;
  // empty if there is none.
  std::optional<WallTime> next(WallTime after, const TimeZone& zone) const;
  std::optional<WallTime> previous(WallTime before, const TimeZone& zone) const;

  friend bool operator==(const Cron& a, const Cron& b) { return a.text_ == b.text_; }

 private:
  using Seconds = std::chrono::seconds;

  Cron() = default;

  bool goes_by_real_time() const;
  bool can_fire() const;
  // The matching days of a month: bit d is day d.
  std::uint64_t days_of(std::chrono::year_month month) const;
  // By the calendar alone: the first match at or after, and the last at or before.
  std::optional<std::chrono::local_seconds> first_match(std::chrono::local_seconds from) const;
  std::optional<std::chrono::local_seconds> last_match(std::chrono::local_seconds to) const;
  // The same within a day; `time` is since its midnight.
  std::optional<Seconds> first_time(Seconds time) const;
  std::optional<Seconds> last_time(Seconds time) const;

  std::string text_;
  // Bit n: the value n is allowed.  None of them is empty.
  std::uint64_t seconds_ = 1;
  std::uint64_t minutes_ = 0;
  std::uint64_t hours_ = 0;
  std::uint64_t days_ = 0;
  std::uint64_t months_ = 0;
  std::uint64_t weekdays_ = 0;  // Bit 0 is Sunday.
  bool either_day_ = false;     // Both day fields are restricted.
};

}  // namespace tarry::delay
