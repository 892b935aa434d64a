#include "broker/groups/group_record.h"

#include <doctest/doctest.h>

namespace tarry::broker {
namespace {

GroupRecord sample() {
  GroupRecord group;
  group.generation = 7;
  group.changed = from_ms(1'700'000'000'123);
  group.protocol_type = "consumer";
  group.protocol_name = "range";
  group.leader = "m1";
  for (const char* id : {"m1", "m2"}) {
    auto& member = group.members.emplace_back();
    member.id = id;
    member.client_id = "c";
    member.client_host = "/127.0.0.1";
    member.session_timeout = std::chrono::seconds{45};
    member.rebalance_timeout = std::chrono::minutes{5};
    member.protocols = {{"range", shared_copy(Buffer{1, 2, 3})}, {"sticky", {}}};
    member.assignment = shared_copy(Buffer{9, 8});
  }
  group.members.back().instance_id = "i";
  return group;
}

}  // namespace

TEST_SUITE("group_record") {
  TEST_CASE("a group's record comes back as it was") {
    const auto group = sample();
    const auto decoded = decode_group(encode_group(group));
    REQUIRE(decoded.has_value());
    CHECK(*decoded == group);
  }

  TEST_CASE("a group's record is written into memory of its size, taken once") {
    auto group = sample();
    group.members.front().assignment = SharedBytes(Buffer(100'000));
    const auto bytes = encode_group(group);
    CHECK(bytes.capacity() == bytes.size());
  }

  TEST_CASE("a snapshot shares the megabytes of its group, and has its record") {
    const auto group = sample();
    const SharedBytes assigned(Buffer(100'000, 7));
    GroupRecordView view{group.generation,    group.changed, group.protocol_type,
                         group.protocol_name, group.leader,  {}};
    for (const auto& member : group.members) view.members.push_back({&member, assigned});
    const GroupRecord snapshot = snapshot_of(view);
    CHECK(encode_group(snapshot) == encode_group(view));
    CHECK(encoded_bytes(view) == encode_group(view).size());
    REQUIRE(snapshot.members.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(snapshot.members[i].assignment.data() == assigned.data());
      CHECK(snapshot.members[i].protocols.front().metadata.data() ==
            group.members[i].protocols.front().metadata.data());
    }
  }

  TEST_CASE("a record that is cut off anywhere, or too long, is refused") {
    const auto bytes = encode_group(sample());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CAPTURE(size);
      CHECK(decode_group(Bytes(bytes).first(size)).error().code == Errc::corrupt);
    }
    auto longer = bytes;
    longer.push_back(0);
    CHECK(decode_group(longer).error().message == "the group's record of " +
                                                      std::to_string(longer.size()) +
                                                      " bytes has 1 bytes after its end");
  }

  TEST_CASE("a later version is refused by its number") {
    auto bytes = encode_group(sample());
    bytes[1] = 2;
    CHECK(decode_group(bytes).error().code == Errc::unsupported);
  }

  TEST_CASE("a count that claims more than there is allocates nothing") {
    Buffer bytes;
    append_be(bytes, std::int16_t{1});
    append_be(bytes, std::int32_t{1});
    append_be(bytes, std::int64_t{1});
    for (int i = 0; i < 3; ++i) append_be(bytes, std::uint32_t{0});
    append_be(bytes, std::uint32_t{0xffff'ffff});
    CHECK(decode_group(bytes).error().code == Errc::corrupt);
  }
}

}  // namespace tarry::broker
