#include "storage/pending.h"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "tests/given.h"

namespace tarry::storage {
namespace {

TEST_SUITE("pending") {
  TEST_CASE("hidden topics are known in any order, and copies of them share one list") {
    const TopicId a{.bytes = {1}}, b{.bytes = {2}}, c{.bytes = {3}};
    const HiddenTopics hidden{c, a};
    CHECK_FALSE(hidden.empty());
    CHECK(hidden.contains(a));
    CHECK_FALSE(hidden.contains(b));
    CHECK(hidden.contains(c));
    const PendingQuery query{.hidden = hidden};
    PendingQuery page = query;
    page.limit = 1;
    CHECK(page.hidden.all().size() == 2);
    CHECK(page.hidden.all().data() == hidden.all().data());
    for (const HiddenTopics& none : {HiddenTopics(), HiddenTopics(std::vector<TopicId>())}) {
      CHECK(none.empty());
      CHECK(none.all().empty());
      CHECK_FALSE(none.contains(a));
    }
  }

  TEST_CASE(
      "a handle leads back to its key, has one text only and nothing but letters and digits") {
    SeededRandom random(7);
    std::vector<PendingKey> keys{{from_ms(0), 0},
                                 {from_ms(0), 1},
                                 {from_ms(1), 0},
                                 {WallTime::max(), ~Sequence{0}},
                                 {from_ms(-1), 5}};
    for (int i = 0; i < 1000; ++i) {
      keys.push_back({from_ms(static_cast<std::int64_t>(random.u64() >> random.below(60))),
                      random.u64() >> random.below(64)});
    }
    std::set<std::string> texts;
    for (const PendingKey key : keys) {
      const std::string text = encode_handle(key);
      texts.insert(text);
      CHECK(text.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                                   1) == std::string::npos);
      const auto parsed = parse_handle(text);
      REQUIRE(parsed.has_value());
      CHECK(*parsed == key);
    }
    CHECK(texts.size() == std::set<PendingKey>(keys.begin(), keys.end()).size());
    CHECK(encode_handle({from_ms(1'795'000'000'000), 17}).size() <= 12);
    for (const char* text : {"", "@", "x1A", "@1", "@9abc", "@1A0", "@101", "@1-", "@1A/", "@1A B",
                             "@Bzzzzzzzzzzz", "@0zzzzzzzzzzzz", "@/"})
      CHECK_FALSE(parse_handle(text).has_value());
  }
}

}  // namespace
}  // namespace tarry::storage
