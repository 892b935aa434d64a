#include "protocol/consumer_protocol.h"

#include <doctest/doctest.h>

namespace tarry::protocol {
namespace {

void put(Buffer& out, std::string_view text) {
  append_be(out, static_cast<std::int16_t>(text.size()));
  append_bytes(out, as_bytes(text));
}

Buffer subscription() {
  Buffer out;
  append_be(out, std::int16_t{3});
  append_be(out, std::int32_t{2});
  put(out, "orders");
  put(out, "retries");
  append_be(out, std::int32_t{-1});  // No user data, and nothing that later versions add.
  return out;
}

Buffer assignment() {
  Buffer out;
  append_be(out, std::int16_t{0});
  append_be(out, std::int32_t{2});
  put(out, "orders");
  append_be(out, std::int32_t{2});
  append_be(out, std::int32_t{0});
  append_be(out, std::int32_t{7});
  put(out, "retries");
  append_be(out, std::int32_t{0});
  append_be(out, std::int32_t{-1});
  return out;
}

TEST_SUITE("consumer protocol") {
  TEST_CASE("topics and partitions are read, whatever stands behind them") {
    const Buffer said = subscription();
    CHECK(subscribed_topics(said) == std::vector<std::string_view>{"orders", "retries"});
    CHECK(assigned_partitions(assignment()) ==
          std::vector<AssignedTopic>{{"orders", {0, 7}}, {"retries", {}}});
  }

  TEST_CASE("bytes that are cut or claim more than there is are nothing") {
    // The last four bytes are the user data, which nobody asks for.
    const Buffer whole = subscription(), assigned = assignment();
    for (std::size_t size = 0; size + 4 < whole.size(); ++size)
      CHECK_FALSE(subscribed_topics(Bytes(whole).first(size)).has_value());
    for (std::size_t size = 0; size + 4 < assigned.size(); ++size)
      CHECK_FALSE(assigned_partitions(Bytes(assigned).first(size)).has_value());
    Buffer claims;
    append_be(claims, std::int16_t{0});
    append_be(claims, std::int32_t{2'000'000'000});
    CHECK_FALSE(subscribed_topics(claims).has_value());
    CHECK_FALSE(assigned_partitions(claims).has_value());
    CHECK_FALSE(assigned_partitions({}).has_value());
  }

  TEST_CASE("names that no topic has, and more than anybody reads, are nothing") {
    Buffer empty;
    append_be(empty, std::int16_t{0});
    append_be(empty, std::int32_t{1});
    put(empty, "");
    CHECK_FALSE(subscribed_topics(empty).has_value());
    Buffer too_long;
    append_be(too_long, std::int16_t{0});
    append_be(too_long, std::int32_t{1});
    put(too_long, std::string(250, 'x'));
    CHECK_FALSE(subscribed_topics(too_long).has_value());
    Buffer negative;
    append_be(negative, std::int16_t{0});
    append_be(negative, std::int32_t{1});
    put(negative, "orders");
    append_be(negative, std::int32_t{1});
    append_be(negative, std::int32_t{-1});
    CHECK_FALSE(assigned_partitions(negative).has_value());
    CHECK_FALSE(assigned_partitions(as_bytes("garbage")).has_value());
    Buffer many;
    append_be(many, std::int16_t{0});
    append_be(many, std::int32_t{100'001});
    for (int i = 0; i < 100'001; ++i) put(many, "t");
    CHECK_FALSE(subscribed_topics(many).has_value());
  }
}

}  // namespace
}  // namespace tarry::protocol
