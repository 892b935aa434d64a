#include "cli/group_assignment.h"

#include <doctest/doctest.h>

namespace tarry::cli {
namespace {

Buffer assignment(std::string_view topic, std::initializer_list<std::int32_t> partitions) {
  Buffer out;
  append_be(out, std::int16_t{0});
  append_be(out, std::int32_t{1});
  append_be(out, static_cast<std::int16_t>(topic.size()));
  append_bytes(out, as_bytes(topic));
  append_be(out, static_cast<std::int32_t>(partitions.size()));
  for (const auto partition : partitions) append_be(out, partition);
  return out;
}

TEST_SUITE("group assignment") {
  TEST_CASE("an assignment is read with and without what follows it") {
    Buffer bytes = assignment("orders", {0, 7});
    const AssignedPartitions expected{{"orders", 0}, {"orders", 7}};
    CHECK(read_assignment(bytes) == expected);
    append_be(bytes, std::int32_t{-1});
    CHECK(read_assignment(bytes) == expected);
    Buffer with_data = assignment("orders", {0, 7});
    append_be(with_data, std::int32_t{3});
    append_bytes(with_data, as_bytes("abc"));
    CHECK(read_assignment(with_data) == expected);
    CHECK(read_assignment({}) == AssignedPartitions{});
  }

  TEST_CASE("bytes that are cut off anywhere, or go on, are no assignment") {
    Buffer bytes = assignment("orders", {0, 7});
    append_be(bytes, std::int32_t{3});
    append_bytes(bytes, as_bytes("abc"));
    for (std::size_t size = 1; size < bytes.size(); ++size) {
      if (size == bytes.size() - 7) continue;  // Where what follows would begin.
      CAPTURE(size);
      CHECK_FALSE(read_assignment(Bytes(bytes).first(size)).has_value());
    }
    bytes.push_back(0);
    CHECK_FALSE(read_assignment(bytes).has_value());
  }

  TEST_CASE("counts and lengths that nobody has are no assignment") {
    CHECK_FALSE(read_assignment(assignment("", {0})).has_value());
    CHECK_FALSE(read_assignment(assignment("orders", {-1})).has_value());
    CHECK_FALSE(read_assignment(assignment(std::string(250, 'x'), {0})).has_value());
    Buffer many;
    append_be(many, std::int16_t{0});
    append_be(many, std::int32_t{0x7fff'ffff});
    CHECK_FALSE(read_assignment(many).has_value());
    CHECK_FALSE(read_assignment(as_bytes("garbage")).has_value());
  }
}

}  // namespace
}  // namespace tarry::cli
