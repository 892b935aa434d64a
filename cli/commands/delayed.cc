#include "cli/commands/delayed.h"

#include <string>

#include <fmt/core.h>

#include "base/base64.h"
#include "cli/admin_choice.h"
#include "cli/command_tree.h"
#include "cli/commands/delayed_common.h"
#include "cli/commands/delayed_control.h"
#include "cli/commands/delayed_transfer.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"

namespace tarry::cli {
namespace {

int list(const DelayedOptions& options) {
  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  Output out;
  Table table({{"TOPIC", false, true, 4},
               {"PARTITION", true, false, 2},
               {"DUE"},
               {"IN"},
               {"ID", false, true},
               {"HANDLE", false, false, 5},
               {"KEY", false, true, 3},
               {"BYTES", true, false, 1}});
  bool is_empty = true;
  const auto take = [&](const Json& record) {
    is_empty = false;
    if (options.broker.json) {
      out.line(text_of(record));
    } else {
      table.row({field(record, "topic"), field(record, "partition"), due_field(record, out),
                 distance_field(record, "due_ms", out), field(record, "id"),
                 field(record, "handle"), field(record, "key"), field(record, "value_bytes")},
                style_of(record));
    }
    // When the reader has gone, such as `head`, no further page is asked for.
    return !out.is_over();
  };
  // The table is printed page by page: there may be millions of records, and the first ones are
  // wanted at once.
  const auto listed = for_each_pending(*admin, options, "", take, [&] { table.print(out); });
  if (!listed) return out.end(failure(listed.error().message));
  // An empty list is an answer, but the beginning of an id is a common slip.  With another
  // condition the id may be pending and not meet it.
  if (is_empty && options.glob && !options.from && !options.to && !options.key_glob &&
      options.glob->find_first_of("*?[") == std::string::npos) {
    complain(fmt::format(
        "no pending record has the id {}; --id is a pattern of the whole id, as in '{}*'",
        cell(*options.glob), cell(*options.glob)));
  }
  return out.end(done);
}

constexpr std::size_t shown_of_value = 4000;  // Characters, at a terminal: a screen or two.

void show_record(const Json& record, Output& out) {
  Table table({{""}, {.head = "", .wraps = true}});
  for (const char* name : {"topic", "partition", "id", "handle"})
    table.row({name, field(record, name)});
  // A program gets the time and the distance in rows of their own.
  if (out.is_terminal()) {
    table.row({"due", fmt::format("{}, {}", time_field(record, "due_ms", out),
                                  distance_field(record, "due_ms", out))},
              style_of(record));
  } else {
    table.row({"due", time_field(record, "due_ms", out)});
    table.row({"in", left_field(record, "due_ms")});
  }
  table.row({"accepted", time_field(record, "accepted_ms", out)});
  if (record.contains("expires_ms") && !record["expires_ms"].is_null())
    table.row({"expires", time_field(record, "expires_ms", out)});
  if (record.contains("recurrence")) table.row({"recurring", field(record["recurrence"], "text")});
  table.row({"key", field(record, "key")});
  if (record.contains("headers") && record["headers"].is_array()) {
    for (const auto& header : record["headers"])
      table.row({"header", field(header, "name") + "=" + field(header, "value")});
  }
  table.row({"bytes", field(record, "value_bytes")});
  std::string value = "-";
  if (record.contains("value") && record["value"].is_string()) {
    const auto bytes = from_base64(record["value"].get<std::string>());
    // A value may be any bytes; cell() keeps control characters from the terminal.
    value = bytes ? cell(*bytes) : field(record, "value");
    // People want a look at it; a pipe gets all.
    if (out.is_terminal()) value = shortened(value, shown_of_value);
  }
  table.row({"value", value});
  table.print(out);
}

// An id may be pending in several partitions; the answer has the record that is due first.
void say_other_partitions(const Json& record, const std::string& id) {
  if (!record.contains("partitions") || !record["partitions"].is_array()) return;
  std::string others;
  std::size_t count = 0;
  for (const auto& partition : record["partitions"]) {
    if (partition == record["partition"]) continue;
    ++count;
    others += (others.empty() ? "" : ", ") + cell(text_of(partition));
  }
  if (others.empty()) return;
  complain(fmt::format(
      "{}: this is the record in partition {}, which is due first; {} "
      "{} (-p PARTITION shows another)",
      cell(id), field(record, "partition"),
      count == 1 ? "another is pending in partition" : "others are pending in partitions", others));
}

int get(const DelayedOptions& options) {
  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  const auto record = parse_object(admin->get(path_of(options, options.ids[0])));
  if (!record) {
    const bool is_unknown = record.error().code == Errc::not_found;
    return failure(record.error().message +
                   (is_unknown ? last_event_text(*admin, options, options.ids[0]) : ""));
  }
  Output out;
  if (options.broker.json) {
    out.line(text_of(*record));
    return out.end(done);
  }
  show_record(*record, out);
  const int status = out.end(done);
  // The note goes to stderr, so the record has to be out first, or it would stand in its middle.
  if (!options.partition) say_other_partitions(*record, options.ids[0]);
  return status;
}

int count(const DelayedOptions& options) {
  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  std::string query = query_of(options);
  if (options.by) query += fmt::format("{}by={}", query.empty() ? "" : "&", *options.by);
  const auto answer = parse_object(admin->get("/delayed/count?" + query));
  if (!answer) return failure(answer.error().message);
  Output out;
  if (options.broker.json) {
    out.line(text_of(*answer));
    return out.end(done);
  }
  // The total stands alone, so that a script can read it as a number.
  if (!options.by) {
    out.line(field(*answer, "total"));
    return out.end(done);
  }
  Table table({{"FROM"}, {"COUNT", true}});
  if (answer->contains("counts") && (*answer)["counts"].is_array()) {
    for (const auto& each : (*answer)["counts"])
      table.row({time_field(each, "from", out), field(each, "count")});
  }
  table.print(out);
  return out.end(done);
}

int trace(const DelayedOptions& options) {
  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  const auto answer = parse_object(admin->get(path_of(options, options.ids[0], "/trace")));
  if (!answer) return failure(answer.error().message);
  Output out;
  if (options.broker.json) {
    out.line(text_of(*answer));
    return out.end(done);
  }
  // On 80 columns the offset is there, which leads to the record.
  Table table({{"AT"},
               {"EVENT"},
               {"DUE", false, false, 2},
               {"PARTITION", true, false, 1},
               {"OFFSET", true}});
  if (answer->contains("events") && (*answer)["events"].is_array()) {
    for (const auto& event : (*answer)["events"]) {
      table.row({time_field(event, "at_ms", out), field(event, "event"),
                 time_field(event, "due_ms", out), field(event, "partition"),
                 field(event, "offset")});
    }
  }
  table.print(out);
  return out.end(done);
}

}  // namespace

void add_delayed(CLI::App& program, Chosen& chosen) {
  auto* group = add_group(program, chosen, "delayed",
                          "Shows pending records; cancels, moves and delivers them");
  const auto add = [&](const char* name, const char* help, DelayedRun run) {
    auto added = add_broker_command<DelayedOptions>(*group, chosen, name, help, run);
    // All of them ask the admin, which may want the token in the data directory.
    add_data_option(*added.first, added.second->broker);
    return added;
  };
  const auto add_one_name = [](CLI::App& command, DelayedOptions& options) {
    command.add_option("TOPIC", options.topic, "The topic")->required()->check(is_topic);
    command.add_option("ID", options.ids, "A schedule id, or a handle, which begins with @")
        ->required()
        ->expected(1)
        ->check(is_id_or_handle);
    add_partition(command, options);
  };

  {
    const auto [command, options] = add("list", "Lists pending records by due time", list);
    command->add_option("TOPIC", options->topic, "Only records of this topic")->check(is_topic);
    add_selection(*command, *options);
    command->add_option("--limit", options->limit, "Lists at most this many (default: all)")
        ->option_text("N")
        ->check(is_count)
        ->take_last();
    add_examples(*command, {"tarry delayed list orders --from now --to 'in 1h'",
                            "tarry delayed list orders --id 'order-*' --limit 10"});
  }
  {
    const auto [command, options] =
        add("get", "Shows one record; with --json its value is in base64", get);
    add_one_name(*command, *options);
    add_examples(*command, {"tarry delayed get orders order-4711",
                            "tarry delayed get orders @7Vbc5R5U4gfFC5 --json"});
  }
  {
    const auto [command, options] = add("count", "Counts pending records", count);
    command->add_option("TOPIC", options->topic, "Only records of this topic")->check(is_topic);
    command->add_option("--by", options->by, "Also counts by minute, hour or day of the due time")
        ->option_text("minute|hour|day")
        ->check(CLI::IsMember({"minute", "hour", "day"}))
        ->take_last();
    add_time_range(*command, *options);
    add_examples(*command, {"tarry delayed count", "tarry delayed count orders --by hour"});
  }
  {
    const auto [command, options] = add("trace", "Shows what has happened to a record", trace);
    add_one_name(*command, *options);
    add_examples(*command, {"tarry delayed trace orders order-4711",
                            "tarry delayed trace orders order-4711 --json"});
  }
  add_delayed_control(add);
  add_delayed_transfer(add);
  add_examples(*group, {"tarry delayed list orders", "tarry delayed cancel orders order-4711"});
}

}  // namespace tarry::cli
