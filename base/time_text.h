#pragma once

// Times, durations and sizes as text, wherever a person or a header gives one: the command line,
// tarry.properties, x-delay, the admin's JSON.
//
//   durations   250ms 90s 30m 1h30m 2d, or ISO 8601 PT1H30M P1DT12H PT0.5S P2W, or a bare
//               number of milliseconds.  Units stand largest first, each once.  ISO's years and
//               months are refused: they have no fixed length.
//   times       RFC 3339 with an offset (2026-11-21T10:00:00+01:00, 2026-11-21T09:00:00.250Z),
//               or epoch milliseconds
//   sizes       bytes, or 64KiB 1MiB 2GiB
//
// Invariants: anything else is refused (Errc::invalid) with the given text and an example that is
// accepted.  A value that does not fit is refused, never clamped.  No duration is negative.
// Fractions of a millisecond are rounded up, so that no delivery is early.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tarry {

Result<std::chrono::milliseconds> parse_duration(std::string_view text);

// A leap second (23:59:60 UTC at the end of a month) is the first second of the next day, as
// in POSIX; any other second 60 is refused.
Result<WallTime> parse_time(std::string_view text);

Result<std::uint64_t> parse_size(std::string_view text);

// RFC 3339 in UTC with milliseconds: 2026-11-21T09:00:00.250Z.  Outside the years 0000 to 9999,
// which is all that RFC 3339 can write, epoch milliseconds.
std::string format_time(WallTime time);

// In the form that parse_duration() reads: 1h30m, 250ms, 0ms.  A negative one has a '-' before it.
std::string format_duration(std::chrono::milliseconds duration);

}  // namespace tarry
