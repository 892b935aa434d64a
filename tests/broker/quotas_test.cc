#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include <doctest/doctest.h>
#include <boost/asio/co_spawn.hpp>

#include "broker/handlers/all.h"
#include "broker/security/client_meters.h"
#include "broker/security/quota_meters.h"
#include "broker/security/quota_table.h"
#include "broker/security/rate_meter.h"
#include "protocol/messages/alter_client_quotas.h"
#include "protocol/messages/describe_client_quotas.h"
#include "protocol/messages/metadata.h"
#include "tests/broker/batches.h"
#include "tests/broker/crowded_disk.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using protocol::ErrorCode;

constexpr MonoTime begun_at = MonoTime{} + 1h;

QuotaEntity entity(std::optional<std::string> user, std::optional<std::string> client,
                   std::optional<std::string> ip = std::nullopt) {
  // "*" is the default.
  const auto part = [](const std::optional<std::string>& name) -> std::optional<QuotaName> {
    if (!name) return std::nullopt;
    return *name == "*" ? QuotaName{true, {}} : QuotaName{false, *name};
  };
  return {part(user), part(client), part(ip)};
}

// The only quota there is, or several, of one kind.
struct QuotaRow {
  QuotaEntity of;
  double limit;
};
QuotaTable table_of(const std::vector<QuotaRow>& rows, QuotaKind kind = QuotaKind::produce) {
  QuotaTable table;
  for (const auto& row : rows) {
    REQUIRE(table.take_row(QuotaTable::row_key(row.of, kind), QuotaTable::row_value(row.limit)));
  }
  return table;
}

