#include "cli/commands/delayed_transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/base64.h"
#include "base/log.h"
#include "cli/admin_choice.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/interrupt.h"
#include "cli/io/line_reader.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/io/text.h"
#include "cli/kafka/producer.h"

namespace tarry::cli {
namespace {

int export_records(const DelayedOptions& options) {
  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  Output out;
  Progress progress("records exported");
  std::uint64_t count = 0;
  const auto take = [&](const Json& record) {
    out.line(text_of(record));
    progress.at(++count);
    // A reader that has gone ends the export, or it would read all pages for nobody.
    return !out.is_over();
  };
  // The lines are JSON with or without --json, because they are for `import`.
  const auto all = for_each_pending(*admin, options, "&values=true", take, [] {});
  progress.clear();
  if (!all) return out.end(failure(all.error().message));
  return out.end(done);
}

// --- Import.

// A line of an export, as far as a producer needs it.
struct Line {
  std::string topic;
  std::optional<PartitionIndex> partition;
  std::optional<std::string> key, value;
  std::vector<KafkaHeader> headers;
};

std::unexpected<Error> wrong(const char* name, const char* expected) {
  return fail(Errc::invalid, fmt::format("{} is not {}", name, expected));
}

// Whether it is a number above `max`.  Compared as it was read: a number of 64 bits is a negative
// one to Json's own operators.
bool is_above(const Json& number, std::int64_t max) {
  return number.is_number_unsigned() && std::cmp_greater(number.get<std::uint64_t>(), max);
}

// Text, or bytes in base64 when NAME_base64 says so; nothing for null.
Result<std::optional<std::string>> bytes_in(const Json& of, const char* name) {
  if (!of.contains(name) || of[name].is_null()) return std::nullopt;
  if (!of[name].is_string()) return wrong(name, "a text");
  auto text = of[name].get<std::string>();
  const std::string flag = fmt::format("{}_base64", name);
  if (!of.contains(flag) || of[flag] != true) return text;
  auto bytes = from_base64(text);
  if (!bytes) return wrong(name, "base64");
  return *bytes;
}

// A time in milliseconds, as the header of that name.
Result<> add_time(Line& line, const Json& of, const char* name, const char* header, bool needed) {
  if (!of.contains(name) || of[name].is_null()) {
    if (!needed) return {};
    return fail(Errc::invalid, fmt::format("{} is missing", name));
  }
  if (!of[name].is_number_integer() || is_above(of[name], INT64_MAX))
    return wrong(name, "a number of milliseconds");
  line.headers.emplace_back(header, std::to_string(of[name].get<std::int64_t>()));
  return {};
}

Result<> add_headers(Line& line, const Json& of) {
  if (!of.contains("headers") || of["headers"].is_null()) return {};
  if (!of["headers"].is_array()) return wrong("headers", "an array");
  for (const auto& header : of["headers"]) {
    if (!header.is_object()) return wrong("headers", "an array of objects");
    auto name = bytes_in(header, "name");
    auto value = bytes_in(header, "value");
    if (!name) return std::unexpected(name.error());
    if (!value) return std::unexpected(value.error());
    if (!*name) return wrong("headers", "an array of objects with a name");
    line.headers.emplace_back(std::move(**name), std::move(*value));
  }
  return {};
}

// The headers of a recurring record; its next run is its due time.
Result<> add_recurrence(Line& line, const Json& of) {
  // Without its rule a recurring record would be delivered once, and nobody would notice.
  if (!of.contains("recurrence") || of["recurrence"].is_null()) {
    if (!of.contains("recurring") || of["recurring"] != true) return {};
    return fail(Errc::invalid, "recurring is true, but recurrence is missing");
  }
  const Json& recurrence = of["recurrence"];
  if (!recurrence.is_object()) return wrong("recurrence", "an object");
  if (!recurrence.contains("every") && !recurrence.contains("cron"))
    return wrong("recurrence", "a rule: it has neither every nor cron");
  for (const auto& [name, header] :
       {std::pair{"every", "x-every"}, {"cron", "x-cron"}, {"tz", "x-cron-tz"}}) {
    if (!recurrence.contains(name)) continue;
    if (!recurrence[name].is_string()) return wrong(name, "a text");
    line.headers.emplace_back(header, recurrence[name].get<std::string>());
  }
  // The record begins anew, so its count is that of the deliveries that are left.
  if (recurrence.contains("left")) {
    if (!recurrence["left"].is_number_unsigned()) return wrong("left", "a count");
    line.headers.emplace_back("x-count", recurrence["left"].dump());
  }
  return add_time(line, recurrence, "until_ms", "x-until", false);
}

Result<Line> parse_line(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_object()) return fail(Errc::invalid, "it is not a JSON object");
  // The export could not read all of it, and what is missing would be taken for null.
  if (json.contains("damage") && json["damage"].is_string()) {
    return fail(Errc::invalid, fmt::format("the record was damaged when it was exported: {}",
                                           printable(json["damage"].get<std::string>())));
  }
  Line line;
  if (!json.contains("topic") || !json["topic"].is_string()) return wrong("topic", "a text");
  line.topic = json["topic"].get<std::string>();
  // A file may come from anywhere, and the client library would only say that it failed.
  if (std::string word = line.topic; !is_topic(word).empty())
    return fail(Errc::invalid, is_topic(word));
  if (json.contains("partition") && !json["partition"].is_null()) {
    if (!json["partition"].is_number_unsigned() || is_above(json["partition"], INT32_MAX))
      return wrong("partition", "a partition's number");
    line.partition = json["partition"].get<PartitionIndex>();
  }
  auto key = bytes_in(json, "key");
  if (!key) return std::unexpected(key.error());
  line.key = std::move(*key);
  // Always base64 in an export, unlike the key, the id and the headers.
  if (json.contains("value") && !json["value"].is_null()) {
    if (!json["value"].is_string()) return wrong("value", "a text");
    auto value = from_base64(json["value"].get<std::string>());
    if (!value) return wrong("value", "base64");
    line.value = std::move(*value);
  }
  if (const auto added = add_headers(line, json); !added) return std::unexpected(added.error());
  if (const auto added = add_time(line, json, "due_ms", "x-deliver-at", true); !added)
    return std::unexpected(added.error());
  if (const auto added = add_time(line, json, "expires_ms", "x-expire-at", false); !added)
    return std::unexpected(added.error());
  if (const auto added = add_recurrence(line, json); !added) return std::unexpected(added.error());
  auto id = bytes_in(json, "id");
  if (!id) return std::unexpected(id.error());
  // It stays in the record's headers, so an export says it there too.
  const bool said = std::ranges::any_of(line.headers, [](const KafkaHeader& header) {
    return equals_ignoring_case(header.first, "x-schedule-id");
  });
  if (*id && !said) line.headers.emplace_back("x-schedule-id", std::move(**id));
  return line;
}

class Import {
 public:
  explicit Import(const DelayedOptions& options)
      : options_(options), progress_("records accepted") {}

