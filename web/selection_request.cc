#include "web/selection_request.h"

#include <fmt/core.h>

#include "base/json.h"
#include "base/log.h"
#include "web/arguments.h"
#include "web/question.h"

namespace tarry::web {
namespace {

using Action = SelectionRequest::Action;

// The records in the last line of a dry run, unless it asks for more or fewer.
constexpr std::size_t default_shown = 10;
constexpr std::size_t max_shown = 1000;

Action action_in(const Json& body) {
  const auto action = word_in(body, "action");
  if (action == "cancel") return Action::cancel;
  if (action == "move") return Action::move;
  if (action == "deliver") return Action::deliver;
  throw Refused{400,
                action ? fmt::format("action: '{}' is not an action; give cancel, move or deliver",
                                     printable(*action))
                       : R"(the body needs an "action": cancel, move or deliver)"};
}

// A partition alone does not count: it is everything that the partition has.
bool selects_by_record(const RecordFilter& filter) {
  return !filter.id.empty() || !filter.key.empty() || filter.from != WallTime::min() ||
         filter.until != WallTime::max();
}

}  // namespace

RecordFilter read_filter(const Words& words, PartitionIndex max_partition, WallTime now) {
  RecordFilter filter;
  if (const auto id = words("id")) filter.id = pattern_given("id", *id);
  if (const auto key = words("key")) filter.key = pattern_given("key", *key);
  if (const auto from = words("from")) filter.from = time_given("from", *from, now);
  if (const auto to = words("to")) filter.until = time_given("to", *to, now);
  if (const auto partition = words("partition")) {
    filter.partition = static_cast<PartitionIndex>(
        number_given("partition", *partition, 0, static_cast<std::size_t>(max_partition)));
  }
  return filter;
}

SelectionRequest selection_request(const std::string& body_text, PartitionIndex max_partition,
                                   WallTime now) {
  const Json body = object_in(
      body_text, {"id", "key", "from", "to", "partition", "action", "due", "by", "dry_run", "show"},
      R"({"id": "order-*", "action": "cancel", "dry_run": true})");
  SelectionRequest request;
  request.filter =
      read_filter([&](const char* name) { return word_in(body, name); }, max_partition, now);
  request.action = action_in(body);
  if (request.action == Action::move) {
    // Read once, so that all records of the selection move by the same.
    request.due = new_due_in(body, now);
  } else if (value_in(body, "due") != nullptr || value_in(body, "by") != nullptr) {
    throw Refused{400, "due and by are allowed only with the action move"};
  }
  if (flag_in(body, "dry_run")) request.shown = default_shown;
  if (const auto show = word_in(body, "show")) {
    const std::size_t shown = number_given("show", *show, 0, max_shown);
    // Somebody who gives it means to look, and would change records by a slip.
    if (!request.shown) throw Refused{400, "show belongs to dry_run"};
    request.shown = shown;
  }
  if (!selects_by_record(request.filter)) {
    throw Refused{
        400, R"(the selection is empty: give an id, a key, from or to; {"id": "*"} selects all )"
             "records that have an id, and {\"from\": 0} all records"};
  }
  return request;
}

}  // namespace tarry::web
