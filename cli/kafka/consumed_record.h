#pragma once

// ConsumedRecord: a record as a broker has it, with its place.
//
// Its views belong to whoever gave it; those of a record from a consumer are valid until the
// consumer's next call.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

struct rd_kafka_message_s;  // librdkafka's

namespace tarry::cli {

struct ConsumedRecord {
  PartitionIndex partition = 0;
  Offset offset = 0;
  std::int64_t timestamp = -1;  // Epoch ms; -1: none.
  std::optional<std::string_view> key, value;
  std::vector<std::pair<std::string_view, std::optional<std::string_view>>> headers;
};

// Views the message.
ConsumedRecord record_of(const rd_kafka_message_s& message);

// A consumer has read all records that the partition had.
struct EndOfPartition {
  PartitionIndex partition = 0;
};

}  // namespace tarry::cli
