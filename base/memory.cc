#include "base/memory.h"

#include <malloc.h>

#include <cstddef>

// jemalloc's, where it is linked.
extern "C" int mallctl(const char* name, void* old_value, std::size_t* old_size, void* new_value,
                       std::size_t new_size) __attribute__((weak));

namespace tarry {

void give_back_memory() {
  if (mallctl != nullptr) {
    // 4096 stands for all arenas (MALLCTL_ARENAS_ALL).
    mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);
  } else {
    ::malloc_trim(0);
  }
}

void limit_arenas(int count) {
  if (mallctl == nullptr) ::mallopt(M_ARENA_MAX, count);
}

}  // namespace tarry
