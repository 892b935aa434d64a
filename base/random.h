#pragma once

// Randomness is an argument, as time is: code that needs it gets a Random.  The server's Random
// asks the machine; a simulation's continues from a printed seed.

#include <cstdint>
#include <cstring>

#include "base/ids.h"

namespace tarry {

class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t u64() = 0;

  TopicId topic_id() {
    TopicId id;
    while (id.is_zero() || id.text().front() == '-') {  // Kafka avoids a leading '-' too.
      const std::uint64_t high = u64(), low = u64();
      std::memcpy(id.bytes.data(), &high, 8);
      std::memcpy(id.bytes.data() + 8, &low, 8);
      id.bytes[6] = static_cast<std::uint8_t>((id.bytes[6] & 0x0f) | 0x40);  // RFC 4122,
      id.bytes[8] = static_cast<std::uint8_t>((id.bytes[8] & 0x3f) | 0x80);  // version 4.
    }
    return id;
  }
};

}  // namespace tarry
