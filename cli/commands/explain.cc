#include "cli/commands/explain.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/time_text.h"
#include "cli/command_tree.h"
#include "cli/explanation.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/local_time.h"
#include "cli/options.h"
#include "cli/time_word.h"

namespace tarry::cli {
namespace {

struct ExplainOptions {
  std::vector<std::string> headers;  // HEADER=VALUE
  std::vector<std::string> configs;  // KEY=VALUE
  std::optional<std::string> at;
  bool json = false;
};

// The sentence is for people; programs compare the word.
std::string meaning_of(const std::string& result) {
  if (result == "delayed") return "held until it is due";
  if (result == "immediate") return "delivered at once: it is due when it arrives";
  if (result == "expired") return "accepted and dropped: it expires before it could be delivered";
  if (result == "cancel") return "drops the pending record with this id in its partition";
  return "delivered at once, unchanged: nothing schedules it";
}

void print(const Explanation& explanation, WallTime at, Output& out) {
  Table table({{""}, {.head = "", .wraps = true}});
  table.row({"result", explanation.result});
  table.row({"meaning", meaning_of(explanation.result)});
  const bool is_terminal = out.is_terminal();
  if (explanation.due) {
    const auto local = local_text(*explanation.due);
    // A program gets UTC, as logs have it, and the clock on the wall in a row of its own: most
    // slips are of an hour or two.
    const bool is_local = is_terminal && !local.empty();
    table.row({"due", is_local ? local : format_time(*explanation.due)});
    if (!is_terminal && !local.empty()) table.row({"local time", local});
    table.row({"in", format_duration(*explanation.due - at)});
  }
  if (explanation.expires) {
    table.row({"expires", shown_time(*explanation.expires, is_terminal)});
    table.row({"expires in", format_duration(*explanation.expires - at)});
  }
  if (!explanation.id.empty()) table.row({"id", cell(explanation.id)});
  if (!explanation.recurrence.empty()) table.row({"recurring", cell(explanation.recurrence)});
  for (const WallTime run : explanation.upcoming) table.row({"run", shown_time(run, is_terminal)});
  for (const auto& [name, meant] : explanation.slips)
    table.row({"ignored", fmt::format("{}: did you mean {}?", cell(name), meant)});
  table.print(out);
}

Json json_of(const Explanation& explanation, WallTime at) {
  Json json{{"result", explanation.result}};
  if (explanation.due) {
    json["due"] = format_time(*explanation.due);
    json["due_ms"] = to_ms(*explanation.due);
    json["local"] = local_text(*explanation.due);
    json["in_ms"] = (*explanation.due - at).count();
  }
  if (explanation.expires) {
    json["expires"] = format_time(*explanation.expires);
    json["expires_ms"] = to_ms(*explanation.expires);
  }
  if (!explanation.id.empty()) json["id"] = explanation.id;
  if (!explanation.recurrence.empty()) {
    json["recurrence"] = explanation.recurrence;
    json["runs_ms"] = Json::array();
    for (const WallTime run : explanation.upcoming) json["runs_ms"].push_back(to_ms(run));
  }
  for (const auto& [name, meant] : explanation.slips) json["slips"][name] = meant;
  if (!explanation.error.empty()) json["error"] = explanation.error;
  return json;
}

int run_explain(const ExplainOptions& options) {
  RecordHeaders headers;
  for (const auto& word : options.headers) {
    // The option's check makes sure that there is one.
    const auto equals = word.find('=');
    headers.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  const auto topic = topic_delay_of(options.configs);
  if (!topic) return usage_error("--topic-config: " + topic.error().message);
  // One time for all that is printed, so that "in" and "due" agree.
  const WallTime at = options.at ? *parse_time_word(*options.at) : wall_now();
  const auto explanation = explain(headers, *topic, at);
  Output out;
  if (options.json) {
    out.line(text_of(json_of(explanation, at)));
  } else if (explanation.error.empty()) {
    print(explanation, at, out);
  }
  // JSON has the refusal too, but a script that only looks at the exit status must notice it.
  if (!explanation.error.empty()) return out.end(failure("refused: " + explanation.error));
  return out.end(done);
}

}  // namespace

void add_explain(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<ExplainOptions>();
  auto* command = program.add_subcommand(
      "explain", "Shows when a record with these headers would be due; sends nothing");
  command->add_option("HEADER", options->headers, "The record's headers, as in x-delay=30m")
      ->option_text("HEADER=VALUE...")
      ->required()
      ->check(is_header);
  add_repeated(*command, "--topic-config", options->configs,
               "A config of the topic, as in tarry.delay.ms=1h; may be repeated")
      ->option_text("KEY=VALUE")
      ->check(is_key_value);
  command->add_option("--at", options->at, "When the record arrives (default now)")
      ->option_text("T")
      ->check(is_time_word)
      ->take_last();
  command->add_flag("--json", options->json, "Prints JSON");
  take_broker_options(*command);
  add_examples(*command, {"tarry explain x-delay=30m",
                          "tarry explain x-cron='0 9 * * MON-FRI' x-cron-tz=Europe/Berlin"});
  command->callback(
      [options, &chosen] { chosen.run = [options] { return run_explain(*options); }; });
}

}  // namespace tarry::cli
