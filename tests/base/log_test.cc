#include "base/log.h"

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("log") {
  TEST_CASE("text from the network cannot begin a line of its own in the log") {
    CHECK(printable("topic\n2026 E forged") == "topic\\x0a2026 E forged");
    CHECK(printable(std::string(300, 'a')).size() == 259);
    CHECK(printable("back\\slash") == "back\\x5cslash");
  }
}

}  // namespace
}  // namespace tarry