  int run() {
    int descriptor = STDIN_FILENO;
    std::string name = "standard input";
    if (options_.file && *options_.file != "-") {
      name = cell(*options_.file);
      descriptor = ::open(options_.file->c_str(), O_RDONLY | O_CLOEXEC);
      if (descriptor < 0) {
        return failure(fmt::format("{}: {}", name, std::generic_category().message(errno)));
      }
    }
    end_in_order_on_signals();
    auto read = read_lines(descriptor, name);
    if (descriptor != STDIN_FILENO) ::close(descriptor);
    // The records that were sent are reported, whatever happened after that.
    for (auto& [topic, producer] : producers_) {
      if (const auto finished = producer->finish(); !finished && read) read = finished;
    }
    progress_.clear();
    const std::string accepted = counted(accepted_, "record accepted", "records accepted");
    Output out;
    if (options_.broker.json) {
      out.line(text_of(Json{{"accepted", accepted_}, {"refused", refused_}}));
    } else {
      out.line(accepted);
    }
    out.flush();
    if (refused_ != 0) {
      std::string text = fmt::format("{}, {} refused; the first refused one is line {}: {}",
                                     accepted, refused_, first_refused_, first_reason_);
      // Often the records failed for the same reason.
      if (!read && !read.error().message.ends_with(first_reason_)) {
        text += "; the import ended with: " + read.error().message;
      } else if (was_interrupted()) {
        text += "; interrupted";
      }
      return out.end(failure(text));
    }
    if (!read) return out.end(failure(read.error().message));
    if (was_interrupted()) return out.end(failure("interrupted: " + accepted));
    return out.end(done);
  }

