#pragma once

// OffsetWord: a place in a partition: start, end, an offset, or @ and a time (the first record from
// then on).

#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "cli/kafka/offsets.h"

namespace tarry::cli {

struct OffsetWord {
  Offset offset = log_start;  // An offset, log_start or log_end; not used when there is a time.
  std::optional<WallTime> time;
};

// Errors: invalid, with the word and what is accepted.
Result<OffsetWord> parse_offset_word(std::string_view word);

}  // namespace tarry::cli
