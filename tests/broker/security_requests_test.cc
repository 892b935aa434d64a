#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/co_spawn.hpp>

#include "base/scram.h"
#include "broker/security/scram_exchange.h"
#include "broker/security/security_image.h"
#include "protocol/messages/alter_user_scram_credentials.h"
#include "protocol/messages/create_acls.h"
#include "protocol/messages/create_partitions.h"
#include "protocol/messages/create_topics.h"
#include "protocol/messages/delete_acls.h"
#include "protocol/messages/describe_acls.h"
#include "protocol/messages/describe_user_scram_credentials.h"
#include "protocol/messages/metadata.h"
#include "tests/broker/batches.h"
#include "tests/broker/world.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

// Below the requests: what a test needs before a client may do anything.
void change_security_rows(World& world, std::vector<LiveSecurity::Change> changes) {
  bool changed = false;
  boost::asio::co_spawn(
      world.shard().executor(), world.broker().live_security().change(std::move(changes)),
      [&](std::exception_ptr, const Result<>& result) { changed = result.has_value(); });
  world.run();
  REQUIRE(changed);
}

LiveSecurity::Change rule_for_topic(std::string_view topic, AclOperation operation,
                                    AclPermission permission = AclPermission::allow) {
  const AclBinding rule{.resource = AclResource::topic,
                        .operation = operation,
                        .permission = permission,
                        .name = std::string(topic),
                        .principal = "User:ANONYMOUS",
                        .host = "*"};
  return {.key = SecurityImage::rule_key(rule), .value = ""};
}

