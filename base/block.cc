#include "base/block.h"

#include <sys/mman.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace tarry {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t min_bytes = std::size_t{64} << 10;
constexpr std::size_t max_bytes = std::size_t{64} << 20;
constexpr std::size_t steps = 4;  // Sizes each doubling.
constexpr std::size_t sizes = 10 * steps + 1;

// The tool that finds uses of freed memory has to see that it is freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool keeps = false;
#else
constexpr bool keeps = true;
#endif

// The index of the smallest size that holds `bytes`, which lie between min_bytes and max_bytes.
std::size_t index_of(std::size_t bytes) {
  if (bytes <= min_bytes) return 0;
  // Rounded up, so a block is at most a quarter larger than what was asked for.
  const std::size_t doubling =
      static_cast<std::size_t>(std::bit_width((bytes - 1) / min_bytes)) - 1;
  const std::size_t step = (min_bytes << doubling) / steps;
  return doubling * steps + (bytes - (min_bytes << doubling) + step - 1) / step;
}
std::size_t size_of(std::size_t index) {
  const std::size_t base = min_bytes << (index / steps);
  return base + base / steps * (index % steps);
}
static_assert((min_bytes << 10) == max_bytes);

struct Kept {
  std::mutex mutex;
  std::array<std::vector<std::uint8_t*>, sizes> blocks;
  std::size_t bytes = 0;

  // Makes room for one more of this size, at the cost of other sizes; false when there is none.
  bool make_room(std::size_t index) {
    // Nobody else's would make room for it.
    if ((blocks[index].size() + 1) * size_of(index) > Block::max_kept_bytes) return false;
    while (bytes + size_of(index) > Block::max_kept_bytes) {
      std::size_t fullest = index;
      for (std::size_t i = 0; i < sizes; ++i) {
        if (i == index || blocks[i].empty()) continue;
        if (fullest == index ||
            blocks[i].size() * size_of(i) > blocks[fullest].size() * size_of(fullest))
          fullest = i;
      }
      ::munmap(blocks[fullest].back(), size_of(fullest));
      blocks[fullest].pop_back();
      bytes -= size_of(fullest);
    }
    return true;
  }
};
// Never destroyed: others are, at the end of the program, and give blocks back.
Kept& kept() {
  static auto* const the = new Kept;
  return *the;
}

bool is_ours(std::size_t bytes) {
  return keeps && bytes >= min_bytes && bytes <= max_bytes;
}

}  // namespace

Block::Block(std::size_t bytes) {
  if (bytes == 0) return;
  // aligned_alloc() takes only multiples of its alignment.
  bytes = (bytes + page - 1) / page * page;
  if (!is_ours(bytes)) {
    capacity_ = bytes;
    data_ = static_cast<std::uint8_t*>(std::aligned_alloc(page, capacity_));
    if (data_ == nullptr) throw std::bad_alloc();
    return;
  }
  const std::size_t index = index_of(bytes);
  capacity_ = size_of(index);
  Kept& here = kept();
  {
    const std::lock_guard lock(here.mutex);
    if (auto& blocks = here.blocks[index]; !blocks.empty()) {
      data_ = blocks.back();
      blocks.pop_back();
      here.bytes -= capacity_;
      return;
    }
  }
  void* const fresh =
      ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) {
    capacity_ = 0;
    throw std::bad_alloc();
  }
  data_ = static_cast<std::uint8_t*>(fresh);
}

Block::~Block() {
  if (data_ == nullptr) return;
  if (!is_ours(capacity_)) {
    std::free(data_);
    return;
  }
  Kept& here = kept();
  {
    const std::lock_guard lock(here.mutex);
    if (const std::size_t index = index_of(capacity_); here.make_room(index)) {
      try {
        here.blocks[index].push_back(data_);
        here.bytes += capacity_;
        return;
      } catch (const std::bad_alloc&) {  // Then it is not kept.
      }
    }
  }
  ::munmap(data_, capacity_);
}

std::size_t Block::kept_bytes() {
  Kept& here = kept();
  const std::lock_guard lock(here.mutex);
  return here.bytes;
}

}  // namespace tarry
