#pragma once

// Frame: the memory of one request, without its size.
//
// Takes what comes of it piece by piece.  Memory grows by what has come, not by what the frame's
// size claims: four bytes can claim a hundred megabytes.
//
// Belongs to its session, and lives on with who views it.

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

  // Where what comes next goes: some of what is missing.
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
      grow_to(std::max({2 * come_, then, then >= least_worth_place ? first_bytes : 0}));
    if (taken > 0) std::memcpy(data_ + come_, bytes.data(), taken);
    come_ += taken;
    return taken;
  }

 private:
  // What is not filled costs nothing yet, so most frames have their place at once.
  static constexpr std::size_t first_bytes = std::size_t{2} << 20;
  static constexpr std::size_t least_worth_place = 4096;

  // A small request has no more than it needs, in one piece: thousands wait at a time.
  static constexpr std::size_t least_block = std::size_t{64} << 10;

  void grow_to(std::size_t bytes) {
    bytes = std::min(bytes, size_);
    std::unique_ptr<std::uint8_t[]> small;
    Block large;
    std::uint8_t* data = here_.data();
    if (bytes >= least_block) {
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
  std::array<std::uint8_t, 184> here_;  // Most that wait, and 256 bytes with what is around it.
};

}  // namespace tarry::server
