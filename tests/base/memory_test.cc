#include "base/memory.h"

#include <cstddef>
#include <cstring>
#include <memory>

#include <doctest/doctest.h>

namespace tarry {
namespace {

// The sanitizers have an allocator of their own, which knows no figures.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("memory that is allocated is in the heap's use, and no more when it is freed") {
  constexpr std::size_t bytes = std::size_t{16} << 20;
  const std::size_t before = heap_use().used_bytes;
  auto memory = std::make_unique<unsigned char[]>(bytes);
  unsigned char* volatile seen = memory.get();  // Else a compiler may leave the allocation out.
  std::memset(seen, 1, bytes);
  const std::size_t with = heap_use().used_bytes;
  CHECK(with >= before + bytes);
  memory.reset();
  CHECK(heap_use().used_bytes < with);
}
#endif

}  // namespace
}  // namespace tarry
