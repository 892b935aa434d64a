#include "cli/commands/produce.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/time_text.h"
#include "cli/command_tree.h"
#include "cli/explanation.h"
#include "cli/io/exit_status.h"
#include "cli/io/interrupt.h"
#include "cli/io/json.h"
#include "cli/io/line_reader.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/io/text.h"
#include "cli/kafka/producer.h"
#include "cli/options.h"
#include "cli/pending_note.h"
#include "cli/record_format.h"
#include "cli/schedule_summary.h"
#include "cli/time_word.h"
#include "delay/schedule.h"

namespace tarry::cli {
namespace {

struct ProduceOptions {
  BrokerOptions broker;
  std::string topic;
  std::vector<std::string> files;
  std::vector<std::string> values;
  bool whole = false;
  std::optional<std::string> key;
  std::optional<std::string> key_separator;
  std::vector<std::string> headers;
  std::optional<PartitionIndex> partition;
  std::optional<std::string> delay, at, id, expire_at;
  std::optional<std::string> every, cron, zone, until;
  std::optional<std::uint64_t> times;
  std::string acks = "all";
};

// The headers of every record: first those that were given, then those that schedule it.
std::vector<KafkaHeader> headers_of(const ProduceOptions& options) {
  std::vector<KafkaHeader> headers;
  for (const auto& word : options.headers) {
    const auto equals = word.find('=');
    if (equals == word.npos) {
      headers.emplace_back(word, std::nullopt);
    } else {
      headers.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    }
  }
  const auto epoch_ms = [](const std::string& word) {
    return std::to_string(to_ms(*parse_time_word(word)));
  };
  if (options.delay)
    // Durations and times are sent as numbers, so that brokers of every version read them alike.
    headers.emplace_back("x-delay", std::to_string(parse_duration(*options.delay)->count()));
  if (options.at) headers.emplace_back("x-deliver-at", epoch_ms(*options.at));
  if (options.id) headers.emplace_back("x-schedule-id", *options.id);
  if (options.expire_at) headers.emplace_back("x-expire-at", epoch_ms(*options.expire_at));
  if (options.every)
    headers.emplace_back("x-every", std::to_string(parse_duration(*options.every)->count()));
  if (options.cron) headers.emplace_back("x-cron", *options.cron);
  if (options.zone) headers.emplace_back("x-cron-tz", *options.zone);
  if (options.until) headers.emplace_back("x-until", epoch_ms(*options.until));
  if (options.times) headers.emplace_back("x-count", std::to_string(*options.times));
  return headers;
}

// A word without '=' is a header with a null value, but one as curl takes it would be sent under
// the wrong name, and delivered at once.
const CLI::Validator is_header_to_send(
    [](std::string& word) -> std::string {
      if (word.empty() || word[0] == '=')
        return fmt::format("\"{}\" has an empty name; give NAME=VALUE", printable(word));
      const std::string meant = meant_header(word);
      return meant.empty() ? std::string()
                           : fmt::format("{} has no = after the name; write {}", printable(word),
                                         printable(meant));
    },
    "");

constexpr const char* several_of_one_id =
    "--id: an id names one record, but several were given, and the last would replace the others; "
    "nothing was sent";

// The error for options that the broker would refuse by the names of headers, which the user did
// not type; empty: there is none.
std::string wrong_schedule(const ProduceOptions& options) {
  // Any header may be one of these: the broker can have names of its own for them.
  const bool has_cron = options.cron || !options.headers.empty();
  const bool recurs = has_cron || options.every;
  if (options.until && !recurs)
    return fmt::format("--until {}: needs --every or --cron", printable(*options.until));
  if (options.times && !recurs)
    return fmt::format("--times {}: needs --every or --cron", *options.times);
  if (options.zone && !has_cron)
    return fmt::format("--tz {}: needs --cron", printable(*options.zone));
  if (options.delay && *parse_duration(*options.delay) > delay::last_due_allowed - wall_now()) {
    return fmt::format("--delay {}: the record would be due after the year 9999",
                       printable(*options.delay));
  }
  return {};
}

// FILE may be standard input, as for other programs.
bool is_standard_input(const std::string& path) {
  return path == "-";
}

std::string name_of(const std::string& path) {
  return is_standard_input(path) ? "standard input" : cell(path);
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : number_(is_standard_input(path) ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                        : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

Error error_of_file(const std::string& path) {
  const int error = errno;
  return {Errc::io, fmt::format("{}: {}", name_of(path), std::generic_category().message(error))};
}

// One run of the command.
class Production {
 public:
  explicit Production(const ProduceOptions& options)
      : options_(options), headers_(headers_of(options)), progress_("records accepted") {}

  int run() {
    // Sends all records, waits for all answers, then prints what was accepted and the first record
    // that was not.
    auto producer =
        KafkaProducer::open(options_.broker.kafka(), options_.topic, acks_of(options_.acks),
                            [this](const Delivery& delivery) { on_delivery(delivery); });
    if (!producer) return failure(producer.error().message);
    producer_ = std::move(*producer);
    if (options_.partition &&
        // The client library would take it and fail only when its answer is due.
        static_cast<std::size_t>(*options_.partition) >= producer_->partition_count()) {
      return failure(fmt::format("{}: there is no partition {}; the topic has {}",
                                 cell(options_.topic), *options_.partition,
                                 counted(producer_->partition_count(), "partition", "partitions")));
    }
    for (const auto& [name, meant] : explain(headers_, {}, wall_now()).slips)
      complain(fmt::format("-H {}: schedules nothing; did you mean {}?", cell(name), meant));
    // Only now: until here there is nothing that an interrupt would lose.
    end_in_order_on_signals();
    auto sent = send_all();
    const bool interrupted = sent && was_interrupted();
    // The whole input was read, and had no second record.
    if (sent && held_ && !interrupted) sent = send_held();
    // Nothing was sent, so there is nothing to report.
    if (several_of_one_id_) return usage_error(sent.error().message);
    // Records that were sent before an error are reported like all others.
    const auto finished = producer_->finish();
    if (sent && !finished) sent = finished;
    progress_.clear();

    if (!options_.broker.json) {
      out_.line(accepted());
      if (scheduled_)
        for (const auto& line : scheduled_->lines(out_.is_terminal())) out_.line(line);
    }
    if (first_error_) {
      const auto& [number, why] = *first_error_;
      // The error that ended the sending is also the reason for the records that it left
      // unanswered.
      const std::string reason = sent ? why : sent.error().message;
      return out_.end(failure(
          (interrupted ? "interrupted: " : "") +
          (number_ == 1 ? fmt::format("{}: not accepted: {}", cell(options_.topic), reason)
                        : fmt::format("{}: {} of {} records not accepted, the first of them record "
                                      "{}: {}",
                                      cell(options_.topic), refused_, number_, number, reason))));
    }
    if (interrupted) return out_.end(failure("interrupted: " + accepted()));
    if (!sent) return out_.end(failure(sent.error().message));
    say_elsewhere();
    say_past();
    return out_.end(done);
  }

 private:
  Result<> send_all() {
    if (!options_.values.empty()) {
      for (const auto& value : options_.values) {
        if (was_interrupted()) break;
        if (auto sent = send(options_.key, value); !sent) return sent;
      }
      return {};
    }
    if (options_.files.empty()) {
      if (::isatty(STDIN_FILENO) == 1)
        // Otherwise a person who forgot the input waits for a program that waits for the person.
        complain("reading records from the terminal, one per line; Ctrl-D ends the input");
      return send_lines(STDIN_FILENO, "standard input");
    }
    for (const auto& path : options_.files) {
      if (was_interrupted()) break;
      const Descriptor file(path);
      if (file.number() < 0) return std::unexpected(error_of_file(path));
      if (auto sent = options_.whole ? send_whole(file.number(), path)
                                     : send_lines(file.number(), name_of(path));
          !sent) {
        return sent;
      }
    }
    return {};
  }

  Result<> send_lines(int descriptor, const std::string& name) {
    // While no line comes, answers are taken and shown.
    LineReader lines(descriptor, name, [this] {
      producer_->poll();
      out_.flush();
    });
    while (!was_interrupted()) {
      const auto line = lines.next();
      if (!line) return std::unexpected(line.error());
      if (!*line) break;
      if (auto sent = send_line(**line); !sent) return sent;
    }
    return {};
  }

  // A line without the separator has no key, as in kcat.
  Result<> send_line(std::string_view line) {
    if (!options_.key_separator) return send(options_.key, line);
    const auto at = line.find(*options_.key_separator);
    if (at == line.npos) return send(std::nullopt, line);
    return send(line.substr(0, at), line.substr(at + options_.key_separator->size()));
  }

  Result<> send_whole(int descriptor, const std::string& path) {
    std::string value;
    // An interrupted read may have half the value only, so nothing is sent then.
    while (true) {
      const std::size_t size = value.size();
      // A device or a pipe may have no end, so the limit is checked while it is read.
      if (size > LineReader::max_line_bytes) {
        return fail(Errc::too_large, fmt::format("{}: longer than {} bytes", name_of(path),
                                                 LineReader::max_line_bytes));
      }
      value.resize(size + (256 << 10));
      const auto got = ::read(descriptor, value.data() + size, value.size() - size);
      if (got < 0 && errno != EINTR) return std::unexpected(error_of_file(path));
      value.resize(size + static_cast<std::size_t>(got < 0 ? 0 : got));
      if (was_interrupted()) return {};
      if (got == 0) return send(options_.key, value);
    }
  }

  // A record with an id is held back until it is known that there is no second one.
  Result<> send(const std::optional<std::string_view>& key, std::string_view value) {
    if (!options_.id) return send_now(key, value);
    several_of_one_id_ = held_.has_value();
    if (several_of_one_id_) return fail(Errc::invalid, several_of_one_id);
    held_.emplace(key, value);
    return {};
  }

  Result<> send_held() {
    const auto& [key, value] = *held_;
    if (!key && !options_.partition && producer_->partition_count() > 1) {
      complain(fmt::format(
          "{} has {}, and without -k or -p the partition is random: a later record with "
          "the id {} must go to the same partition, so give all records of one id "
          "the same key",
          cell(options_.topic), counted(producer_->partition_count(), "partition", "partitions"),
          cell(*options_.id)));
    }
    return send_now(key, value);
  }

  Result<> send_now(const std::optional<std::string_view>& key, std::string_view value) {
    if (++number_ == 1) first_sent_ = wall_now();
    auto sent = producer_->send(number_, key, value, headers_, options_.partition);
    if (!sent && sent.error().code != Errc::io) {
      // Only this record is wrong; the others are sent.
      on_delivery({number_, -1, std::nullopt, sent.error(), std::nullopt});
      return {};
    }
    // Reports are taken while more is sent, but not after each record.
    if (number_ % 64 == 0) producer_->poll();
    return sent;
  }

  void on_delivery(const Delivery& delivery) {
    // An acknowledgement without an offset: the record is not in the log, but delayed, expired or a
    // cancel.
    const bool has_schedule =
        !delivery.error && !delivery.offset && acks_of(options_.acks) != Acks::none;
    if (has_schedule) {
      summary().add(wall_now());
      scheduled_in_ = delivery.partition;
    }
    if (delivery.error) {
      ++refused_;
      // Answers come in any order between partitions.
      if (!first_error_ || first_error_->first > delivery.number)
        first_error_.emplace(delivery.number, delivery.error->message);
    } else {
      progress_.at(++accepted_);
    }
    if (!options_.broker.json) return;
    Json json;
    json["record"] = delivery.number;
    json["topic"] = options_.topic;
    // A record that was refused before it was sent has no partition.
    json["partition"] = delivery.partition < 0 ? Json(nullptr) : Json(delivery.partition);
    json["offset"] = delivery.offset ? Json(*delivery.offset) : Json(nullptr);
    if (has_schedule) put_schedule(json);
    if (delivery.error) json["error"] = delivery.error->message;
    out_.line(text_of(json));
  }

  // The answer to a record that is overdue already is that of any other, with an offset.
  void say_past() {
    if (!options_.at || *options_.at == "now" || scheduled_ || accepted_ == 0) return;
    if (acks_of(options_.acks) == Acks::none || *parse_time_word(*options_.at) > first_sent_)
      return;
    out_.flush();
    complain(fmt::format("--at {}: due in the past, delivered at once", printable(*options_.at)));
  }

  // A topic with one partition has no other in which the id could be pending.
  void say_elsewhere() {
    if (!options_.id || !scheduled_in_ || producer_->partition_count() < 2) return;
    const std::string note =
        elsewhere_note(options_.broker, options_.topic, *options_.id, *scheduled_in_);
    if (note.empty()) return;
    out_.flush();  // The note is about what was accepted, so that line comes first.
    complain(note);
  }

  // The topic's configs are asked for when a record was accepted without an offset, so that others
  // do not wait for them.
  ScheduleSummary& summary() {
    if (!scheduled_) {
      const auto configs = producer_->configs();
      // Without the topic's configs the summary says less, and nothing fails.
      scheduled_.emplace(options_.topic, headers_, configs.value_or(std::vector<ConfigEntry>{}),
                         first_sent_, broker_flags(options_.broker));
    }
    return *scheduled_;
  }

  // About the record that was added to the summary last.
  void put_schedule(Json& json) const {
    using Fate = ScheduleSummary::Fate;
    const auto& explanation = scheduled_->explanation();
    const Fate fate = scheduled_->fate();
    json["result"] = fate == Fate::delayed        ? "delayed"
                     : fate == Fate::cancellation ? "cancel"
                     : fate == Fate::expired      ? "expired"
                                                  : "dead-letter";
    if (!explanation.id.empty()) json["id"] = explanation.id;
    // Without the topic's configs the due time may not be known.
    if (fate != Fate::delayed || !explanation.due) return;
    json["due"] = format_time(*explanation.due);
    json["due_ms"] = to_ms(*explanation.due);
    if (scheduled_->is_estimated()) json["estimated"] = true;
    if (!explanation.recurrence.empty()) json["recurrence"] = explanation.recurrence;
  }

  std::string accepted() const {
    return scheduled_ ? scheduled_->accepted(accepted_)
                      : counted(accepted_, "record", "records") + " accepted";
  }

  const ProduceOptions& options_;
  const std::vector<KafkaHeader> headers_;
  Output out_;
  Progress progress_;
  std::uint64_t number_ = 0;  // The number of the last record; the first has 1.
  std::uint64_t accepted_ = 0, refused_ = 0;
  WallTime first_sent_{};
  std::optional<ScheduleSummary> scheduled_;    // Empty: every record has its offset.
  std::optional<PartitionIndex> scheduled_in_;  // The last of these went there.
  std::optional<std::pair<std::uint64_t, std::string>> first_error_;
  std::optional<std::pair<std::optional<std::string>, std::string>> held_;  // Key and value.
  bool several_of_one_id_ = false;
  std::unique_ptr<KafkaProducer> producer_;  // Reports to us, so it goes first.
};

int run(const ProduceOptions& options) {
  if (!options.values.empty() && !options.files.empty()) {
    return usage_error(fmt::format("{}: records come from -v or from files, not both",
                                   printable(options.files[0])));
  }
  // It is refused before a connection is made, where it is known by then.
  if (options.id && options.values.size() > 1) return usage_error(several_of_one_id);
  if (options.id && options.whole && options.files.size() > 1)
    return usage_error(several_of_one_id);
  if (options.whole && options.files.empty()) return usage_error("--whole: name the files");
  if (const auto wrong = wrong_schedule(options); !wrong.empty()) return usage_error(wrong);
  if (options.key_separator && (options.whole || !options.values.empty()))
    return usage_error("--key-separator: works only for records that are lines");
  if (options.key_separator && options.key_separator->empty())
    return usage_error("--key-separator: the text is empty; give the text between key and value");
  if (!options.key_separator) return Production(options).run();
  const auto separator = unescaped(*options.key_separator);
  if (!separator) return usage_error("--key-separator: " + separator.error().message);
  ProduceOptions read = options;
  read.key_separator = *separator;
  return Production(read).run();
}

// When the records are delivered, and until when.
void add_schedule_options(CLI::App& command, ProduceOptions& options) {
  auto* delay = command
                    .add_option("--delay", options.delay,
                                "Delivers the records this long after they arrive, as in 30m")
                    ->option_text("D")
                    ->check(is_duration)
                    ->take_last();
  command
      .add_option("--at", options.at,
                  "Delivers the records at this time, as in 2026-11-21T10:00:00+01:00")
      ->option_text("T")
      ->check(is_time_word)
      ->take_last()
      ->excludes(delay);
  command
      .add_option("--id", options.id,
                  "The schedule id of the one record; replaces a pending record with this id")
      ->option_text("ID")
      ->check(is_schedule_id)
      ->take_last();
  auto* every =
      command
          .add_option("--every", options.every, "Delivers the records repeatedly, at this interval")
          ->option_text("D")
          ->check(is_duration)
          ->take_last();
  command
      .add_option("--cron", options.cron,
                  "Delivers the records at each of these times, as in '0 9 * * MON-FRI'")
      ->option_text("EXPRESSION")
      ->excludes(every)
      ->take_last();
  command
      .add_option("--tz", options.zone,
                  "The time zone of --cron, as in Europe/Berlin (default: UTC)")
      ->option_text("ZONE")
      ->take_last();
  command.add_option("--until", options.until, "Stops the recurring delivery after this time")
      ->option_text("T")
      ->check(is_time_word)
      ->take_last();
  command
      .add_option("--times", options.times,
                  "Stops the recurring delivery after this many deliveries")
      ->option_text("N")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000'000}))
      ->take_last();
  command
      .add_option("--expire-at", options.expire_at,
                  "Drops the records if they cannot be delivered before this time")
      ->option_text("T")
      ->check(is_time_word)
      ->take_last();
}

}  // namespace

void add_produce(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<ProduceOptions>();
  auto* command = program.add_subcommand("produce", "Sends records, for delivery now or later");
  add_broker_options(*command, options->broker);
  command->add_option("TOPIC", options->topic, "The topic to send to")->required()->check(is_topic);
  command->add_option("FILE", options->files,
                      "Files with one record per line, - is stdin (default: stdin)");
  add_repeated(*command, "-v,--value", options->values,
               "Sends one record with this value; may be repeated")
      ->option_text("VALUE");
  command->add_flag("--whole", options->whole, "Each FILE is one record");
  auto* key = command->add_option("-k,--key", options->key, "The key of every record")
                  ->option_text("KEY")
                  ->take_last();
  command
      ->add_option("--key-separator", options->key_separator,
                   "The text between key and value in a line, as in '\\t'")
      ->option_text("TEXT")
      ->take_last()
      ->excludes(key);
  add_repeated(*command, "-H,--header", options->headers, "A header; may be repeated")
      ->option_text("NAME=VALUE")
      ->check(is_header_to_send);
  command
      ->add_option("-p,--partition", options->partition,
                   "Sends to this partition (default: chosen by the key)")
      ->option_text("PARTITION")
      ->check(is_partition)
      ->take_last();
  add_schedule_options(*command, *options);
  command
      ->add_option("--acks", options->acks,
                   "Acknowledgements to wait for: all, 1 or 0 (default all)")
      ->option_text("all|1|0")
      ->check(is_acks)
      ->take_last();
  add_examples(*command,
               {"tarry produce orders -v 'pay up' -k 4711 --delay 30m --id order-4711",
                "tarry produce reports -v go --cron '0 9 * * MON-FRI' --tz Europe/Berlin"});
  command->callback([options, &chosen] { chosen.run = [options] { return run(*options); }; });
}

}  // namespace tarry::cli
