#include "base/percent_encoding.h"

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_CASE("in a URL everything is escaped that could mean something there") {
  CHECK(percent_encoded("a-Z_0.~") == "a-Z_0.~");
  CHECK(percent_encoded("a b/ü?@&+%") == "a%20b%2F%C3%BC%3F%40%26%2B%25");
}

}  // namespace
}  // namespace tarry
