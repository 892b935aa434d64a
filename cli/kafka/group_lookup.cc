#include "cli/kafka/group_lookup.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/core.h>

#include "cli/kafka/admin_request.h"
#include "cli/kafka/error_text.h"
#include "cli/kafka/handles.h"
#include "protocol/consumer_protocol.h"

namespace tarry::cli {
namespace {

GroupMember member_of(const rd_kafka_MemberDescription_t* member) {
  GroupMember out;
  const auto text = [](const char* value) { return std::string(value == nullptr ? "" : value); };
  out.id = text(rd_kafka_MemberDescription_consumer_id(member));
  out.client = text(rd_kafka_MemberDescription_client_id(member));
  out.host = text(rd_kafka_MemberDescription_host(member));
  if (const char* instance = rd_kafka_MemberDescription_group_instance_id(member))
    out.instance = instance;
  const auto* assignment = rd_kafka_MemberDescription_assignment(member);
  const auto* partitions =
      assignment == nullptr ? nullptr : rd_kafka_MemberAssignment_partitions(assignment);
  for (int i = 0; partitions != nullptr && i < partitions->cnt; ++i)
    out.assigned.emplace_back(partitions->elems[i].topic, partitions->elems[i].partition);
  std::ranges::sort(out.assigned);
  return out;
}

// Whether librdkafka 2.0.2 can decode the assignment: it takes more partitions of a topic for an
// error, and puts the names of all topics on the stack.
bool is_decodable(const std::vector<protocol::AssignedTopic>& assigned) {
  constexpr std::size_t max_partitions = 100'000;
  constexpr std::size_t max_name_bytes = std::size_t{1} << 20;
  std::size_t name_bytes = 0;
  for (const auto& [topic, partitions] : assigned) {
    name_bytes += topic.size() + 1;
    if (partitions.size() > max_partitions || name_bytes > max_name_bytes) return false;
  }
  return true;
}

// `all_decodable`: librdkafka can decode the assignments of all members.
GroupInfo group_of(const struct rd_kafka_group_info& found, bool& all_decodable) {
  GroupInfo group;
  group.name = found.group;
  group.state = found.state;
  group.assignor = found.protocol;
  group.coordinator = fmt::format("{}:{}", found.broker.host, found.broker.port);
  for (int m = 0; m < found.member_cnt; ++m) {
    const auto& member = found.members[m];
    auto& shown = group.members.emplace_back(
        GroupMember{member.member_id, member.client_id, member.client_host, std::nullopt, {}});
    if (member.member_assignment_size == 0) continue;
    const auto assigned =
        protocol::assigned_partitions({static_cast<const std::uint8_t*>(member.member_assignment),
                                       static_cast<std::size_t>(member.member_assignment_size)});
    all_decodable = all_decodable && assigned && is_decodable(*assigned);
    // A client may have assignments of a form of its own; its member is shown without partitions.
    if (!assigned) continue;
    for (const auto& [topic, partitions] : *assigned)
      for (const auto partition : partitions) shown.assigned.emplace_back(topic, partition);
    std::ranges::sort(shown.assigned);
  }
  std::ranges::sort(group.members, {}, &GroupMember::id);
  return group;
}

// The group, when one of its members has an assignment that librdkafka cannot decode; nullopt when
// it can decode them all.  This answer has no instance ids, and bytes that are no assignment count
// as one without partitions.
Result<std::optional<GroupInfo>> undecodable_group(KafkaConnection& connection,
                                                   const std::string& name) {
  const struct rd_kafka_group_list* list = nullptr;
  const auto error = rd_kafka_list_groups(connection.client(), name.c_str(), &list,
                                          static_cast<int>(connection.timeout().count()));
  const GroupList owned(list);
  // PARTIAL: not every broker has answered, but the group's may have.
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR && error != RD_KAFKA_RESP_ERR__PARTIAL)
    return connection.error_of(name_text(name), error);
  for (int g = 0; list != nullptr && g < list->group_cnt; ++g) {
    const auto& found = list->groups[g];
    if (found.group != name || found.err != RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    bool all_decodable = true;
    GroupInfo group = group_of(found, all_decodable);
    if (!all_decodable) return group;
  }
  return std::nullopt;
}

}  // namespace

Result<GroupInfo> find_group(KafkaConnection& connection, const std::string& name) {
  const auto undecodable = undecodable_group(connection, name);
  if (!undecodable) return std::unexpected(undecodable.error());
  if (*undecodable) return **undecodable;
  const auto event = ask_admin(
      connection, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, [&](auto* options, auto* queue) {
        const char* one = name.c_str();
        rd_kafka_DescribeConsumerGroups(connection.client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_DescribeConsumerGroups_result_groups(
      rd_kafka_event_DescribeConsumerGroups_result(event->get()), &count);
  if (count != 1) return fail(Errc::io, name + ": the broker's answer does not name it");
  const auto* described = results[0];
  if (const auto* error = rd_kafka_ConsumerGroupDescription_error(described)) {
    return connection.error_of(name_text(name), rd_kafka_error_code(error),
                               rd_kafka_error_string(error));
  }
  GroupInfo group;
  group.name = name;
  group.state =
      rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupDescription_state(described));
  if (const char* assignor = rd_kafka_ConsumerGroupDescription_partition_assignor(described))
    group.assignor = assignor;
  if (const auto* node = rd_kafka_ConsumerGroupDescription_coordinator(described))
    group.coordinator = fmt::format("{}:{}", rd_kafka_Node_host(node), rd_kafka_Node_port(node));
  const std::size_t members = rd_kafka_ConsumerGroupDescription_member_count(described);
  for (std::size_t i = 0; i < members; ++i)
    group.members.push_back(member_of(rd_kafka_ConsumerGroupDescription_member(described, i)));
  std::ranges::sort(group.members, {}, &GroupMember::id);
  return group;
}

}  // namespace tarry::cli
