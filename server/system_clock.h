#pragma once

// SystemClock: the machine's clock.  The broker reads it nowhere else.
//
// Any thread.

#include <chrono>

#include "base/clock.h"

namespace tarry::server {

class SystemClock final : public Clock {
 public:
  WallTime wall() const override {
    return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  }
  MonoTime mono() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace tarry::server
