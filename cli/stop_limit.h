#pragma once

// How long a stop may take: a disk that answers no more holds up every thread that could say so.

#include <chrono>

namespace tarry::cli {

// When the process is still there after `limit` it says why on stderr and ends with `failed`.
// Once a process; nothing of it waits for another thread.
void end_when_stop_takes(std::chrono::milliseconds limit);

}  // namespace tarry::cli
