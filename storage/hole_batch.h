#pragma once

// A batch for offsets that have no records any more: a control batch, which every client of Kafka
// passes over.  With plain missing offsets at its end a log would have an end that no consumer ever
// reaches.
//
// Pure; any thread.

#include "base/bytes.h"
#include "base/ids.h"

namespace tarry::storage {

// One batch has no more offsets than this.
inline constexpr Offset max_hole_offsets = Offset{1} << 30;

// Covers `from` to `until` - 1, at most max_hole_offsets.
Buffer hole_batch(Offset from, Offset until);

}  // namespace tarry::storage
