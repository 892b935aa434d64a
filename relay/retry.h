#pragma once

// Retry: when something that failed may be tried again; the wait is doubled each time.

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace tarry::relay {

class Retry {
 public:
  bool may(MonoTime mono) const { return mono >= at_; }
  MonoTime at() const { return at_; }
  void failed(MonoTime mono, std::chrono::milliseconds first, std::chrono::milliseconds longest) {
    wait_ = std::clamp(2 * wait_, first, longest);
    at_ = mono + wait_;
  }
  void reset() { *this = {}; }

 private:
  MonoTime at_{};
  std::chrono::milliseconds wait_{};
};

}  // namespace tarry::relay
