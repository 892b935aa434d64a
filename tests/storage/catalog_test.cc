#include "storage/catalog.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "scratch.h"
#include "storage/database.h"

namespace tarry::storage {
namespace {

std::unique_ptr<Database> make(const ScratchDirectory& scratch) {
  auto made = Database::make(scratch.path("meta"));
  REQUIRE(made.has_value());
  return std::move(*made);
}

void say(Catalog& catalog, const Operation& operation) {
  REQUIRE(catalog.apply(operation).has_value());
}

std::string told(Catalog& catalog) {
  std::string out;
  for (const auto& topic : catalog.image()->by_name()) {
    out += topic->name + " " + topic->id.text() + " " + std::to_string(topic->partitions);
    for (const auto& [key, value] : topic->configs) out += " " + key + "=" + value;
    out += "\n";
  }
  for (const auto& [key, value] : catalog.broker_configs()) out += key + "=" + value + "\n";
  return out + std::to_string(catalog.next_producer_id()) + " " +
         std::to_string(catalog.next_sequence());
}

TEST_SUITE("catalog") {
  TEST_CASE(
      "operations that were applied and flushed are there after a restart, unflushed ones are "
      "not") {
    ScratchDirectory scratch;
    auto meta = make(scratch);
    std::string before;
    {
      Catalog catalog(*meta);
      REQUIRE(catalog.load().has_value());
      say(catalog, TopicCreated{test_topic(1), 3, "orders", {{"retention.ms", "-1"}, {"x", ""}}});
      say(catalog, TopicCreated{test_topic(2), 1, "gone", {}});
      say(catalog, PartitionsAdded{test_topic(1), 5});
      say(catalog, ConfigsSet{test_topic(1), {{"cleanup.policy", "delete"}}});
      say(catalog, TopicDeleted{test_topic(2)});
      say(catalog, BrokerConfigsSet{{{"num.partitions", "4"}}});
      say(catalog, ProducerIdsGiven{1000});
      say(catalog, SequencesGiven{4096});
      REQUIRE(meta->flush().has_value());
      before = told(catalog);
      say(catalog, TopicCreated{test_topic(3), 1, "late", {}});
    }
    meta.reset();
    meta = std::move(*Database::open(scratch.path("meta")));
    Catalog catalog(*meta);
    REQUIRE(catalog.load().has_value());
    CHECK(told(catalog) == before);
    CHECK(catalog.next_producer_id() == 1000);
    CHECK(catalog.next_sequence() == 4096);
  }

  TEST_CASE("an image that a shard holds does not change, the next one does") {
    ScratchDirectory scratch;
    auto meta = make(scratch);
    Catalog catalog(*meta);
    REQUIRE(catalog.load().has_value());
    say(catalog, TopicCreated{test_topic(1), 3, "orders", {}});
    const auto held = catalog.image();
    CHECK(catalog.image() == held);
    say(catalog, PartitionsAdded{test_topic(1), 5});
    CHECK(held->find("orders")->partitions == 3);
    CHECK(catalog.image()->find("orders")->partitions == 5);
    CHECK(catalog.image()->find(test_topic(1))->name == "orders");
    CHECK(catalog.image()->find("order") == nullptr);
    CHECK(catalog.image()->find(test_topic(9)) == nullptr);
  }

  TEST_CASE("a name that was given out again belongs to the new id after every replay") {
    ScratchDirectory scratch;
    auto meta = make(scratch);
    Catalog catalog(*meta);
    REQUIRE(catalog.load().has_value());
    for (int round = 0; round < 3; ++round) {
      say(catalog, TopicCreated{test_topic(1), 3, "orders", {}});
      say(catalog, TopicDeleted{test_topic(1)});
      say(catalog, TopicCreated{test_topic(2), 4, "orders", {}});
      CHECK(catalog.image()->find("orders")->id == test_topic(2));
      CHECK_FALSE(catalog.has_topic(test_topic(1)));
      CHECK(catalog.image()->size() == 1);
    }
  }

  TEST_CASE(
      "an image that is made from the one before is that of all topics, and tells what differs") {
    ScratchDirectory scratch;
    auto meta = make(scratch);
    Catalog catalog(*meta);
    REQUIRE(catalog.load().has_value());
    SeededRandom random(7);
    auto before = catalog.image();
    std::map<std::uint8_t, std::string> model;
    for (int round = 0; round < 200; ++round) {
      std::set<std::uint8_t> touched;
      // Now and then so many that all are sorted anew.
      for (auto count = random.below(round % 20 == 0 ? 150 : 4); count > 0; --count) {
        const auto number = static_cast<std::uint8_t>(random.below(200) + 1);
        // Some names belong to one topic after the other.
        const auto name = "topic-" + std::to_string(number % 150);
        touched.insert(number);
        if (model.contains(number) && random.below(2) == 0) {
          say(catalog, TopicDeleted{test_topic(number)});
          model.erase(number);
        } else if (model.contains(number)) {
          say(catalog, ConfigsSet{test_topic(number), {{"x", std::to_string(round)}}});
        } else {
          say(catalog, TopicCreated{test_topic(number), 1, name, {}});
          model[number] = name;
        }
      }
      const auto now = catalog.image();
      CHECK(now->size() == model.size());
      std::multiset<std::string> names;
      for (const auto& [number, name] : model) {
        const auto found = now->find(test_topic(number));
        REQUIRE(found);
        CHECK(found->name == name);
        CHECK(now->find(name)->name == name);
        names.insert(name);
      }
      CHECK(std::ranges::equal(now->by_name(), names, {},
                               [](const auto& topic) { return topic->name; }));
      std::set<TopicId> differing;
      const auto take = [&](const auto& topic, const auto& changed) {
        CHECK(differing.insert(topic->id).second);
        CHECK(topic == before->find(topic->id));
        CHECK(changed == now->find(topic->id));
        CHECK(changed != topic);
      };
      TopicsImage::changes_between(*before, *now, take);
      for (const auto& topic : before->by_name())
        CHECK(differing.contains(topic->id) == (now->find(topic->id) != topic));
      before = now;
    }
  }

  TEST_CASE("blocks of numbers never go back") {
    ScratchDirectory scratch;
    auto meta = make(scratch);
    Catalog catalog(*meta);
    REQUIRE(catalog.load().has_value());
    say(catalog, ProducerIdsGiven{2000});
    say(catalog, ProducerIdsGiven{1000});
    say(catalog, SequencesGiven{77});
    say(catalog, SequencesGiven{7});
    CHECK(catalog.next_producer_id() == 2000);
    CHECK(catalog.next_sequence() == 77);
  }

  TEST_CASE("any tail of a random history applied again changes nothing") {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      CAPTURE(seed);
      SeededRandom random(seed);
      ScratchDirectory scratch;
      auto meta = make(scratch);
      Catalog catalog(*meta);
      REQUIRE(catalog.load().has_value());
      std::deque<std::string> names;
      std::vector<Operation> history;
      std::vector<TopicId> alive;
      std::uint8_t next = 1;
      for (int i = 0; i < 60; ++i) {
        const auto one = [&] { return alive[random.below(alive.size())]; };
        const auto kind = random.below(6);
        if (alive.empty() || kind == 0) {
          names.push_back("t" + std::to_string(random.below(4)) + std::to_string(alive.size()));
          alive.push_back(test_topic(next++));
          history.push_back(TopicCreated{alive.back(), 1, names.back(), {{"a", "b"}}});
        } else if (kind == 1) {
          const TopicId id = one();
          std::erase(alive, id);
          history.push_back(TopicDeleted{id});
        } else if (kind == 2) {
          history.push_back(PartitionsAdded{one(), i});
        } else if (kind == 3) {
          history.push_back(ConfigsSet{one(), {{"k", std::to_string(i)}}});
        } else if (kind == 4) {
          history.push_back(SequencesGiven{static_cast<Sequence>(i)});
        } else {
          history.push_back(BrokerConfigsSet{{{"k", std::to_string(i)}}});
        }
        say(catalog, history.back());
      }
      const std::string once = told(catalog);
      for (auto i = random.below(history.size()); i < history.size(); ++i) say(catalog, history[i]);
      CHECK(told(catalog) == once);
      // The database says the same as the memory.
      REQUIRE(meta->flush().has_value());
      Catalog reloaded(*meta);
      REQUIRE(reloaded.load().has_value());
      CHECK(told(reloaded) == once);
    }
  }
}

}  // namespace
}  // namespace tarry::storage
