#include "tests/broker/offset_requests.h"

namespace tarry::broker::test {

World small_world(std::size_t shards) {
  return World({.shards = shards, .configure = [](BrokerConfig& config) {
                  config.group_initial_rebalance_delay = std::chrono::milliseconds{0};
                  config.offsets_retention = std::chrono::hours{1};
                }});
}

protocol::OffsetCommitRequest commit_request(std::string_view group, std::string_view topic,
                                             PartitionIndex partition, Offset offset,
                                             std::optional<std::string_view> metadata, Who who) {
  protocol::OffsetCommitRequest request;
  request.group_id = group;
  request.generation_id_or_member_epoch = who.generation;
  request.member_id = who.member;
  request.group_instance_id = who.instance;
  auto& asked = request.topics.emplace_back();
  asked.name = topic;
  auto& place = asked.partitions.emplace_back();
  place.partition_index = partition;
  place.committed_offset = offset;
  place.committed_leader_epoch = 4;
  place.committed_metadata = metadata;
  return request;
}

ErrorCode commit(World& world, std::string_view group, std::string_view topic,
                 PartitionIndex partition, Offset offset, std::optional<std::string_view> metadata,
                 Who who, int version) {
  const auto request = commit_request(group, topic, partition, offset, metadata, who);
  const auto response = world.call<protocol::OffsetCommitResponse>(request, version);
  REQUIRE(response.topics.size() == 1);
  CHECK(response.topics[0].name == topic);
  REQUIRE(response.topics[0].partitions.size() == 1);
  CHECK(response.topics[0].partitions[0].partition_index == partition);
  return response.topics[0].partitions[0].error_code;
}

std::string fetch_all(World& world, std::string_view group, std::size_t home) {
  protocol::OffsetFetchRequest request;
  request.groups.push_back({group, {}, -1, {}});
  const auto response = world.call<protocol::OffsetFetchResponse>(request, 8, home);
  REQUIRE(response.groups.size() == 1);
  CHECK(response.groups[0].error_code == ErrorCode::none);
  std::set<std::string> lines;
  for (const auto& topic : response.groups[0].topics)
    for (const auto& p : topic.partitions) {
      CHECK(p.error_code == ErrorCode::none);
      lines.insert(fmt::format("{}-{}:{}/{}/{} ", topic.name, p.partition_index, p.committed_offset,
                               p.committed_leader_epoch, p.metadata.value_or("<null>")));
    }
  std::string out;
  for (const auto& line : lines) out += line;
  return out;
}

ErrorCode remove_group(World& world, std::string_view group) {
  protocol::DeleteGroupsRequest request;
  request.groups_names.push_back(group);
  const auto response = world.call<protocol::DeleteGroupsResponse>(request, 2);
  REQUIRE(response.results.size() == 1);
  CHECK(response.results[0].group_id == group);
  return response.results[0].error_code;
}

}  // namespace tarry::broker::test
