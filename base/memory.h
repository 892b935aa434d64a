#pragma once

// After a load, the allocator keeps the freed memory for the next load; these functions control how
// much.
//
// The broker is linked with jemalloc: a request that waits is allocated among thousands of others
// and freed long after them, which costs glibc's lists a quarter of the broker's time.  Programs
// without it (the tests under sanitizers, users of the timing library) have glibc's.

namespace tarry {

// Gives it back to the machine.  Takes a millisecond for some 100 MiB, in which allocations of
// other threads may wait: for when a load is over.
void give_back_memory();

// Threads share so many arenas: what one frees another may use.  Call it before there are threads.
// For jemalloc the limit is set where it is linked.
void limit_arenas(int count);

}  // namespace tarry
