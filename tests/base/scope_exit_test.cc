#include "base/scope_exit.h"

#include <utility>

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("scope_exit") {
  TEST_CASE("the function is called once when its last holder goes, and never once dismissed") {
    int calls = 0;
    const auto count = [&calls] { ++calls; };
    {
      ScopeExit first(count);
      ScopeExit second(std::move(first));
      ScopeExit third;
      third = std::move(second);
      CHECK(calls == 0);
    }
    CHECK(calls == 1);
    {
      ScopeExit dismissed(count);
      dismissed.dismiss();
    }
    CHECK(calls == 1);
  }
}

}  // namespace
}  // namespace tarry
