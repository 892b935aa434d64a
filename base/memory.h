#pragma once

// What a load has taken of memory and freed, glibc keeps for the next one, in an arena a thread.

#include <malloc.h>

namespace tarry {

// Gives it back to the machine.  Takes a millisecond for some 100 MiB, in which allocations of
// other threads may wait: for when a load is over.
inline void give_back_memory() {
  ::malloc_trim(0);
}

// Threads share so many arenas: what one frees another may use.  Before there are threads.
inline void limit_arenas(int count) {
  ::mallopt(M_ARENA_MAX, count);
}

}  // namespace tarry
