#pragma once

// Hash of bytes that somebody else chose: SipHash, so that nobody can make texts that collide
// without the key.
//
//   keyed_hash(process_hash_key(), id)

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tarry {

struct HashKey {
  std::uint64_t low = 0, high = 0;
};

// The key of this process alone: random, and the same until its end.
HashKey process_hash_key();

// `rounds` for each eight bytes, and `last_rounds` at the end; SipHash-2-4 is <2, 4>.
template <int rounds = 1, int last_rounds = 3>
std::uint64_t keyed_hash(HashKey key, std::string_view text) {
  std::uint64_t a = key.low ^ 0x736f6d6570736575, b = key.high ^ 0x646f72616e646f6d;
  std::uint64_t c = key.low ^ 0x6c7967656e657261, d = key.high ^ 0x7465646279746573;
  const auto mix = [&](int times) {
    for (int i = 0; i < times; ++i) {
      a += b;
      b = std::rotl(b, 13) ^ a;
      a = std::rotl(a, 32);
      c += d;
      d = std::rotl(d, 16) ^ c;
      a += d;
      d = std::rotl(d, 21) ^ a;
      c += b;
      b = std::rotl(b, 17) ^ c;
      c = std::rotl(c, 32);
    }
  };
  const auto take = [&](std::uint64_t word) {
    d ^= word;
    mix(rounds);
    a ^= word;
  };
  std::uint64_t last = static_cast<std::uint64_t>(text.size()) << 56;
  static_assert(std::endian::native == std::endian::little);
  for (; text.size() >= 8; text.remove_prefix(8)) {
    std::uint64_t word;
    std::memcpy(&word, text.data(), 8);
    take(word);
  }
  for (std::size_t i = 0; i < text.size(); ++i)
    last |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(text[i])) << (8 * i);
  take(last);
  c ^= 0xff;
  mix(last_rounds);
  return a ^ b ^ c ^ d;
}

}  // namespace tarry
