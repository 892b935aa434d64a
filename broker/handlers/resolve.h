#pragma once

// resolve(): the partition that a request names, or the error code that it is answered with.
//
//   const auto topic = context.shard.topics().find(name);   // Null: there is no such topic.
//   const auto id = resolve(topic, index, leader_epoch);

#include <cstdint>
#include <expected>

#include "base/ids.h"
#include "protocol/error_code.h"
#include "storage/catalog.h"

namespace tarry::broker {

inline constexpr std::int32_t no_leader_epoch = -1;  // The client does not say which it knows.

inline std::expected<TopicPartition, protocol::ErrorCode> resolve(
    const storage::TopicsImage::TopicPtr& topic, PartitionIndex index,
    std::int32_t leader_epoch = no_leader_epoch) {
  using protocol::ErrorCode;
  if (!topic || index < 0 || index >= topic->partitions)
    return std::unexpected(ErrorCode::unknown_topic_or_partition);
  // There is one broker, which leads every partition from epoch 0 on, for ever.
  if (leader_epoch > 0) return std::unexpected(ErrorCode::unknown_leader_epoch);
  return TopicPartition{topic->id, index};
}

}  // namespace tarry::broker
