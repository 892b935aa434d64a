#include "cli/commands/delayed.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/time_text.h"
#include "base/utf8.h"
#include "cli/admin_choice.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/options.h"

namespace tarry::cli {
namespace {

constexpr std::uint64_t page_size = 500;

struct Options {
  BrokerOptions broker;
  std::optional<std::string> topic;
  std::vector<std::string> ids;
  std::optional<std::string> from, to, glob;
  std::optional<std::uint32_t> limit;
  std::optional<PartitionIndex> partition;
};

// A field that may be missing, in any of JSON's types.
std::string field(const Json& of, const char* name) {
  if (!of.is_object() || !of.contains(name) || of[name].is_null()) return "-";
  const Json& value = of[name];
  return cell(value.is_string() ? value.get<std::string>() : text_of(value));
}

std::string time_field(const Json& of, const char* name) {
  if (!of.is_object() || !of.contains(name) || !of[name].is_number_integer()) return "-";
  return format_time(from_ms(of[name].get<std::int64_t>()));
}

// "in 2h13m", or "7s ago" for what is overdue.
std::string distance_field(const Json& of, const char* name) {
  if (!of.is_object() || !of.contains(name) || !of[name].is_number_integer()) return "-";
  using namespace std::chrono;
  const auto now = time_point_cast<milliseconds>(system_clock::now());
  const auto left = from_ms(of[name].get<std::int64_t>()) - now;
  const auto rough = abs(left) >= 10s ? milliseconds(round<seconds>(left)) : left;
  return left < 0ms ? format_duration(-rough) + " ago" : "in " + format_duration(rough);
}

std::string path_of(const Options& options, const std::string& id) {
  std::string path =
      fmt::format("/delayed/{}/{}", percent_encoded(*options.topic), percent_encoded(id));
  if (options.partition) path += fmt::format("?partition={}", *options.partition);
  return path;
}

Result<Json> parse(const Result<std::string>& body) {
  if (!body) return std::unexpected(body.error());
  Json json = Json::parse(*body, nullptr, false);
  if (!json.is_object())
    return fail(Errc::io,
                fmt::format("the admin's answer is not a JSON object: {}", printable(*body)));
  return json;
}

int list(const Options& options) {
  std::string query;
  const auto add = [&](const char* name, const std::string& value) {
    query += fmt::format("{}{}={}", query.empty() ? "" : "&", name, percent_encoded(value));
  };
  const auto epoch_ms = [](const std::string& word) {
    return std::to_string(to_ms(*parse_time(word)));
  };
  if (options.topic) add("topic", *options.topic);
  if (options.from) add("from", epoch_ms(*options.from));
  if (options.to) add("to", epoch_ms(*options.to));
  if (options.glob) add("id", *options.glob);

  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  Output out;
  Table table({{"TOPIC"},
               {"PARTITION", true},
               {"DUE"},
               {"IN"},
               {"ID"},
               {"HANDLE"},
               {"KEY"},
               {"BYTES", true}});
  std::uint64_t left = options.limit.value_or(UINT32_MAX);
  std::string after;
  while (left > 0 && !out.is_over()) {
    const std::uint64_t limit = std::min(left, page_size);
    std::string page_query = query + (query.empty() ? "" : "&") + fmt::format("limit={}", limit);
    if (!after.empty()) page_query += "&after=" + percent_encoded(after);
    const auto page = parse(admin->get("/delayed?" + page_query));
    if (!page) return out.end(failure(page.error().message));
    if (!page->contains("records") || !(*page)["records"].is_array())
      return out.end(failure("the admin's answer has no records"));
    for (const auto& record : (*page)["records"]) {
      if (left == 0) break;
      --left;
      if (options.broker.json) {
        out.line(text_of(record));
      } else {
        table.row({field(record, "topic"), field(record, "partition"), time_field(record, "due_ms"),
                   distance_field(record, "due_ms"), field(record, "id"), field(record, "handle"),
                   field(record, "key"), field(record, "value_bytes")});
      }
    }
    table.print(out);
    if (!page->contains("next") || !(*page)["next"].is_string()) break;
    std::string next = (*page)["next"].get<std::string>();
    if (next.empty() || next == after) break;
    after = std::move(next);
  }
  return out.end(done);
}

int get(const Options& options) {
  const std::string& id = options.ids[0];
  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  const auto record = parse(admin->get(path_of(options, id)));
  if (!record) return failure(fmt::format("{}: {}", cell(id), record.error().message));
  Output out;
  if (options.broker.json) {
    out.line(text_of(*record));
    return out.end(done);
  }
  Table table({{""}, {""}});
  for (const char* name : {"topic", "partition", "id", "handle"})
    table.row({name, field(*record, name)});
  table.row({"due", time_field(*record, "due_ms")});
  table.row({"in", distance_field(*record, "due_ms")});
  table.row({"accepted", time_field(*record, "accepted_ms")});
  if (record->contains("expires_ms") && !(*record)["expires_ms"].is_null())
    table.row({"expires", time_field(*record, "expires_ms")});
  table.row({"key", field(*record, "key")});
  if (record->contains("headers") && (*record)["headers"].is_array()) {
    for (const auto& header : (*record)["headers"])
      table.row({"header", field(header, "name") + "=" + field(header, "value")});
  }
  table.row({"bytes", field(*record, "value_bytes")});
  std::string value = "-";
  if (record->contains("value") && (*record)["value"].is_string()) {
    const auto bytes = from_base64((*record)["value"].get<std::string>());
    value = bytes ? cell(*bytes) : field(*record, "value");
  }
  table.row({"value", value});
  table.print(out);
  return out.end(done);
}

int cancel(const Options& options) {
  auto admin = choose_admin(options.broker, AdminUse::changes);
  if (!admin) return admin.error().report();
  Output out;
  Table table({{"ID"}, {"RESULT"}});
  std::string first_reason;
  std::size_t not_cancelled = 0;
  for (const auto& id : options.ids) {
    auto answer = parse(admin->remove(path_of(options, id)));
    std::string result = answer ? field(*answer, "result") : "error";
    if (result != "cancelled") {
      const std::string reason = !answer               ? answer.error().message
                                 : result == "unknown" ? "nothing is pending under this id"
                                 : result == "already_delivered" ? "it has been delivered already"
                                                                 : result;
      if (not_cancelled++ == 0) first_reason = fmt::format("{}: {}", cell(id), reason);
    }
    if (options.broker.json) {
      Json json{{"topic", *options.topic}, {"id", id}};
      if (answer) {
        json.update(*answer);
      } else {
        json["result"] = "error";
        json["error"] = answer.error().message;
      }
      out.line(text_of(json));
    } else {
      table.row({cell(id), result});
    }
    // Nobody answers: each of the others would wait for the whole timeout again.
    if (!answer && answer.error().code == Errc::io) break;
  }
  table.print(out);
  out.flush();
  if (not_cancelled == 0) return out.end(done);
  return out.end(failure(options.ids.size() == 1
                             ? first_reason
                             : fmt::format("{} of {} not cancelled, the first of them {}",
                                           not_cancelled, options.ids.size(), first_reason)));
}

// "@4f2c" is a handle; any other word has to be a possible id.
const CLI::Validator is_id_or_handle(
    [](std::string& word) -> std::string {
      if (word.empty() || word.size() > 249)
        return fmt::format("an id has 1 to 249 bytes; this one has {}", word.size());
      return is_utf8(word) ? std::string() : fmt::format("{} is not UTF-8", printable(word));
    },
    "");

}  // namespace

void add_delayed(CLI::App& program, Chosen& chosen) {
  auto* group = add_group(program, chosen, "delayed", "Shows and cancels pending records");
  const auto add = [&](const char* name, const char* help, int (*run)(const Options&)) {
    auto added = add_broker_command<Options>(*group, chosen, name, help, run);
    add_data_option(*added.first, added.second->broker);
    return added;
  };
  const auto add_names = [](CLI::App& command, Options& options, bool several) {
    command.add_option("TOPIC", options.topic, "The topic")->required()->check(is_topic);
    command.add_option("ID", options.ids, "A schedule id, or a handle, which begins with @")
        ->required()
        ->expected(1, several ? CLI::detail::expected_max_vector_size : 1)
        ->check(is_id_or_handle);
    command.add_option("-p,--partition", options.partition, "Only this partition (default: all)")
        ->option_text("PARTITION")
        ->check(is_partition)
        ->take_last();
  };

  {
    const auto [command, options] = add("list", "Lists pending records by due time", list);
    command->add_option("TOPIC", options->topic, "Only records of this topic")->check(is_topic);
    const auto add_time = [command = command](const char* name, std::optional<std::string>& to,
                                              const char* help) {
      command->add_option(name, to, help)->option_text("T")->check(is_time)->take_last();
    };
    add_time("--from", options->from, "Only records due at this time or later");
    add_time("--to", options->to, "Only records due before this time");
    command
        ->add_option("--id", options->glob, "Only ids that match: * is any text, ? one character")
        ->option_text("GLOB")
        ->take_last();
    command->add_option("--limit", options->limit, "Lists at most this many (default: all)")
        ->option_text("N")
        ->check(is_count)
        ->take_last();
  }
  {
    const auto [command, options] = add("get", "Shows one record", get);
    add_names(*command, *options, false);
  }
  {
    const auto [command, options] = add("cancel", "Cancels records, definitively", cancel);
    add_names(*command, *options, true);
  }
}

}  // namespace tarry::cli
