#include "cli/commands/consume.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/log.h"
#include "base/time_text.h"
#include "cli/kafka_client.h"
#include "cli/line_reader.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/record_format.h"
#include "cli/text.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct Options {
  BrokerOptions broker;
  std::string topic;
  std::string from = "start";
  std::optional<PartitionIndex> partition;
  std::optional<std::uint32_t> count;
  bool until_end = false;
  std::optional<std::string> idle;
  std::string format = "%s\\n";
};

// start, end, an offset, or the first record at a time.
struct From {
  Offset offset = log_start;
  std::optional<WallTime> time;
};

Result<From> parse_from(std::string_view word) {
  if (word == "start" || word == "beginning" || word == "earliest") return From{};
  if (word == "end" || word == "latest") return From{log_end, std::nullopt};
  if (word.starts_with('@')) {
    const auto time = parse_time(word.substr(1));
    if (!time) return std::unexpected(time.error());
    return From{0, *time};
  }
  Offset offset = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), offset);
  if (error == std::errc{} && end == word.data() + word.size() && offset >= 0)
    return From{offset, std::nullopt};
  return fail(Errc::invalid, fmt::format("{}: give start, end, an offset, or @ and a time, as in "
                                         "@2026-11-21T10:00:00Z",
                                         printable(word)));
}

// One run of the command.
class Consumption {
 public:
  Consumption(const Options& options, From from, RecordFormat format)
      : options_(options), from_(from), format_(std::move(format)) {}

  int run() {
    auto consumer = KafkaConsumer::open(
        {options_.broker.brokers, options_.broker.timeout, options_.broker.properties},
        options_.topic);
    if (!consumer) return failure(consumer.error().message);
    if (const auto started = start(*consumer); !started) return failure(started.error().message);
    end_in_order_on_signals();
    const auto read = read_all(*consumer);
    return out_.end(read ? done : failure(read.error().message));
  }

 private:
  Result<> start(KafkaConsumer& consumer) {
    std::vector<PartitionIndex> partitions = consumer.partitions();
    if (options_.partition) {
      if (!std::ranges::count(partitions, *options_.partition)) {
        return fail(Errc::not_found,
                    fmt::format("{}: there is no partition {}, it has {}", cell(options_.topic),
                                *options_.partition,
                                counted(partitions.size(), "partition", "partitions")));
      }
      partitions = {*options_.partition};
    }
    reading_.insert(partitions.begin(), partitions.end());
    if (from_.time) {
      const auto offsets = consumer.offsets_at(partitions, to_ms(*from_.time));
      if (!offsets) return std::unexpected(offsets.error());
      for (const auto& [partition, offset] : *offsets)
        if (auto started = consumer.start(partition, offset < 0 ? log_end : offset); !started)
          return started;
      return {};
    }
    for (const auto partition : partitions)
      if (auto started = consumer.start(partition, from_.offset); !started) return started;
    return {};
  }

  Result<> read_all(KafkaConsumer& consumer) {
    const auto idle =
        options_.idle ? *parse_duration(*options_.idle) : std::chrono::milliseconds::zero();
    // The first answer may take as long as any other.
    auto quiet_since = steady_clock::now() + options_.broker.timeout;
    std::uint32_t count = 0;
    std::string text;
    while (!was_interrupted() && !out_.is_over()) {
      auto next = consumer.next(0ms);
      if (next && std::holds_alternative<std::monostate>(*next)) {
        out_.flush();
        next = consumer.next(50ms);
      }
      if (!next) return std::unexpected(next.error());
      const auto now = steady_clock::now();
      if (const auto* end = std::get_if<EndOfPartition>(&*next)) {
        quiet_since = std::min(quiet_since, now);
        reading_.erase(end->partition);
        if (options_.until_end && reading_.empty()) return {};
      } else if (const auto* record = std::get_if<ConsumedRecord>(&*next)) {
        quiet_since = now;
        text.clear();
        if (options_.broker.json) {
          text = json_of(*record, options_.topic) + '\n';
        } else {
          format_.append(*record, options_.topic, text);
        }
        out_.write(text);
        if (++count == options_.count) return {};
      } else if (options_.idle && now - quiet_since >= idle) {
        return {};
      }
    }
    return {};
  }

  const Options& options_;
  const From from_;
  const RecordFormat format_;
  std::set<PartitionIndex> reading_;  // Those whose end was not reached yet.
  Output out_;
};

int run(const Options& options) {
  const auto from = parse_from(options.from);
  if (!from) return usage_error(fmt::format("--from: {}", from.error().message));
  auto format = RecordFormat::parse(options.format);
  if (!format) return usage_error(fmt::format("--format: {}", format.error().message));
  return Consumption(options, *from, std::move(*format)).run();
}

}  // namespace

void add_consume(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<Options>();
  auto* command = program.add_subcommand("consume", "Reads the records of a topic");
  add_broker_options(*command, options->broker);
  command->add_option("TOPIC", options->topic, "What is read")->required()->check(is_topic);
  command->add_option("--from", options->from, "Where it begins (default start)")
      ->option_text("start|end|OFFSET|@TIME")
      ->take_last();
  command->add_option("-p,--partition", options->partition, "This partition alone (default: all)")
      ->option_text("PARTITION")
      ->check(is_partition)
      ->take_last();
  command->add_option("-n,--count", options->count, "Ends after so many records")
      ->option_text("COUNT")
      ->check(is_count)
      ->take_last();
  command->add_flag("--until-end", options->until_end, "Ends when all there is has been read");
  command->add_option("--idle", options->idle, "Ends when nothing came for so long")
      ->option_text("D")
      ->check(is_duration)
      ->take_last();
  command
      ->add_option("--format", options->format,
                   "How a record is printed: %t topic, %p partition, %o offset, %k key, %s value, "
                   "%T timestamp, %h headers, %K %S lengths of key and value, %% \\n \\t "
                   "(default '%s\\n')")
      ->option_text("F")
      ->take_last();
  command->callback([options, &chosen] { chosen.run = [options] { return run(*options); }; });
}

}  // namespace tarry::cli
