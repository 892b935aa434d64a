#pragma once

// Times and distances as people read them.  Programs get UTC and exact numbers: what is printed in
// a pipe or with --json is the same in every time zone.

#include <chrono>
#include <string>

#include "base/clock.h"

namespace tarry::cli {

// The machine's time zone: "2026-11-21T11:00:00.250+01:00", which every command takes as a time.
// Without `with_milliseconds` the second in which it is.  UTC where the zone cannot tell it.
std::string local_time(WallTime time, bool with_milliseconds);
// The same with the zone's name behind it, "(CET)"; empty where the zone cannot tell it.
std::string local_text(WallTime time);

// On a terminal local_time(), else format_time().
std::string shown_time(WallTime time, bool is_terminal);

// Its two largest units: "32d8h", "29m", "3m20s", "7s"; what is less than a second is "0s".  A
// negative one has a '-' before it.
std::string rough_duration(std::chrono::milliseconds duration);
// "in 29m", "7s ago"
std::string rough_distance(std::chrono::milliseconds until);

}  // namespace tarry::cli
