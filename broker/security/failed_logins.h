#pragma once

// FailedLogins: how long the answer to a failed login waits, so that passwords cannot be tried
// fast.
//
// The first failure of an address waits connection.failed.authentication.delay.ms, as in Kafka;
// each further one twice as long, up to 32 times.  A minute without a failure, and it begins again.
//
// Belongs to one shard; an attacker has at most as many first failures as there are shards.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <unordered_map>

#include "base/clock.h"

namespace tarry::broker {

class FailedLogins {
 public:
  static constexpr std::chrono::minutes memory{1};
  static constexpr std::size_t max_addresses = 10'000;

  std::chrono::milliseconds delay_of_next(const std::string& host, MonoTime now,
                                          std::chrono::milliseconds base) {
    if (of_.size() >= max_addresses) {
      std::erase_if(of_, [now](const auto& each) { return now - each.second.last > memory; });
      if (of_.size() >= max_addresses) of_.clear();
    }
    auto& failed = of_[host];
    if (now - failed.last > memory) failed.count = 0;
    failed.last = now;
    const auto factor = 1 << std::min(failed.count, 5u);
    ++failed.count;
    return base * factor;
  }

 private:
  struct Failed {
    unsigned count = 0;
    MonoTime last{};
  };
  std::unordered_map<std::string, Failed> of_;
};

}  // namespace tarry::broker
