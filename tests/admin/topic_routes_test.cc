// Topics over HTTP: listed, looked at, deleted.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/admin/client.h"
#include "tests/admin/send_delayed.h"

namespace tarry::admin::test {
namespace {

using broker::test::batch_of;
using broker::test::create_topic;
using broker::test::produce;

TEST_SUITE("topic routes") {
  TEST_CASE(
      "/topics lists every topic with the sums of its partitions, /topics/NAME each partition") {
    Admin admin;
    CHECK(admin.get_json("/topics")["topics"].empty());
    create_topic(admin.world, "orders", 3, {{"retention.ms", "123456"}});
    create_topic(admin.world, "bills");
    produce(admin.world, "orders", 1, batch_of(admin.world.clock.wall(), {{"a"}, {"b"}}));
    send_delayed(admin, "orders", 2, "c", "1h");
    const auto topics = admin.get_json("/topics")["topics"];
    REQUIRE(topics.size() == 2);
    CHECK(topics[0]["name"] == "bills");
    CHECK(topics[1]["name"] == "orders");
    CHECK(topics[1]["partitions"] == 3);
    CHECK(topics[1]["id"].get<std::string>().size() == 22);
    CHECK(topics[1]["configs"]["retention.ms"] == "123456");
    CHECK(topics[1]["pending"] == 1);
    CHECK(topics[1]["offsets"] == 2);
    CHECK(topics[1]["bytes"].get<int>() > 60);
    const auto orders = admin.get_json("/topics/orders");
    REQUIRE(orders["partitions"].size() == 3);
    CHECK(orders["partitions"][1]["log_end"] == 2);
    CHECK(orders["partitions"][1]["high_watermark"] == 2);
    CHECK(orders["partitions"][0]["log_end"] == 0);
    CHECK(orders["partitions"][0]["fenced"] == false);
    CHECK(admin.get("/topics/nobody").status == 404);
    CHECK(admin.get("/topics/..").status == 404);
    CHECK(admin.get("/topics/%2e%2e%2fadmin.token").status == 404);
  }

  TEST_CASE("others have their turn while a topic of very many partitions is shown") {
    Admin admin;
    create_topic(admin.world, "wide", 3000);
    const auto& steps = admin.world.shard().steps();
    const auto before = steps.taken();
    const auto shown = admin.get_json("/topics/wide");
    CHECK(shown["partitions"].size() == 3000);
    CHECK(steps.taken() - before >= 12);  // Of some 200 lines.
  }

  TEST_CASE(
      "/topics/NAME counts headers one letter off, over all shards, until the topic is deleted") {
    Admin admin;
    create_topic(admin.world, "orders", 4);
    const auto send = [&](PartitionIndex p, const std::string& header) {
      produce(admin.world, "orders", p,
              batch_of(admin.world.clock.wall(), {{"a", {{header, "5s"}}}}));
    };
    CHECK(admin.get_json("/topics/orders")["header_slips"] ==
          Json{{"total", 0}, {"names", Json::array()}});
    for (PartitionIndex p : {0, 1, 2, 3}) send(p, "x-dealy");
    send(2, "X_Delay");
    send(2, "x-trace");
    const auto slips = admin.get_json("/topics/orders")["header_slips"];
    CHECK(slips["total"] == 5);
    std::map<std::string, int> counts;
    for (const auto& name : slips["names"]) {
      CHECK(name["meant"] == "x-delay");
      counts[name["name"]] = name["count"];
    }
    CHECK(counts == std::map<std::string, int>{{"x-dealy", 4}, {"X_Delay", 1}});
    const auto metrics = admin.get("/metrics").body;
    int total = 0;
    for (std::size_t shard = 0; shard < admin.world.shard_count(); ++shard) {
      const std::string name =
          "tarry_broker_header_slips_total{shard=\"" + std::to_string(shard) + "\"} ";
      REQUIRE(metrics.find(name) != std::string::npos);
      total += std::stoi(metrics.substr(metrics.find(name) + name.size()));
    }
    CHECK(total == 5);
    admin.remove("/topics/orders");
    create_topic(admin.world, "orders", 4);
    CHECK(admin.get_json("/topics/orders")["header_slips"]["total"] == 0);
  }

  TEST_CASE("/topics/NAME has the last refusal over all shards, /metrics counts them by reason") {
    Admin admin;
    create_topic(admin.world, "orders", 4);
    const auto send = [&](PartitionIndex p, const std::string& delay) {
      produce(admin.world, "orders", p,
              batch_of(admin.world.clock.wall(), {{"good"}, {"bad", {{"x-delay", delay}}}}));
    };
    CHECK(admin.get_json("/topics/orders")["refused_batches"] ==
          Json{{"total", 0}, {"last", nullptr}, {"senders", Json::array()}});
    for (PartitionIndex p : {0, 1, 2, 3}) {
      send(p, "soon-" + std::to_string(p));
      admin.world.pass(std::chrono::seconds{1});
    }
    const auto before = admin.get_json("/topics/orders")["refused_batches"];
    CHECK(before["total"] == 4);
    CHECK(before["last"]["partition"] == 3);
    send(1, "9000000000000000");
    const auto refused = admin.get_json("/topics/orders")["refused_batches"];
    CHECK(refused["total"] == 5);
    CHECK(refused["last"]["at_ms"] == to_ms(admin.world.clock.wall()));
    CHECK(refused["last"]["partition"] == 1);
    CHECK(refused["last"]["reason"] == "due_time_out_of_range");
    const std::string message = refused["last"]["message"];
    CHECK(message.starts_with("record 1: x-delay: \"9000000000000000\" leads to a due time after"));
    // Whichever shards the partition and the connection are on.
    CHECK(before["last"]["client"] == "test");
    CHECK(refused["last"]["client"] == "test");
    CHECK(refused["last"]["principal"] == "User:ANONYMOUS");
    CHECK(refused["last"]["address"] == "127.0.0.1:1");
    // Each message once, the latest first.
    REQUIRE(refused["senders"].size() == 5);
    CHECK(refused["senders"][0]["message"] == message);
    CHECK(refused["senders"][0]["batches"] == 1);
    CHECK(refused["senders"][0]["client"] == "test");
    CHECK(refused["senders"][4]["partition"] == 0);
    send(1, "9000000000000000");
    const auto again = admin.get_json("/topics/orders")["refused_batches"]["senders"];
    REQUIRE(again.size() == 5);
    CHECK(again[0]["batches"] == 2);
    const auto metrics = admin.get("/metrics").body;
    CHECK(metrics.find("tarry_broker_refused_batches_total{reason=\"unreadable_value\"} 4\n") !=
          std::string::npos);
    CHECK(
        metrics.find("tarry_broker_refused_batches_total{reason=\"due_time_out_of_range\"} 2\n") !=
        std::string::npos);
    // In the order of the shards, which depends on the topic's id.
    const Json by_reason = admin.get_json("/status")["refused_batches"];
    CHECK(by_reason.size() == 2);
    CHECK(by_reason["unreadable_value"] == 4);
    CHECK(by_reason["due_time_out_of_range"] == 2);
  }

  TEST_CASE(
      "the senders of refused batches are kept by host and message, a bounded number of them") {
    Admin admin;
    create_topic(admin.world, "a", 1);
    create_topic(admin.world, "b", 1);
    const auto id_of = [&](const char* name) {
      return admin.world.shard().topics().find(name)->id;
    };
    auto at = admin.world.clock.wall();
    auto& notes = admin.world.shard().notes();
    const auto refuse = [&](const TopicId& topic, const std::string& message, const char* address) {
      at += std::chrono::milliseconds{1};
      notes.refused_client({topic, 0}, {at, 0, "bad_record", message,
                                        broker::TopicNote::Client{"id", "User:u", address}});
    };
    refuse(id_of("a"), "first", "10.0.0.1:1");
    refuse(id_of("a"), "first", "10.0.0.2:1");
    // Another connection of the first one.
    refuse(id_of("a"), "first", "10.0.0.1:2");
    const auto senders = [&](const char* name) {
      return notes.copy(id_of(name)).value().refused_senders;
    };
    REQUIRE(senders("a").size() == 2);
    CHECK(senders("a")[0].batches == 2);
    CHECK(senders("a")[0].last.client->address == "10.0.0.1:2");
    CHECK(senders("a")[1].batches == 1);
    // What two shards know of a sender is one.
    auto sum = notes.copy(id_of("a")).value();
    sum.add(notes.copy(id_of("a")).value());
    REQUIRE(sum.refused_senders.size() == 2);
    CHECK(sum.refused_senders[0].batches == 4);
    // The oldest of the topic go, not those of another one.
    refuse(id_of("b"), "only", "10.0.0.1:1");
    for (std::size_t i = 0; i < broker::TopicNote::max_senders; ++i)
      refuse(id_of("a"), "message " + std::to_string(i), "10.0.0.1:1");
    REQUIRE(senders("a").size() == broker::TopicNote::max_senders);
    CHECK(senders("a").front().last.message ==
          "message " + std::to_string(broker::TopicNote::max_senders - 1));
    CHECK(senders("a").back().last.message == "message 0");
    CHECK(senders("b").size() == 1);
    // The limit of all topics.
    create_topic(admin.world, "c", 1);
    for (std::size_t topic = 0; topic < broker::TopicNotes::max_senders; ++topic) {
      TopicId made = id_of("c");
      made.bytes[0] = static_cast<std::uint8_t>(topic);
      made.bytes[1] = static_cast<std::uint8_t>(~made.bytes[1]);
      refuse(made, "m", "10.0.0.1:1");
    }
    CHECK(senders("a").empty());
    CHECK(senders("b").empty());
    const auto gone = id_of("a");
    refuse(gone, "again", "10.0.0.1:1");
    CHECK(senders("a").size() == 1);
    admin.remove("/topics/a");
    CHECK_FALSE(notes.copy(gone).has_value());
  }

  TEST_CASE("the client of a refused batch is cut, and a deleted topic forgets it") {
    Admin admin;
    create_topic(admin.world, "t", 2);
    const auto topic = admin.world.shard().topics().find("t");
    const auto at = admin.world.clock.wall();
    const TopicPartition partition{topic->id, 1};
    const std::string long_text(10'000, 'x');
    auto& notes = admin.world.shard().notes();
    notes.refused_client(partition, {at, 1, "bad_record", long_text,
                                     broker::TopicNote::Client{long_text, long_text, long_text}});
    const auto* note = notes.find(topic->id);
    REQUIRE(note != nullptr);
    CHECK(note->refused == 0);
    CHECK(note->last_refusal->message.size() == broker::TopicNotes::max_message_bytes);
    const auto& client = note->last_refusal->client;
    REQUIRE(client.has_value());
    for (const auto* text : {&client->id, &client->principal, &client->address})
      CHECK(text->size() == broker::TopicNotes::max_client_bytes);
    // A refusal of the same moment without its client is the same one.
    broker::TopicNote sum = *note, other;
    other.last_refusal = broker::TopicNote::Refusal{at, 1, "bad_record", "m"};
    sum.add(other);
    CHECK(sum.last_refusal->client.has_value());
    other.last_refusal->at = at + std::chrono::milliseconds{1};
    sum.add(other);
    CHECK_FALSE(sum.last_refusal->client.has_value());
    admin.remove("/topics/t");
    CHECK(notes.find(topic->id) == nullptr);
  }

  TEST_CASE("a partition that cannot be opened refuses with a reason, which is counted and told") {
    Admin admin;
    create_topic(admin.world, "t");
    const auto logs = admin.world.directory() + "/data/logs";
    std::filesystem::create_directories(logs);
    std::ofstream(logs + "/t-0") << "no directory";
    const auto batch = batch_of(admin.world.clock.wall(), {{"v"}});
    for (int i = 0; i < 3; ++i) {
      const auto answer = produce(admin.world, "t", 0, batch);
      CHECK(answer.error_code == protocol::ErrorCode::kafka_storage_error);
      CHECK(answer.error_message.value_or("").starts_with("the partition cannot be opened: "));
      CHECK(answer.error_message.value_or("").find("t-0") != std::string::npos);
    }
    CHECK(admin.get_json("/status")["refused_batches"] == Json{{"cannot_be_opened", 3}});
    const auto refused = admin.get_json("/topics/t")["refused_batches"];
    CHECK(refused["total"] == 3);
    CHECK(refused["last"]["reason"] == "cannot_be_opened");
    CHECK(refused["last"]["message"].get<std::string>().starts_with("the partition cannot be"));
    // A batch that is only checked is refused, too, and not counted.
    admin.world.call<protocol::ProduceResponse>(broker::test::produce_request("t", 0, batch, 17),
                                                9);
    CHECK(admin.get_json("/topics/t")["refused_batches"]["total"] == 3);
  }

  TEST_CASE("every refusal has a reason, and one that was only asked for is not noted") {
    Admin admin;
    create_topic(admin.world, "t", 1,
                 {{"max.message.bytes", "500"}, {"tarry.delay.max.ms", "60000"}});
    const auto reason = [&](const Buffer& batch) {
      produce(admin.world, "t", 0, batch);
      return admin.get_json("/topics/t")["refused_batches"]["last"]["reason"].get<std::string>();
    };
    const auto now = admin.world.clock.wall();
    const auto with = [&](std::vector<std::pair<std::string, std::string>> headers) {
      return batch_of(now, {{"v", std::move(headers)}});
    };
    CHECK(reason(with({{"x-delay", "soon"}})) == "unreadable_value");
    CHECK(reason(with({{"x-deliver-at", "1795000000"}})) == "due_time_out_of_range");
    CHECK(reason(with({{"x-delay", "5s"}, {"x-expire-at", "1795000000"}})) ==
          "due_time_out_of_range");
    CHECK(reason(with({{"x-delay", "2h"}})) == "delay_too_long");
    CHECK(reason(with({{"x-delay", "5s"}, {"x-schedule-id", "@a"}})) == "bad_schedule_id");
    CHECK(reason(with({{"x-schedule-action", "drop"}})) == "bad_schedule_action");
    CHECK(reason(with({{"x-delay", "5s"}, {"X-Delay", "5s"}})) == "header_given_twice");
    CHECK(reason(with({{"x-delay", "5s"}, {"x-deliver-at", "0"}})) == "conflicting_headers");
    CHECK(reason(batch_of(now, {{std::string(600, 'a')}})) == "batch_too_large");
    CHECK(reason(batch_of(now + std::chrono::hours{48}, {{"v"}})) == "bad_timestamp");
    produce(admin.world, "t", 0, batch_of(now, {{"v"}}, {7, 0, 0}));
    CHECK(reason(batch_of(now, {{"v"}}, {7, 0, 5})) == "out_of_order_sequence");
    Buffer damaged = batch_of(now, {{"v"}});
    damaged.back() ^= 1;
    CHECK(reason(damaged) == "corrupt_batch");
    CHECK(admin.get_json("/topics/t")["refused_batches"]["total"] == 12);
    const Buffer bad = with({{"x-delay", "soon"}});
    admin.world.call<protocol::ProduceResponse>(broker::test::produce_request("t", 0, bad, 17), 9);
    CHECK(admin.get_json("/topics/t")["refused_batches"]["total"] == 12);
  }

  TEST_CASE(
      "a topic with pending records is deleted only by force: otherwise 409 and their number") {
    Admin admin;
    create_topic(admin.world, "orders", 2);
    for (PartitionIndex p : {0, 1}) send_delayed(admin, "orders", p, "c", "1h");
    CHECK(admin.ask("DELETE", "/topics/orders?force=true").status == 401);
    const auto refused = admin.remove("/topics/orders");
    CHECK(refused.status == 409);
    CHECK(refused.error().find("2 pending") != std::string::npos);
    CHECK(refused.json()["pending"] == 2);
    CHECK(admin.remove("/topics/orders?force=yes").status == 400);
    CHECK(admin.remove("/topics/nobody?force=true").status == 404);
    const auto deleted = admin.remove("/topics/orders?force=true");
    CHECK(deleted.status == 200);
    CHECK(deleted.json()["result"] == "deleted");
    CHECK(deleted.json()["pending_dropped"] == 2);
    CHECK(admin.get_json("/delayed")["records"].empty());
    CHECK(admin.get("/topics/orders").status == 404);
  }
}

}  // namespace
}  // namespace tarry::admin::test
