#include "base/block.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("block") {
  TEST_CASE("a block has the requested size, begins at a page, and is little larger") {
    for (std::size_t bytes :
         {std::size_t{1}, std::size_t{4096}, std::size_t{65535}, std::size_t{65536},
          std::size_t{65537}, std::size_t{81920}, std::size_t{81921}, std::size_t{131072},
          std::size_t{131073}, std::size_t{1048576 + 70}, std::size_t{64} << 20,
          (std::size_t{64} << 20) + 1}) {
      CAPTURE(bytes);
      Block block(bytes);
      CHECK(block.capacity() >= bytes);
      CHECK(block.capacity() <= std::max<std::size_t>(bytes + bytes / 4 + 4096, 4096));
      CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 4096 == 0);
      std::memset(block.data(), 1, bytes);
    }
  }

  TEST_CASE("no block of none is asked for") {
    const Block block(0);
    CHECK(block.capacity() == 0);
    CHECK(block.data() == nullptr);
  }

  TEST_CASE("the kept memory stays within its bound") {
    {
      std::vector<Block> blocks;
      for (int i = 0; i < 100; ++i) blocks.emplace_back(std::size_t{1} << 20);
    }
    CHECK(Block::kept_bytes() <= Block::max_kept_bytes);
  }

  TEST_CASE("a block that cannot be kept takes no kept ones with it") {
    {
      std::vector<Block> blocks;
      for (int i = 0; i < 20; ++i) blocks.emplace_back(std::size_t{1} << 20);
    }
    const std::size_t before = Block::kept_bytes();
    { const Block larger_than_all(std::size_t{64} << 20); }
    CHECK(Block::kept_bytes() == before);
    { const Block fits(std::size_t{16} << 20); }
    CHECK(Block::kept_bytes() <= Block::max_kept_bytes);
  }

  TEST_CASE("a moved block is one block") {
    Block first(100'000);
    std::uint8_t* const data = first.data();
    Block second(std::move(first));
    CHECK(second.data() == data);
    CHECK(first.data() == nullptr);
    first = std::move(second);
    CHECK(first.data() == data);
  }
}

}  // namespace
}  // namespace tarry
