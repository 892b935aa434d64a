#pragma once

// Location: where the BucketTier had the body of a near record when it handed the record over.
//
// A hint.  The tier compares the key of what is there, because a chunk that leaves memory gives its
// number to another one; so an old location costs a search and is never wrong.

#include <cstdint>
#include <limits>

namespace tarry::delay {

struct Location {
  static constexpr std::uint32_t unknown = std::numeric_limits<std::uint32_t>::max();
  // Numbers with this bit are those of a Rescue.
  static constexpr std::uint32_t rescued = std::uint32_t{1} << 31;

  std::uint32_t chunk = unknown;  // Its number in the tier.
  std::uint32_t index = 0;        // The index of the record's entry.
};

}  // namespace tarry::delay
