#include "base/crc32c.h"

#include <algorithm>
#include <array>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif
#include <isa-l/crc.h>

namespace tarry {
namespace {

// From this length on ISA-L is faster than the loops below.
constexpr std::size_t long_input = 256;
// ISA-L takes an int.
constexpr std::size_t max_call = std::size_t{1} << 30;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    // Castagnoli's polynomial with its bits reversed, because the lowest bit of a byte comes first.
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

std::uint32_t by_table(std::uint32_t crc, Bytes bytes) {
  static constexpr auto table = make_table();
  for (const std::uint8_t byte : bytes) crc = (crc >> 8) ^ table[(crc ^ byte) & 0xff];
  return crc;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] std::uint32_t by_instruction(std::uint32_t crc, Bytes bytes) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t wide = crc;
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; left > 0; ++at, --left) crc = _mm_crc32_u8(crc, *at);
  return crc;
}

std::uint32_t short_input(std::uint32_t crc, Bytes bytes) {
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  return has_sse42 ? by_instruction(crc, bytes) : by_table(crc, bytes);
}
#else
std::uint32_t short_input(std::uint32_t crc, Bytes bytes) {
  return by_table(crc, bytes);
}
#endif

}  // namespace

std::uint32_t crc32c(std::uint32_t before, Bytes bytes) {
  // A checksum begins with all bits set and ends inverted.  Undoing that for what came before
  // continues it as if there had been no end.
  std::uint32_t crc = ~before;
  while (bytes.size() >= long_input) {
    const std::size_t count = std::min(bytes.size(), max_call);
    // It only reads; its signature forgot to say so.
    crc = crc32_iscsi(const_cast<std::uint8_t*>(bytes.data()), static_cast<int>(count), crc);
    bytes = bytes.subspan(count);
  }
  return ~short_input(crc, bytes);
}

}  // namespace tarry
