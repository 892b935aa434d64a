// Each allocation of a request is made to fail once, in turn: its client may get no answer, and
// nobody else notices.  What was answered is in the journal.
//
// Of the requests that change something every fifth allocation fails, which takes 20 seconds
// with sanitizers; TARRY_ALLOCATIONS=all: each.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "broker/groups/groups.h"
#include "broker/security/security_image.h"
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
#include "protocol/messages/describe_groups.h"
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
#include "protocol/messages/produce.h"
#include "protocol/messages/sync_group.h"
#include "tests/broker/batches.h"
#include "tests/broker/failing_allocations.h"
#include "tests/broker/offset_requests.h"

namespace tarry::broker::test {
namespace {

// How many allocations the request makes until it first waits for the disk, or is answered.
template <typename Request>
long fail_each(World& world, const Request& request, int version) {
  for (long nth = 1;; ++nth) {
    CAPTURE(Request::name);
    CAPTURE(nth);
    world.runs_at_once = false;
    const auto pending = world.begin(request, version);
    allocations_left = nth;
    try {
      world.turn();
    } catch (const std::bad_alloc&) {
    }
    const bool failed = allocations_left == 0;
    allocations_left = 0;
    world.runs_at_once = true;
    world.run();
    CHECK_FALSE(world.failure.has_value());
    if (failed) continue;
    REQUIRE(pending->answer.has_value());
    return nth - 1;
  }
}

// --- Requests that change something

struct Writing {
  std::string name;
  std::function<std::shared_ptr<World::Pending>(World&)> begin;
  std::function<ErrorCode(World&, const World::Pending&)> error_of;  // Of what it asks for.
  // Bytes that are in the journal before it is answered; empty: it need not wait for the journal.
  std::string evidence;
  std::function<bool(World&)> holds;  // What it asked for is there, after a restart.
};

// What requests view.
struct WritingTexts {
  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
  const Buffer& keep(Buffer batch) { return batches.emplace_back(std::move(batch)); }
  std::list<std::string> texts;
  std::list<Buffer> batches;
};

template <typename Response, typename Request, typename ErrorOf>
Writing writing(std::string name, Request request, int version, ErrorOf error_of,
                std::string evidence, std::function<bool(World&)> holds) {
  return {std::move(name),
          [request = std::move(request), version](World& world) {
            return world.begin(request, version);
          },
          [error_of, version](World& world, const World::Pending& pending) {
            return error_of(world.read<Response>(pending, version));
          },
          std::move(evidence), std::move(holds)};
}

using Prepare = std::function<Writing(World&, WritingTexts&)>;
constexpr std::chrono::milliseconds a_moment{500};

std::shared_ptr<const storage::Topic> topic_named(World& world, std::string_view name) {
  return world.broker().topics().image()->find(name);
}

std::string id_of(World& world, std::string_view topic) {
  const auto id = topic_named(world, topic)->id;
  return std::string(as_text(Bytes(id.bytes)));
}

Prepare produce_of(std::string name, NewRecord record, Producer producer = {}) {
  return [=](World& world, WritingTexts& texts) {
    const Buffer& batch = texts.keep(batch_of(world.clock.wall(), {record}, producer));
    const auto error_of = [](const protocol::ProduceResponse& told) {
      return told.responses.at(0).partition_responses.at(0).error_code;
    };
    const auto holds = [value = record.value](World& later) {
      later.pass(std::chrono::seconds{31});
      const auto all = values(read_all(later, "t"));
      return std::ranges::find(all, value) != all.end();
    };
    return writing<protocol::ProduceResponse>(name, produce_request("t", 0, batch), 8, error_of,
                                              record.value, holds);
  };
}

std::vector<Prepare> requests_of_records() {
  return {
      produce_of("Produce", {"at once"}),
      produce_of("Produce of a delayed record", {"delayed", {{"x-delay", "30s"}}}),
      produce_of("Produce with an id",
                 {"with an id", {{"x-delay", "30s"}, {"x-schedule-id", "id"}}}),
      produce_of("Produce of an idempotent producer", {"idempotent"}, {77, 0, 0}),
      [](World& world, WritingTexts&) {
        protocol::DeleteRecordsRequest request;
        request.timeout_ms = 60'000;
        auto& topic = request.topics.emplace_back();
        topic.name = "t";
        topic.partitions.push_back({0, 1});
        const auto error_of = [](const protocol::DeleteRecordsResponse& told) {
          return told.topics.at(0).partitions.at(0).error_code;
        };
        const auto holds = [](World& later) {
          protocol::ListOffsetsRequest list;
          auto& asked = list.topics.emplace_back();
          asked.name = "t";
          auto& partition = asked.partitions.emplace_back();
          partition.partition_index = 0;
          partition.timestamp = -2;
          const auto told = later.call<protocol::ListOffsetsResponse>(list, 5);
          return told.topics.at(0).partitions.at(0).offset == 1;
        };
        return writing<protocol::DeleteRecordsResponse>("DeleteRecords", request, 2, error_of,
                                                        id_of(world, "t"), holds);
      },
      [](World&, WritingTexts&) {
        const auto error_of = [](const protocol::InitProducerIdResponse& told) {
          return told.error_code;
        };
        return writing<protocol::InitProducerIdResponse>("InitProducerId",
                                                         protocol::InitProducerIdRequest{}, 4,
                                                         error_of, "", [](World&) { return true; });
      },
  };
}

std::vector<Prepare> requests_of_topics() {
  return {
      [](World&, WritingTexts&) {
        protocol::CreateTopicsRequest request;
        request.topics.push_back({"made", 1, 1, {}, {}});
        const auto error_of = [](const protocol::CreateTopicsResponse& told) {
          return told.topics.at(0).error_code;
        };
        return writing<protocol::CreateTopicsResponse>(
            "CreateTopics", request, 7, error_of, "made",
            [](World& later) { return topic_named(later, "made") != nullptr; });
      },
      [](World& world, WritingTexts&) {
        protocol::DeleteTopicsRequest request;
        request.topic_names = {"victim"};
        request.timeout_ms = 60'000;
        const auto error_of = [](const protocol::DeleteTopicsResponse& told) {
          return told.responses.at(0).error_code;
        };
        return writing<protocol::DeleteTopicsResponse>(
            "DeleteTopics", request, 5, error_of, id_of(world, "victim"),
            [](World& later) { return topic_named(later, "victim") == nullptr; });
      },
      [](World& world, WritingTexts&) {
        protocol::CreatePartitionsRequest request;
        request.timeout_ms = 60'000;
        request.topics.push_back({"victim", 3, std::nullopt});
        const auto error_of = [](const protocol::CreatePartitionsResponse& told) {
          return told.results.at(0).error_code;
        };
        return writing<protocol::CreatePartitionsResponse>(
            "CreatePartitions", request, 3, error_of, id_of(world, "victim"),
            [](World& later) { return topic_named(later, "victim")->partitions == 3; });
      },
      [](World&, WritingTexts&) {
        protocol::IncrementalAlterConfigsRequest request;
        request.resources.push_back({2, "victim", {{"retention.ms", 0, "123456789"}}});
        const auto error_of = [](const protocol::IncrementalAlterConfigsResponse& told) {
          return told.responses.at(0).error_code;
        };
        return writing<protocol::IncrementalAlterConfigsResponse>(
            "IncrementalAlterConfigs", request, 1, error_of, "123456789", [](World& later) {
              return topic_named(later, "victim")->configs.at("retention.ms") == "123456789";
            });
      },
      [](World&, WritingTexts&) {
        protocol::AlterConfigsRequest request;
        request.resources.push_back({2, "victim", {{"retention.ms", "987654321"}}});
        const auto error_of = [](const protocol::AlterConfigsResponse& told) {
          return told.responses.at(0).error_code;
        };
        return writing<protocol::AlterConfigsResponse>(
            "AlterConfigs", request, 2, error_of, "987654321", [](World& later) {
              return topic_named(later, "victim")->configs.at("retention.ms") == "987654321";
            });
      },
  };
}

std::vector<Prepare> requests_of_offsets() {
  return {
      [](World&, WritingTexts&) {
        const auto error_of = [](const protocol::OffsetCommitResponse& told) {
          return told.topics.at(0).partitions.at(0).error_code;
        };
        return writing<protocol::OffsetCommitResponse>(
            "OffsetCommit", commit_request("new", "t", 0, 1, "committed text"), 9, error_of,
            "committed text",
            [](World& later) { return fetch_all(later, "new") == "t-0:1/4/committed text "; });
      },
      [](World&, WritingTexts&) {
        protocol::OffsetDeleteRequest request;
        request.group_id = "committed";
        auto& topic = request.topics.emplace_back();
        topic.name = "t";
        topic.partitions.emplace_back().partition_index = 0;
        const auto error_of = [](const protocol::OffsetDeleteResponse& told) {
          if (told.error_code != ErrorCode::none) return told.error_code;
          return told.topics.at(0).partitions.at(0).error_code;
        };
        return writing<protocol::OffsetDeleteResponse>(
            "OffsetDelete", request, 0, error_of, "committed",
            [](World& later) { return fetch_all(later, "committed").empty(); });
      },
      [](World&, WritingTexts&) {
        protocol::DeleteGroupsRequest request;
        request.groups_names = {"committed"};
        const auto error_of = [](const protocol::DeleteGroupsResponse& told) {
          return told.results.at(0).error_code;
        };
        return writing<protocol::DeleteGroupsResponse>(
            "DeleteGroups", request, 2, error_of, "committed",
            [](World& later) { return later.shard().groups().find("committed") == nullptr; });
      },
  };
}

protocol::JoinGroupRequest joining(std::string_view group) {
  protocol::JoinGroupRequest request;
  request.group_id = group;
  request.session_timeout_ms = 10'000;
  request.rebalance_timeout_ms = 100;
  request.protocol_type = "consumer";
  request.protocols.push_back({"range", {}});
  return request;
}

Prepare join_request_of(std::string name, std::optional<std::string_view> instance, int version) {
  return [=](World&, WritingTexts&) {
    auto request = joining("joined");
    request.group_instance_id = instance;
    const auto error_of = [](const protocol::JoinGroupResponse& told) {
      // From version 4 on this is how a client gets its id.
      return told.error_code == ErrorCode::member_id_required ? ErrorCode::none : told.error_code;
    };
    return writing<protocol::JoinGroupResponse>(name, request, version, error_of, "",
                                                [](World&) { return true; });
  };
}

// The only member of the group, which has a generation; its id.
std::string_view join_alone(World& world, WritingTexts& texts, std::string_view group) {
  auto joined = world.call<protocol::JoinGroupResponse>(joining(group), 3);
  REQUIRE(joined.error_code == ErrorCode::none);
  return texts.keep(std::move(joined.member_id));
}

protocol::SyncGroupRequest assigning(std::string_view group, std::string_view member) {
  protocol::SyncGroupRequest request;
  request.group_id = group;
  request.generation_id = 1;
  request.member_id = member;
  request.assignments.push_back({member, as_bytes("all that there is")});
  return request;
}

std::vector<Prepare> requests_of_members() {
  return {
      join_request_of("JoinGroup", std::nullopt, 3),
      join_request_of("JoinGroup that asks for an id", std::nullopt, 4),
      join_request_of("JoinGroup of a static member", "instance", 5),
      [](World& world, WritingTexts& texts) {
        const auto member = join_alone(world, texts, "members");
        const auto error_of = [](const protocol::SyncGroupResponse& told) {
          return told.error_code;
        };
        return writing<protocol::SyncGroupResponse>(
            "SyncGroup", assigning("members", member), 3, error_of, "all that there is",
            [](World& later) {
              const GroupEntry* const group = later.shard().groups().find("members");
              return group != nullptr && group->is(GroupState::stable) &&
                     as_text(group->members().begin()->second.assignment) == "all that there is";
            });
      },
      [](World& world, WritingTexts& texts) {
        const auto member = join_alone(world, texts, "members");
        world.call<protocol::SyncGroupResponse>(assigning("members", member), 3);
        protocol::HeartbeatRequest request;
        request.group_id = "members";
        request.generation_id = 1;
        request.member_id = member;
        const auto error_of = [](const protocol::HeartbeatResponse& told) {
          return told.error_code;
        };
        return writing<protocol::HeartbeatResponse>("Heartbeat", request, 4, error_of, "",
                                                    [](World&) { return true; });
      },
      [](World& world, WritingTexts& texts) {
        const auto member = join_alone(world, texts, "members");
        world.call<protocol::SyncGroupResponse>(assigning("members", member), 3);
        protocol::LeaveGroupRequest request;
        request.group_id = "members";
        request.members.push_back({member, std::nullopt, std::nullopt});
        const auto error_of = [](const protocol::LeaveGroupResponse& told) {
          if (told.error_code != ErrorCode::none) return told.error_code;
          return told.members.at(0).error_code;
        };
        // A member that has left is written afterwards: if that is lost, its session ends.
        return writing<protocol::LeaveGroupResponse>("LeaveGroup", request, 5, error_of, "",
                                                     [](World&) { return true; });
      },
  };
}

const SecurityImage& security_of(World& world) {
  return *world.broker().security(world.shard()).image;
}

std::vector<Prepare> requests_of_security() {
  return {
      [](World&, WritingTexts&) {
        protocol::CreateAclsRequest request;
        request.creations.push_back({2, "t", 3, "User:of-a-rule", "*", 3, 3});
        const auto error_of = [](const protocol::CreateAclsResponse& told) {
          return told.results.at(0).error_code;
        };
        return writing<protocol::CreateAclsResponse>(
            "CreateAcls", request, 3, error_of, "User:of-a-rule",
            [](World& later) { return security_of(later).rules().size() == 2; });
      },
      [](World&, WritingTexts&) {
        protocol::DeleteAclsRequest request;
        request.filters.push_back({2, "ruled", 3, std::nullopt, std::nullopt, 1, 1});
        const auto error_of = [](const protocol::DeleteAclsResponse& told) {
          return told.filter_results.at(0).error_code;
        };
        return writing<protocol::DeleteAclsResponse>(
            "DeleteAcls", request, 3, error_of, "ruled",
            [](World& later) { return security_of(later).rules().empty(); });
      },
      [](World&, WritingTexts& texts) {
        const auto salted = texts.keep(std::string(32, 'x'));
        protocol::AlterUserScramCredentialsRequest request;
        request.upsertions.push_back({"alice", 1, 4096, as_bytes("salt"), as_bytes(salted)});
        const auto error_of = [](const protocol::AlterUserScramCredentialsResponse& told) {
          return told.results.at(0).error_code;
        };
        return writing<protocol::AlterUserScramCredentialsResponse>(
            "AlterUserScramCredentials", request, 0, error_of, "alice",
            [](World& later) { return security_of(later).users().size() == 1; });
      },
      [](World&, WritingTexts&) {
        protocol::AlterClientQuotasRequest request;
        auto& entry = request.entries.emplace_back();
        entry.entity.push_back({"user", "with-a-quota"});
        entry.ops.push_back({"producer_byte_rate", 1e6, false});
        const auto error_of = [](const protocol::AlterClientQuotasResponse& told) {
          return told.entries.at(0).error_code;
        };
        return writing<protocol::AlterClientQuotasResponse>(
            "AlterClientQuotas", request, 1, error_of, "with-a-quota",
            [](World& later) { return security_of(later).quotas().any(QuotaKind::produce); });
      },
  };
}

// In the child: the request with its nth allocation failing, and what its client sees.
After outcome_of(World& world, const Writing& request, long nth) {
  world.runs_at_once = false;
  const auto first = request.begin(world);
  world.runs_at_once = true;
  allocations_left = nth;
  bool has_thrown = false;
  try {
    world.run();
  } catch (const std::exception&) {
    has_thrown = true;
  }
  const bool failed = std::exchange(allocations_left, 0) == 0;
  // What a request throws ends its connection; anything else ends the broker.
  if (world.failure || (has_thrown && !first->has_failed)) return After::ended;
  const auto has_ended = [&](const World::Pending& pending) {
    world.run();
    if (!pending.answer && !pending.has_failed) world.pass(a_moment);
    return pending.answer || pending.has_failed;
  };
  const bool is_over = has_ended(*first);
  if (world.failure) return After::ended;
  if (!is_over) return After::lost;
  const bool is_done = first->answer && request.error_of(world, *first) == ErrorCode::none;
  if (!failed) return is_done ? After::no_such_allocation : After::wrong;
  if (is_done) return After::answered;
  for (const auto& [id, group] : world.shard().groups().all())
    if (group->is_unused() && !group->was_stored()) return After::leaked;
  const auto topics = world.broker().topics().image();
  for (const auto& topic : topics->by_name())
    if (world.shard().refuses(topic->id)) return After::fenced;
  const auto next = request.begin(world);
  has_ended(*next);
  if (world.failure) return After::ended;
  return next->answer ? After::refused : After::stuck;
}

// The allocations after which something was not as it should be, a line for each; the world is
// restarted at the end.
std::string fail_each_writing(World& world, const Writing& request, long first, long step) {
  std::string wrong;
  const Buffer filler = batch_of(world.clock.wall(), {{std::string(32 << 10, 'x')}});
  for (long nth = first;; nth += step) {
    REQUIRE_MESSAGE(nth < 10'000, request.name);
    // So much is behind the end of the journal at the most, of the child before: its rounds are
    // not to be taken for the next one's.
    REQUIRE(produce(world, "filler", 0, filler).error_code == ErrorCode::none);
    const Lsn from = world.shard().journal().end_lsn();
    const After after = in_a_child([&] { return outcome_of(world, request, nth); });
    const bool is_last = after == After::no_such_allocation;
    const char* what = complaint_about(after);
    if (what == nullptr && (is_last || after == After::answered) && !request.evidence.empty() &&
        !is_in_journal(world, from, request.evidence))
      what = "it is answered, and not in the journal";
    if (what != nullptr) wrong += fmt::format("{}, allocation {}: {}\n", request.name, nth, what);
    // An error without a failed allocation is the test's own mistake, and the next are as wrong.
    if (is_last || after == After::wrong) break;
  }
  world.restart();
  if (!request.holds(world)) wrong += fmt::format("{}: not there after a restart\n", request.name);
  return wrong;
}

TEST_SUITE("allocations") {
  TEST_CASE(
      "whichever allocation of a request that changes something fails, it is answered or its "
      "connection ends, the next one is answered, or the broker ends; what was answered is in the "
      "journal") {
    std::vector<Prepare> all;
    for (auto& some : {requests_of_records(), requests_of_topics(), requests_of_offsets(),
                       requests_of_members(), requests_of_security()})
      all.insert(all.end(), some.begin(), some.end());
    const char* const how_many = std::getenv("TARRY_ALLOCATIONS");
    const long step = how_many != nullptr && how_many == std::string_view("all") ? 1 : 5;
    std::string wrong;
    long row = 0;
    for (const auto& prepare : all) {
      World world({.shards = 1, .configure = [](BrokerConfig& config) {
                     config.group_initial_rebalance_delay = std::chrono::milliseconds{0};
                     config.authorizer.enabled = true;
                     config.authorizer.super_users = {"User:ANONYMOUS"};
                   }});
      for (const auto* name : {"t", "filler", "victim"}) create_topic(world, name);
      produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}, {"b"}}));
      REQUIRE(commit(world, "committed", "t", 0, 1) == ErrorCode::none);
      protocol::CreateAclsRequest rule;
      rule.creations.push_back({2, "ruled", 3, "User:a", "*", 3, 3});
      world.call<protocol::CreateAclsResponse>(rule, 3);
      WritingTexts texts;
      const Writing request = prepare(world, texts);
      wrong += fail_each_writing(world, request, 1 + row++ % step, step);
    }
    CHECK_MESSAGE(wrong.empty(), wrong);
  }

  TEST_CASE("whichever allocation of a request that reads fails, the next request is answered") {
    World world({.shards = 1});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}, {"b"}}));
    REQUIRE(commit(world, "g", "t", 0, 1) == ErrorCode::none);
    const auto fetch = fetch_request("t", 0, 0);
    CHECK(fail_each(world, fetch, 11) > 5);
    protocol::MetadataRequest metadata;
    metadata.topics.emplace().emplace_back().name = "t";
    CHECK(fail_each(world, metadata, 9) > 5);
    protocol::FindCoordinatorRequest find;
    find.coordinator_keys = {"g", "h"};
    CHECK(fail_each(world, find, 4) > 3);
    protocol::DescribeGroupsRequest describe;
    describe.groups = {"g", "h"};
    CHECK(fail_each(world, describe, 5) > 5);
    protocol::OffsetFetchRequest offsets;
    offsets.groups.emplace_back().group_id = "g";
    CHECK(fail_each(world, offsets, 8) > 5);
    protocol::ListOffsetsRequest list;
    auto& topic = list.topics.emplace_back();
    topic.name = "t";
    topic.partitions.push_back({0, -1, -1});
    CHECK(fail_each(world, list, 5) > 3);
    CHECK(values(read_all(world, "t")) == std::vector<std::string>{"a", "b"});
    CHECK(fetch_all(world, "g") == "t-0:1/4/ ");
  }

  TEST_CASE(
      "whichever allocation of a Produce with an id fails, the next one is answered, or the broker "
      "ends") {
    World world({.shards = 1});
    create_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(),
                                  {NewRecord{"v", {{"x-delay", "1h"}, {"x-schedule-id", "id"}}}});
    const auto request = produce_request("t", 0, batch);
    world.runs_at_once = false;
    long answered = 0;
    for (long nth = 1;; ++nth) {
      CAPTURE(nth);
      const After after = in_a_child([&] {
        const auto first = world.begin(request, 8);
        world.runs_at_once = true;
        allocations_left = nth;
        world.run();
        if (std::exchange(allocations_left, 0) != 0) return After::no_such_allocation;
        if (world.failure) return After::ended;
        const auto next = world.begin(request, 8);
        world.run();
        if (!next->answer) return After::wrong;
        const auto told = world.read<protocol::ProduceResponse>(*next, 8);
        const auto error = told.responses.at(0).partition_responses.at(0).error_code;
        return error == ErrorCode::none ? After::answered : After::wrong;
      });
      REQUIRE(after != After::wrong);
      if (after == After::no_such_allocation) break;
      if (after == After::answered) ++answered;
    }
    CHECK(answered > 10);
  }

  TEST_CASE(
      "whichever allocation fails in a check of new topics, its client does not wait forever") {
    World world({.shards = 1});
    protocol::CreateTopicsRequest create;
    create.validate_only = true;
    create.timeout_ms = 3'600'000;
    auto& topic = create.topics.emplace_back();
    topic.name = "t";
    topic.num_partitions = 1;
    topic.replication_factor = 1;
    bool all_succeeded = false;
    int failed = 0;
    for (long nth = 1; !all_succeeded; ++nth) {
      CAPTURE(nth);
      world.runs_at_once = false;
      const auto pending = world.begin(create, 5);
      allocations_left = nth;
      try {
        world.turn();
      } catch (const std::bad_alloc&) {
      }
      all_succeeded = allocations_left != 0;
      allocations_left = 0;
      world.runs_at_once = true;
      try {
        world.run();
      } catch (const std::bad_alloc&) {
      }
      REQUIRE((pending->answer.has_value() || pending->has_failed));
      if (pending->has_failed) ++failed;
    }
    CHECK(failed > 5);
  }
}

}  // namespace
}  // namespace tarry::broker::test
