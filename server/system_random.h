#pragma once

// SystemRandom: the machine's random numbers, of which nobody can guess the next one.
//
// Any thread.

#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#include "base/assert.h"
#include "base/random.h"

namespace tarry::server {

class SystemRandom final : public Random {
 public:
  std::uint64_t u64() override {
    std::uint64_t value = 0;
    ssize_t got;
    do {
      got = ::getrandom(&value, sizeof value, 0);
    } while (got < 0 && errno == EINTR);
    TARRY_ASSERT(got == sizeof value, "getrandom() always returns eight bytes at once");
    return value;
  }
};

}  // namespace tarry::server
