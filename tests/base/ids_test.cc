#include "base/ids.h"

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("ids") {
  TEST_CASE("a topic id is written in 22 characters and read back as the same id") {
    TopicId id;
    for (std::size_t i = 0; i < id.bytes.size(); ++i)
      id.bytes[i] = static_cast<std::uint8_t>(i * 37 + 11);
    CHECK(id.text().size() == 22);
    CHECK(TopicId::parse(id.text()) == id);
    CHECK(TopicId{}.text() == "AAAAAAAAAAAAAAAAAAAAAA");
  }

  TEST_CASE("topic ids that differ in one bit are two, as they are in their order") {
    const TopicId zero{};
    CHECK(zero == TopicId{});
    for (std::size_t i = 0; i < zero.bytes.size(); ++i) {
      CAPTURE(i);
      TopicId other;
      other.bytes[i] = 0x80;
      CHECK(other != zero);
      CHECK(zero < other);
      CHECK(other == TopicId(other));
    }
  }

  TEST_CASE("a text that is not a topic id is not taken for one") {
    CHECK_FALSE(TopicId::parse(""));
    CHECK_FALSE(TopicId::parse("AAAAAAAAAAAAAAAAAAAAA"));
    CHECK_FALSE(TopicId::parse("AAAAAAAAAAAAAAAAAAAAA+"));
    CHECK_FALSE(TopicId::parse("AAAAAAAAAAAAAAAAAAAAAB"));  // Spare bits set.
  }
}

}  // namespace
}  // namespace tarry
