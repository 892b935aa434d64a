#pragma once

// The common parts of the commands about pending records: their options, the paths of the admin's
// requests, and the cells of its answers.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cli/admin_client.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/options.h"

namespace tarry::cli {

struct DelayedOptions {
  BrokerOptions broker;
  std::optional<std::string> topic;
  std::vector<std::string> ids;
  std::optional<std::string> from, to, glob, key_glob;
  std::optional<std::uint32_t> limit;
  std::optional<PartitionIndex> partition;
  // `at` is for a move; `by` is for a count: minute, hour or day.
  std::optional<std::string> at, by;
  bool dry_run = false;
  std::optional<std::string> file;

  bool selects() const { return from || to || glob || key_glob; }
};

using DelayedRun = int (*)(const DelayedOptions&);

// Adds a command of the group `delayed`.
using AddDelayed = std::function<std::pair<CLI::App*, DelayedOptions*>(
    const char* name, const char* help, DelayedRun)>;

// --from, --to, in this order.  `options` must live as long as `command`.
void add_time_range(CLI::App& command, DelayedOptions& options);
// These and --id, --key.
void add_selection(CLI::App& command, DelayedOptions& options);
// -p
void add_partition(CLI::App& command, DelayedOptions& options);

// "@4f2c" is a handle; any other word has to be a possible id.
extern const CLI::Validator is_id_or_handle;

// Milliseconds since 1970 of a time word that was checked.
std::int64_t epoch_ms(const std::string& word);

// /delayed/TOPIC/ID, then `below`, then the partition.
std::string path_of(const DelayedOptions& options, const std::string& id,
                    const std::string& below = {});
// topic=...&from=... of the options that are given, without '?'.
std::string query_of(const DelayedOptions& options);

// An answer that has to be a JSON object.
Result<Json> parse_object(const Result<std::string>& body);

// Cells: a field that may be missing, in any of JSON's types; a time, on a terminal in the
// machine's zone and else in UTC; the time until then, "2h13m" or "-7s"; the same as "in 2h13m" or
// "7s ago", on a terminal without what is small beside it.
std::string field(const Json& of, const char* name);
std::string time_field(const Json& of, const char* name, const Output& out);
std::string left_field(const Json& of, const char* name);
std::string distance_field(const Json& of, const char* name, const Output& out);
// For tables: time_field() without its milliseconds on a terminal.
std::string due_field(const Json& record, const Output& out);
// The style of a row: red if the record is overdue.
Style style_of(const Json& record);

// The end of an error about an id under which nothing is pending: the last thing that happened to
// it.  Empty: the broker remembers nothing.
std::string last_event_text(AdminClient& admin, const DelayedOptions& options,
                            const std::string& id);

// Gets the records that the options select, page by page, and gives each to `take`; `more` is added
// to the query.  `take` returns whether to go on.  Errors: as the admin's.
Result<> for_each_pending(AdminClient& admin, const DelayedOptions& options,
                          const std::string& more, const std::function<bool(const Json&)>& take,
                          const std::function<void()>& page_ended);

}  // namespace tarry::cli
