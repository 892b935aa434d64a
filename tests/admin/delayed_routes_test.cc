// Pending records over HTTP: listed page by page, looked at, cancelled once and for all.

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "records/batch_builder.h"
#include "storage/bucket_store.h"
#include "tests/admin/client.h"
#include "tests/admin/send_delayed.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;
using broker::test::create_topic;
using broker::test::produce;
using broker::test::read_all;

std::vector<std::string> ids_of(const Json& page) {
  std::vector<std::string> ids;
  for (const auto& record : page["records"]) ids.push_back(record["id"]);
  return ids;
}

// A record whose time is in the header `when`.
void send_keyed(Admin& admin, const std::string& topic, PartitionIndex partition,
                const std::string& key, const std::string& id, const char* when,
                const std::string& time) {
  const std::vector<records::HeaderView> headers{{when, as_bytes(time)},
                                                 {"x-schedule-id", as_bytes(id)}};
  records::BatchBuilder builder;
  builder.append(admin.world.clock.wall(), as_bytes(key), as_bytes(key), headers);
  const auto batch = builder.finish();
  REQUIRE(produce(admin.world, topic, partition, batch).error_code == protocol::ErrorCode::none);
}

Json records_of_all_pages(Admin& admin, const std::string& query) {
  Json records = Json::array();
  std::string after;
  for (int pages = 0; pages < 100; ++pages) {
    const auto page = admin.get_json("/delayed?" + query + after);
    for (const auto& record : page["records"]) records.push_back(record);
    if (page["next"].is_null()) return records;
    after = "&after=" + page["next"].get<std::string>();
  }
  FAIL("no end of the pages of " << query);
  return records;
}

// The last line of an answer that has several.
Json last_line_of(Admin& admin, const std::string& target) {
  const std::string text = admin.meanwhile([&] {
    Connection connection(admin.port);
    connection.send("GET " + target + " HTTP/1.1\r\nHost: " + admin.server->address() + "\r\n\r\n");
    connection.read_head();
    std::string last;
    for (std::string piece; !(piece = connection.read_chunk()).empty();) last = piece;
    return last;
  });
  const auto parsed = Json::parse(text, nullptr, false);
  REQUIRE_MESSAGE(!parsed.is_discarded(), target << ": " << text);
  return parsed;
}

// An id as a pattern of its own, and as one that says the same and has to be searched for, because
// it spells out no beginning.
struct IdPatterns {
  std::string id, exact, searched;
};
const std::vector<IdPatterns> id_patterns{{"id-0", "id-0", "%5Bii%5Dd-0"},
                                          {"id-1", "id-%5B1%5D", "%5Bii%5Dd-1"},
                                          {"id-2", "id-2", "%5Bii%5Dd-2"},
                                          {"a*b", "a%5B*%5Db", "%5Baa%5D%5B*%5Db"},
                                          {"id?", "id%5B%3F%5D", "%5Bii%5Dd%5B%3F%5D"},
                                          {"nobody", "nobody", "%5Bnn%5Dobody"}};

// Patterns of several ids that begin alike, and the same that have to be searched for.
const std::vector<std::pair<std::string, std::string>> alike_patterns{
    {"id*", "%5Bii%5Dd*"},
    {"id-*", "%5Bii%5Dd-*"},
    {"i%3F-%5B01%5D", "%5Bii%5D%3F-%5B01%5D"},
    {"a%5B*%5D*", "%5Baa%5D%5B*%5D*"},
    {"nobody*", "%5Bnn%5Dobody*"}};

// A hundred records of few ids, due within seconds or years; some replaced, cancelled, delivered.
void fill_with_ids(Admin& admin, std::mt19937_64& random) {
  create_topic(admin.world, "t", 3);
  create_topic(admin.world, "u");
  create_topic(admin.world, "empty");
  for (int n = 0; n < 100; ++n) {
    const bool is_t = random() % 3 != 0;
    const auto partition = static_cast<PartitionIndex>(is_t ? random() % 3 : 0);
    const auto& id = id_patterns[random() % (id_patterns.size() - 1)].id;
    const std::string key = "key-" + std::to_string(random() % 3);
    std::uint64_t delay = 1000 + random() % 20'000;
    if (random() % 4 != 0) delay = 60'000 + random() % (700ULL * 86'400'000);
    const bool recurs = random() % 4 == 0;
    send_keyed(admin, is_t ? "t" : "u", partition, key, id, recurs ? "x-every" : "x-delay",
               recurs ? "2h" : std::to_string(delay));
    if (random() % 10 == 0) admin.remove("/delayed/t/id-0?partition=" + std::to_string(partition));
  }
  admin.world.pass(10s);
}