TEST_SUITE("quotas") {
  // --- Rates

  TEST_CASE("a client may use ten seconds' worth at once, and waits for what is above that") {
    RateMeter meter({});
    CHECK(meter.record(10'000, 1000, begun_at) == 0ms);
    CHECK(meter.record(500, 1000, begun_at) == 500ms);
    RateMeter other({});
    CHECK(other.record(20'000, 1000, begun_at) == 10s);
  }

  TEST_CASE("a client that waits as long as it is told uses what it may") {
    RateMeter meter({});
    MonoTime now = begun_at;
    double used = 0;
    while (now - begun_at < 100s) {
      const auto wait = meter.record(3000, 1000, now);
      used += 3000;
      now += std::max(wait, 1ms);
    }
    const double seconds = std::chrono::duration<double>(now - begun_at).count();
    // Ten seconds' worth at the beginning, one request beyond, and windows that go as a whole.
    CHECK(used <= 1100 * seconds + 13'000);
    CHECK(used >= 1000 * (seconds - 2));
  }

  TEST_CASE("use is forgotten after all windows, and not before") {
    RateMeter meter({});
    meter.record(10'000, 1000, begun_at);
    CHECK(meter.rate(begun_at + 10s) == doctest::Approx(1000));
    CHECK_FALSE(meter.is_idle(begun_at + 10999ms));
    CHECK(meter.is_idle(begun_at + 11s));
    CHECK(meter.rate(begun_at + 11s) == doctest::Approx(0));
    CHECK(meter.record(10'000, 1000, begun_at + 11s) == 0ms);
  }

  TEST_CASE("use that was taken back does not count") {
    RateMeter meter({});
    CHECK(meter.record(20'000, 1000, begun_at) > 0ms);
    meter.take_back(20'000, begun_at);
    CHECK(meter.record(10'000, 1000, begun_at) == 0ms);
  }

  TEST_CASE("a wait is a number that an answer can carry, however small the limit") {
    RateMeter meter({});
    CHECK(meter.record(1e12, 1, begun_at) == 24h);
  }

  TEST_CASE("one window of one second forgets after a second") {
    RateMeter meter({.count = 1, .length = 1s});
    CHECK(meter.record(1000, 1000, begun_at) == 0ms);
    CHECK(meter.record(1000, 1000, begun_at + 500ms) == 1s);
    CHECK(meter.record(1000, 1000, begun_at + 1500ms) == 0ms);
  }

  // --- The quota that holds

  TEST_CASE("the quota that Kafka would choose applies") {
    const std::vector<QuotaEntity> in_order = {
        entity("u", "c"),          entity("u", "*"),          entity("u", std::nullopt),
        entity("*", "c"),          entity("*", "*"),          entity("*", std::nullopt),
        entity(std::nullopt, "c"), entity(std::nullopt, "*"),
    };
    // All from the i-th on: the i-th holds.
    for (std::size_t first = 0; first < in_order.size(); ++first) {
      CAPTURE(first);
      std::vector<QuotaRow> rows;
      for (std::size_t i = first; i < in_order.size(); ++i)
        rows.push_back({in_order[i], static_cast<double>(i + 1)});
      const auto table = table_of(rows);
      const auto found = table.find(QuotaKind::produce, "u", "c");
      REQUIRE(found.has_value());
      CHECK(found->limit == static_cast<double>(first + 1));
      CHECK(found->by_user == in_order[first].user.has_value());
      CHECK(found->by_client == in_order[first].client_id.has_value());
      CHECK_FALSE(table.find(QuotaKind::fetch, "u", "c").has_value());
    }
    CHECK_FALSE(table_of({{entity("u", "c"), 1}}).find(QuotaKind::produce, "u", "d").has_value());
    CHECK_FALSE(table_of({{entity("u", "c"), 1}}).find(QuotaKind::produce, "v", "c").has_value());
  }

  TEST_CASE("an address has its own quota or that of all") {
    const auto table = table_of({{entity({}, {}, "10.0.0.1"), 5}, {entity({}, {}, "*"), 7}},
                                QuotaKind::connections);
    CHECK(table.find_address("10.0.0.1") == 5);
    CHECK(table.find_address("10.0.0.2") == 7);
    CHECK_FALSE(table_of({{entity({}, {}, "10.0.0.1"), 5}}, QuotaKind::connections)
                    .find_address("10.0.0.2")
                    .has_value());
  }

  TEST_CASE("an invalid entity or limit is refused") {
    CHECK(entity("u", "c").refusal_reason().empty());
    CHECK(entity({}, {}, "::1").refusal_reason().empty());
    CHECK_FALSE(entity({}, {}).refusal_reason().empty());
    CHECK_FALSE(entity("u", {}, "10.0.0.1").refusal_reason().empty());
    CHECK_FALSE(entity("", {}).refusal_reason().empty());
    CHECK_FALSE(entity({}, {}, "localhost").refusal_reason().empty());
    CHECK_FALSE(entity({}, {}, "0::1").refusal_reason().empty());
    const auto user = entity("u", {});
    CHECK(user.refusal_reason(QuotaKind::produce, 1024).empty());
    CHECK(user.refusal_reason(QuotaKind::request, 0.5).empty());
    CHECK_FALSE(user.refusal_reason(QuotaKind::produce, 0.5).empty());
    CHECK_FALSE(user.refusal_reason(QuotaKind::produce, 0).empty());
    CHECK_FALSE(user.refusal_reason(QuotaKind::produce, -1).empty());
    CHECK_FALSE(user.refusal_reason(QuotaKind::produce, 1e300).empty());
    CHECK_FALSE(user.refusal_reason(QuotaKind::connections, 1).empty());
    CHECK_FALSE(entity({}, {}, "*").refusal_reason(QuotaKind::produce, 1).empty());
  }

  TEST_CASE("a quota of pending records is of users alone, and the client id makes no difference") {
    for (const auto kind : {QuotaKind::pending_records, QuotaKind::pending_bytes}) {
      CHECK(entity("u", {}).refusal_reason(kind, 1).empty());
      CHECK(entity("*", {}).refusal_reason(kind, 1).empty());
      CHECK_FALSE(entity("u", {}).refusal_reason(kind, 0.5).empty());
      CHECK_FALSE(entity("u", "c").refusal_reason(kind, 1).empty());
      CHECK_FALSE(entity("*", "*").refusal_reason(kind, 1).empty());
      CHECK_FALSE(entity({}, "c").refusal_reason(kind, 1).empty());
      CHECK_FALSE(entity({}, {}, "10.0.0.1").refusal_reason(kind, 1).empty());
      const auto table = table_of({{entity("u", {}), 5}, {entity("*", {}), 7}}, kind);
      CHECK(table.find(kind, "u", "c")->limit == 5);
      CHECK(table.find(kind, "v", "c")->limit == 7);
    }
  }

  TEST_CASE("a row that is cut at any byte is no quota") {
    const auto key = QuotaTable::row_key(entity("user", "client"), QuotaKind::request);
    const auto value = QuotaTable::row_value(12.5);
    for (std::size_t size = 0; size < key.size(); ++size)
      CHECK_FALSE(QuotaTable{}.take_row(key.substr(0, size), value));
    for (std::size_t size = 0; size < value.size(); ++size)
      CHECK_FALSE(QuotaTable{}.take_row(key, value.substr(0, size)));
  }

  // --- Shared rates

  TEST_CASE("connections share the rate of what their quota is counted by, and nothing else") {
    QuotaMeters meters;
    const auto of = [&](bool by_user, std::string_view user, bool by_client,
                        std::string_view client) {
      return meters.of(QuotaKind::produce, by_user, user, by_client, client, begun_at);
    };
    CHECK(of(true, "u", false, "c") == of(true, "u", false, "d"));
    CHECK(of(false, "u", true, "c") == of(false, "v", true, "c"));
    CHECK(of(true, "u", true, "c") != of(true, "u", true, "d"));
    CHECK(of(true, "u", true, "c") != of(true, "u", false, "c"));
    CHECK(of(true, "ab", true, "c") != of(true, "a", true, "bc"));
    CHECK(of(true, "u", false, "") != of(false, "", true, "u"));
    const std::string longer(30'000, 'x');
    CHECK(of(false, "", true, longer) != of(false, "", true, longer + "y"));
    CHECK(of(false, "", true, longer) == of(false, "", true, longer));
  }

  TEST_CASE(
      "a flood of client ids takes bounded memory, and resets no rate of a connected client") {
    QuotaMeters meters;
    const auto connected = meters.of(QuotaKind::produce, false, "", true, "me", begun_at);
    connected->record(20'000, 1000, begun_at);
    for (int i = 0; i < 100'000; ++i) {
      meters.of(QuotaKind::produce, false, "", true, fmt::format("id {}", i), begun_at)
          ->record(1, 1000, begun_at);
    }
    CHECK(meters.size() <= QuotaMeters::max_kept);
    CHECK(meters.of(QuotaKind::produce, false, "", true, "me", begun_at) == connected);
  }

  // --- Requests

  protocol::AlterClientQuotasRequest::Entry altered(
      std::string_view type, std::optional<std::string_view> name, std::string_view key,
      double value, bool remove = false) {
    protocol::AlterClientQuotasRequest::Entry entry;
    entry.entity.push_back({type, name});
    entry.ops.push_back({key, value, remove});
    return entry;
  }
  ErrorCode alter(World & world, protocol::AlterClientQuotasRequest::Entry entry,
                  bool only_check = false) {
    protocol::AlterClientQuotasRequest request;
    request.entries.push_back(std::move(entry));
    request.validate_only = only_check;
    const auto told = world.call<protocol::AlterClientQuotasResponse>(request, 1, 1);
    return told.entries.at(0).error_code;
  }
  protocol::DescribeClientQuotasResponse describe(
      World & world, std::vector<protocol::DescribeClientQuotasRequest::Component> components = {},
      bool strict = false) {
    protocol::DescribeClientQuotasRequest request;
    request.components = std::move(components);
    request.strict = strict;
    return world.call<protocol::DescribeClientQuotasResponse>(request, 1);
  }

  TEST_CASE("a quota is there after a restart, and gone after it was removed") {
    World world({.shards = 2});
    CHECK(alter(world, altered("user", "alice", "producer_byte_rate", 1024)) == ErrorCode::none);
    CHECK(alter(world, altered("user", "alice", "request_percentage", 12.5)) == ErrorCode::none);
    CHECK(alter(world, altered("client-id", std::nullopt, "consumer_byte_rate", 9)) ==
          ErrorCode::none);
    CHECK(alter(world, altered("user", "bob", "producer_byte_rate", 1), true) == ErrorCode::none);
    for (int i = 0; i < 2; ++i) {
      const auto told = describe(world);
      REQUIRE(told.entries.has_value());
      REQUIRE(told.entries->size() == 2);
      CHECK((*told.entries)[0].entity.at(0).entity_type == "client-id");
      CHECK_FALSE((*told.entries)[0].entity.at(0).entity_name.has_value());
      CHECK((*told.entries)[1].entity.at(0).entity_name == "alice");
      CHECK((*told.entries)[1].values.at(0).key == "producer_byte_rate");
      CHECK((*told.entries)[1].values.at(0).value == 1024);
      CHECK((*told.entries)[1].values.at(1).value == 12.5);
      world.restart();
    }
    CHECK(alter(world, altered("user", "alice", "producer_byte_rate", 0, true)) == ErrorCode::none);
    CHECK(alter(world, altered("user", "alice", "request_percentage", 0, true)) == ErrorCode::none);
    world.restart();
    CHECK(describe(world).entries->size() == 1);
  }

  TEST_CASE("a quota of pending records holds over all topics and shards, also after a kill") {
    World world({.shards = 2});
    for (const char* topic : {"a", "b"}) create_topic(world, topic, 4);
    const auto park = [&world](std::string_view topic, PartitionIndex partition, const char* id) {
      return produce(
          world, topic, partition,
          batch_of(world.clock.wall(), {{"v", {{"x-delay", "1h"}, {"x-schedule-id", id}}}}));
    };
    CHECK(park("a", 0, "before").error_code == ErrorCode::none);
    CHECK(alter(world, altered("user", "ANONYMOUS", "pending_records", 4)) == ErrorCode::none);
    for (PartitionIndex partition = 1; partition < 4; ++partition)
      CHECK(park(partition % 2 == 0 ? "a" : "b", partition, "id").error_code == ErrorCode::none);
    for (const bool is_after_kill : {false, true}) {
      CAPTURE(is_after_kill);
      const auto refused = park("b", 0, "one more");
      CHECK(refused.error_code == ErrorCode::not_leader_or_follower);
      CHECK(refused.error_message.value_or("").contains("(quota pending_records)"));
      CHECK(park("a", 2, "id").error_code == ErrorCode::none);
      CHECK(world.broker().pending_counts().uses().at(anonymous_principal).records == 4);
      if (!is_after_kill) world.restart();
    }
    CHECK(alter(world, altered("user", "ANONYMOUS", "pending_records", 5)) == ErrorCode::none);
    CHECK(park("b", 0, "one more").error_code == ErrorCode::none);
  }

  TEST_CASE(
      "a batch that a quota of pending records refuses has no dead letters, with ids or not") {
    World world;
    create_topic(world, "t", 1, {{"tarry.delay.invalid", "dead-letter"}});
    const auto now = world.clock.wall();
    const auto with_bad_one = [&](const char* id, Producer producer) {
      return batch_of(
          now, {{"v", {{"x-delay", "1h"}, {"x-schedule-id", id}}}, {"b", {{"x-delay", "?"}}}},
          producer);
    };
    const Buffer without_id =
        batch_of(now, {{"v", {{"x-delay", "1h"}}}, {"b", {{"x-delay", "?"}}}}, {8, 0, 0});
    CHECK(alter(world, altered("user", "ANONYMOUS", "pending_records", 1)) == ErrorCode::none);
    CHECK(produce(world, "t", 0, with_bad_one("first", {})).error_code == ErrorCode::none);
    CHECK(read_all(world, "t.invalid").size() == 1);
    for (int again = 0; again < 3; ++again) {
      for (const Buffer& batch : {with_bad_one("second", {7, 0, 0}), without_id})
        CHECK(produce(world, "t", 0, batch).error_code == ErrorCode::not_leader_or_follower);
      CHECK(read_all(world, "t.invalid").size() == 1);
    }
    // What replaces a record of the same user needs no room.
    CHECK(produce(world, "t", 0, with_bad_one("first", {9, 0, 0})).error_code == ErrorCode::none);
    CHECK(read_all(world, "t.invalid").size() == 2);
    CHECK(alter(world, altered("user", "ANONYMOUS", "pending_records", 2)) == ErrorCode::none);
    for (int again = 0; again < 2; ++again) {
      CHECK(produce(world, "t", 0, with_bad_one("second", {7, 0, 0})).error_code ==
            ErrorCode::none);
      CHECK(read_all(world, "t.invalid").size() == 3);
    }
  }

  template <typename Ended>
  void run_until(World & world, Ended ended) {
    for (int i = 0; i < 1'000 && !ended(); ++i) world.pass(1ms);
    REQUIRE(ended());
  }
  PrincipalId number_of(World & world, const std::string& name) {
    std::optional<PrincipalId> number;
    boost::asio::co_spawn(world.shard().executor(),
                          world.broker().live_security().number_principal(name),
                          [&](std::exception_ptr, PrincipalId given) { number = given; });
    run_until(world, [&] { return number.has_value(); });
    return *number;
  }

  TEST_CASE("a principal keeps its number for ever, and a name that is too long has none") {
    World world({.shards = 2});
    CHECK(number_of(world, "User:alice") == 3);
    CHECK(number_of(world, "User:bob") == 4);
    CHECK(number_of(world, "User:alice") == 3);
    CHECK(world.broker().security(world.shard(1)).image->find_principal("User:bob") == 4);
    const std::string too_long(LiveSecurity::max_principal_bytes + 1, 'n');
    CHECK(number_of(world, too_long) == further_principals);
    world.restart();
    CHECK(number_of(world, "User:bob") == 4);
    CHECK(number_of(world, "User:carol") == 5);
  }

  TEST_CASE(
      "principals that come at once get their numbers together; those above the limit share") {
    World world;
    std::vector<PrincipalId> numbers;
    for (std::size_t i = 0; i < LiveSecurity::max_principals + 2; ++i) {
      boost::asio::co_spawn(
          world.shard().executor(),
          world.broker().live_security().number_principal(fmt::format("User:{}", i)),
          [&](std::exception_ptr, PrincipalId given) { numbers.push_back(given); });
    }
    run_until(world, [&] { return numbers.size() == LiveSecurity::max_principals + 2; });
    CHECK(std::ranges::count(numbers, further_principals) == 2);
    std::ranges::sort(numbers);
    CHECK(numbers[0] == further_principals);
    CHECK(std::ranges::adjacent_find(numbers.begin() + 1, numbers.end()) == numbers.end());
    CHECK(world.broker().security(world.shard()).image->principals().size() ==
          LiveSecurity::max_principals);
    for (const bool is_after_kill : {false, true}) {
      CAPTURE(is_after_kill);
      CHECK(number_of(world, "User:one more") == further_principals);
      CHECK(number_of(world, "User:9") > further_principals);
      if (!is_after_kill) world.restart();
    }
  }

  // A Produce of a client that its certificate calls so.
  protocol::ProduceResponse::PartitionResponse produce_as(World & world, Connection & connection,
                                                          Bytes batch) {
    const Buffer frame =
        protocol::encode_request_frame(7, "test", produce_request("t", 0, batch), 9);
    const auto header = protocol::parse_request_header(Bytes(frame).subspan(4));
    REQUIRE(header.has_value());
    World::Pending pending;
    boost::asio::co_spawn(
        world.shard().executor(),
        run_produce(RequestContext{world.broker(), world.shard(), connection, *header}),
        [&](std::exception_ptr, Answer answer) { pending.answer = std::move(answer); });
    run_until(world, [&] { return pending.answer.has_value(); });
    return world.read<protocol::ProduceResponse>(pending, 9).responses[0].partition_responses[0];
  }

  TEST_CASE(
      "a principal whose number cannot be written down is refused until it can, on the same "
      "connection") {
    CrowdedDisk disk;
    World world{{.shards = 1,
                 .configure =
                     [](BrokerConfig& config) {
                       config.journal_file_bytes = 64 << 10;
                       config.journal_max_bytes = 64 << 20;
                     },
                 .disk = &disk}};
    create_topic(world, "t");
    const Buffer large = batch_of(world.clock.wall(), {{std::string(50'000, 'x')}});
    CHECK(produce(world, "t", 0, large).error_code == ErrorCode::none);
    disk.fill();
    Partition& partition = *world.shard().partitions().all().begin()->second;
    for (int i = 0; i < 4; ++i) partition.append(large, true, [](const Appended&) {});
    world.run();
    CHECK(number_of(world, "User:bob") == unknown_principal);
    ConnectionOrigin origin;
    origin.tls_principal = "alice";
    Connection alice("127.0.0.1:2", origin);
    const Buffer later = batch_of(world.clock.wall(), {{"v", {{"x-delay", "1h"}}}});
    for (int again = 0; again < 2; ++again) {
      const auto refused = produce_as(world, alice, later);
      CHECK(refused.error_code == ErrorCode::kafka_storage_error);
      CHECK(refused.error_message.value_or("").contains("could not note the user of this batch"));
      CHECK(alice.principal_id() == unknown_principal);
    }
    disk.make_room();
    world.pass(3s);
    CHECK(produce_as(world, alice, later).error_code == ErrorCode::none);
    CHECK(alice.principal_id() > further_principals);
    CHECK(world.broker().pending_counts().uses().at(alice.principal_id()).records == 1);
    CHECK(number_of(world, "User:alice") == alice.principal_id());
    CHECK(number_of(world, "User:bob") > further_principals);
  }

  TEST_CASE("a filter finds what it names, by default or by name, and strictly no more") {
    World world;
    auto both = altered("user", "alice", "producer_byte_rate", 1);
    both.entity.push_back({"client-id", "c"});
    CHECK(alter(world, both) == ErrorCode::none);
    CHECK(alter(world, altered("user", "alice", "producer_byte_rate", 2)) == ErrorCode::none);
    CHECK(alter(world, altered("user", std::nullopt, "producer_byte_rate", 3)) == ErrorCode::none);
    CHECK(alter(world, altered("ip", "10.0.0.1", "connection_creation_rate", 4)) ==
          ErrorCode::none);
    const auto count = [&](std::vector<protocol::DescribeClientQuotasRequest::Component> by,
                           bool strict = false) {
      return describe(world, std::move(by), strict).entries.value().size();
    };
    CHECK(count({}) == 4);
    CHECK(count({{"user", 2, std::nullopt}}) == 3);
    CHECK(count({{"user", 2, std::nullopt}}, true) == 2);
    CHECK(count({{"user", 0, "alice"}}) == 2);
    CHECK(count({{"user", 1, std::nullopt}}) == 1);
    CHECK(count({{"user", 0, "alice"}, {"client-id", 0, "c"}}, true) == 1);
    CHECK(count({{"ip", 2, std::nullopt}}) == 1);
    CHECK(count({{"user", 0, "nobody"}}) == 0);
    const auto refused = [&](std::vector<protocol::DescribeClientQuotasRequest::Component> by) {
      const auto told = describe(world, std::move(by));
      CHECK_FALSE(told.entries.has_value());
      return told.error_code;
    };
    CHECK(refused({{"user", 0, std::nullopt}}) == ErrorCode::invalid_request);
    CHECK(refused({{"user", 1, "alice"}}) == ErrorCode::invalid_request);
    CHECK(refused({{"user", 3, std::nullopt}}) == ErrorCode::invalid_request);
    CHECK(refused({{"user", 0, "a"}, {"user", 0, "b"}}) == ErrorCode::invalid_request);
    CHECK(refused({{"user", 0, "a"}, {"ip", 0, "b"}}) == ErrorCode::invalid_request);
    CHECK(refused({{"group", 0, "a"}}) == ErrorCode::unsupported_version);
  }

  TEST_CASE("quotas at their limit can still be changed and replaced") {
    World world;
    std::vector<std::string> names;
    for (int i = 0; i < 10'000; ++i) names.push_back(std::to_string(i));
    protocol::AlterClientQuotasRequest request;
    for (const auto& name : names)
      request.entries.push_back(altered("user", name, "producer_byte_rate", 1));
    const auto told = world.call<protocol::AlterClientQuotasResponse>(request, 1);
    REQUIRE(told.entries.back().error_code == ErrorCode::none);
    CHECK(alter(world, altered("user", "7", "producer_byte_rate", 2)) == ErrorCode::none);
    CHECK(alter(world, altered("user", "one more", "producer_byte_rate", 1)) ==
          ErrorCode::policy_violation);
    CHECK(alter(world, altered("user", "7", "consumer_byte_rate", 1)) ==
          ErrorCode::policy_violation);
    // A quota of another kind, in the place of the first.
    auto other = altered("user", "7", "producer_byte_rate", 0, true);
    other.ops.push_back({"consumer_byte_rate", 1, false});
    CHECK(alter(world, other) == ErrorCode::none);
    request.entries = {altered("user", "8", "producer_byte_rate", 0, true),
                       altered("user", "one more", "producer_byte_rate", 1),
                       altered("user", "two more", "producer_byte_rate", 1)};
    const auto replaced = world.call<protocol::AlterClientQuotasResponse>(request, 1);
    CHECK(replaced.entries.at(1).error_code == ErrorCode::none);
    CHECK(replaced.entries.at(2).error_code == ErrorCode::policy_violation);
    CHECK(world.broker().security(world.shard()).image->quotas().size() == 10'000);
  }

  TEST_CASE("an invalid entry is refused alone, and no part of it takes effect") {
    World world;
    auto twice = altered("user", "alice", "producer_byte_rate", 1);
    twice.ops.push_back({"producer_byte_rate", 2, false});
    protocol::AlterClientQuotasRequest request;
    request.entries = {twice, altered("user", "bob", "producer_byte_rate", 1),
                       altered("group", "g", "producer_byte_rate", 1),
                       altered("user", "eve", "of_no_use", 1)};
    const auto told = world.call<protocol::AlterClientQuotasResponse>(request, 0);
    REQUIRE(told.entries.size() == 4);
    CHECK(told.entries[0].error_code == ErrorCode::invalid_request);
    CHECK(told.entries[1].error_code == ErrorCode::none);
    CHECK(told.entries[2].error_code == ErrorCode::invalid_request);
    CHECK(told.entries[3].error_code == ErrorCode::invalid_request);
    CHECK(told.entries[1].entity.at(0).entity_name == "bob");
    CHECK(describe(world).entries->size() == 1);
  }

  TEST_CASE("a client without rights on cluster configs may neither see nor change quotas") {
    World world({.configure = [](BrokerConfig& config) { config.authorizer.enabled = true; }});
    CHECK(alter(world, altered("user", "alice", "producer_byte_rate", 1)) ==
          ErrorCode::cluster_authorization_failed);
    CHECK(describe(world).error_code == ErrorCode::cluster_authorization_failed);
  }

  // --- Their effects

  protocol::ProduceResponse produce_some(World & world, std::size_t bytes, std::size_t home,
                                         std::chrono::milliseconds* muted = nullptr) {
    const auto batch = batch_of(world.clock.wall(), {{std::string(bytes, 'x')}});
    protocol::ProduceRequest request;
    request.acks = -1;
    request.timeout_ms = 1000;
    auto& topic = request.topic_data.emplace_back();
    topic.name = "t";
    topic.partition_data.push_back({0, Bytes(batch)});
    const auto pending = world.begin(request, 9, home);
    world.run();
    REQUIRE(pending->answer.has_value());
    if (muted != nullptr) *muted = pending->answer->mute;
    return world.read<protocol::ProduceResponse>(*pending, 9);
  }

  TEST_CASE("a producer that exceeds its quota is told to wait, whichever shards it is on") {
    World world({.shards = 2});
    create_topic(world, "t");
    CHECK(produce_some(world, 30'000, 0).throttle_time_ms == 0);
    CHECK(alter(world, altered("client-id", "test", "producer_byte_rate", 1000)) ==
          ErrorCode::none);
    CHECK(produce_some(world, 5'000, 0).throttle_time_ms == 0);
    std::chrono::milliseconds muted{0};
    const auto told = produce_some(world, 10'000, 1, &muted);
    CHECK(told.throttle_time_ms >= 5000);
    CHECK(told.throttle_time_ms <= 6000);
    CHECK(muted == std::chrono::milliseconds(told.throttle_time_ms));
    CHECK(world.shard(1).counters.throttled_by_produce.requests_total == 1);
    CHECK(alter(world, altered("client-id", "test", "producer_byte_rate", 0, true)) ==
          ErrorCode::none);
    CHECK(produce_some(world, 10'000, 0).throttle_time_ms == 0);
  }

  TEST_CASE("a consumer that exceeds its quota gets an empty answer, and its records later") {
    World world({.shards = 2});
    create_topic(world, "t");
    for (int i = 0; i < 3; ++i) produce_some(world, 6'000, 0);
    CHECK(alter(world, altered("user", "ANONYMOUS", "consumer_byte_rate", 1000)) ==
          ErrorCode::none);
    std::size_t offset = 0;
    std::chrono::milliseconds waited{0};
    for (int asked = 0; offset < 3; ++asked) {
      REQUIRE(asked < 40);
      CAPTURE(asked);
      const auto pending = world.begin(fetch_request("t", 0, static_cast<Offset>(offset), 0), 12);
      world.run();
      REQUIRE(pending->answer.has_value());
      const auto told = world.read<protocol::FetchResponse>(*pending, 12);
      CHECK(pending->answer->mute == std::chrono::milliseconds(told.throttle_time_ms));
      const auto records = records_in(told);
      offset += records.size();
      if (told.throttle_time_ms > 0) {
        CHECK(told.responses.empty());
        world.pass(std::chrono::milliseconds(told.throttle_time_ms));
        waited += std::chrono::milliseconds(told.throttle_time_ms);
      }
    }
    // 18 000 bytes in batches of six seconds' worth, of which ten seconds have room for one.
    CHECK(waited >= 5s);
    CHECK(waited <= 25s);
  }

  TEST_CASE("no answer to a Fetch has more than its client may have in all windows") {
    World world;
    create_topic(world, "t");
    for (int i = 0; i < 5; ++i) produce_some(world, 6'000, 0);
    CHECK(alter(world, altered("user", "ANONYMOUS", "consumer_byte_rate", 1300)) ==
          ErrorCode::none);
    const auto told = world.call<protocol::FetchResponse>(fetch_request("t", 0, 0, 0), 12);
    CHECK(records_in(told).size() == 2);
    CHECK(told.throttle_time_ms == 0);
  }

  TEST_CASE("a client that holds a thread for longer than it may is muted for a second at most") {
    World world;
    CHECK(alter(world, altered("user", "ANONYMOUS", "request_percentage", 1)) == ErrorCode::none);
    const auto ask = [&](std::chrono::milliseconds took) {
      protocol::MetadataRequest request;
      world.request_time = std::make_shared<RequestTime>(RequestTime{world.clock.mono(), took});
      return world.call<protocol::MetadataResponse>(request, 9).throttle_time_ms;
    };
    CHECK(ask(100ms) == 0);
    CHECK(ask(5ms) == 500);
    CHECK(ask(500ms) == 1000);
  }
}

}  // namespace
}  // namespace tarry::broker::test
