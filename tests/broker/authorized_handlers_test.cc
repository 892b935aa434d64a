// Each API either asks for the client's rights, or is named here with the reason why it does not.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "broker/handlers/table.h"
#include "protocol/api.h"
#include "protocol/messages/alter_client_quotas.h"
#include "protocol/messages/alter_configs.h"
#include "protocol/messages/alter_user_scram_credentials.h"
#include "protocol/messages/create_acls.h"
#include "protocol/messages/create_partitions.h"
#include "protocol/messages/create_topics.h"
#include "protocol/messages/delete_acls.h"
#include "protocol/messages/delete_groups.h"
#include "protocol/messages/delete_records.h"
#include "protocol/messages/delete_topics.h"
#include "protocol/messages/describe_acls.h"
#include "protocol/messages/describe_client_quotas.h"
#include "protocol/messages/describe_configs.h"
#include "protocol/messages/describe_groups.h"
#include "protocol/messages/describe_topic_partitions.h"
#include "protocol/messages/describe_user_scram_credentials.h"
#include "protocol/messages/find_coordinator.h"
#include "protocol/messages/heartbeat.h"
#include "protocol/messages/incremental_alter_configs.h"
#include "protocol/messages/init_producer_id.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/leave_group.h"
#include "protocol/messages/list_offsets.h"
#include "protocol/messages/metadata.h"
#include "protocol/messages/offset_delete.h"
#include "protocol/messages/offset_fetch.h"
#include "protocol/messages/sync_group.h"
#include "tests/broker/batches.h"
#include "tests/broker/offset_requests.h"

namespace tarry::broker::test {
namespace {

using protocol::ApiKey;

// Before a login they are the only ones that are served, and after it they say who a client is.
const std::set<ApiKey> needs_no_right{ApiKey::api_versions, ApiKey::sasl_handshake,
                                      ApiKey::sasl_authenticate};
// Without a right they leave out what it is for, and refuse nothing.
const std::set<ApiKey> only_filters{ApiKey::list_groups, ApiKey::describe_cluster};

// One request of each other API, for topic "t" and group "g".
class Asked {
 public:
  using Begin = std::function<std::shared_ptr<World::Pending>(World&)>;

