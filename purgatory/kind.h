#pragma once

// Kind and Outcome: what a delayed operation is, and how its waiting ended.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tarry::purgatory {

enum class Kind : std::uint8_t {
  fetch,
  produce,
  join,
  sync,
  heartbeat,
  delete_records,
  create_topics,
  delete_topics,
  create_partitions,
  alter_configs,
  offset_commit,
  offset_delete,
  delete_groups,
  init_producer_id,
  fetch_watch,  // What a fetch leaves on another shard to be woken from there.
};
inline constexpr std::size_t kind_count = 15;
std::string_view name_of(Kind kind);  // As written above; "fetch", "delete_records".

enum class Outcome : std::uint8_t { satisfied, expired, cancelled };
std::string_view name_of(Outcome outcome);

}  // namespace tarry::purgatory
