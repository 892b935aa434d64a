#pragma once

// The kernel's figures of this process.  Reads /proc/self: some microseconds, and one more for
// each open file.

#include <cstdint>

#include "base/metrics.h"

namespace tarry::admin {

struct ProcessStatus {
  std::uint64_t rss_bytes = 0;
  double cpu_seconds = 0;  // User and system, since the process began.
  std::uint64_t open_fds = 0;
  // Parts of what is resident: of the allocator, of blocks (base/block.h), and of mapped files.
  std::uint64_t heap_used_bytes = 0;
  std::uint64_t heap_kept_bytes = 0;
  std::uint64_t blocks_kept_bytes = 0;
  std::uint64_t program_bytes = 0;

  void report(MetricSink& sink) const;
};

ProcessStatus process_status();

// The CPU time alone, which is one system call.
double process_cpu_seconds();

}  // namespace tarry::admin
