// The streams of the page: events, and the picture of due times.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "protocol/messages/offset_commit.h"
#include "tests/admin/client.h"
#include "tests/admin/pending_rule.h"
#include "tests/admin/send_delayed.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;
using broker::test::batch_of;
using broker::test::create_topic;
using broker::test::produce;

AdminOptions quick() {
  AdminOptions options;
  options.event_interval = 1ms;
  return options;
}

void schedule(Admin& admin, const std::string& topic, std::chrono::milliseconds delay,
              const std::string& id = {}) {
  send_delayed(admin, topic, 0, "v", std::to_string(delay.count()), id);
}

std::string ask_for_events(const Admin& admin, const std::string& more = "") {
  return "GET /events HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n" + more + "\r\n";
}

// Events as a browser reads them, from an answer in chunks.
class Events {
 public:
  explicit Events(Connection& connection) : connection_(connection) {}

  // The data of the next event of that name.
  Json next(const std::string& name) {
    const std::string begin = "event: " + name + "\ndata: ";
    for (;;) {
      if (const auto at = text_.find(begin); at != text_.npos) {
        const auto from = at + begin.size();
        if (const auto end = text_.find("\n\n", from); end != text_.npos) {
          const auto data = text_.substr(from, end - from);
          text_.erase(0, end + 2);
          return Json::parse(data, nullptr, false);
        }
      }
      const auto more = connection_.read_chunk();
      if (more.empty()) return nullptr;
      text_ += more;
    }
  }

 private:
  Connection& connection_;
  std::string text_;
};

Json span_of(const Json& due, const std::string& name) {
  for (const auto& span : due["spans"])
    if (span["span"] == name) return span;
  FAIL("there is no span " << name);
  return {};
}

std::vector<std::pair<std::size_t, std::uint64_t>> set_in(const Json& numbers) {
  std::vector<std::pair<std::size_t, std::uint64_t>> set;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != 0) set.emplace_back(i, numbers[i].get<std::uint64_t>());
  return set;
}

using Set = std::vector<std::pair<std::size_t, std::uint64_t>>;

