#include "admin/process_status.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "base/block.h"
#include "base/memory.h"

namespace tarry::admin {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

// The names that every exporter has for them.
void ProcessStatus::report(MetricSink& sink) const {
  sink.gauge({"process_resident_memory_bytes", "Resident memory.", "rss_bytes"}, rss_bytes);
  sink.counter({"process_cpu_seconds_total", "CPU time in user and system mode.", "cpu_seconds"},
               cpu_seconds);
  sink.gauge({"process_open_fds", "Open files and sockets.", "open_fds"}, open_fds);
  sink.gauge({"process_heap_used_bytes",
              "Memory that the allocator has given out and not got back.", "heap_used_bytes"},
             heap_used_bytes);
  sink.gauge({"process_heap_kept_bytes",
              "Resident memory that the allocator keeps for reuse: freed some seconds ago, or lost "
              "to fragmentation.",
              "heap_kept_bytes"},
             heap_kept_bytes);
  sink.gauge({"process_blocks_kept_bytes",
              "Freed pieces of memory for requests, journals and reads that are kept for reuse.",
              "blocks_kept_bytes"},
             blocks_kept_bytes);
  sink.gauge({"process_resident_file_bytes",
              "Resident memory of mapped files: the code of the program and of its libraries.",
              "program_bytes"},
             program_bytes);
}

double process_cpu_seconds() {
  rusage use{};
  if (::getrusage(RUSAGE_SELF, &use) != 0) return 0;
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

ProcessStatus process_status() {
  ProcessStatus status;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    unsigned long long size = 0, resident = 0, of_files = 0;
    // In pages: the size of the address space, then the part of it that is in memory, and of that
    // the part that belongs to files.
    if (std::fscanf(file, "%llu %llu %llu", &size, &resident, &of_files) == 3) {
      const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
      status.rss_bytes = resident * page_bytes;
      status.program_bytes = of_files * page_bytes;
    }
    std::fclose(file);
  }
  status.cpu_seconds = process_cpu_seconds();
  if (DIR* directory = ::opendir("/proc/self/fd")) {
    std::uint64_t entries = 0;
    while (::readdir(directory) != nullptr) ++entries;
    ::closedir(directory);
    status.open_fds = entries > 3 ? entries - 3 : 0;  // Neither ".", ".." nor the one we read with.
  }
  const HeapUse heap = heap_use();
  status.heap_used_bytes = heap.used_bytes;
  status.heap_kept_bytes = heap.kept_bytes;
  status.blocks_kept_bytes = Block::kept_bytes();
  return status;
}

}  // namespace tarry::admin