TEST_SUITE("security requests") {
  protocol::CreateAclsRequest one_rule() {
    protocol::CreateAclsRequest request;
    request.creations.push_back({2, "t", 3, "User:a", "*", 3, 3});
    return request;
  }

  TEST_CASE("rules are there after a restart, and gone after they were deleted") {
    World world({.shards = 2, .configure = [](BrokerConfig& config) {
                   config.authorizer.enabled = true;
                   config.authorizer.super_users = {"User:ANONYMOUS"};
                 }});
    auto made = world.call<protocol::CreateAclsResponse>(one_rule(), 3, 1);
    CHECK(made.results.at(0).error_code == ErrorCode::none);
    for (int i = 0; i < 2; ++i) {
      protocol::DescribeAclsRequest all;
      all.resource_type_filter = 1;
      all.pattern_type_filter = 1;
      all.operation = 1;
      all.permission_type = 1;
      const auto told = world.call<protocol::DescribeAclsResponse>(all, 3, 1);
      REQUIRE(told.resources.size() == 1);
      CHECK(told.resources[0].resource_name == "t");
      CHECK(told.resources[0].acls.at(0).principal == "User:a");
      world.restart();
    }
    protocol::DeleteAclsRequest gone;
    gone.filters.push_back({2, "t", 2, std::nullopt, std::nullopt, 1, 1});
    const auto deleted = world.call<protocol::DeleteAclsResponse>(gone, 3);
    CHECK(deleted.filter_results.at(0).matching_acls.size() == 1);
    world.restart();
    CHECK(world.broker().security(world.shard(1)).image->rules().empty());
  }

  TEST_CASE("a client without rights neither sees a topic nor creates it") {
    World world(
        {.shards = 2, .configure = [](BrokerConfig& config) { config.authorizer.enabled = true; }});
    protocol::MetadataRequest metadata;
    metadata.topics.emplace().push_back({{}, "t"});
    const auto told = world.call<protocol::MetadataResponse>(metadata, 9);
    CHECK(told.topics.at(0).error_code == ErrorCode::topic_authorization_failed);
    CHECK(world.shard(0).topics().size() == 0);
    protocol::CreateTopicsRequest create;
    create.topics.push_back({"t", 1, 1, {}, {}});
    const auto made = world.call<protocol::CreateTopicsResponse>(create, 7);
    CHECK(made.topics.at(0).error_code == ErrorCode::topic_authorization_failed);
    CHECK(world.call<protocol::CreateAclsResponse>(one_rule(), 3).results.at(0).error_code ==
          ErrorCode::cluster_authorization_failed);
    CHECK(world
              .call<protocol::DescribeUserScramCredentialsResponse>(
                  protocol::DescribeUserScramCredentialsRequest{}, 0)
              .error_code == ErrorCode::cluster_authorization_failed);
    CHECK(world.shard(0).counters.refused_total >= 4);
  }

  TEST_CASE(
      "a client that may create a topic gets its configs only with the right to describe them") {
    World world(
        {.shards = 1, .configure = [](BrokerConfig& config) { config.authorizer.enabled = true; }});
    change_security_rows(world, {rule_for_topic("t", AclOperation::create),
                                 rule_for_topic("u", AclOperation::create),
                                 rule_for_topic("u", AclOperation::describe_configs)});
    protocol::CreateTopicsRequest create;
    create.topics.push_back({"t", 3, 1, {}, {}});
    create.topics.push_back({"u", 3, 1, {}, {}});
    const auto made = world.call<protocol::CreateTopicsResponse>(create, 7);
    const auto& hidden = made.topics.at(0);
    CHECK(hidden.error_code == ErrorCode::none);
    CHECK(hidden.topic_config_error_code == ErrorCode::topic_authorization_failed);
    CHECK_FALSE(hidden.configs.has_value());
    CHECK(hidden.num_partitions == -1);
    CHECK(hidden.replication_factor == -1);
    CHECK_FALSE(hidden.topic_id.is_zero());
    const auto& told = made.topics.at(1);
    CHECK(told.topic_config_error_code == ErrorCode::none);
    CHECK(told.configs.has_value());
    CHECK(told.num_partitions == 3);
    // Versions without configs are answered as ever.
    create.topics.pop_back();
    CHECK(world.call<protocol::CreateTopicsResponse>(create, 4).topics.at(0).error_code ==
          ErrorCode::topic_already_exists);
  }

  TEST_CASE("a restart changes the salt of no user, whether it exists or not") {
    World world;
    const auto challenge = [&] {
      ScramExchange exchange(ScramMechanism::sha256, "ours", world.broker().login_secret());
      const auto nobody = [](std::string_view) { return nullptr; };
      const auto no_example = [](std::uint64_t) { return nullptr; };
      return exchange.first("n,,n=mallory,r=theirs", nobody, no_example).value();
    };
    const auto before = challenge();
    world.restart();
    CHECK(challenge() == before);
    CapturedLog log;
    protocol::AlterUserScramCredentialsRequest alter;
    const std::string salted(32, 'x');
    alter.upsertions.push_back(
        {"alice", 1, 4096, as_bytes(std::string_view("salt")), as_bytes(salted)});
    world.call<protocol::AlterUserScramCredentialsResponse>(alter, 0);
    CHECK(world.broker().security(world.shard()).image->users().size() == 1);
    CHECK(log.text().find("cannot be read") == std::string::npos);
  }

  TEST_CASE("rules and users at their limit can still be changed") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.authorizer.enabled = true;
                   config.authorizer.super_users = {"User:ANONYMOUS"};
                 }});
    const std::string salted(32, 'x');
    const auto kept =
        SecurityImage::user_value(scram_credential(ScramMechanism::sha256, salted, "salt", 4096));
    std::vector<LiveSecurity::Change> changes;
    for (int i = 0; i < 100'000; ++i) {
      const auto name = std::to_string(i);
      changes.push_back({.key = SecurityImage::rule_key({AclResource::topic, AclPattern::literal,
                                                         AclOperation::read, AclPermission::allow,
                                                         name, "User:a", "*"}),
                         .value = ""});
      changes.push_back(
          {.key = SecurityImage::user_key(name, ScramMechanism::sha256), .value = kept});
    }
    change_security_rows(world, std::move(changes));

    protocol::CreateAclsRequest rules;
    rules.creations.push_back({2, "7", 3, "User:a", "*", 3, 3});
    CHECK(world.call<protocol::CreateAclsResponse>(rules, 3).results.at(0).error_code ==
          ErrorCode::none);
    rules.creations.push_back({2, "one more", 3, "User:a", "*", 3, 3});
    CHECK(world.call<protocol::CreateAclsResponse>(rules, 3).results.at(1).error_code ==
          ErrorCode::policy_violation);

    protocol::AlterUserScramCredentialsRequest users;
    const auto alter = [&] {
      return world.call<protocol::AlterUserScramCredentialsResponse>(users, 0)
          .results.at(0)
          .error_code;
    };
    users.upsertions.push_back(
        {"7", 1, 4097, as_bytes(std::string_view("salt")), as_bytes(salted)});
    CHECK(alter() == ErrorCode::none);
    users.upsertions[0].name = "one more";
    CHECK(alter() == ErrorCode::policy_violation);
    users.deletions.push_back({"7", 1});
    CHECK(alter() == ErrorCode::none);
    CHECK(world.broker().security(world.shard()).image->users().size() == 100'000);
  }

  TEST_CASE(
      "bad records go to NAME.invalid only if their producer may write there, and create it or add "
      "the partitions that it lacks") {
    World world(
        {.shards = 2, .configure = [](BrokerConfig& config) { config.authorizer.enabled = true; }});
    CapturedLog log;
    const auto allow = [&](std::string_view topic, AclOperation operation) {
      change_security_rows(world, {rule_for_topic(topic, operation)});
    };
    allow("t", AclOperation::all);
    create_topic(world, "t", 1, {{"tarry.delay.invalid", "dead-letter"}});
    const auto send = [&](PartitionIndex partition) {
      return produce(world, "t", partition,
                     batch_of(world.clock.wall(), {{"good"}, {"bad", {{"x-delay", "soon"}}}}));
    };
    const auto is_refused_without = [&](std::string_view right, PartitionIndex partition = 0) {
      const auto answer = send(partition);
      CHECK(answer.error_code == ErrorCode::invalid_record);
      REQUIRE(answer.record_errors.size() == 1);
      CHECK(answer.record_errors[0].batch_index == 1);
      const std::string text(answer.error_message.value_or(""));
      const auto needs = "the user also needs " + std::string(right) + " on the topic t.invalid";
      CHECK_MESSAGE(text.find(needs) != text.npos, text);
      CHECK(log.count("may not " + std::string(right) + " TOPIC t.invalid: denied") == 1);
    };
    is_refused_without("WRITE");
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"good"}})).base_offset == 0);
    allow("t.invalid", AclOperation::write);
    is_refused_without("CREATE");
    CHECK_FALSE(world.shard().topics().find("t.invalid"));

    allow("t.invalid", AclOperation::create);
    CHECK(send(0).base_offset == 1);
    protocol::CreatePartitionsRequest more;
    more.timeout_ms = 30'000;
    more.topics.push_back({"t", 2, std::nullopt});
    REQUIRE(world.call<protocol::CreatePartitionsResponse>(more, 3).results[0].error_code ==
            ErrorCode::none);
    is_refused_without("ALTER", 1);
    CHECK(send(0).error_code == ErrorCode::none);
    allow("t.invalid", AclOperation::alter);
    CHECK(send(1).error_code == ErrorCode::none);

    auto denial = rule_for_topic("t.invalid", AclOperation::all, AclPermission::deny);
    change_security_rows(world, {denial});
    CHECK(send(0).error_code == ErrorCode::invalid_record);
    denial.value.reset();
    change_security_rows(world, {denial, rule_for_topic("t.invalid", AclOperation::read)});
    CHECK(read_all(world, "t.invalid", 0).size() == 2);
    CHECK(read_all(world, "t.invalid", 1).size() == 1);
    CHECK(read_all(world, "t", 0).size() == 3);
  }

  TEST_CASE("a rule's names have at most 1024 bytes, but each id of a group can be named") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.authorizer.enabled = true;
                   config.authorizer.super_users = {"User:ANONYMOUS"};
                 }});
    const std::string name(1024, 'n'), longer(1025, 'n'), id(32'767, 'i');
    const auto add = [&](std::int8_t resource, std::string_view of, const std::string& user,
                         std::string_view host) {
      const std::string principal = "User:" + user;
      protocol::CreateAclsRequest request;
      request.creations.push_back({resource, of, 3, principal, host, 3, 3});
      return world.call<protocol::CreateAclsResponse>(request, 3).results.at(0).error_code;
    };
    CHECK(add(2, name, name, "*") == ErrorCode::none);
    CHECK(add(3, id, "a", "*") == ErrorCode::none);
    CHECK(add(5, id, "a", "*") == ErrorCode::none);
    CHECK(add(2, longer, "a", "*") == ErrorCode::invalid_request);
    CHECK(add(2, "t", longer, "*") == ErrorCode::invalid_request);
    CHECK(add(2, "t", "a", longer) == ErrorCode::invalid_request);
    // A longer one that is stored is still in force: it may be a denial.
    change_security_rows(world, {rule_for_topic(longer, AclOperation::write)});
    CHECK(world.broker().security(world.shard()).image->rules().size() == 4);
    world.restart();
    CHECK(world.broker().security(world.shard()).image->rules().size() == 4);
  }

  TEST_CASE("rules and users have at most 32 MiB together") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.authorizer.enabled = true;
                   config.authorizer.super_users = {"User:ANONYMOUS"};
                 }});
    const auto image = [&] { return world.broker().security(world.shard()).image; };
    protocol::CreateAclsRequest rules;
    std::vector<std::string> ids;
    for (int i = 0; i < 1'050; ++i) ids.push_back(std::to_string(i) + std::string(32'000, 'i'));
    for (const auto& id : ids) rules.creations.push_back({3, id, 3, "User:a", "*", 3, 3});
    const auto refused = world.call<protocol::CreateAclsResponse>(rules, 3);
    CHECK(refused.results.at(0).error_code == ErrorCode::policy_violation);
    CHECK(refused.results.at(1'049).error_code == ErrorCode::policy_violation);
    CHECK(image()->rules().empty());

    // Above the limit nothing is added, and what is there can be changed and removed.
    std::vector<LiveSecurity::Change> rows;
    for (const auto& id : ids) {
      const AclBinding rule{
          .resource = AclResource::group, .name = id, .principal = "User:a", .host = "*"};
      rows.push_back({.key = SecurityImage::rule_key(rule), .value = ""});
    }
    change_security_rows(world, rows);
    CHECK(image()->bytes() > SecurityImage::max_bytes);
    const std::string salted(32, 'x'), long_salt(1024, 's');
    protocol::AlterUserScramCredentialsRequest users;
    users.upsertions.push_back(
        {"alice", 1, 4096, as_bytes(std::string_view("salt")), as_bytes(salted)});
    const auto alter = [&] {
      return world.call<protocol::AlterUserScramCredentialsResponse>(users, 0)
          .results.at(0)
          .error_code;
    };
    CHECK(alter() == ErrorCode::policy_violation);
    const auto kept = SecurityImage::user_value(
        scram_credential(ScramMechanism::sha256, salted, long_salt, 4096));
    change_security_rows(
        world, {{.key = SecurityImage::user_key("alice", ScramMechanism::sha256), .value = kept}});
    CHECK(alter() == ErrorCode::none);
    CHECK(world.call<protocol::CreateAclsResponse>(one_rule(), 3).results.at(0).error_code ==
          ErrorCode::policy_violation);
    for (auto& change : rows) change.value.reset();
    change_security_rows(world, rows);
    CHECK(image()->rules().empty());
    CHECK(world.call<protocol::CreateAclsResponse>(one_rule(), 3).results.at(0).error_code ==
          ErrorCode::none);
  }

  TEST_CASE("without an authorizer rules are refused, and everything else is allowed") {
    World world;
    CHECK(world.call<protocol::CreateAclsResponse>(one_rule(), 3).results.at(0).error_code ==
          ErrorCode::security_disabled);
  }

  TEST_CASE("a SCRAM user is stored without the password, with Kafka's bounds of iterations") {
    World world;
    const auto salted = scram_salted_password(ScramMechanism::sha256, "secret", "salt", 4096);
    const auto alter = [&](std::int32_t iterations, Bytes password) {
      protocol::AlterUserScramCredentialsRequest request;
      request.upsertions.push_back(
          {"alice", 1, iterations, as_bytes(std::string_view("salt")), password});
      return world.call<protocol::AlterUserScramCredentialsResponse>(request, 0, 1)
          .results.at(0)
          .error_code;
    };
    CHECK(alter(4095, as_bytes(salted)) == ErrorCode::unacceptable_credential);
    CHECK(alter(16385, as_bytes(salted)) == ErrorCode::unacceptable_credential);
    CHECK(alter(4096, as_bytes(std::string_view("short"))) == ErrorCode::unacceptable_credential);
    CHECK(alter(4096, as_bytes(salted)) == ErrorCode::none);
    world.restart();
    const auto image = world.broker().security(world.shard(1)).image;
    const auto* kept = image->find_user("alice", ScramMechanism::sha256);
    REQUIRE(kept != nullptr);
    CHECK(*kept == scram_credential(ScramMechanism::sha256, salted, "salt", 4096));
    CHECK(image->find_user("alice", ScramMechanism::sha512) == nullptr);
    protocol::AlterUserScramCredentialsRequest gone;
    gone.deletions.push_back({"alice", 1});
    CHECK(
        world.call<protocol::AlterUserScramCredentialsResponse>(gone, 0).results.at(0).error_code ==
        ErrorCode::none);
    CHECK(
        world.call<protocol::AlterUserScramCredentialsResponse>(gone, 0).results.at(0).error_code ==
        ErrorCode::resource_not_found);
  }
}

}  // namespace
}  // namespace tarry::broker::test
