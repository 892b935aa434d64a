#pragma once

// A limit on how long a stop may take: a disk that does not answer any more blocks every thread
// that could say so.

#include <chrono>

namespace tarry::cli {

// A process that still runs after `limit` says why on stderr and ends with status `failed`.  Call
// it once.  It works by a signal and waits for no other thread.
void exit_after(std::chrono::milliseconds limit);

}  // namespace tarry::cli
