#pragma once

// Committing and fetching offsets as clients do, for the tests of the broker.

#include <fmt/core.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "protocol/messages/delete_groups.h"
#include "protocol/messages/offset_commit.h"
#include "protocol/messages/offset_fetch.h"
#include "tests/broker/batches.h"

namespace tarry::broker::test {

World small_world(std::size_t shards = 2);

// The member that commits: by default nobody, as a consumer that assigns itself.
struct Who {
  std::int32_t generation = -1;
  std::string_view member = "";
  std::optional<std::string_view> instance = {};
};

protocol::OffsetCommitRequest commit_request(std::string_view group, std::string_view topic,
                                             PartitionIndex partition, Offset offset,
                                             std::optional<std::string_view> metadata = "",
                                             Who who = {});

ErrorCode commit(World& world, std::string_view group, std::string_view topic,
                 PartitionIndex partition, Offset offset,
                 std::optional<std::string_view> metadata = "", Who who = {}, int version = 9);

// All that a group has committed: "topic-partition:offset/epoch/metadata ".
std::string fetch_all(World& world, std::string_view group, std::size_t home = 0);

ErrorCode remove_group(World& world, std::string_view group);

}  // namespace tarry::broker::test
