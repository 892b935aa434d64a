#include "cli/commands/delayed_common.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/percent_encoding.h"
#include "base/time_text.h"
#include "base/utf8.h"
#include "cli/admin_client.h"
#include "cli/io/text.h"
#include "cli/local_time.h"
#include "cli/time_word.h"

namespace tarry::cli {
namespace {

constexpr std::uint64_t page_size = 500;

// A script's empty variable is not a pattern.
const CLI::Validator is_glob(
    [](std::string& word) -> std::string {
      return word.empty() ? "it is empty; give a text, or a pattern as in order-*" : std::string();
    },
    "");

void add_time(CLI::App& command, const char* name, std::optional<std::string>& to,
              const char* help) {
  command.add_option(name, to, help)->option_text("T")->check(is_time_word)->take_last();
}
void add_glob(CLI::App& command, const char* name, std::optional<std::string>& to,
              const char* help) {
  command.add_option(name, to, help)->option_text("GLOB")->check(is_glob)->take_last();
}

// A range that is turned round selects nothing, which would look like an answer.
void check_range(const DelayedOptions& options) {
  if (!options.from || !options.to || epoch_ms(*options.from) <= epoch_ms(*options.to)) return;
  throw CLI::ValidationError(
      "--to", fmt::format("{} is before --from {}", cell(*options.to), cell(*options.from)));
}

std::optional<WallTime> time_in(const Json& of, const char* name) {
  if (!of.is_object() || !of.contains(name) || !of[name].is_number_integer()) return std::nullopt;
  return from_ms(of[name].get<std::int64_t>());
}

}  // namespace

const CLI::Validator is_id_or_handle(
    [](std::string& word) -> std::string {
      if (word.empty() || word.size() > 249)
        return fmt::format("an id has 1 to 249 bytes; this one has {}", word.size());
      return is_utf8(word) ? std::string() : fmt::format("{} is not UTF-8", printable(word));
    },
    "");

void add_time_range(CLI::App& command, DelayedOptions& options) {
  add_time(command, "--from", options.from, "Only records due at this time or later");
  add_time(command, "--to", options.to, "Only records due before this time");
  // When all words are read, because either option may come first.
  command.parse_complete_callback([&options] { check_range(options); });
}

void add_selection(CLI::App& command, DelayedOptions& options) {
  add_time_range(command, options);
  add_glob(command, "--id", options.glob,
           "Only ids that match: * is any text, ? one byte, [ab] one of these");
  add_glob(command, "--key", options.key_glob, "Only keys that match");
}

void add_partition(CLI::App& command, DelayedOptions& options) {
  command.add_option("-p,--partition", options.partition, "Only this partition (default: all)")
      ->option_text("PARTITION")
      ->check(is_partition)
      ->take_last();
}

std::int64_t epoch_ms(const std::string& word) {
  return to_ms(*parse_time_word(word));
}

std::string path_of(const DelayedOptions& options, const std::string& id,
                    const std::string& below) {
  std::string path =
      fmt::format("/delayed/{}/{}{}", percent_encoded(*options.topic), percent_encoded(id), below);
  if (options.partition) path += fmt::format("?partition={}", *options.partition);
  return path;
}

std::string query_of(const DelayedOptions& options) {
  std::string query;
  const auto add = [&](const char* name, const std::string& value) {
    query += fmt::format("{}{}={}", query.empty() ? "" : "&", name, percent_encoded(value));
  };
  if (options.topic) add("topic", *options.topic);
  if (options.partition) add("partition", std::to_string(*options.partition));
  // Times go as numbers: `in 1h` means the clock of this machine, and the broker's may differ.
  if (options.from) add("from", std::to_string(epoch_ms(*options.from)));
  if (options.to) add("to", std::to_string(epoch_ms(*options.to)));
  if (options.glob) add("id", *options.glob);
  if (options.key_glob) add("key", *options.key_glob);
  return query;
}

Result<Json> parse_object(const Result<std::string>& body) {
  if (!body) return std::unexpected(body.error());
  Json json = parse_json(*body);
  if (!json.is_object())
    return fail(Errc::io,
                fmt::format("the admin's answer is not a JSON object: {}", printable(*body)));
  return json;
}

std::string field(const Json& of, const char* name) {
  // An answer may be of another version, so a field that is missing is no reason to fail.
  if (!of.is_object() || !of.contains(name) || of[name].is_null()) return "-";
  const Json& value = of[name];
  return cell(value.is_string() ? value.get<std::string>() : text_of(value));
}

std::string time_field(const Json& of, const char* name, const Output& out) {
  const auto time = time_in(of, name);
  return time ? shown_time(*time, out.is_terminal()) : "-";
}

std::string left_field(const Json& of, const char* name) {
  using namespace std::chrono;
  const auto time = time_in(of, name);
  if (!time) return "-";
  const auto left = *time - wall_now();
  // From ten seconds on nobody needs the milliseconds.
  return format_duration(abs(left) >= 10s ? milliseconds(round<seconds>(left)) : left);
}

std::string distance_field(const Json& of, const char* name, const Output& out) {
  const auto time = time_in(of, name);
  // People read "in 2 days"; a program that reads the output gets all digits.
  if (time && out.is_terminal()) return rough_distance(*time - wall_now());
  std::string left = left_field(of, name);
  if (left == "-") return left;
  return left.starts_with('-') ? left.substr(1) + " ago" : "in " + left;
}

std::string due_field(const Json& record, const Output& out) {
  const auto due = time_in(record, "due_ms");
  if (!due) return "-";
  return out.is_terminal() ? local_time(*due, false) : format_time(*due);
}

Style style_of(const Json& record) {
  const auto due = time_in(record, "due_ms");
  return due && *due < wall_now() ? Style::red : Style::plain;
}

std::string last_event_text(AdminClient& admin, const DelayedOptions& options,
                            const std::string& id) {
  const auto answer = parse_object(admin.get(path_of(options, id, "/trace")));
  if (!answer || !answer->contains("events") || !(*answer)["events"].is_array() ||
      (*answer)["events"].empty()) {
    return {};
  }
  const Json& last = (*answer)["events"].back();
  const auto at = time_in(last, "at_ms");
  if (!at) return {};
  return fmt::format("; its last event was \"{}\", {} (`tarry delayed trace {} {}` shows all)",
                     field(last, "event"), rough_distance(*at - wall_now()), cell(*options.topic),
                     cell(id));
}

Result<> for_each_pending(AdminClient& admin, const DelayedOptions& options,
                          const std::string& more, const std::function<bool(const Json&)>& take,
                          const std::function<void()>& page_ended) {
  const std::string query = query_of(options);
  std::uint64_t left = options.limit.value_or(UINT32_MAX);
  std::string after;
  while (left > 0) {
    std::string page_query = query + (query.empty() ? "" : "&") +
                             fmt::format("limit={}{}", std::min(left, page_size), more);
    // The cursor says where the last page ended, so records that come or go meanwhile shift
    // nothing.
    if (!after.empty()) page_query += "&after=" + percent_encoded(after);
    const auto page = parse_object(admin.get("/delayed?" + page_query));
    if (!page) return std::unexpected(page.error());
    if (!page->contains("records") || !(*page)["records"].is_array())
      return fail(Errc::io, "the admin's answer has no records");
    for (const auto& record : (*page)["records"]) {
      // A page may have more than its limit: records that a search finds by their id come on top.
      if (left == 0) break;
      --left;
      if (!take(record)) return {};
    }
    page_ended();
    if (!page->contains("next") || !(*page)["next"].is_string()) break;
    std::string next = (*page)["next"].get<std::string>();
    // A page that leads to itself would never end.
    if (next.empty() || next == after) break;
    after = std::move(next);
  }
  return {};
}

}  // namespace tarry::cli