// Conditions beside the id, as a query's further parameters.
std::string random_conditions(std::mt19937_64& random, std::int64_t now) {
  std::string query;
  const auto time = [&] {
    const std::uint64_t ahead =
        random() % 2 == 0 ? random() % 30'000 : random() % (700ULL * 86'400'000);
    return std::to_string(now + static_cast<std::int64_t>(ahead));
  };
  const auto topic = random() % 4;
  if (topic == 0) query += "&topic=u";
  if (topic == 1) query += "&topic=t";
  if (topic == 2) query += "&topic=t&partition=" + std::to_string(random() % 3);
  if (random() % 3 == 0) query += "&from=" + time();
  if (random() % 3 == 0) query += "&to=" + time();
  if (random() % 4 == 0) query += "&key=*-" + std::to_string(random() % 3);
  if (random() % 4 == 0) query += random() % 2 == 0 ? "&recurring=true" : "&recurring=false";
  if (random() % 2 == 0) query += "&limit=" + std::to_string(1 + random() % 3);
  return query;
}

TEST_SUITE("delayed routes") {
  TEST_CASE("an exact id has the records that a search for the same id finds, whatever is asked") {
    constexpr std::uint64_t first_seed = 1, last_seed = 2;
    for (std::uint64_t seed = first_seed; seed <= last_seed; ++seed) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      Admin admin;
      fill_with_ids(admin, random);
      std::size_t found = 0;
      for (int n = 0; n < 40; ++n) {
        const auto& id = id_patterns[random() % id_patterns.size()];
        const std::string query = random_conditions(random, to_ms(admin.world.clock.wall()));
        CAPTURE(id.exact + query);
        const auto expected = records_of_all_pages(admin, "id=" + id.searched + query);
        CHECK(records_of_all_pages(admin, "id=" + id.exact + query) == expected);
        for (const auto& record : expected) CHECK(record["id"] == id.id);
        found += expected.size();
      }
      CHECK(found > 5);
    }
  }

  TEST_CASE("ids that begin alike have the records that a search for them finds") {
    constexpr std::uint64_t first_seed = 3, last_seed = 4;
    for (std::uint64_t seed = first_seed; seed <= last_seed; ++seed) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      Admin admin;
      fill_with_ids(admin, random);
      std::size_t found = 0;
      for (int n = 0; n < 30; ++n) {
        const auto& [alike, searched] = alike_patterns[random() % alike_patterns.size()];
        const std::string query = random_conditions(random, to_ms(admin.world.clock.wall()));
        CAPTURE(alike + query);
        const auto expected = records_of_all_pages(admin, "id=" + searched + query);
        CHECK(records_of_all_pages(admin, "id=" + alike + query) == expected);
        found += expected.size();
      }
      CHECK(found > 20);
    }
  }

  TEST_CASE("an exact id costs a chunk or two, where a search reads those of all months") {
    constexpr std::uint64_t max_chunks = 4;
    Admin admin;
    create_topic(admin.world, "t", 2);
    create_topic(admin.world, "other");
    for (int n = 1; n <= 140; ++n) {
      const bool is_other = n % 7 == 0;
      send_delayed(admin, is_other ? "other" : "t", is_other ? 0 : n % 2, "v",
                   std::to_string(n * 5LL * 86'400'000), "id-" + std::to_string(n));
    }
    const auto chunks_for = [&](const std::string& query) {
      const auto before = admin.world.broker().pending().chunks_read();
      CHECK(ids_of(admin.get_json("/delayed?" + query)) == std::vector<std::string>{"id-77"});
      return admin.world.broker().pending().chunks_read() - before;
    };
    CHECK(chunks_for("id=%5Bii%5Dd-77") > 5 * max_chunks);  // It is no exact id.
    CHECK(chunks_for("id=id-77") <= max_chunks);
    CHECK(chunks_for("topic=other&id=id-77") <= max_chunks);
    CHECK(chunks_for("topic=other&partition=0&limit=1&id=id-77") <= max_chunks);
    // So does a pattern with a beginning that few ids have.
    CHECK(chunks_for("id=id-77*") <= max_chunks);
    CHECK(chunks_for("topic=other&limit=1&id=id-7%5B7%5D*") <= max_chunks);
  }

  TEST_CASE("a preview and a page go through their records in steps that are bounded") {
    constexpr std::uint64_t many = 3'000, page = 1'000;
    // Records that a step goes through at most: to find them, and to write them as JSON.
    constexpr std::uint64_t max_found = 501, max_written = 51;
    Admin admin;
    create_topic(admin.world, "t");
    std::vector<broker::test::NewRecord> records;
    for (std::uint64_t n = 0; n < many; ++n)
      records.push_back({"v", {{"x-delay", "1h"}, {"x-schedule-id", "id-" + std::to_string(n)}}});
    const auto batch = broker::test::batch_of(admin.world.clock.wall(), records);
    REQUIRE(produce(admin.world, "t", 0, batch).error_code == protocol::ErrorCode::none);

    const auto steps = [&] { return admin.world.shard().steps().taken(); };
    auto before = steps();
    const auto preview = last_line_of(admin, "/delayed/select?topic=t&id=id-*&show=3");
    // The store's page is taken apart, and then counted.
    CHECK(steps() - before >= 2 * (many / max_found));
    CHECK(preview["matched"] == many);
    REQUIRE(preview["records"].size() == 3);
    CHECK(preview["records"][2]["id"] == "id-2");

    before = steps();
    const auto listed = admin.get_json("/delayed?topic=t&limit=" + std::to_string(page));
    CHECK(steps() - before >= page / max_written);
    REQUIRE(listed["records"].size() == page);
    CHECK(listed["records"][page - 1]["id"] == "id-999");
    CHECK(listed["next"].is_string());
    // A page may be shorter than its limit: a larger one is no mistake.
    const auto larger = admin.get_json("/delayed?topic=t&limit=1000000&after=");
    CHECK(larger["records"].size() == page);
    CHECK(larger["next"].get<std::string>() == listed["next"].get<std::string>());
  }

  TEST_CASE("a preview by topics and times alone counts by hours, and reads only what it shows") {
    constexpr std::uint64_t max_chunks = 10;
    constexpr std::int64_t hour = 3'600'000;
    Admin admin;
    create_topic(admin.world, "t", 2);
    create_topic(admin.world, "other");
    const auto now = to_ms(admin.world.clock.wall());
    const auto due_of = [&](int n) { return now + n * hour + 600'000; };
    for (int n = 1; n <= 60; ++n) {
      const bool is_other = n % 3 == 0;
      send_delayed(admin, is_other ? "other" : "t", is_other ? 0 : n % 2, "v",
                   std::to_string(due_of(n) - now), "id-" + std::to_string(n));
    }
    admin.get_json("/delayed");  // Has all of it written to the store.
    std::uint64_t chunks = 0;
    const auto preview = [&](const std::string& conditions) {
      const auto before = admin.world.broker().pending().chunks_read();
      auto last = last_line_of(admin, "/delayed/select?show=3&topic=" + conditions);
      chunks = admin.world.broker().pending().chunks_read() - before;
      return last;
    };
    // Both ends are within an hour.
    const auto time = "&from=" + std::to_string(due_of(5)) + "&to=" + std::to_string(due_of(50));
    const auto all = preview("*" + time);
    CHECK(all["matched"] == 45);
    CHECK(all["topics"] == Json::object({{"other", 15}, {"t", 30}}));
    CHECK(ids_of(all) == std::vector<std::string>{"id-5", "id-6", "id-7"});
    CHECK(chunks <= max_chunks);
    const auto one = preview("t" + time);
    CHECK(one["matched"] == 30);
    CHECK(ids_of(one) == std::vector<std::string>{"id-5", "id-7", "id-8"});
    CHECK(chunks <= max_chunks);
    CHECK(preview("t")["matched"] == 40);
    CHECK(chunks <= max_chunks);
    // By an id each of them is looked at.
    CHECK(preview("*&id=*" + time)["matched"] == 45);
    CHECK(chunks > 4 * max_chunks);
    // Those of some topics alone are shown, and none beyond those that match.
    CHECK(preview("?" + time)["topics"] == Json::object({{"t", 30}}));
    const auto few = "&from=" + std::to_string(due_of(59)) + "&to=" + std::to_string(due_of(61));
    const auto others = preview("oth*" + few);
    CHECK(others["topics"] == Json::object({{"other", 1}}));
    CHECK(ids_of(others) == std::vector<std::string>{"id-60"});
    CHECK(preview("none*" + time)["matched"] == 0);
    // A record that goes is counted no more.
    admin.remove("/delayed/t/id-7");
    CHECK(preview("t" + time)["matched"] == 29);
    const auto counted = admin.get_json("/delayed/count?topic=t" + time);
    CHECK(counted["total"] == 29);
    CHECK(last_line_of(admin, "/delayed/select?show=0&topic=t" + time)["records"].empty());
  }

  TEST_CASE("a preview of many topics reads what it has to read once for all of them") {
    constexpr int topics = 12;
    constexpr std::int64_t minute = 60'000, hour = 60 * minute, far = 700 * 24 * hour;
    constexpr std::int64_t between = 4 * minute + minute / 2;  // The fifth topic and the sixth.
    Admin admin;
    const auto now = to_ms(admin.world.clock.wall());
    for (int n = 0; n < topics; ++n) {
      const std::string topic = "t" + std::to_string(n);
      create_topic(admin.world, topic);
      for (const std::int64_t delay : {2 * hour, 3 * hour, 4 * hour})
        send_delayed(admin, topic, 0, "v", std::to_string(delay + n * minute),
                     "id-" + std::to_string(delay));
    }
    // One of them has a month, too.
    send_delayed(admin, "t0", 0, "v", std::to_string(far), "far");
    admin.get_json("/delayed");  // Has all of it written to the store.
    std::uint64_t chunks = 0;
    const auto preview = [&](std::int64_t from, std::int64_t to, const std::string& more) {
      const auto before = admin.world.broker().pending().chunks_read();
      auto last = last_line_of(admin, "/delayed/select?show=0&topic=t*" + more +
                                          "&from=" + std::to_string(now + from) +
                                          "&to=" + std::to_string(now + to));
      chunks = admin.world.broker().pending().chunks_read() - before;
      return last;
    };
    // Each shard has one chunk of an hour, with the records of all its topics.
    const auto all = preview(2 * hour + between, 4 * hour + between, "");
    CHECK(all["matched"] == 7 + topics + 5);
    CHECK(all["topics"]["t0"] == 2);
    CHECK(all["topics"]["t11"] == 2);
    CHECK(chunks <= 8);
    using Time = std::pair<std::int64_t, std::int64_t>;
    for (const Time& time : {Time(2 * hour + between, 4 * hour + between), Time(0, far + minute),
                             Time(3 * hour + between, far + minute), Time(far, far + minute),
                             Time(far + hour, far + 2 * hour), Time(0, 2 * hour + between)}) {
      CAPTURE(time.first);
      const auto counted = preview(time.first, time.second, "");
      const auto looked_at = preview(time.first, time.second, "&id=*");
      CHECK(counted["matched"] == looked_at["matched"]);
      CHECK(counted["topics"] == looked_at["topics"]);
    }
  }

  TEST_CASE("hours that are counted only in part have the number that reading them has") {
    constexpr std::int64_t hour = 3'600'000;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      Admin admin;
      create_topic(admin.world, "t", 2);
      const auto now = to_ms(admin.world.clock.wall());
      constexpr std::uint64_t span = 36'000'000;
      for (int n = 0; n < 80; ++n) {
        // Some are in a month that is not dealt to its hours.
        const std::uint64_t far = n % 8 == 0 ? 700ULL * 86'400'000 : 1'000;
        send_delayed(admin, "t", n % 2, "v", std::to_string(far + random() % span));
      }
      for (int n = 0; n < 20; ++n) {
        const std::uint64_t begin = n % 4 == 0 ? 700ULL * 86'400'000 : 0;
        const std::int64_t from = now + static_cast<std::int64_t>(begin + random() % span);
        const std::int64_t to = from + static_cast<std::int64_t>(random() % span);
        const auto query = "/delayed/count?topic=t&from=" + std::to_string(from) +
                           "&to=" + std::to_string(to) + "&by=";
        CAPTURE(query);
        std::map<std::int64_t, int> hours, read;
        const auto by_hour = admin.get_json(query + "hour");
        const auto by_minute = admin.get_json(query + "minute");
        for (const auto& each : by_hour["counts"])
          hours[each["from"].get<std::int64_t>()] += each["count"].get<int>();
        for (const auto& each : by_minute["counts"])
          read[each["from"].get<std::int64_t>() / hour * hour] += each["count"].get<int>();
        CHECK(hours == read);
      }
    }
  }

  TEST_CASE("a pending record is listed with all that is known of it but its value") {
    Admin admin;
    create_topic(admin.world, "orders", 2);
    const auto now = to_ms(admin.world.clock.wall());
    send_delayed(admin, "orders", 1, "pay up", "30m", "order-1");
    const auto page = admin.get_json("/delayed");
    CHECK(page["next"].is_null());
    REQUIRE(page["records"].size() == 1);
    const auto& record = page["records"][0];
    CHECK(record["topic"] == "orders");
    CHECK(record["partition"] == 1);
    CHECK(record["id"] == "order-1");
    CHECK(record["handle"].get<std::string>().starts_with("@"));
    CHECK(record["due_ms"] == now + 1'800'000);
    CHECK(record["accepted_ms"] == now);
    CHECK(record["key"].is_null());
    CHECK(record["value_bytes"] == 6);
    CHECK(record["recurring"] == false);
    CHECK_FALSE(record.contains("value"));
    CHECK(record["headers"][0] == Json{{"name", "mine"}, {"value", "h"}});
  }

  TEST_CASE("a search finds an id or a handle in all topics, and parts of ids and keys") {
    Admin admin;
    create_topic(admin.world, "t", 2);
    create_topic(admin.world, "other");
    send_delayed(admin, "t", 0, "v", "3h", "order-47");
    send_delayed(admin, "t", 1, "v", "2h", "order-471");
    send_delayed(admin, "other", 0, "v", "1h", "order-4711");
    send_delayed(admin, "other", 0, "v", "4h");
    using Ids = std::vector<std::string>;
    const auto found = [&](const std::string& query) {
      const auto page = admin.get_json("/delayed?q=" + query);
      CHECK(page["next"].is_null());
      return ids_of(page);
    };
    // The id itself is first, then the others by their due times.
    CHECK(found("order-47") == Ids{"order-47", "order-4711", "order-471"});
    CHECK(found("4711") == Ids{"order-4711"});
    CHECK(found("order-47&topic=t") == Ids{"order-47", "order-471"});
    CHECK(found("order-4&from=%2B90m&to=%2B150m") == Ids{"order-471"});
    CHECK(found("nothing").empty());
    CHECK(found("*").empty());  // It is no pattern.
    const auto last = admin.get_json("/delayed?from=%2B200m")["records"][0];
    REQUIRE(last["id"].is_null());
    const auto handle = last["handle"].get<std::string>();
    const auto page = admin.get_json("/delayed?q=" + handle);
    REQUIRE(page["records"].size() == 1);
    CHECK(page["records"][0]["handle"] == handle);
    CHECK(admin.get_json("/delayed?topic=t&q=" + handle)["records"].empty());
    CHECK(admin.get("/delayed?q=").status == 400);
    CHECK(admin.get("/delayed?q=" + std::string(1001, 'x')).status == 400);
  }

  TEST_CASE("a search continues page by page and finds each record once") {
    Admin admin;
    create_topic(admin.world, "t");
    for (int n = 0; n < 10; ++n)
      send_delayed(admin, "t", 0, "v", std::to_string(3'600'000 + n), "id-" + std::to_string(n));
    std::vector<std::string> all;
    std::string after;
    for (int pages = 0; pages < 10; ++pages) {
      const auto page = admin.get_json("/delayed?q=id-&limit=3" + after);
      CHECK(page["records"].size() <= 3);
      for (const auto& id : ids_of(page)) all.push_back(id);
      if (page["next"].is_null()) break;
      after = "&after=" + page["next"].get<std::string>();
    }
    CHECK(all == std::vector<std::string>{"id-0", "id-1", "id-2", "id-3", "id-4", "id-5", "id-6",
                                          "id-7", "id-8", "id-9"});
  }

  TEST_CASE("recurring records and the others are found apart, on every page and by their id") {
    Admin admin;
    create_topic(admin.world, "t");
    for (int n = 0; n < 6; ++n)
      send_delayed(admin, "t", 0, "v", std::to_string(3'600'000 + n), "once-" + std::to_string(n));
    for (const char* id : {"again-0", "again-1"}) {
      const auto batch = broker::test::batch_of(
          admin.world.clock.wall(), {{"v", {{"x-every", "2h"}, {"x-schedule-id", id}}}});
      REQUIRE(produce(admin.world, "t", 0, batch).error_code == protocol::ErrorCode::none);
    }
    using Ids = std::vector<std::string>;
    CHECK(ids_of(admin.get_json("/delayed?recurring=true")) == Ids{"again-0", "again-1"});
    CHECK(ids_of(admin.get_json("/delayed?recurring=true&q=once-1")).empty());
    CHECK(ids_of(admin.get_json("/delayed?recurring=true&q=again-1")) == Ids{"again-1"});
    CHECK(ids_of(admin.get_json("/delayed?recurring=true&id=*-0")) == Ids{"again-0"});
    Ids others;
    for (std::string after;;) {
      const auto page = admin.get_json("/delayed?recurring=false&limit=4" + after);
      for (const auto& id : ids_of(page)) others.push_back(id);
      if (page["next"].is_null()) break;
      after = "&after=" + page["next"].get<std::string>();
    }
    CHECK(others == Ids{"once-0", "once-1", "once-2", "once-3", "once-4", "once-5"});
    CHECK(admin.get("/delayed?recurring=maybe").status == 400);
  }

  TEST_CASE("times may be given from now on, by the broker's clock") {
    Admin admin;
    create_topic(admin.world, "t");
    send_delayed(admin, "t", 0, "v", "30m", "soon");
    send_delayed(admin, "t", 0, "v", "2h", "later");
    using Ids = std::vector<std::string>;
    CHECK(ids_of(admin.get_json("/delayed?to=%2B1h")) == Ids{"soon"});
    CHECK(ids_of(admin.get_json("/delayed?from=+1h")) == Ids{"later"});
    CHECK(ids_of(admin.get_json("/delayed?from=now")) == Ids{"soon", "later"});
    CHECK(ids_of(admin.get_json("/delayed?from=-10m&to=now")).empty());
    for (const char* bad : {"+", "-", "+1parsec", "tomorrow", "now+1h"}) {
      CAPTURE(bad);
      CHECK(admin.get("/delayed?from=" + std::string(bad)).status == 400);
    }
  }

  TEST_CASE("the list is in due order, by topic, partition, time and id, and comes in pages") {
    Admin admin;
    create_topic(admin.world, "t", 2);
    create_topic(admin.world, "other");
    const auto base = to_ms(admin.world.clock.wall());
    for (int n = 9; n >= 0; --n) {
      send_delayed(admin, "t", n % 2, "v", std::to_string(3'600'000 + n * 1000),
                   "id-" + std::to_string(n));
    }
    send_delayed(admin, "other", 0, "v", "1h", "other");
    using Ids = std::vector<std::string>;
    CHECK(admin.get_json("/delayed")["records"].size() == 11);
    CHECK(ids_of(admin.get_json("/delayed?topic=other")) == Ids{"other"});
    CHECK(ids_of(admin.get_json("/delayed?topic=t&partition=1")) ==
          Ids{"id-1", "id-3", "id-5", "id-7", "id-9"});
    const auto at = [&](int n) { return std::to_string(base + 3'600'000 + n * 1000); };
    CHECK(ids_of(admin.get_json("/delayed?topic=t&from=" + at(2) + "&to=" + at(5))) ==
          Ids{"id-2", "id-3", "id-4"});
    CHECK(ids_of(admin.get_json("/delayed?id=id-7")) == Ids{"id-7"});
    CHECK(ids_of(admin.get_json("/delayed?id=*-%3F&limit=2&topic=t")) == Ids{"id-0", "id-1"});
    // An offset's + stands for a blank in a query; nobody means a blank there.
    CHECK(admin.get_json("/delayed?from=2026-11-21T00:00:00+01:00")["records"].size() == 11);
    CHECK(admin.get_json("/delayed?to=2026-11-21T00:00:00%2B01:00")["records"].empty());
    Ids all;
    // Nothing after `after=` is the first page.
    for (std::string after;;) {
      const auto page = admin.get_json("/delayed?topic=t&limit=3&after=" + after);
      CHECK(page["records"].size() <= 3);
      for (const auto& id : ids_of(page)) all.push_back(id);
      if (page["next"].is_null()) break;
      after = page["next"].get<std::string>();
    }
    CHECK(all ==
          Ids{"id-0", "id-1", "id-2", "id-3", "id-4", "id-5", "id-6", "id-7", "id-8", "id-9"});
  }

  TEST_CASE("a query parameter that is not understood is refused by name, with the expected form") {
    Admin admin;
    create_topic(admin.world, "t", 2);
    const auto refused = [&](const std::string& query, std::string_view named) {
      const auto answer = admin.get("/delayed?" + query);
      CAPTURE(query);
      CHECK(answer.status == 400);
      CHECK_MESSAGE(answer.error().find(named) != std::string::npos, answer.body);
    };
    refused("topics=t", "'topics'");
    refused("limit=0", "limit=0");
    refused("limit=ten", "ten");
    refused("limit=", "limit=");
    refused("limit=99999999999999999999", "limit");
    refused("limit=1&limit=2", "twice");
    refused("from=soon", "soon");
    refused("to=2026-13-01T00:00:00Z", "2026-13-01");
    refused("id=", "id");
    refused("after=7", "after=7");
    refused("partition=0", "topic");
    refused("topic=t&partition=2", "partition=2");
    refused("topic=%zz", "%zz");
    refused("topic=%ff", "%ff");
    refused("%00", "unknown parameter");
    CHECK(admin.get("/delayed?topic=nobody").status == 404);
    CHECK(admin.get("/status?pretty=1").status == 400);
  }

  TEST_CASE("one record is shown with its value in base64, by its id and by its handle") {
    Admin admin;
    create_topic(admin.world, "t", 2);
    send_delayed(admin, "t", 1, std::string("\x00\xff v", 4), "1h", "a b/\xc3\xbc");
    send_delayed(admin, "t", 0, "no id", "2h");
    const auto one = admin.get_json("/delayed/t/a%20b%2F%C3%BC");
    CHECK(one["id"] == "a b/\xc3\xbc");
    CHECK(one["value"] == "AP8gdg==");
    CHECK(one["value_bytes"] == 4);
    CHECK(one["partitions"] == Json::array({1}));
    const auto handle = one["handle"].get<std::string>();
    CHECK(admin.get_json("/delayed/t/" + handle)["id"] == one["id"]);
    CHECK(admin.get_json("/delayed/t/" + handle + "?partition=1")["id"] == one["id"]);
    CHECK(admin.get("/delayed/t/" + handle + "?partition=0").status == 404);
    CHECK(admin.get("/delayed/t/nobody").status == 404);
    CHECK(admin.get("/delayed/nowhere/x").status == 404);
    CHECK(admin.get("/delayed/t/@nonsense").status == 404);
    CHECK(admin.get("/delayed/t/").status == 404);
    CHECK(admin.get("/delayed/t/" + std::string(250, 'x')).status == 400);
    CHECK(admin.get("/delayed/t/..%2f..%2fadmin.token").status == 404);
    create_topic(admin.world, "other");
    CHECK(admin.get("/delayed/other/" + handle).status == 404);
  }

  TEST_CASE("keys and headers that are not UTF-8 are shown in base64, and are marked") {
    Admin admin;
    create_topic(admin.world, "t");
    records::BatchBuilder builder;
    const std::string key = "\xff\xfe", bad = "\x80";
    const std::string delay = "1h";
    const std::vector<records::HeaderView> headers{
        {"x-delay", as_bytes(delay)}, {"bad", as_bytes(bad)}, {"none", std::nullopt}};
    builder.append(admin.world.clock.wall(), as_bytes(key), std::nullopt, headers);
    const auto batch = builder.finish();
    REQUIRE(produce(admin.world, "t", 0, batch).base_offset == -1);
    const auto record = admin.get_json("/delayed")["records"][0];
    CHECK(record["key"] == "//4=");
    CHECK(record["key_base64"] == true);
    CHECK(record["value_bytes"].is_null());
    CHECK(record["headers"][0] == Json{{"name", "bad"}, {"value", "gA=="}, {"value_base64", true}});
    CHECK(record["headers"][1] == Json{{"name", "none"}, {"value", nullptr}});
    const auto handle = record["handle"].get<std::string>();
    CHECK(admin.get_json("/delayed/t/" + handle)["value"].is_null());
  }

  TEST_CASE("a cancel is definitive: cancelled, then unknown, and it never comes") {
    Admin admin;
    create_topic(admin.world, "t", 4);
    send_delayed(admin, "t", 2, "v", "1h", "a b/\xc3\xbc");
    const std::string path = "/delayed/t/a%20b%2F%C3%BC";
    CHECK(admin.ask("DELETE", path).status == 401);
    CHECK(admin.get_json("/delayed")["records"].size() == 1);
    const auto first = admin.remove(path);
    CHECK(first.status == 200);
    CHECK(first.json() ==
          Json{{"result", "cancelled"},
               {"partitions", Json::array({Json{{"partition", 2}, {"result", "cancelled"}}})}});
    const auto second = admin.remove(path).json();
    CHECK(second == Json{{"result", "unknown"}, {"partitions", Json::array()}});
    admin.world.pass(2h);
    CHECK(read_all(admin.world, "t", 2).empty());
    CHECK(admin.get_json("/status")["delayed"]["cancelled_total"] == 1);
    CHECK(admin.remove("/delayed/nowhere/x").status == 404);
  }

  TEST_CASE("an id that waits in several partitions is cancelled in all, or in the one named") {
    Admin admin;
    create_topic(admin.world, "t", 5);
    for (PartitionIndex p : {0, 1, 3, 4}) send_delayed(admin, "t", p, "v", "1h", "both");
    CHECK(admin.get_json("/delayed/t/both")["partitions"].size() == 4);
    const auto one = admin.remove("/delayed/t/both?partition=3").json();
    CHECK(one["result"] == "cancelled");
    CHECK(one["partitions"].size() == 1);
    CHECK(admin.remove("/delayed/t/both?partition=3").json()["result"] == "unknown");
    CHECK(admin.remove("/delayed/t/both?partition=5").status == 400);
    const auto rest = admin.remove("/delayed/t/both").json();
    CHECK(rest["result"] == "cancelled");
    REQUIRE(rest["partitions"].size() == 3);
    CHECK(rest["partitions"][0]["partition"] == 0);
    CHECK(rest["partitions"][1]["partition"] == 1);
    CHECK(rest["partitions"][2]["partition"] == 4);
    CHECK(admin.get_json("/delayed")["records"].empty());
  }

  TEST_CASE(
      "a delivered record is already_delivered by its id; the best answer of all partitions is the "
      "result") {
    Admin admin;
    create_topic(admin.world, "t", 2);
    send_delayed(admin, "t", 0, "v", "1s", "came");
    send_delayed(admin, "t", 1, "v", "1h", "came");
    admin.world.pass(2s);
    REQUIRE(read_all(admin.world, "t", 0).size() == 1);
    const auto mixed = admin.remove("/delayed/t/came").json();
    CHECK(mixed["result"] == "cancelled");
    REQUIRE(mixed["partitions"].size() == 2);
    CHECK(mixed["partitions"][0]["result"] == "already_delivered");
    CHECK(mixed["partitions"][1]["result"] == "cancelled");
    CHECK(admin.remove("/delayed/t/came").json()["result"] == "already_delivered");
    // Who wants it delivered is told where it is.
    const auto late = admin.ask("POST", "/delayed/t/came/deliver",
                                {{"Authorization", "Bearer " + admin.token()}});
    REQUIRE(late.status == 200);
    CHECK(late.json()["result"] == "already_delivered");
    CHECK(late.json()["partitions"][0]["offset"] == 0);
    const auto gone = admin.get("/delayed/t/came");
    CHECK(gone.status == 404);
    CHECK(gone.error().find("delivered") != std::string::npos);
  }

  TEST_CASE("counts by hour and by minute are those of the records, in memory or on disk") {
    Admin admin;
    create_topic(admin.world, "t", 4);
    create_topic(admin.world, "other");
    const auto now = to_ms(admin.world.clock.wall());
    std::map<std::string, std::map<std::int64_t, int>> expected;
    for (int n = 0; n < 40; ++n) {
      const std::int64_t delay = n % 8 == 0 ? 700LL * 86'400'000 + n : n * 11 * 60'000LL + 60'000;
      send_delayed(admin, "t", n % 4, "v", std::to_string(delay));
      for (const auto& [by, unit] : {std::pair("minute", 60'000), std::pair("hour", 3'600'000),
                                     std::pair("day", 86'400'000)})
        ++expected[by][(now + delay) / unit * unit];
    }
    send_delayed(admin, "other", 0, "v", "1h");
    for (const std::string by : {"minute", "hour", "day"}) {
      CAPTURE(by);
      for (int again = 0; again < 2; ++again) {  // The second time everything far is on disk.
        const auto counted = admin.get_json("/delayed/count?topic=t&by=" + by);
        CHECK(counted["total"] == 40);
        std::map<std::int64_t, int> seen;
        for (const auto& each : counted["counts"]) seen[each["from"]] = each["count"];
        CHECK(seen == expected[by]);
      }
    }
    CHECK(admin.get_json("/delayed/count?by=day")["total"] == 41);
    CHECK(admin.get_json("/delayed/count")["total"] == 41);
    CHECK(admin.get_json("/delayed/count?topic=other")["total"] == 1);
    const auto to = std::to_string(now + 12 * 60'000 + 1);
    CHECK(admin.get_json("/delayed/count?topic=t&to=" + to)["total"] == 1);
  }

  TEST_CASE("a trace shows the events of an id, by its name and by its handle") {
    Admin admin;
    create_topic(admin.world, "t", 2);
    const auto now = to_ms(admin.world.clock.wall());
    send_delayed(admin, "t", 1, "v", "1h", "a");
    send_delayed(admin, "t", 1, "v", "2h", "a");
    send_delayed(admin, "t", 0, "v", "3h");
    const auto told = [&](const std::string& name) {
      std::vector<std::string> events;
      const auto answer = admin.get_json("/delayed/t/" + name + "/trace");
      for (const auto& event : answer["events"]) events.push_back(event["event"]);
      return events;
    };
    using Events = std::vector<std::string>;
    CHECK(told("a") == Events{"scheduled", "replaced"});
    const auto events = admin.get_json("/delayed/t/a/trace")["events"];
    CHECK(events[0]["due_ms"] == now + 3'600'000);
    CHECK(events[1] == Json{{"at_ms", now},
                            {"event", "replaced"},
                            {"due_ms", now + 7'200'000},
                            {"offset", nullptr},
                            {"partition", 1}});
    const auto records = admin.get_json("/delayed")["records"];
    REQUIRE(records.size() == 2);
    const auto handle = records[0]["handle"].get<std::string>();
    CHECK(told(handle) == Events{"scheduled", "replaced"});
    CHECK(told(records[1]["handle"].get<std::string>()) == Events{"scheduled"});
    admin.remove("/delayed/t/a");
    CHECK(told("a") == Events{"scheduled", "replaced", "cancelled"});
    CHECK(admin.get("/delayed/t/" + handle + "/trace").status == 404);
    CHECK(admin.get("/delayed/t/nobody/trace").status == 404);
    // In all topics, when nobody knows which one it was.
    create_topic(admin.world, "u");
    send_delayed(admin, "u", 0, "v", "1h", "a");
    const auto all = admin.get_json("/delayed/trace?id=a");
    CHECK(all["complete"] == true);
    REQUIRE(all["events"].size() == 4);
    CHECK(all["events"][2]["topic"] == "t");
    CHECK(all["events"][2]["event"] == "cancelled");
    CHECK(all["events"][3]["topic"] == "u");
    CHECK(all["events"][3]["event"] == "scheduled");
    CHECK(admin.get_json("/delayed/trace?id=nobody")["events"].empty());
    for (const char* path : {"/delayed/trace", "/delayed/trace?id=", "/delayed/trace?id=@7Vc5j"})
      CHECK(admin.get(path).status == 400);
  }

  TEST_CASE("a handle names one record, which it cancels wherever it waits") {
    Admin admin;
    create_topic(admin.world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) send_delayed(admin, "t", p, "v", "1h");
    const auto records = admin.get_json("/delayed")["records"];
    REQUIRE(records.size() == 4);
    const auto handle = records[2]["handle"].get<std::string>();
    CHECK(admin.remove("/delayed/t/" + handle + "?partition=9").status == 400);
    const auto cancelled = admin.remove("/delayed/t/" + handle).json();
    CHECK(cancelled["result"] == "cancelled");
    CHECK(cancelled["partitions"][0]["partition"] == records[2]["partition"]);
    CHECK(admin.remove("/delayed/t/" + handle).json()["result"] == "unknown");
    CHECK(admin.get_json("/delayed")["records"].size() == 3);
  }

  TEST_CASE("cancels of one record by several clients at once agree: one has done it") {
    Admin admin;
    create_topic(admin.world, "t", 3);
    send_delayed(admin, "t", 1, "v", "1h", "x");
    const auto text = "DELETE /delayed/t/x HTTP/1.1\r\nHost: " + admin.server->address() +
                      "\r\nAuthorization: Bearer " + admin.token() + "\r\n\r\n";
    const auto results = admin.meanwhile([&] {
      std::vector<std::unique_ptr<Connection>> clients;
      for (int i = 0; i < 8; ++i) {
        clients.push_back(std::make_unique<Connection>(admin.port));
        clients.back()->send(text);
      }
      std::multiset<std::string> all;
      for (auto& client : clients)
        all.insert(Json::parse(client->read().body)["result"].get<std::string>());
      return all;
    });
    CHECK(results.count("cancelled") == 1);
    CHECK(results.count("unknown") == 7);
  }
}

}  // namespace
}  // namespace tarry::admin::test
