#include "cli/commands/delayed_control.h"

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>

#include <fmt/core.h>

#include "base/percent_encoding.h"
#include "base/utf8.h"
#include "cli/admin_choice.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/line_reader.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/time_word.h"

namespace tarry::cli {
namespace {

// The request of one of these commands, and its words.
struct Action {
  const char* name;    // As the admin knows it.
  const char* result;  // The answer to a record for which it was done.
  const char* noun;    // "records cancelled", for the progress.
};
constexpr Action cancelling{"cancel", "cancelled", "records cancelled"};
constexpr Action moving{"move", "moved", "records moved"};
constexpr Action delivering{"deliver", "delivered", "records delivered"};

// The body of a move, for one record and for a selection.
void put_due(Json& body, const DelayedOptions& options) {
  if (options.at) body["due"] = epoch_ms(*options.at);
  if (options.by) body["by"] = *options.by;
}

// One run of the command over names.
class ByName {
 public:
  ByName(const Action& action, const DelayedOptions& options, AdminClient& admin)
      : action_(action), options_(options), admin_(admin), progress_(action.noun) {}

  int run() {
    for (const auto& id : options_.ids) {
      if (id == "-") {
        if (const auto read = read_names(); !read) {
          // The names before it were done, so their rows are shown.
          table_.print(out_);
          return out_.end(failure(read.error().message));
        }
      } else {
        one(id);
      }
      if (stopped_) break;
    }
    progress_.clear();
    table_.print(out_);
    out_.flush();
    if (not_done_ == 0) return out_.end(done);
    if (stopped_ && names_ > 1) {
      return out_.end(
          failure(fmt::format("{}; stopped there, after {} {}", *stopped_,
                              counted(names_ - not_done_, "record", "records"), action_.result)));
    }
    return out_.end(failure(names_ == 1
                                ? first_reason_
                                : fmt::format("{} of {} records were not {}; the first failure: {}",
                                              not_done_, names_, action_.result, first_reason_)));
  }

 private:
  Result<> read_names() {
    LineReader lines(STDIN_FILENO, "standard input");
    for (;;) {
      const auto line = lines.next();
      if (!line) return std::unexpected(line.error());
      if (!*line) return {};
      if ((*line)->empty()) continue;
      std::string id(**line);
      // CLI11 has checked the words of the command, but not these.
      if (const auto wrong = is_id_or_handle(id); !wrong.empty())
        return fail(Errc::invalid, fmt::format("standard input: {}", wrong));
      one(id);
      if (stopped_) return {};
    }
  }

  Result<std::string> ask(const std::string& id) {
    if (&action_ == &cancelling) return admin_.remove(path_of(options_, id));
    if (&action_ == &delivering) return admin_.change("POST", path_of(options_, id, "/deliver"));
    Json body = Json::object();
    put_due(body, options_);
    return admin_.change("PATCH", path_of(options_, id), text_of(body));
  }

  void one(const std::string& id) {
    const auto answer = parse_object(ask(id));
    const std::string result = answer ? field(*answer, "result") : "error";
    // Counted whatever comes of it: the error at the end says how many of how many.
    progress_.at(++names_);
    if (result != action_.result) {
      std::string reason = !answer                         ? answer.error().message
                           : result == "unknown"           ? "nothing is pending under this id"
                           : result == "already_delivered" ? "it has been delivered already"
                                                           : result;
      // Asked once, because all ids may be unknown, and only the first reason is shown.
      if (not_done_ == 0 && result == "unknown") reason += last_event_text(admin_, options_, id);
      if (result == "unknown" && id.find_first_of("*?[") != id.npos)
        reason += "; a pattern goes in --id";
      const std::string text = fmt::format("{}: {}", cell(id), reason);
      if (not_done_++ == 0) first_reason_ = text;
      // Nobody answers, or not to us: each of the others would end in the same way, perhaps after
      // the whole timeout.
      if (!answer && answer.error().code == Errc::io) stopped_ = text;
    }
    if (options_.broker.json) {
      Json json{{"topic", *options_.topic}, {"id", id}};
      if (answer) {
        json.update(*answer);
      } else {
        json["result"] = "error";
        json["error"] = answer.error().message;
      }
      out_.line(text_of(json));
    } else {
      add_rows(id, result, answer);
    }
  }

