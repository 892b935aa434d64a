#include "server/edit_distance.h"

#include <string>

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

TEST_SUITE("edit distance") {
  TEST_CASE("a character that is added, removed or changed counts one each") {
    CHECK(edit_distance("log.retention.ms", "log.retention.ms") == 0);
    CHECK(edit_distance("log.retention.mss", "log.retention.ms") == 1);
    CHECK(edit_distance("log.retention.s", "log.retention.ms") == 1);
    CHECK(edit_distance("log_retention_ms", "log.retention.ms") == 2);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance("sitting", "kitten") == 3);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("abc", "") == 3);
    CHECK(edit_distance("", "") == 0);
  }
}

}  // namespace
}  // namespace tarry::server
