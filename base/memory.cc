#include "base/memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

HeapUse heap_use() {
  if (mallctl == nullptr) {
    const auto info = ::mallinfo2();
    return {info.uordblks + info.hblkhd, info.fordblks};
  }
  // Its figures are those of the moment when the epoch was last set.
  std::uint64_t epoch = 1;
  mallctl("epoch", nullptr, nullptr, &epoch, sizeof(epoch));
  const auto figure = [](const char* name) {
    std::size_t value = 0, size = sizeof(value);
    return mallctl(name, &value, &size, nullptr, 0) == 0 ? value : 0;
  };
  const std::size_t used = figure("stats.allocated");
  return {used, std::max(figure("stats.resident"), used) - used};
}

void limit_arenas(int count) {
  if (mallctl == nullptr) ::mallopt(M_ARENA_MAX, count);
}

}  // namespace tarry
