#pragma once

// Times as the commands about pending records take them: those of base/time_text.h, and `now`,
// `+1h`, `-10m`, which count from the moment at which they are read.  As the commands print them,
// too: `in 1h`, `10m ago`.  A time may also have a space instead of its T, no seconds, and +0100.

#include <chrono>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "cli/command.h"

namespace tarry::cli {

// The wall clock of this machine.
WallTime wall_now();

// Errors: invalid, with the word and examples.
Result<WallTime> parse_time_word(std::string_view word);

// `1h`, `+1h` or `-1h`.  Errors: invalid.
Result<std::chrono::milliseconds> parse_shift(std::string_view word);

extern const CLI::Validator is_time_word;
extern const CLI::Validator is_shift;

}  // namespace tarry::cli
