#pragma once

// Record batches for tests of the log: known offsets, timestamps and sizes.

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "records/batch_builder.h"
#include "records/record_batch.h"
#include "tests/given.h"

namespace tarry::storage {

struct TestRecord {
  std::int64_t timestamp = 0;  // Below 0: a hole, no record has this offset.
  std::size_t bytes = 10;      // The size of its value.
};

inline Buffer make_batch(Offset base, const std::vector<TestRecord>& records,
                         records::Codec codec = records::Codec::none) {
  records::BatchOptions options;
  options.base_offset = base;
  options.leader_epoch = 0;
  options.codec = codec;
  records::BatchBuilder builder(options);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].timestamp < 0) {
      builder.skip();
      continue;
    }
    const Buffer value(records[i].bytes, static_cast<std::uint8_t>(base + static_cast<Offset>(i)));
    builder.append(from_ms(records[i].timestamp), std::nullopt, Bytes{value});
  }
  return builder.finish();
}

inline records::BatchView view_of(Bytes batch) {
  return *records::BatchView::parse(batch);
}

// A batch of one record that has `bytes` bytes in all, at least 80.
inline Buffer make_batch_of(std::size_t bytes, Offset base, std::int64_t timestamp) {
  std::size_t value = bytes - 72;
  for (;; ++value) {
    Buffer batch = make_batch(base, {{timestamp, value}});
    if (batch.size() == bytes) return batch;
    if (batch.size() > bytes) return {};  // The length's varint jumps over this size.
  }
}

}  // namespace tarry::storage
