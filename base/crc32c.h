#pragma once

// CRC-32C (Castagnoli), the checksum of Kafka's record batches and of all that we write.
//
//   const std::uint32_t whole = crc32c(a_then_b);
//   TARRY_ASSERT(whole == crc32c(crc32c(a), b), "checksums continue");
//
// Any thread.  Long input goes to ISA-L (60 GB/s on 16 KiB, where one crc32 instruction after
// the other reaches 10); below 256 bytes the plain loop over that instruction wins.

#include <cstdint>

#include "base/bytes.h"

namespace tarry {

// Returns the checksum of `bytes` that follow data with the checksum `before`.  The checksum of no
// data is 0.
std::uint32_t crc32c(std::uint32_t before, Bytes bytes);

inline std::uint32_t crc32c(Bytes bytes) {
  return crc32c(0, bytes);
}

}  // namespace tarry
