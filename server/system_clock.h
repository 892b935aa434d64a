#pragma once

// The machine's time and chance: the one place where Tarry reads a clock or a random device.
//
// Any thread.

#include <sys/random.h>

#include <cerrno>
#include <chrono>

#include "base/assert.h"
#include "base/clock.h"
#include "base/random.h"

namespace tarry::server {

class SystemClock final : public Clock {
 public:
  WallTime wall() const override {
    return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  }
  MonoTime mono() const override { return std::chrono::steady_clock::now(); }
};

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
