#include "cli/io/json_path.h"

#include <doctest/doctest.h>

namespace tarry::cli {
namespace {

TEST_SUITE("json_path") {
  TEST_CASE("a value that is missing, null or of another type is read as none, and never throws") {
    const Json answer = parse_json(
        R"({"delayed": {"pending": 3, "lag": 1.5, "next_due": null}, "state": "running", "up": -2})");
    CHECK(number_at(answer, "/delayed/pending") == 3);
    CHECK(figure_at(answer, "/delayed/lag") == 1.5);
    CHECK(text_at(answer, "/state") == "running");
    CHECK(time_at(answer, "/delayed/pending") == from_ms(3));
    CHECK(number_at(answer, "/up") == 0);
    for (const char* path : {"/none", "/delayed/next_due", "/state/deeper", "/delayed/pending/0"}) {
      CAPTURE(path);
      CHECK(find_at(answer, path) == nullptr);
      CHECK(number_at(answer, path) == 0);
      CHECK(text_at(answer, path).empty());
      CHECK(!time_at(answer, path));
    }
    CHECK(number_at(answer, "/state") == 0);
    CHECK(text_at(answer, "/up").empty());
    CHECK(!time_at(answer, "/delayed/lag"));
  }
}

}  // namespace
}  // namespace tarry::cli
