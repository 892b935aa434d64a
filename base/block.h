#pragma once

// Block: a large piece of memory that is reused.
//
// The broker moves data in bulk (requests, journal rounds, reads of segments) in pieces of 64 KiB
// to some megabytes.  Memory that is fresh from the kernel costs a page fault for each 4 KiB, which
// is more than filling it costs.  So freed blocks are kept for the next caller that needs the size,
// up to a bound for the whole process; the others go back to the kernel at once instead of staying
// in the allocator's arenas.
//
//   sizes: 64 KiB, 80, 96, 112, 128, 160, 192, 224, 256 KiB ... (four each doubling), 64 MiB;
//   smaller and larger sizes come from the allocator
//
// Invariants: data() is a multiple of 4096 and capacity() is at least the requested size.  The
// contents are undefined.  The constructor throws std::bad_alloc.  Any thread may use it.

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tarry {

class Block {
 public:
  Block() = default;
  explicit Block(std::size_t bytes);
  Block(Block&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~Block();

  std::uint8_t* data() { return data_; }
  const std::uint8_t* data() const { return data_; }
  std::size_t capacity() const { return capacity_; }

  // The memory of freed blocks that is kept: the bound, and the bytes that are kept now.
  static constexpr std::size_t max_kept_bytes = std::size_t{32} << 20;
  static std::size_t kept_bytes();

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace tarry