  explicit Asked(World& world) : batch_(batch_of(world.clock.wall(), {NewRecord{"v"}})) {
    add_records();
    add_topics();
    add_groups();
    add_security();
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  // Empty: there is none.
  Begin of(ApiKey key) const {
    const auto found = all_.find(key);
    return found == all_.end() ? Begin{} : found->second;
  }

 private:
  template <typename Request>
  void add(Request request, int version) {
    all_[Request::api] = [request = std::move(request), version](World& world) {
      return world.begin(request, version);
    };
  }

  void add_records() {
    add(produce_request("t", 0, batch_), 8);
    add(fetch_request("t", 0, 0, 0), 12);
    protocol::ListOffsetsRequest list;
    auto& listed = list.topics.emplace_back();
    listed.name = "t";
    listed.partitions.emplace_back().timestamp = -1;
    add(list, 5);
    protocol::DeleteRecordsRequest cut;
    cut.timeout_ms = 60'000;
    auto& topic = cut.topics.emplace_back();
    topic.name = "t";
    topic.partitions.emplace_back().offset = 0;
    add(cut, 2);
    add(protocol::InitProducerIdRequest{}, 4);
  }

  void add_topics() {
    protocol::MetadataRequest metadata;
    metadata.topics.emplace().push_back({{}, "t"});
    add(metadata, 9);
    protocol::DescribeTopicPartitionsRequest partitions;
    partitions.topics.emplace_back().name = "t";
    add(partitions, 0);
    protocol::CreateTopicsRequest create;
    create.topics.push_back({"made", 1, 1, {}, {}});
    add(create, 7);
    protocol::DeleteTopicsRequest remove;
    remove.topic_names = {"t"};
    remove.timeout_ms = 60'000;
    add(remove, 5);
    protocol::CreatePartitionsRequest grow;
    grow.timeout_ms = 60'000;
    grow.topics.push_back({"t", 3, std::nullopt});
    add(grow, 3);
    protocol::DescribeConfigsRequest describe;
    auto& described = describe.resources.emplace_back();
    described.resource_type = 2;
    described.resource_name = "t";
    add(describe, 4);
    protocol::AlterConfigsRequest alter;
    alter.resources.push_back({2, "t", {{"retention.ms", "987654321"}}});
    add(alter, 2);
    protocol::IncrementalAlterConfigsRequest change;
    change.resources.push_back({2, "t", {{"retention.ms", 0, "123456789"}}});
    add(change, 1);
  }

  void add_groups() {
    add(commit_request("g", "t", 0, 1), 9);
    protocol::OffsetFetchRequest fetch;
    fetch.group_id = "g";
    fetch.topics.emplace().push_back({"t", {0}});
    add(fetch, 7);
    protocol::OffsetDeleteRequest forget;
    forget.group_id = "g";
    add(forget, 0);
    protocol::FindCoordinatorRequest find;
    find.key = "g";
    add(find, 3);
    protocol::JoinGroupRequest join;
    join.group_id = "g";
    add(join, 3);
    protocol::SyncGroupRequest sync;
    sync.group_id = "g";
    add(sync, 3);
    protocol::HeartbeatRequest heartbeat;
    heartbeat.group_id = "g";
    add(heartbeat, 3);
    protocol::LeaveGroupRequest leave;
    leave.group_id = "g";
    leave.members.emplace_back().member_id = "m";
    add(leave, 3);
    protocol::DescribeGroupsRequest describe;
    describe.groups = {"g"};
    add(describe, 5);
    protocol::DeleteGroupsRequest remove;
    remove.groups_names = {"g"};
    add(remove, 2);
  }

  void add_security() {
    protocol::DescribeAclsRequest rules;
    rules.resource_type_filter = 1;
    rules.pattern_type_filter = 1;
    rules.operation = 1;
    rules.permission_type = 1;
    add(rules, 3);
    protocol::CreateAclsRequest rule;
    rule.creations.push_back({2, "t", 3, "User:a", "*", 3, 3});
    add(rule, 3);
    protocol::DeleteAclsRequest gone;
    gone.filters.push_back({2, "t", 2, std::nullopt, std::nullopt, 1, 1});
    add(gone, 3);
    add(protocol::DescribeUserScramCredentialsRequest{}, 0);
    protocol::AlterUserScramCredentialsRequest users;
    auto& user = users.deletions.emplace_back();
    user.name = "alice";
    user.mechanism = 1;
    add(users, 0);
    add(protocol::DescribeClientQuotasRequest{}, 1);
    add(protocol::AlterClientQuotasRequest{}, 1);
  }

  const Buffer batch_;
  std::map<ApiKey, Begin> all_;
};

TEST_SUITE("authorized handlers") {
  TEST_CASE("a client without rights is refused by each API but those that are named here") {
    bool may_all = true;
    World world({.shards = 1, .configure = [&may_all](BrokerConfig& config) {
                   config.authorizer.enabled = true;
                   if (may_all) config.authorizer.super_users = {"User:ANONYMOUS"};
                 }});
    create_topic(world, "t");
    may_all = false;
    world.restart();
    const Asked asked(world);
    for (const Handler& handler : handlers()) {
      const std::string api(protocol::name(handler.key));
      CAPTURE(api);
      if (needs_no_right.contains(handler.key) || only_filters.contains(handler.key)) continue;
      const auto begin = asked.of(handler.key);
      const bool has_request = static_cast<bool>(begin);
      REQUIRE_MESSAGE(has_request, "it has no request in this test, and no reason to need none");
      const auto refused_before = world.shard().counters.refused_total;
      const auto pending = begin(world);
      world.run();
      CHECK(pending->answer.has_value());
      CHECK(world.shard().counters.refused_total > refused_before);
    }
  }

  TEST_CASE("each API in the list of those that need no right exists") {
    for (const auto& named : {needs_no_right, only_filters}) {
      for (const ApiKey key : named) {
        const bool is_there = find_handler(static_cast<std::int16_t>(key)) != nullptr;
        CHECK(is_there);
      }
    }
  }
}

}  // namespace
}  // namespace tarry::broker::test