  // An id may be known in several partitions, each of which then has a row.
  void add_rows(const std::string& id, const std::string& result, const Result<Json>& answer) {
    const Json none = Json::array();
    const bool has_partitions =
        answer && answer->contains("partitions") && (*answer)["partitions"].is_array();
    const Json& partitions = has_partitions ? (*answer)["partitions"] : none;
    if (partitions.size() < 2) {
      table_.row({cell(id), result, partitions.empty() ? std::string() : detail(partitions[0])});
      return;
    }
    for (const auto& partition : partitions) {
      const std::string more = detail(partition);
      table_.row({cell(id), field(partition, "result"),
                  fmt::format("{}{}partition {}", more, more.empty() ? "" : ", ",
                              field(partition, "partition"))});
    }
  }

  // The offset of a record that was delivered, the due time of one that was moved.
  std::string detail(const Json& partition) const {
    if (field(partition, "result") != action_.result) return "";
    if (&action_ == &moving) return time_field(partition, "due_ms", out_);
    return &action_ == &delivering ? "offset " + field(partition, "offset") : "";
  }

  const Action& action_;
  const DelayedOptions& options_;
  AdminClient& admin_;
  Progress progress_;
  Output out_;
  Table table_{{{"ID"}, {"RESULT"}, {""}}};
  std::string first_reason_;
  std::optional<std::string> stopped_;  // The reason why the rest is not asked for.
  std::size_t names_ = 0, not_done_ = 0;
};

std::uint64_t number_in(const Json& of, const char* name) {
  return of.is_object() && of.contains(name) && of[name].is_number_unsigned()
             ? of[name].get<std::uint64_t>()
             : 0;
}

std::string selection_body(const Action& action, const DelayedOptions& options) {
  Json body{{"action", action.name}};
  if (options.glob) body["id"] = *options.glob;
  if (options.key_glob) body["key"] = *options.key_glob;
  if (options.from) body["from"] = epoch_ms(*options.from);
  if (options.to) body["to"] = epoch_ms(*options.to);
  if (options.partition) body["partition"] = *options.partition;
  if (options.dry_run) body["dry_run"] = true;
  put_due(body, options);
  return text_of(body);
}

int select(const Action& action, const DelayedOptions& options, AdminClient& admin) {
  Json last;
  Progress progress(options.dry_run ? "records found" : action.noun);
  const auto asked = admin.change_by_lines(
      "POST", fmt::format("/delayed/{}/select", percent_encoded(*options.topic)),
      selection_body(action, options), [&](std::string_view line) {
        last = parse_json(line);
        progress.at(number_in(last, options.dry_run ? "matched" : "done"));
      });
  progress.clear();
  if (!asked) return failure(asked.error().message);
  // The last line is the result; without it the connection broke before the end.
  if (!last.is_object()) return failure("the admin's answer ended too early");

  Output out;
  const std::uint64_t matched = number_in(last, "matched");
  if (options.broker.json) {
    out.line(text_of(last));
  } else if (options.dry_run) {
    out.line(fmt::format("{} would be {}", counted(matched, "record", "records"), action.result));
    Table table({{"DUE"},
                 {"IN"},
                 {"ID", false, true},
                 {"HANDLE", false, false, 2},
                 {"KEY", false, true, 1}});
    if (last.contains("records") && last["records"].is_array()) {
      for (const auto& record : last["records"]) {
        table.row({due_field(record, out), distance_field(record, "due_ms", out),
                   field(record, "id"), field(record, "handle"), field(record, "key")});
      }
    }
    table.print(out);
  } else {
    std::string line =
        fmt::format("{} {}", counted(number_in(last, "done"), "record", "records"), action.result);
    if (const auto late = number_in(last, "already_delivered"); late != 0)
      line += fmt::format(", {} delivered already", grouped(late));
    if (const auto unknown = number_in(last, "unknown"); unknown != 0)
      line += fmt::format(", {} no longer pending", grouped(unknown));
    out.line(line);
  }
  // The answer began with status 200 before any record was changed, so an error is in its last
  // line.
  if (!last.contains("error")) return out.end(done);
  out.flush();
  const auto refused = number_in(last, "failed");
  return out.end(failure(refused == 0
                             ? field(last, "error")
                             : fmt::format("{} of {} records were not {}; the first failure: {}",
                                           grouped(refused), grouped(matched), action.result,
                                           field(last, "error"))));
}

int run(const Action& action, const DelayedOptions& options) {
  if (options.ids.empty() && !options.selects()) {
    return usage_error(
        fmt::format("{}: give ids, - to read them from standard input, or a "
                    "selection: --id GLOB, --key GLOB, --from T, --to T",
                    action.name));
  }
  if (!options.ids.empty() && options.selects()) {
    return usage_error(
        fmt::format("{} {}: give ids or a selection (--id, --key, --from, --to), "
                    "not both",
                    action.name, cell(options.ids.front())));
  }
  if (options.dry_run && !options.selects())
    return usage_error("--dry-run: works only for a selection; ids were given");
  if (&action == &moving && options.at.has_value() == options.by.has_value())
    return usage_error("move: give either --at T or --by D");
  auto admin = choose_admin(options.broker, AdminUse::changes);
  if (!admin) return admin.error().report();
  return options.selects() ? select(action, options, *admin)
                           : ByName(action, options, *admin).run();
}

}  // namespace

void add_delayed_control(const AddDelayed& add) {
  const auto add_one = [&](const char* name, const char* help, DelayedRun run) {
    const auto [command, options] = add(name, help, run);
    command->add_option("TOPIC", options->topic, "The topic")->required()->check(is_topic);
    command
        ->add_option("ID", options->ids,
                     "Schedule ids, or handles, which begin with @; - reads them from standard "
                     "input, one per line")
        // Not required, because a selection needs none.  CLI11 takes words that stand behind -- as
        // long as there are fewer than the least number, which take-all does not enforce.
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(CLI::detail::expected_max_vector_size, CLI::detail::expected_max_vector_size)
        ->check(is_id_or_handle);
    add_selection(*command, *options);
    add_partition(*command, *options);
    command->add_flag("--dry-run", options->dry_run,
                      "Shows how many records are selected, and the first ten; changes nothing");
    return std::pair(command, options);
  };
  auto* cancel = add_one("cancel", "Cancels records; the answer is definitive",
                         [](const DelayedOptions& given) { return run(cancelling, given); })
                     .first;
  add_examples(*cancel, {"tarry delayed cancel orders order-4711",
                         "tarry delayed cancel orders --id 'order-*' --to +1h --dry-run"});
  const auto [move, options] =
      add_one("move", "Gives records another due time",
              [](const DelayedOptions& given) { return run(moving, given); });
  move->add_option("--at", options->at, "The new due time")
      ->option_text("T")
      ->check(is_time_word)
      ->take_last();
  move->add_option("--by", options->by, "How much later; negative for earlier, as in -10m")
      ->option_text("D")
      ->check(is_shift)
      ->take_last();
  add_examples(*move, {"tarry delayed move orders order-4711 --at 2026-12-24T18:00:00Z",
                       "tarry delayed move orders --key '47*' --by -10m"});
  auto* deliver = add_one("deliver", "Delivers records now", [](const DelayedOptions& given) {
                    return run(delivering, given);
                  }).first;
  add_examples(*deliver, {"tarry delayed deliver orders order-4711",
                          "tarry delayed deliver orders --to +1h --dry-run"});
}

}  // namespace tarry::cli
