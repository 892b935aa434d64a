#pragma once

// tarry top: a broker's figures, drawn anew at each interval.
//
//   admin --> TopSample --> top_screen.h --> the terminal (io/screen.h), or a pipe
//
// Rates are the difference of two samples, so a look that fails keeps both, and the next one covers
// the gap.  A terminal is left as it was found, however the command ends.  On the main thread.

#include "cli/command.h"

namespace tarry::cli {

void add_top(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