 private:
  Result<> read_lines(int descriptor, const std::string& name) {
    LineReader lines(descriptor, name, [this] {
      // While no line comes, answers are taken.
      for (auto& [topic, producer] : producers_) producer->poll();
    });
    for (;;) {
      const auto text = lines.next();
      if (!text) return std::unexpected(text.error());
      if (!*text || was_interrupted()) return {};
      ++number_;
      // Some editors end lines with a carriage return.
      if ((*text)->find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const auto line = parse_line(**text);
      // A line that cannot be read ends the import; the lines before it have been sent.
      if (!line) {
        return fail(line.error().code,
                    fmt::format("{}: line {}: {}", name, number_, line.error().message));
      }
      if (const auto sent = send(*line); !sent) {
        return fail(sent.error().code,
                    fmt::format("{}: line {}: {}", name, number_, sent.error().message));
      }
    }
  }

  Result<> send(const Line& line) {
    auto at = producers_.find(line.topic);
    if (at == producers_.end()) {
      // Each is a client with threads of its own.
      if (producers_.size() == max_producers) {
        // A producer that goes takes its unanswered records with it, and their reports.
        if (const auto finished = producers_.begin()->second->finish(); !finished) return finished;
        producers_.erase(producers_.begin());
      }
      auto opened =
          KafkaProducer::open(options_.broker.kafka(), line.topic, Acks::all,
                              [this](const Delivery& delivery) { on_delivery(delivery); });
      if (!opened) return std::unexpected(opened.error());
      at = producers_.emplace(line.topic, std::move(*opened)).first;
    }
    KafkaProducer& producer = *at->second;
    // An id names one record in its partition, so each record goes back to its own.
    auto partition = line.partition;
    // librdkafka would report it late, and as a failure of the record alone.
    if (partition && static_cast<std::size_t>(*partition) >= producer.partition_count()) {
      return fail(Errc::invalid,
                  fmt::format("{} has no partition {}, only {}", line.topic, *partition,
                              counted(producer.partition_count(), "partition", "partitions")));
    }
    return producer.send(number_, line.key, line.value, line.headers, partition);
  }

  void on_delivery(const Delivery& delivery) {
    if (!delivery.error) {
      progress_.at(++accepted_);
    } else if (refused_++ == 0) {
      first_refused_ = delivery.number;
      first_reason_ = delivery.error->message;
    }
  }

  static constexpr std::size_t max_producers = 16;

  const DelayedOptions& options_;
  Progress progress_;
  std::map<std::string, std::unique_ptr<KafkaProducer>> producers_;
  std::uint64_t number_ = 0;  // The number of the line.
  std::uint64_t accepted_ = 0, refused_ = 0, first_refused_ = 0;
  std::string first_reason_;
};

int import_records(const DelayedOptions& options) {
  return Import(options).run();
}

}  // namespace

void add_delayed_transfer(const AddDelayed& add) {
  {
    const auto [command, options] =
        add("export",
            "Writes pending records as JSON, one per line, for `import`; values are in base64",
            export_records);
    command->add_option("TOPIC", options->topic, "Only records of this topic")->check(is_topic);
    add_selection(*command, *options);
    add_examples(*command, {"tarry delayed export orders > pending.jsonl",
                            "tarry delayed export --from now --to +1d"});
  }
  {
    const auto [command, options] =
        add("import", "Sends the records that `export` wrote", import_records);
    command->add_option("FILE", options->file, "The file (default: standard input)")
        ->option_text("FILE");
    add_examples(*command,
                 {"tarry delayed import pending.jsonl",
                  "tarry delayed export -b old:9092 --admin old:8080 | tarry delayed import"});
  }
}

}  // namespace tarry::cli
