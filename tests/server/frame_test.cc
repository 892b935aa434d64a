// Frame: what has come of a request, in whatever pieces and to wherever it had to move.

#include "server/frame.h"

#include <cstdlib>
#include <random>

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

std::uint8_t byte_at(std::size_t i) {
  return static_cast<std::uint8_t>(i * 131 + i / 251);
}

Buffer bytes_of(std::size_t size) {
  Buffer out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = byte_at(i);
  return out;
}

// Around each place where it changes what its bytes lie in.
constexpr std::size_t sizes[] = {0,
                                 1,
                                 183,
                                 184,
                                 185,
                                 4095,
                                 4096,
                                 4097,
                                 65'535,
                                 65'536,
                                 65'537,
                                 std::size_t{2} << 20,
                                 (std::size_t{2} << 20) + 1,
                                 std::size_t{5} << 20};

TEST_SUITE("frame") {
  TEST_CASE("a frame that came in any pieces equals what was sent, in every kind of memory") {
    const char* given = std::getenv("TARRY_TEST_SEED");
    const auto seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    for (const std::size_t size : sizes) {
      CAPTURE(size);
      const Buffer sent = bytes_of(size);
      for (int round = 0; round < 8; ++round) {
        Frame frame(size);
        while (!frame.whole()) {
          const std::size_t left = size - frame.come();
          const std::size_t most = round % 2 == 0 ? left : std::max<std::size_t>(left / 3, 7);
          const Bytes piece =
              Bytes(sent).subspan(frame.come(), std::min(left, 1 + random() % most));
          if (random() % 2 == 0) {
            CHECK(frame.take(piece) == piece.size());
          } else {  // As a socket does, where there is room.
            const auto room = frame.room();
            const std::size_t got = std::min(room.size(), piece.size());
            REQUIRE(got > 0);
            std::memcpy(room.data(), piece.data(), got);
            frame.came(got);
          }
        }
        CHECK(std::ranges::equal(frame.view(), sent));
      }
    }
  }

  TEST_CASE("no more is taken than belongs to it") {
    const Buffer sent = bytes_of(300);
    Frame frame(200);
    CHECK(frame.take(Bytes(sent).first(150)) == 150);
    CHECK(frame.take(Bytes(sent).subspan(150)) == 50);
    CHECK(frame.whole());
    CHECK(frame.take(sent) == 0);
    CHECK(std::ranges::equal(frame.view(), Bytes(sent).first(200)));
  }
}

}  // namespace
}  // namespace tarry::server