TEST_SUITE("events") {
  TEST_CASE("a stream begins with the past and then has everything that the page shows") {
    Admin admin(quick());
    create_topic(admin.world, "orders");
    schedule(admin, "orders", 30min);
    admin.meanwhile([&] {
      Connection connection(admin.port);
      connection.send(ask_for_events(admin));
      const auto head = connection.read_head();
      CHECK(head.status == 200);
      CHECK(head.headers.at("Content-Type") == "text/event-stream");
      CHECK(head.headers.at("Cache-Control") == "no-store");
      Events events(connection);
      CHECK(events.next("history")["points"].empty());
      const auto status = events.next("status");
      CHECK(status["delayed"]["pending"] == 1);
      CHECK(status["state"] == "running");
      CHECK(status.contains("at_ms"));
      CHECK(events.next("wheel")["levels"].size() >= 4);
      const auto topics = events.next("topics");
      CHECK(topics["topics_total"] == 1);
      CHECK(topics["topics"][0]["name"] == "orders");
      CHECK(topics["topics"][0]["pending"] == 1);
      CHECK(events.next("groups")["groups"].empty());
      CHECK(events.next("due")["total"] == 1);
      CHECK(events.next("status")["delayed"]["pending"] == 1);
      return 0;
    });
  }

  TEST_CASE("a stream shows due times of a topic to those alone who may read its pending records") {
    const std::string alice(32, 'a'), bob(32, 'b');
    Admin admin(quick(), with_rules(), "alice read " + alice + "\nbob read " + bob);
    create_topic(admin.world, "orders");
    schedule(admin, "orders", 30min);
    add_rule(admin, "User:alice", "orders/pending");
    admin.get("/delayed/due");  // The hour is counted.
    admin.meanwhile([&] {
      const auto hour_for = [&](const std::string& more) {
        Connection connection(admin.port);
        connection.send(ask_for_events(admin, more));
        connection.read_head();
        return span_of(Events(connection).next("due"), "hour");
      };
      const auto whole = hour_for("Authorization: Bearer " + alice + "\r\n");
      CHECK(whole["counts"].contains("orders"));
      for (const auto& more : {"Authorization: Bearer " + bob + "\r\n", std::string()}) {
        const auto part = hour_for(more);
        CHECK(part["counts"].empty());
        CHECK(part["other"] == whole["counts"]["orders"]);
      }
      return 0;
    });
  }

  TEST_CASE("the groups of a stream are those with the most lag, whatever their names") {
    Admin admin(quick());
    create_topic(admin.world, "orders");
    for (int i = 0; i < 5; ++i)
      produce(admin.world, "orders", 0, batch_of(admin.world.clock.wall(), {{"x"}}));
    const auto commit = [&](const std::string& group, Offset offset) {
      protocol::OffsetCommitRequest request;
      request.group_id = group;
      auto& topic = request.topics.emplace_back();
      topic.name = "orders";
      topic.partitions.emplace_back().committed_offset = offset;
      const auto response = admin.world.call<protocol::OffsetCommitResponse>(request, 7);
      REQUIRE(response.topics[0].partitions[0].error_code == protocol::ErrorCode::none);
    };
    for (int i = 0; i < 200; ++i) commit("a-" + std::to_string(1000 + i), 5);
    commit("y-late", 4);
    commit("z-latest", 1);
    admin.meanwhile([&] {
      Connection connection(admin.port);
      connection.send(ask_for_events(admin));
      connection.read_head();
      const auto event = Events(connection).next("groups");
      CHECK(event["groups_total"] == 202);
      REQUIRE(event["groups"].size() == 200);
      CHECK(event["groups"][0]["group"] == "z-latest");
      CHECK(event["groups"][0]["lag"] == 4);
      CHECK(event["groups"][1]["group"] == "y-late");
      CHECK(event["groups"][2]["group"] == "a-1000");
      CHECK(event["groups"][199]["group"] == "a-1197");
      return 0;
    });
  }

  TEST_CASE("a new stream gets the history that the feed has seen") {
    Admin admin(quick());
    admin.meanwhile([&] {
      Connection first(admin.port), second(admin.port);
      first.send(ask_for_events(admin));
      first.read_head();
      Events events(first);
      for (int i = 0; i < 3; ++i) events.next("status");
      second.send(ask_for_events(admin));
      second.read_head();
      const auto history = Events(second).next("history");
      CHECK(history["points"].size() >= 3);
      for (const char* field :
           {"at_ms", "pending", "overdue", "delivered_total", "lag_ms", "requests_total",
            "received_bytes_total", "sent_bytes_total", "appended_records_total",
            "journal_bytes_total", "fsyncs_total", "free_bytes", "cpu_seconds"})
        CHECK_FALSE(history["points"][0].value(field, Json()).is_null());
      return 0;
    });
  }

  TEST_CASE("a change by a request is told to all streams before their next round is due") {
    AdminOptions options;
    options.event_interval = 10min;
    Admin admin(options);
    create_topic(admin.world, "t");
    for (const char* id : {"a", "b"}) schedule(admin, "t", 40min, id);
    admin.world.run();
    const auto removal = "DELETE /delayed/t/a HTTP/1.1\r\nHost: " + admin.server->address() +
                         "\r\nAuthorization: Bearer " + admin.token() + "\r\n\r\n";
    admin.meanwhile([&] {
      Connection connection(admin.port), other(admin.port);
      connection.send(ask_for_events(admin));
      connection.read_head();
      Events events(connection);
      CHECK(events.next("status")["delayed"]["pending"] == 2);
      CHECK(events.next("clients")["clients_total"] == 0);  // The round is over.
      other.send(removal);
      CHECK(other.read().status == 200);
      CHECK(events.next("status")["delayed"]["pending"] == 1);
      CHECK(events.next("wheel")["pending"] == 1);
      CHECK(events.next("topics")["topics"][0]["pending"] == 1);
      return 0;
    });
  }

  // Each point's seconds since `start` and its overdue records, without those of the stream itself.
  std::vector<std::pair<std::int64_t, int>> past(Admin & admin, WallTime start) {
    admin.world.pass(1s);
    const auto now = to_ms(admin.world.clock.wall());
    const Json points = admin.meanwhile([&] {
      Connection connection(admin.port);
      connection.send(ask_for_events(admin));
      connection.read_head();
      return Events(connection).next("history")["points"];
    });
    std::vector<std::pair<std::int64_t, int>> found;
    for (const auto& point : points) {
      const auto at = point["at_ms"].get<std::int64_t>();
      if (at < now) found.emplace_back((at - to_ms(start)) / 1000, point["overdue"].get<int>());
    }
    return found;
  }

  TEST_CASE(
      "without a stream no event is computed, but the past is noted while something moves or is "
      "pending, and not while the broker has nothing to do") {
    AdminOptions options;
    options.event_interval = 10min;
    Admin admin(options);
    create_topic(admin.world, "t");
    const auto start = admin.world.clock.wall();
    std::uint64_t turns = 0;
    const auto seconds = [&](int count, std::uint64_t moved) {
      for (int i = 0; i < count; ++i) {
        turns += moved;
        admin.world.pass(1s);
        admin.server->second_passed([&] { return turns; });
        admin.world.run();
      }
    };
    seconds(2, 1);
    seconds(1, 1000);
    seconds(10, 0);
    schedule(admin, "t", 30s);
    seconds(10, 1);
    seconds(2, 500);
    const auto topic = admin.world.shard().topics().find("t");
    const TopicPartition partition{topic->id, 0};
    admin.world.broker().shard_of(partition).partitions().find(partition)->fence("its log is cut");
    seconds(25, 1);
    CHECK(admin.server->event_rounds() == 0);
    CHECK(past(admin, start) == std::vector<std::pair<std::int64_t, int>>{{3, 0},
                                                                          {14, 0},
                                                                          {19, 0},
                                                                          {24, 0},
                                                                          {25, 0},
                                                                          {30, 0},
                                                                          {35, 0},
                                                                          {40, 0},
                                                                          {45, 1},
                                                                          {50, 1}});
  }

  TEST_CASE("the history does not take a disk that cannot be asked for a full one") {
    AdminOptions options;
    options.event_interval = 10min;
    Admin admin(options);
    const auto data = admin.world.broker().identity().data_directory;
    std::uint64_t turns = 0;
    for (const std::uint64_t moved : {1u, 1u, 1000u}) {
      turns += moved;
      admin.world.pass(1s);
      std::filesystem::rename(data, data + "-away");
      admin.server->second_passed([&] { return turns; });
      std::filesystem::rename(data + "-away", data);
      admin.world.run();
    }
    const Json points = admin.meanwhile([&] {
      Connection connection(admin.port);
      connection.send(ask_for_events(admin));
      connection.read_head();
      return Events(connection).next("history")["points"];
    });
    REQUIRE_FALSE(points.empty());
    CHECK(points[0]["free_bytes"].is_null());
  }

  TEST_CASE(
      "of the older past a point in ten seconds is kept: that with the most overdue records") {
    AdminOptions options;
    options.event_interval = 10min;
    for (const auto apart : {1s, 12s}) {
      CAPTURE(apart.count());
      Admin admin(options);
      create_topic(admin.world, "t");
      schedule(admin, "t", 5'500ms);
      const auto topic = admin.world.shard().topics().find("t");
      const TopicPartition partition{topic->id, 0};
      admin.world.broker().shard_of(partition).partitions().find(partition)->fence("cut");
      const auto start = admin.world.clock.wall();
      std::uint64_t turns = 0;
      for (int i = 0; i < (apart == 1s ? 700 : 1000); ++i) {
        if (i < 10) {
          admin.world.pass(apart);
        } else {
          admin.world.clock.now_mono += apart;
          admin.world.clock.now_wall += apart;
        }
        turns += 1000;
        admin.server->second_passed([&] { return turns; });
        admin.world.run();
      }
      const auto points = past(admin, start);
      if (apart == 1s) {
        REQUIRE(points.size() == 610);
        CHECK(points[0] == std::pair<std::int64_t, int>{6, 1});
        CHECK(points[1] == std::pair<std::int64_t, int>{11, 1});
        CHECK(points[9] == std::pair<std::int64_t, int>{91, 1});
        CHECK(points[10].first == 101);
        CHECK(points.back().first == 700);
      } else {
        REQUIRE(points.size() == 900);
        CHECK(points[0].first == 101 * 12);
        CHECK(points.back().first == 1000 * 12);
      }
    }
  }

  TEST_CASE("no event is computed while no stream is open, and once for all that are") {
    Admin admin(quick());
    const auto rounds = [&] { return admin.server->event_rounds(); };
    for (int i = 0; i < 20; ++i) admin.get("/healthz");
    CHECK(rounds() == 0);
    admin.meanwhile([&] {
      std::vector<std::unique_ptr<Connection>> all;
      for (int i = 0; i < 8; ++i) {
        all.push_back(std::make_unique<Connection>(admin.port));
        all.back()->send(ask_for_events(admin));
        all.back()->read_head();
      }
      for (auto& connection : all) CHECK_FALSE(Events(*connection).next("status").is_null());
      return 0;
    });
    // All have hung up; the rounds end once that is noticed.
    auto before = rounds();
    for (int i = 0; i < 1000 && admin.server->event_streams() != 0; ++i) admin.get("/healthz");
    CHECK(admin.server->event_streams() == 0);
    for (int i = 0; i < 20; ++i) admin.get("/healthz");
    before = rounds();
    for (int i = 0; i < 50; ++i) admin.get("/healthz");
    CHECK(rounds() == before);
  }

  TEST_CASE(
      "streams above the limit are refused with the limit, and other requests are still answered") {
    AdminOptions options = quick();
    options.event_streams = 4;
    Admin admin(options);
    admin.meanwhile([&] {
      std::vector<std::unique_ptr<Connection>> all;
      unsigned open = 0, refused = 0;
      for (int i = 0; i < 90; ++i) {
        auto connection = std::make_unique<Connection>(admin.port);
        connection->send(ask_for_events(admin));
        const auto head = connection->read_head();
        if (head.status == 200) ++open;
        if (head.status == 503) ++refused;
        all.push_back(std::move(connection));
      }
      CHECK(open == 4);
      CHECK(refused == 86);
      return 0;
    });
    CHECK(admin.get("/healthz").status == 200);
  }

  TEST_CASE("a client that reads nothing holds nobody up, and its connection ends") {
    AdminOptions options = quick();
    options.request_timeout = 100ms;
    Admin admin(options);
    admin.meanwhile([&] {
      Connection lazy(admin.port, 1), other(admin.port);
      lazy.send(ask_for_events(admin));
      other.send(ask_for_events(admin));
      other.read_head();
      Events events(other);
      for (int i = 0; i < 10; ++i) CHECK_FALSE(events.next("status").is_null());
      // More than all buffers on the way can hold.
      while (admin.server->event_streams() == 2)
        if (events.next("status").is_null()) break;
      CHECK(admin.server->event_streams() == 1);
      return 0;
    });
  }

  TEST_CASE("a stop ends all streams") {
    Admin admin(quick());
    Connection connection(admin.port);
    admin.meanwhile([&] {
      connection.send(ask_for_events(admin));
      connection.read_head();
      return 0;
    });
    admin.server->stop();
    admin.meanwhile([&] {
      while (!connection.read_chunk().empty()) {
      }
      return 0;
    });
    admin.world.run();  // The server ends its side, too.
    CHECK(admin.server->event_streams() == 0);
  }

  TEST_CASE("HEAD gets only the head, and streams need the right to read") {
    Admin admin(quick());
    const auto answer = admin.ask("HEAD", "/events");
    CHECK(answer.status == 200);
    CHECK(answer.headers.at("Content-Type") == "text/event-stream");
    AdminOptions options = quick();
    options.host = "0.0.0.0";
    Admin far(options);
    CHECK(far.get("/events").status == 401);
    CHECK(far.get("/delayed/due").status == 401);
  }
}

TEST_SUITE("what is due") {
  TEST_CASE("each record is in the second, minute, hour and day in which it is due") {
    Admin admin;
    create_topic(admin.world, "a");
    create_topic(admin.world, "b");
    // The clock stands at the beginning of a day.
    schedule(admin, "a", 5s);
    schedule(admin, "a", 5s);
    schedule(admin, "b", 10min);
    schedule(admin, "a", 90min);
    schedule(admin, "b", 26h);
    schedule(admin, "a", 24h * 40);
    const auto due = admin.get_json("/delayed/due");
    CHECK(due["total"] == 6);
    CHECK(due["overdue"] == 0);
    CHECK(due["later"] == 1);
    const auto minute = span_of(due, "minute");
    CHECK(minute["bucket_ms"] == 1000);
    CHECK(minute["from"] == to_ms(admin.world.clock.wall()));
    CHECK(minute["total"] == 2);
    CHECK(set_in(minute["counts"]["a"]) == Set{{5, 2}});
    CHECK_FALSE(minute["counts"].contains("b"));
    const auto hour = span_of(due, "hour");
    CHECK(hour["counts"]["a"].size() == 60);
    CHECK(set_in(hour["counts"]["a"]) == Set{{0, 2}});
    CHECK(set_in(hour["counts"]["b"]) == Set{{10, 1}});
    const auto day = span_of(due, "day");
    CHECK(day["counts"]["a"].size() == 24);
    CHECK(set_in(day["counts"]["a"]) == Set{{0, 2}, {1, 1}});
    CHECK(set_in(day["counts"]["b"]) == Set{{0, 1}});
    const auto month = span_of(due, "month");
    CHECK(month["counts"]["a"].size() == 30);
    CHECK(set_in(month["counts"]["a"]) == Set{{0, 3}});
    CHECK(set_in(month["counts"]["b"]) == Set{{0, 1}, {1, 1}});
    CHECK(set_in(month["other"]).empty());
  }

  TEST_CASE("time passes: delivered and cancelled records are gone, and spans move on") {
    Admin admin;
    create_topic(admin.world, "t");
    schedule(admin, "t", 5s);
    schedule(admin, "t", 61s);
    schedule(admin, "t", 10min, "mine");
    schedule(admin, "t", 11min);
    CHECK(set_in(span_of(admin.get_json("/delayed/due"), "hour")["counts"]["t"]) ==
          Set{{0, 1}, {1, 1}, {10, 1}, {11, 1}});
    admin.world.pass(30s);
    CHECK(admin.remove("/delayed/t/mine").status == 200);
    admin.get("/delayed/due");  // It may have what was counted before; counting begins.
    admin.world.pass(2s);
    const auto due = admin.get_json("/delayed/due");
    CHECK(due["total"] == 2);
    CHECK(set_in(span_of(due, "minute")["counts"]["t"]) == Set{{29, 1}});
    CHECK(set_in(span_of(due, "hour")["counts"]["t"]) == Set{{1, 1}, {11, 1}});
    CHECK(span_of(due, "month")["total"] == 2);
  }

  TEST_CASE("eight topics have a name, and the others are one") {
    Admin admin;
    for (int i = 0; i < 12; ++i) {
      const auto topic = "t" + std::to_string(i);
      create_topic(admin.world, topic);
      for (int n = 0; n <= i; ++n) schedule(admin, topic, 2h);
    }
    const auto day = span_of(admin.get_json("/delayed/due"), "day");
    CHECK(day["total"] == 78);
    CHECK(day["counts"].size() == 8);
    CHECK(day["counts"].contains("t11"));
    CHECK_FALSE(day["counts"].contains("t3"));
    CHECK(set_in(day["other"]) == Set{{2, 10}});
  }

  TEST_CASE("asking often counts once, and a count that changed nothing is not made again") {
    Admin admin;
    create_topic(admin.world, "t");
    schedule(admin, "t", 30min);
    const auto as_of = [&] {
      return admin.get_json("/delayed/due")["as_of_ms"].get<std::int64_t>();
    };
    const auto first = as_of();
    for (int i = 0; i < 5; ++i) CHECK(as_of() == first);
    admin.world.pass(1min);
    as_of();
    CHECK(as_of() == first);
    schedule(admin, "t", 30min);
    admin.world.pass(1s);
    as_of();
    admin.world.pass(1s);
    CHECK(as_of() > first);
    CHECK(span_of(admin.get_json("/delayed/due"), "hour")["total"] == 2);
  }

  TEST_CASE("a span ends its own length from now, in the middle of a bucket, and says when") {
    Admin admin;
    create_topic(admin.world, "t");
    admin.world.pass(37min + 20s + 500ms);
    for (const auto delay : std::initializer_list<std::chrono::milliseconds>{
             59s, 61s, 59min, 61min, 23h + 50min, 24h + 1s, 24h + 30min, 24h * 30 - 1h,
             24h * 30 + 1s, 24h * 31})
      schedule(admin, "t", delay);
    const auto now = to_ms(admin.world.clock.wall());
    const auto due = admin.get_json("/delayed/due");
    const auto check = [&](const char* name, std::chrono::milliseconds length, std::size_t buckets,
                           std::uint64_t total) {
      CAPTURE(name);
      const auto span = span_of(due, name);
      CHECK(span["until"] == now + 500 + length.count());
      CHECK(span["counts"]["t"].size() == buckets);
      CHECK(span["total"] == total);
    };
    check("minute", 1min, 61, 1);
    check("hour", 1h, 61, 3);
    check("day", 24h, 25, 5);
    check("month", 24h * 30, 31, 8);
    CHECK(due["later"] == 2);
    CHECK(due["total"] == 10);
  }

  TEST_CASE("the spans are exact as time passes, whether they were counted again or not") {
    for (const unsigned seed : {1U, 2U, 3U}) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      const auto below = [&](std::int64_t end) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
      };
      Admin admin;
      create_topic(admin.world, "t");
      admin.world.pass(50min + std::chrono::milliseconds(below(600'000)));
      const auto begun = to_ms(admin.world.clock.wall());
      std::vector<std::int64_t> dues;
      const auto add = [&](std::chrono::milliseconds around, std::chrono::milliseconds width) {
        const auto delay = around.count() + below(width.count());
        dues.push_back(begun + delay);
        schedule(admin, "t", std::chrono::milliseconds(delay));
      };
      for (int i = 0; i < 15; ++i) {
        for (const std::chrono::milliseconds end : {0h, 1h, 24h, 24h * 30}) add(end + 1s, 25min);
        add(1h, 24h * 32);
      }
      for (const std::chrono::milliseconds passed : {0s, 40s, 180s, 300s, 7s, 400s, 2s}) {
        admin.world.pass(passed);
        const auto now = to_ms(admin.world.clock.wall());
        CAPTURE(now - begun);
        const auto due = admin.get_json("/delayed/due");
        for (const auto& span : due["spans"]) {
          CAPTURE(span.dump());
          const auto until = span["until"].get<std::int64_t>();
          CHECK(span["total"] ==
                std::ranges::count_if(dues, [&](auto at) { return at > now && at < until; }));
        }
        CHECK(span_of(due, "day")["until"] == (now + 999) / 1000 * 1000 + 24 * 3'600'000);
        CHECK(due["total"] == std::ranges::count_if(dues, [&](auto at) { return at > now; }));
      }
    }
  }

  TEST_CASE("the number of records due after a month does not change when other records go") {
    Admin admin;
    create_topic(admin.world, "t");
    for (int i = 0; i < 4; ++i) schedule(admin, "t", 40min, "soon-" + std::to_string(i));
    for (int i = 0; i < 3; ++i) schedule(admin, "t", 24h * 40);
    const auto later = [&] {
      const auto due = admin.get_json("/delayed/due");
      CHECK(due["total"] == due["overdue"].get<int>() + span_of(due, "month")["total"].get<int>() +
                                due["later"].get<int>());
      return due["later"].get<int>();
    };
    CHECK(later() == 3);
    CHECK(admin.get_json("/delayed/due")["current"] == true);
    for (int i = 0; i < 4; ++i) {
      REQUIRE(admin.remove("/delayed/t/soon-" + std::to_string(i)).status == 200);
      admin.world.pass(1s);
      CHECK(later() == 3);
    }
    schedule(admin, "t", 24h * 41);
    admin.world.pass(1s);
    CHECK(later() == 3);
    CHECK(admin.get_json("/delayed/due")["current"] == false);
    admin.world.pass(3s);
    CHECK(later() == 4);
    CHECK(admin.get_json("/delayed/due")["total"] == 4);
    CHECK(admin.get_json("/delayed/due")["current"] == true);
  }

  TEST_CASE("after a change by a request the picture is counted again at once") {
    Admin admin;
    create_topic(admin.world, "t");
    for (const char* id : {"a", "b", "c"}) schedule(admin, "t", 40min, id);
    const auto total = [&] {
      const auto due = admin.get_json("/delayed/due");
      CHECK(due["current"] == true);
      return span_of(due, "hour")["total"].get<int>();
    };
    CHECK(total() == 3);
    admin.world.pass(300ms);
    REQUIRE(admin.remove("/delayed/t/a").status == 200);
    CHECK(total() == 2);
    admin.world.pass(300ms);
    const auto changed = [&](const std::string& method, const std::string& target,
                             const std::string& body) {
      return admin.ask(method, target, {{"Authorization", "Bearer " + admin.token()}}, body).status;
    };
    REQUIRE(changed("PATCH", "/delayed/t/b", R"({"by": "2h"})") == 200);
    CHECK(total() == 1);
    CHECK(span_of(admin.get_json("/delayed/due"), "day")["total"] == 2);
    admin.world.pass(300ms);
    REQUIRE(changed("POST", "/delayed/t/c/deliver", "") == 200);
    CHECK(total() == 0);
  }

  TEST_CASE("with nothing pending all is empty and known") {
    Admin admin;
    const auto due = admin.get_json("/delayed/due");
    CHECK(due["total"] == 0);
    CHECK(due["later"] == 0);
    for (const char* name : {"minute", "hour", "day", "month"}) {
      CHECK(span_of(due, name)["total"] == 0);
      CHECK(span_of(due, name)["counts"] == Json::object());
    }
  }
}

}  // namespace
}  // namespace tarry::admin::test
