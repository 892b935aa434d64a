#include "base/list_text.h"

#include <doctest/doctest.h>

#include <string_view>
#include <vector>

namespace tarry {
namespace {

std::vector<std::string_view> elements_of(std::string_view text, char separator = ',') {
  std::vector<std::string_view> elements;
  for (auto rest = text; !rest.empty();) elements.push_back(take_element(rest, separator));
  return elements;
}

TEST_SUITE("list_text") {
  using List = std::vector<std::string_view>;

  TEST_CASE("blanks around an element do not count, and those within it do") {
    CHECK(elements_of(" a ,b c,  d") == List{"a", "b c", "d"});
    CHECK(elements_of("k=1; l=2", ';') == List{"k=1", "l=2"});
    CHECK(trimmed("   ").empty());
  }

  TEST_CASE("a separator at the end adds no element, and two together have an empty one") {
    CHECK(elements_of("a,") == List{"a"});
    CHECK(elements_of("a,,b") == List{"a", "", "b"});
    CHECK(elements_of(",") == List{""});
    CHECK(elements_of("").empty());
  }
}

}  // namespace
}  // namespace tarry
