// The admin's answers on consumer groups, over HTTP.

#include <doctest/doctest.h>

#include "protocol/messages/offset_commit.h"
#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

using broker::test::batch_of;
using broker::test::create_topic;
using broker::test::produce;
using protocol::ErrorCode;

void commit(Admin& admin, std::string_view group, PartitionIndex partition, Offset offset) {
  protocol::OffsetCommitRequest request;
  request.group_id = group;
  auto& topic = request.topics.emplace_back();
  topic.name = "orders";
  auto& asked = topic.partitions.emplace_back();
  asked.partition_index = partition;
  asked.committed_offset = offset;
  asked.committed_metadata = "a note";
  const auto response = admin.world.call<protocol::OffsetCommitResponse>(request, 7);
  REQUIRE(response.topics[0].partitions[0].error_code == ErrorCode::none);
}

TEST_SUITE("group routes") {
  TEST_CASE("/groups lists every group of every shard, by name") {
    Admin admin;
    create_topic(admin.world, "orders", 3);
    CHECK(admin.get_json("/groups")["groups"].empty());
    for (const char* group : {"d", "b", "a", "c"}) commit(admin, group, 0, 0);
    const auto groups = admin.get_json("/groups")["groups"];
    REQUIRE(groups.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(groups[i]["group"] == std::string(1, "abcd"[i]));
    CHECK(groups[0]["state"] == "Empty");
    CHECK(groups[0]["members"] == 0);
    CHECK(groups[0]["offsets"] == 1);
    CHECK(groups[0]["changed_ms"].is_number());
    // The two others have no offset.
    CHECK(groups[0]["topic_partitions"] == 3);
  }

  TEST_CASE("others have their turn while very many groups are listed with their lag") {
    Admin admin({}, {.shards = 1});
    auto& shard = admin.world.shard();
    for (int i = 0; i < 3000; ++i)
      REQUIRE(shard.groups().find_or_make("group-" + std::to_string(i), "/127.0.0.1"));
    const auto before = shard.steps().taken();
    CHECK(admin.get_json("/groups")["groups"].size() == 3000);
    // Fifty groups in each step.
    CHECK(shard.steps().taken() - before >= 55);
  }

  TEST_CASE(
      "/groups/NAME has the lag of each partition and their sum, and null where it is unknown") {
    Admin admin;
    create_topic(admin.world, "orders", 3);
    for (int i = 0; i < 5; ++i) {
      produce(admin.world, "orders", 0, batch_of(admin.world.clock.wall(), {{"x"}}));
      produce(admin.world, "orders", 2, batch_of(admin.world.clock.wall(), {{"x"}}));
    }
    commit(admin, "a group/of mine", 0, 1);
    commit(admin, "a group/of mine", 2, 5);
    const auto group = admin.get_json("/groups/a%20group%2Fof%20mine");
    CHECK(group["group"] == "a group/of mine");
    CHECK(group["lag"] == 4);
    CHECK(group["members"].empty());
    REQUIRE(group["offsets"].size() == 2);
    const auto& first = group["offsets"][0];
    CHECK(first["topic"] == "orders");
    CHECK(first["partition"] == 0);
    CHECK(first["committed"] == 1);
    CHECK(first["metadata"] == "a note");
    CHECK(first["high_watermark"] == 5);
    CHECK(first["log_start"] == 0);
    CHECK(first["lag"] == 4);
    CHECK(first["member"].is_null());
    CHECK(first["committed_at_ms"] == to_ms(admin.world.clock.wall()));
    CHECK(group["offsets"][1]["partition"] == 2);
    CHECK(group["offsets"][1]["lag"] == 0);
    CHECK(group["topic_partitions"] == 3);
  }

  TEST_CASE("asking for an unknown group is an error, and creates nothing") {
    Admin admin;
    const auto answer = admin.get("/groups/nobody");
    CHECK(answer.status == 404);
    CHECK(answer.error().find("nobody") != std::string::npos);
    CHECK(admin.get_json("/groups")["groups"].empty());
    CHECK(admin.get("/groups?limit=1").status == 400);
  }
}

}  // namespace
}  // namespace tarry::admin::test
