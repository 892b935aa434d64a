#pragma once

// TimerId: names a timer for as long as the service lives; is never used for another one.
//
// A value; any thread.

#include <cstdint>

namespace tarry::timing {

// The id of no timer when made by default.
struct TimerId {
  std::uint64_t sequence = 0;  // Unique in its shard, counted from 1.
  std::uint32_t index = 0;     // The index of the node in its shard's pool.
  std::uint32_t shard = 0;

  bool operator==(const TimerId&) const = default;
};

}  // namespace tarry::timing
