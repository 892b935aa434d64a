#include "storage/shared_list.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/given.h"

namespace tarry::storage {
namespace {

struct Item {
  int key = 0;
};
using ItemPtr = std::shared_ptr<const Item>;

struct ItemKey {
  int operator()(const ItemPtr& item) const { return item->key; }
};
using Items = SharedList<ItemPtr, ItemKey>;

ItemPtr item(int key) {
  return std::make_shared<const Item>(Item{key});
}

// A pointer that counts how often one is copied.
struct Counted {
  explicit Counted(int its_key = 0) : key(its_key) {}
  Counted(const Counted& other) : key(other.key) { ++copies; }
  Counted& operator=(const Counted& other) {
    key = other.key;
    ++copies;
    return *this;
  }
  Counted(Counted&&) = default;
  Counted& operator=(Counted&&) = default;
  ~Counted() = default;
  bool operator==(const Counted&) const = default;

  int key = 0;
  inline static std::size_t copies = 0;
};
struct CountedKey {
  int operator()(const Counted& item) const { return item.key; }
};

TEST_SUITE("shared list") {
  TEST_CASE("it holds what was inserted and not erased, in order, and a copy keeps what it had") {
    SeededRandom random(3);
    std::multimap<int, ItemPtr> model;
    std::vector<ItemPtr> first;
    for (int n = 0; n < 700; ++n) first.push_back(item(static_cast<int>(random.below(900))));
    for (const auto& each : first) model.emplace(each->key, each);
    Items list(first);
    for (int round = 0; round < 60; ++round) {
      const Items before = list;
      const std::vector<ItemPtr> had(before.begin(), before.end());
      // It grows over many pages, and in the end it shrinks to nothing.
      for (int change = 0; change < 100; ++change) {
        if (!model.empty() && random.below(round < 30 ? 3 : 5) >= (round < 30 ? 2U : 1U)) {
          auto victim = model.lower_bound(static_cast<int>(random.below(900)));
          if (victim == model.end()) victim = model.begin();
          list.erase(victim->second);
          model.erase(victim);
        } else {
          auto added = item(static_cast<int>(random.below(900)));
          model.emplace(added->key, added);
          list.insert(std::move(added));
        }
      }
      REQUIRE(list.size() == model.size());
      CHECK(list.empty() == model.empty());
      CHECK(std::ranges::equal(list, model, {}, ItemKey(),
                               [](const auto& row) { return row.first; }));
      for (const auto& [key, each] : model) {
        auto at = list.lower_bound(key);
        while (at != list.end() && *at != each && (*at)->key == key) ++at;
        REQUIRE(at != list.end());
        CHECK(*at == each);
      }
      for (int key = -1; key < 901; key += 7) {
        const auto expected = model.lower_bound(key);
        const auto at = list.lower_bound(key);
        REQUIRE((at == list.end()) == (expected == model.end()));
        if (at != list.end()) CHECK((*at)->key == expected->first);
      }
      CHECK(std::ranges::equal(before, had));
    }
    while (!list.empty()) list.erase(ItemPtr(*list.begin()));
    CHECK(list.begin() == list.end());
  }

  TEST_CASE("each difference between two lists is told once, and nothing that both have") {
    SeededRandom random(5);
    std::map<int, ItemPtr> model;
    Items list;
    for (int key = 0; key < 3000; key += 2) {
      model[key] = item(key);
      list.insert(model[key]);
    }
    for (int round = 0; round < 100; ++round) {
      const Items before = list;
      auto old = model;
      for (auto changes = random.below(20); changes > 0; --changes) {
        const int key = static_cast<int>(random.below(3000));
        if (model.contains(key)) {
          list.erase(model[key]);
          model.erase(key);
        }
        if (random.below(2) == 0) continue;
        model[key] = item(key);
        list.insert(model[key]);
      }
      std::map<ItemPtr, ItemPtr> told;
      Items::changes_between(before, list, [&](const ItemPtr& was, const ItemPtr& now) {
        CHECK(told.emplace(was, now).second);
      });
      for (const auto& [key, was] : old) {
        const auto now = model.find(key);
        if (now != model.end() && now->second == was) {
          CHECK_FALSE(told.contains(was));
          continue;
        }
        REQUIRE(told.contains(was));
        CHECK(told[was] == (now == model.end() ? nullptr : now->second));
        told.erase(was);
      }
      CHECK(told.empty());
    }
  }

  TEST_CASE("a change among a hundred thousand items copies one page of them") {
    using List = SharedList<Counted, CountedKey>;
    std::vector<Counted> items;
    for (int key = 0; key < 100'000; ++key) items.emplace_back(2 * key);
    List list(std::move(items));
    for (int n = 0; n < 1000; ++n) {
      Counted::copies = 0;
      List next = list;
      next.insert(Counted(1 + (n * 7919) % 200'000));
      CHECK(Counted::copies <= 2 * List::max_page);
      list = std::move(next);
    }
    Counted::copies = 0;
    List next = list;
    next.erase(Counted(4000));
    CHECK(Counted::copies <= List::max_page);
  }
}

}  // namespace
}  // namespace tarry::storage
