#include "web/selection_request.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "web/question.h"

namespace tarry::web {
namespace {

using namespace std::chrono_literals;
using Action = SelectionRequest::Action;

constexpr WallTime one_day{1'800'000'000'000ms};
constexpr PartitionIndex max_partition = 3;

SelectionRequest read(const std::string& body) {
  return selection_request(body, max_partition, one_day);
}

// The message for the client; empty: it was taken.
std::string refusal_of(const std::string& body) {
  try {
    read(body);
  } catch (const Refused& refused) {
    CHECK(refused.status == 400);
    return refused.why;
  }
  return "";
}

}  // namespace

TEST_CASE("a selection has the conditions and the action of its body, and no others") {
  const auto request = read(
      R"({"id": "a*", "key": 47, "from": "now", "to": "+1h", "partition": 3, "action": "deliver"})");
  CHECK(request.filter.id == "a*");
  CHECK(request.filter.key == "47");
  CHECK(request.filter.from == one_day);
  CHECK(request.filter.until == one_day + 1h);
  CHECK(request.filter.partition == 3);
  CHECK(request.action == Action::deliver);
  CHECK_FALSE(request.shown.has_value());
  const auto by_id = read(R"({"id": "a", "action": "cancel"})");
  CHECK_FALSE(by_id.filter.partition.has_value());
  CHECK(by_id.filter.from == WallTime::min());
  CHECK(by_id.filter.until == WallTime::max());
  CHECK(refusal_of(R"({"id": "a", "action": "cancel", "topic": "t"})").contains("'topic'"));
}

TEST_CASE("the words of a query and those of a body mean the same") {
  const std::map<std::string, std::string, std::less<>> query{{"id", "a*"}, {"to", "+1h"}};
  const auto filter = read_filter(
      [&](const char* name) {
        const auto found = query.find(name);
        return found == query.end() ? std::nullopt : std::optional(found->second);
      },
      max_partition, one_day);
  const auto body = read(R"({"id": "a*", "to": "+1h", "action": "cancel"})");
  CHECK(filter.id == body.filter.id);
  CHECK(filter.until == body.filter.until);
  CHECK(filter.from == body.filter.from);
}

TEST_CASE("a selection by nothing, or by a partition alone, is refused: it would be everything") {
  CHECK(refusal_of(R"({"action": "cancel"})").contains("the selection is empty"));
  CHECK(refusal_of(R"({"partition": 0, "action": "cancel"})").contains("the selection is empty"));
  CHECK(refusal_of(R"({"id": "", "action": "cancel"})").contains("id is empty"));
  CHECK(refusal_of(R"({"from": 0, "action": "cancel"})").empty());
}

TEST_CASE("an action that there is not is refused by name, and so is none") {
  CHECK(refusal_of(R"({"id": "a", "action": "drop"})").contains("'drop'"));
  CHECK(refusal_of(R"({"id": "a"})").contains("cancel, move or deliver"));
}

TEST_CASE("a move needs a due time or a duration, and no other action takes one") {
  CHECK(std::get<std::chrono::milliseconds>(
            read(R"({"id": "a", "action": "move", "by": "1d"})").due) == 24h);
  CHECK(refusal_of(R"({"id": "a", "action": "move"})").contains("either"));
  CHECK(refusal_of(R"({"id": "a", "action": "cancel", "by": "1d"})").contains("only with"));
}

TEST_CASE("a selection's dry_run that is no truth value is refused by name") {
  CHECK(refusal_of(R"({"id":"a","action":"cancel","dry_run":"yes"})").contains("dry_run"));
}

TEST_CASE("a dry run shows ten records, or as many as it asks for; nothing else may ask") {
  CHECK(read(R"({"id": "a", "action": "cancel", "dry_run": true})").shown == 10);
  CHECK(read(R"({"id": "a", "action": "cancel", "dry_run": true, "show": 0})").shown == 0);
  CHECK(refusal_of(R"({"id": "a", "action": "cancel", "show": 5})").contains("dry_run"));
  CHECK(refusal_of(R"({"id": "a", "action": "cancel", "dry_run": true, "show": 1001})")
            .contains("from 0 to 1000"));
}

TEST_CASE("a partition that the topic has not is refused with those that it has") {
  CHECK(refusal_of(R"({"id": "a", "partition": 4, "action": "cancel"})").contains("from 0 to 3"));
}

}  // namespace tarry::web
