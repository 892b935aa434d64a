#pragma once

// ConsumedRecord: a record as a broker has it, with its place.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace tarry::cli {

// Its views belong to whoever gave it; of a consumer, until its next call.
struct ConsumedRecord {
  PartitionIndex partition = 0;
  Offset offset = 0;
  std::int64_t timestamp = -1;  // Epoch ms; -1: none.
  std::optional<std::string_view> key, value;
  std::vector<std::pair<std::string_view, std::optional<std::string_view>>> headers;
};

}  // namespace tarry::cli
