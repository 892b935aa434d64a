#pragma once

// TimeZone: how the clocks of one place differ from UTC, at any time.
//
//   UTC      ---------+-----------------------------+------------------->
//   period            |  +01:00                     |  +02:00             a period keeps one offset
//   clock     ... 01:59:58  01:59:59 | 03:00:00  03:00:01 ...             a gap: 02:30 is skipped
//   clock     ... 02:59:59 | 02:00:00 ... 02:59:59  03:00:00 ...          a fold: 02:30 comes twice
//
// Read from the compiled files of the IANA database (TZif, RFC 8536): a table of what was, then a
// rule for all years after it (its last line, as in POSIX's TZ).  Both are needed: a table ends in
// 2037 at the latest, and on some systems long before today.
//
// Two questions answer everything that a schedule asks, gaps and folds included:
//   first_moment(l)     the first moment at which the clock shows l or later: in a fold the first
//                       of two, in a gap the first moment after it
//   highest_reading(t)  the highest time that the clock has shown up to t, t included
// Both never fall when their argument rises, and first_moment(l) <= t if and only if
// l <= highest_reading(t).
//
// Immutable; any thread.  Times are taken from the years -9999 to 19999, anything beyond as the end
// of that.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace tarry::delay {

class TimeZone {
 public:
  // The longest file that is read; the longest of the database has 4 KiB.
  static constexpr std::size_t max_file_bytes = 65'536;
  static constexpr std::size_t max_name_bytes = 64;
  // No clock is further from UTC (RFC 8536 allows up to 25 hours west and 26 east).
  static constexpr std::chrono::seconds max_offset = std::chrono::hours{26};

  static std::shared_ptr<const TimeZone> utc();

  // `file` is the content of a TZif file.  Errc::corrupt with what is wrong in it.
  static Result<TimeZone> parse(std::string name, Bytes file);

  const std::string& name() const { return name_; }

  // Seconds from `begin` up to, not including, `end` in which the offset is the same.  Two
  // neighbours may have the same offset too.
  struct Period {
    std::chrono::sys_seconds begin;
    std::chrono::sys_seconds end;
    std::chrono::seconds offset;  // The clock's reading minus UTC.
  };
  Period period_at(std::chrono::sys_seconds time) const;

  std::chrono::sys_seconds first_moment(std::chrono::local_seconds reading) const;
  std::chrono::local_seconds highest_reading(std::chrono::sys_seconds time) const;

 private:
  // A day of the year and a time on it, as the rule gives it.
  struct RuleDay {
    enum class Kind { julian, zero_based, weekday };  // Jn, n, Mm.w.d
    Kind kind = Kind::julian;
    unsigned month = 0, week = 0, day = 0;
    std::chrono::seconds time{7200};

    std::chrono::local_seconds in(std::chrono::year year) const;
  };
  struct Summer {
    std::chrono::seconds offset{0};
    RuleDay begin, end;  // Each by the clock before it.
  };
  struct Rule {
    std::chrono::seconds offset{0};
    std::optional<Summer> summer;
  };
  struct Transition {
    std::chrono::sys_seconds at;
    std::chrono::seconds offset;  // From then on.
  };
  class RuleText;
  struct Block;

  static std::optional<Rule> parse_rule(std::string_view text);
  static Result<Block> parse_block(Bytes& rest, std::size_t time_bytes);
  Period period_by_rule(std::chrono::sys_seconds time) const;

  std::string name_;
  std::chrono::seconds first_offset_{0};  // Before the first transition.
  std::vector<Transition> transitions_;   // Rising.
  std::optional<Rule> rule_;              // From the last transition on; none: its offset stays.
};

}  // namespace tarry::delay
