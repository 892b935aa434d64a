#pragma once

// Bucket: a span of due time whose pending records are kept together on disk.
//
//   level    span                made
//   month    30 days             lazily, for records that are due in more than about a year
//   hour     1 hour              for all others
//   minute   1 minute            only when an hour does not fit into memory
//   second   1 second            only when a minute does not
//   tick     1 ms                only when a second does not
//   run      1 ms, sorted runs   only when a millisecond does not: its chunks hold narrow ranges
//                                of sequence numbers, so that they can be read one after the other
//
// They are the upper levels of the timing wheel: a record goes into the coarsest bucket that its
// distance allows, and is dealt to finer buckets as its time comes near.  Every span is a multiple
// of the next one, so a bucket of a finer level lies in exactly one of each coarser level.
//
// A record's *home* is the month or the hour that it is accounted in: positions in the journal,
// marks of removed records and counters belong to homes.  Chunks may lie in any level.
//
// Pure; any thread.

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "base/clock.h"

namespace tarry::storage {

enum class BucketLevel : std::uint8_t { month, hour, minute, second, tick, run };

inline constexpr std::size_t bucket_levels = 6;
inline constexpr std::array<std::int64_t, bucket_levels> bucket_span_ms{
    std::int64_t{30} * 24 * 3'600'000, 3'600'000, 60'000, 1'000, 1, 1};

constexpr std::chrono::milliseconds span_of(BucketLevel level) {
  return std::chrono::milliseconds(bucket_span_ms[static_cast<std::size_t>(level)]);
}

// Before every due time, and far enough from the end of what a number can hold.
inline constexpr WallTime before_all{
    std::chrono::milliseconds{std::numeric_limits<std::int64_t>::min() / 4}};

struct Bucket {
  BucketLevel level = BucketLevel::hour;
  WallTime start{};  // A multiple of the level's span.

  auto operator<=>(const Bucket&) const = default;

  WallTime end() const { return start + span_of(level); }  // Exclusive.
  bool holds(WallTime due) const { return start <= due && due < end(); }
  std::string text() const;  // "hour 2026-11-22T14:00:00.000Z"
};

// The bucket of `level` that holds `due`.  Times before 1970 round down too.
constexpr Bucket bucket_of(BucketLevel level, WallTime due) {
  const std::int64_t span = bucket_span_ms[static_cast<std::size_t>(level)];
  const std::int64_t ms = due.time_since_epoch().count();
  std::int64_t index = ms / span;
  if (ms % span < 0) --index;
  return {level, WallTime{std::chrono::milliseconds{index * span}}};
}

constexpr BucketLevel finer(BucketLevel level) {
  return level == BucketLevel::run ? level
                                   : static_cast<BucketLevel>(static_cast<std::uint8_t>(level) + 1);
}

// Records are dealt to so many buckets at once, at most, where a level is left out.
inline constexpr std::int64_t max_dealt_to = 64;

// The level, `level` or a finer one up to `finest`, to which records that are due from `first` to
// `last` are dealt: those that would hardly part them are left out.
constexpr BucketLevel level_to_deal_to(BucketLevel level, BucketLevel finest, WallTime first,
                                       WallTime last) {
  const auto buckets = [&](BucketLevel of) {
    return (bucket_of(of, last).start - bucket_of(of, first).start) / span_of(of) + 1;
  };
  while (level < finest && buckets(finer(level)) <= max_dealt_to) level = finer(level);
  return level;
}

// A place in a shard's journal: an operation of a record.  Everything before it is included in
// whatever carries it.  The epoch counts how often the number of shards has changed; in one epoch a
// record belongs to one journal, so the places of what happens to it are in order, whoever has it.
struct JournalPlace {
  std::uint64_t lsn = 0;
  std::uint32_t operation = 0;
  std::uint32_t epoch = 0;

  bool operator==(const JournalPlace&) const = default;
  auto operator<=>(const JournalPlace& other) const {
    return std::tie(epoch, lsn, operation) <=> std::tie(other.epoch, other.lsn, other.operation);
  }
};

}  // namespace tarry::storage
