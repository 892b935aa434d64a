#pragma once

// After a load, the allocator keeps the freed memory for the next load; these functions control how
// much.
//
// The broker is linked with jemalloc: a request that waits is allocated among thousands of others
// and freed long after them, which costs glibc's lists a quarter of the broker's time.  Programs
// without it (the tests under sanitizers, users of the timing library) have glibc's.

#include <cstddef>

namespace tarry {

// Gives it back to the machine.  Takes a millisecond for some 100 MiB, in which allocations of
// other threads may wait: for when a load is over.
void give_back_memory();

// Threads share so many arenas: what one frees another may use.  Call it before there are threads.
// For jemalloc the limit is set where it is linked.
void limit_arenas(int count);

// The memory of the allocator: what is allocated, and what it keeps of what was freed (and lost to
// its sizes), as far as it is in memory.  Blocks (base/block.h) are not among it.
struct HeapUse {
  std::size_t used_bytes = 0;
  std::size_t kept_bytes = 0;
};
// Takes some microseconds for each arena.
HeapUse heap_use();

}  // namespace tarry
