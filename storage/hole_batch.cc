#include "storage/hole_batch.h"

#include <array>

#include "base/assert.h"
#include "records/batch_builder.h"

namespace tarry::storage {
namespace {

// The key and value of a marker that commits a transaction, with an epoch of 0.
constexpr std::array<std::uint8_t, 4> marker_key{0, 0, 0, 1};
constexpr std::array<std::uint8_t, 6> marker_value{};

}  // namespace

Buffer hole_batch(Offset from, Offset until) {
  TARRY_ASSERT(from < until && until - from <= max_hole_offsets, "a hole fits one batch");
  records::BatchOptions options;
  options.base_offset = from;
  options.leader_epoch = 0;
  options.control = true;
  records::BatchBuilder builder(options);
  builder.append(records::no_timestamp, Bytes(marker_key), Bytes(marker_value));
  if (until - from > 1) builder.skip(static_cast<std::int32_t>(until - from - 1));
  return builder.finish();
}

}  // namespace tarry::storage
