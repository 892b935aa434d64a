#pragma once

// Block: a large piece of memory that is used again.
//
// What the broker moves in bulk (requests, journal rounds, reads of segments) comes and goes in
// pieces of 64 KiB to some megabytes.  Memory that is fresh from the kernel costs a page fault
// each 4 KiB, which is more than filling it does; so blocks that are given back are kept for the
// next who asks for that size, up to a bound for the whole process, and the rest goes to the
// kernel at once instead of staying in the allocator's arenas.
//
//   sizes: 64 KiB, 80, 96, 112, 128, 160, 192, 224, 256 KiB ... (four each doubling), 64 MiB;
//   what is smaller or larger is the allocator's
//
// What always holds: data() is at a multiple of 4096, capacity() is at least what was asked for,
// the contents are anything.  Throws std::bad_alloc.  Any thread.

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

  // Of all that were given back: what is kept at most, and what is now.
  static constexpr std::size_t most_kept_bytes = std::size_t{32} << 20;
  static std::size_t kept_bytes();

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace tarry
