#pragma once

// Frame: the memory of one request, without its size.
//
// It takes the bytes piece by piece.  Memory grows with the bytes that have come, not with the size
// that the frame claims: four bytes can claim a hundred megabytes.
//
// It belongs to its session, and lives as long as anything views it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "base/block.h"
#include "base/bytes.h"

namespace tarry::server {

class Frame {
 public:
  explicit Frame(std::size_t size) : size_(size) {}
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  std::size_t size() const { return size_; }
  std::size_t come() const { return come_; }
  bool whole() const { return come_ == size_; }
  Bytes view() const { return {data_, come_}; }

  // The memory for the next bytes: a part of what is missing.
  std::span<std::uint8_t> room() {
    if (come_ == capacity_ && !whole()) grow_to(std::max(2 * come_, first_bytes));
    return {data_ + come_, std::min(capacity_, size_) - come_};
  }
  void came(std::size_t bytes) { come_ += bytes; }

  // Copies what is missing from the front of `bytes`; returns how much that was.
  std::size_t take(Bytes bytes) {
    const std::size_t taken = std::min(bytes.size(), size_ - come_);
    const std::size_t then = come_ + taken;
    if (then > capacity_)
      grow_to(std::max({2 * come_, then, then >= min_reserve_bytes ? first_bytes : 0}));
    if (taken > 0) std::memcpy(data_ + come_, bytes.data(), taken);
    come_ += taken;
    return taken;
  }

 private:
  // Memory that is not written yet costs nothing, so most frames get all of theirs at once.
  static constexpr std::size_t first_bytes = std::size_t{2} << 20;
  static constexpr std::size_t min_reserve_bytes = 4096;

  // A small request takes no more memory than it needs, because thousands may wait at a time.
  static constexpr std::size_t min_block_bytes = std::size_t{64} << 10;

  void grow_to(std::size_t bytes) {
    bytes = std::min(bytes, size_);
    std::unique_ptr<std::uint8_t[]> small;
    Block large;
    std::uint8_t* data = here_.data();
    if (bytes >= min_block_bytes) {
      large = Block(bytes);
      data = large.data();
    } else if (bytes > here_.size()) {
      small = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
      data = small.get();
    }
    if (come_ > 0 && data != data_) std::memcpy(data, data_, come_);
    small_ = std::move(small);
    large_ = std::move(large);
    data_ = data;
    capacity_ = bytes;
  }

  const std::size_t size_;
  std::size_t come_ = 0;
  std::uint8_t* data_ = nullptr;  // In one of the three below.
  std::size_t capacity_ = 0;
  std::unique_ptr<std::uint8_t[]> small_;
  Block large_;
  std::array<std::uint8_t, 184>
      here_;  // Holds most waiting requests; with its fields and the count a frame has 256 bytes.
};

}  // namespace tarry::server
