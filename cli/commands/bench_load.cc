#include "cli/commands/bench_load.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/time_text.h"
#include "cli/command_tree.h"
#include "cli/commands/bench_common.h"
#include "cli/delayed_bench.h"
#include "cli/io/exit_status.h"
#include "cli/io/interrupt.h"
#include "cli/io/json.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/io/table.h"
#include "cli/load_bench.h"
#include "cli/options.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds default_duration = 10s;
// A broker on a small machine is not busy with it.
constexpr std::uint64_t default_e2e_rate = 1000;
// A run that ends by its duration has no other end: no broker takes so many records.
constexpr std::uint64_t unlimited_records = std::uint64_t{1} << 40;

// produce and e2e.
struct SendOptions {
  BrokerOptions broker;
  LoadOptions load;
  std::optional<std::string> topic;
  std::optional<std::int32_t> partitions;
  std::string acks = "all";
};

struct ReadOptions {
  BrokerOptions broker;
  std::string topic;
  std::string from = "start";
  std::optional<std::uint64_t> count;
  std::optional<std::string> duration, idle;
};

std::optional<milliseconds> given_duration(const std::optional<std::string>& word) {
  if (!word) return std::nullopt;
  return *parse_duration(*word);
}

void put_load(const SendOptions& options, std::uint64_t rate, BenchLoad& load) {
  load.kafka = options.broker.kafka();
  load.run = random_run();
  load.size = options.load.size;
  load.clients = options.load.clients;
  load.acks = acks_of(options.acks);
  load.plan.rate = static_cast<double>(rate);
}

// The number of records that the options ask for, at a rate.
std::expected<std::uint64_t, std::string> planned_records(const LoadOptions& load,
                                                          std::uint64_t rate) {
  if (load.count) return *load.count;
  return records_in(given_duration(load.duration).value_or(default_duration), rate);
}

double seconds_of(std::int64_t us) {
  return static_cast<double>(us) / 1e6;
}
double per_second_of(std::uint64_t number, std::int64_t us) {
  return us <= 0 ? 0 : static_cast<double>(number) * 1e6 / static_cast<double>(us);
}
// Kilobytes are what a small run has; more digits would only differ from run to run.
double megabytes_of(double bytes) {
  return std::round(bytes / 1000) / 1000;
}

// A broker that falls behind the schedule may catch up, but not for ever.  Empty: all of --count
// are sent.
std::optional<milliseconds> send_limit(const SendOptions& options) {
  if (options.load.count) return std::nullopt;
  return given_duration(options.load.duration).value_or(default_duration) + options.broker.timeout;
}

// The fields that produce and e2e have in common.
Json json_of_load(const char* bench, const SendOptions& options, const BenchLoad& load,
                  std::int32_t partitions) {
  return {{"bench", bench},          {"topic", load.topic}, {"partitions", partitions},
          {"clients", load.clients}, {"size", load.size},   {"acks", options.acks},
          {"rate", load.plan.rate}};
}

// Rows of a name and a value.
class Rows {
 public:
  void row(const char* what, std::string text) { table_.row({what, std::move(text)}); }
  void quantiles(const std::string& what, const LatencyHistogram& times) {
    for (const auto& [name, share] :
         {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1.0}}) {
      table_.row({fmt::format("{}, {}", what, name),
                  times.count() == 0 ? "-" : ms_text(times.quantile(share))});
    }
  }
  void print(Output& out) { table_.print(out); }

 private:
  Table table_{{{"what"}, {"figure", true}}};
};

// How fast records were accepted or read.
struct Throughput {
  std::uint64_t records = 0, bytes = 0;
  std::int64_t took_us = 0;
  double records_per_s = 0, bytes_per_s = 0;

  void put(Rows& rows) const {
    rows.row("records a second", grouped(static_cast<std::uint64_t>(records_per_s)));
    rows.row("MB a second", fmt::format("{:.2f}", bytes_per_s / 1e6));
  }
  void put(Json& json) const {
    json["records"] = records;
    json["bytes"] = bytes;
    json["seconds"] = seconds_of(took_us);
    json["records_per_s"] = std::llround(records_per_s);
    json["mb_per_s"] = megabytes_of(bytes_per_s);
  }
};

// How a run came to its end.
struct RunEnd {
  bool interrupted = false;
  std::string first_refusal;
  std::optional<Error> error;
};

// The figures: rows, unless only JSON is asked for, and behind them a line of JSON.
void print_figures(const BrokerOptions& broker, Rows& rows, Json& json, const RunEnd& end,
                   Output& out) {
  json["interrupted"] = end.interrupted;
  if (!end.first_refusal.empty()) json["first_refusal"] = end.first_refusal;
  if (end.error) json["error"] = end.error->message;
  if (!broker.json) rows.print(out);
  out.line(text_of(json));
  // Before the lines on stderr, which would otherwise come first.
  out.flush();
}

// The status of a run that ended without an error, and the reasons for it on stderr.
int status_of_sent(const BenchLoad& load, const FlowResult& flow, std::uint64_t unsent,
                   const RunEnd& end) {
  const bool is_behind = !end.interrupted && unsent > 0;
  if (is_behind) {
    complain(fmt::format("{} not sent: the broker or this machine cannot keep up with {} a second",
                         counted(unsent, "record", "records"),
                         grouped(static_cast<std::uint64_t>(load.plan.rate))));
  }
  if (flow.refused == 0) return is_behind ? failed : done;
  return failure(fmt::format("{} not accepted, the first of them: {}",
                             counted(flow.refused, "record", "records"), end.first_refusal));
}

// --- produce

int measure_and_show(const SendOptions& options, const BenchLoad& load,
                     std::optional<milliseconds> duration, std::int32_t partitions, Output& out) {
  Progress progress("records accepted");
  const auto result =
      measure_produce(load, duration, [&](std::uint64_t records) { progress.at(records); });
  progress.clear();
  if (!result) return failure(result.error().message);
  const FlowResult& flow = result->flow;
  const std::uint64_t accepted = flow.figures.accepted;
  // Without a plan there is nothing that could be left of it.
  std::optional<std::uint64_t> unsent;
  if (load.plan.count != unlimited_records) unsent = load.plan.count - flow.sent;
  const Throughput speed{.records = accepted,
                         .bytes = accepted * load.size,
                         .took_us = flow.accepted_in_us,
                         .records_per_s = accept_rate(flow),
                         .bytes_per_s = accept_rate(flow) * static_cast<double>(load.size)};
  Rows rows;
  rows.row("records accepted", grouped(accepted));
  rows.row("not accepted", grouped(flow.refused));
  speed.put(rows);
  rows.quantiles("accepted after", flow.accept);
  Json json = json_of_load("produce", options, load, partitions);
  json["count"] = options.load.count ? Json(*options.load.count) : Json(nullptr);
  json["sent"] = flow.sent;
  json["not_sent"] = unsent ? Json(*unsent) : Json(nullptr);
  speed.put(json);
  json["ack_ms"] = percentiles(flow.accept);
  json["errors"] = flow.refused;
  const RunEnd end{result->interrupted, result->first_refusal, result->error};
  print_figures(options.broker, rows, json, end, out);
  if (end.error) return failure(end.error->message);
  return status_of_sent(load, flow, unsent.value_or(0), end);
}

int run_produce_bench(const SendOptions& options) {
  BenchLoad load;
  const std::uint64_t rate = options.load.rate.value_or(0);
  put_load(options, rate, load);
  load.times_without_rate = true;
  // Nobody reads them here, so they need not be told apart.
  load.plan.is_tracked = false;
  std::optional<milliseconds> duration;
  if (rate == 0 && !options.load.count) {
    load.plan.count = unlimited_records;
    duration = given_duration(options.load.duration).value_or(default_duration);
    if (*duration == 0ms)
      return usage_error("--duration: 0 leaves no time to send records; give a longer one");
  } else {
    const auto records = planned_records(options.load, rate);
    if (!records) return usage_error(records.error());
    load.plan.count = *records;
    duration = send_limit(options);
  }
  Output out;
  end_in_order_on_signals();
  const TopicWish wish{
      .name = options.topic, .partitions = options.partitions, .may_be_made = true};
  return out.end(with_bench_topic(options.broker, "produce", load.run, wish,
                                  [&](const std::string& topic, std::int32_t partitions) {
                                    load.topic = topic;
                                    return measure_and_show(options, load, duration, partitions,
                                                            out);
                                  }));
}

// --- e2e

int measure_and_show(const SendOptions& options, const DelayedBenchOptions& bench,
                     std::int32_t partitions, Output& out) {
  Progress progress("records read");
  const auto result = measure_delayed(bench, [&](std::uint64_t records) { progress.at(records); });
  progress.clear();
  if (!result) return failure(result.error().message);
  const FlowResult& flow = result->delayed;
  const FlowFigures& figures = flow.figures;
  const std::uint64_t unsent = bench.plan.count - flow.sent;
  Rows rows;
  rows.row("records accepted", grouped(figures.accepted));
  rows.row("not accepted", grouped(flow.refused));
  rows.row("records read", grouped(figures.delivered));
  // After an error nobody knows what is lost and what only did not come yet.
  rows.row("lost", result->error ? "-" : grouped(figures.lost));
  rows.row("twice", grouped(figures.twice));
  rows.quantiles("accepted after", flow.accept);
  rows.quantiles("read after", figures.lag);
  Json json = json_of_load("e2e", options, bench, partitions);
  json["count"] = bench.plan.count;
  json["sent"] = flow.sent;
  json["not_sent"] = unsent;
  json["accepted"] = figures.accepted;
  json["records"] = figures.delivered;
  json["records_per_s"] = std::llround(accept_rate(flow));
  json["ack_ms"] = percentiles(flow.accept);
  json["latency_ms"] = percentiles(figures.lag);
  json["lost"] = result->error ? Json(nullptr) : Json(figures.lost);
  json["twice"] = figures.twice;
  json["unconfirmed"] = figures.unconfirmed;
  json["errors"] = flow.refused;
  const RunEnd end{result->interrupted, result->first_refusal, result->error};
  print_figures(options.broker, rows, json, end, out);
  if (end.error) return failure(end.error->message);
  if (figures.lost + figures.twice > 0) {
    return failure(fmt::format("{} lost, {} read twice", counted(figures.lost, "record", "records"),
                               figures.twice));
  }
  return status_of_sent(bench, flow, unsent, end);
}

int run_e2e(const SendOptions& options) {
  const std::uint64_t rate = options.load.rate.value_or(default_e2e_rate);
  if (rate == 0) {
    return usage_error("--rate 0 would measure the time in the producer's queue; give 1 or more");
  }
  const auto records = planned_records(options.load, rate);
  if (!records) return usage_error(records.error());
  // Records that have no delay are due when they are to be sent.
  DelayedBenchOptions bench;
  put_load(options, rate, bench);
  bench.plan.count = *records;
  bench.send_limit = send_limit(options);
  Output out;
  end_in_order_on_signals();
  const TopicWish wish{
      .name = options.topic, .partitions = options.partitions, .may_be_made = true};
  return out.end(with_bench_topic(options.broker, "e2e", bench.run, wish,
                                  [&](const std::string& topic, std::int32_t partitions) {
                                    bench.topic = topic;
                                    return measure_and_show(options, bench, partitions, out);
                                  }));
}

// --- consume

int run_consume_bench(const ReadOptions& options) {
  ConsumeBenchOptions bench;
  bench.kafka = options.broker.kafka();
  bench.topic = options.topic;
  bench.from_end = options.from == "end";
  bench.count = options.count;
  bench.duration = given_duration(options.duration);
  bench.idle = given_duration(options.idle);
  if (bench.from_end && !bench.count && !bench.duration && !bench.idle)
    return usage_error("--from end: give --count, --duration or --idle, or it would end at once");
  Output out;
  end_in_order_on_signals();
  Progress progress("records read");
  bench.on_wait = [&progress](std::uint64_t records) {
    if (::isatty(STDERR_FILENO) != 1) return;
    progress.clear();
    complain(fmt::format("{} read, the end of the topic; waiting for more",
                         counted(records, "record", "records")));
  };
  const auto result = measure_consume(bench, [&](std::uint64_t records) { progress.at(records); });
  progress.clear();
  if (!result) return failure(result.error().message);
  const Throughput speed{.records = result->records,
                         .bytes = result->bytes,
                         .took_us = result->took_us,
                         .records_per_s = per_second_of(result->records, result->took_us),
                         .bytes_per_s = per_second_of(result->bytes, result->took_us)};
  Rows rows;
  rows.row("records read", grouped(speed.records));
  speed.put(rows);
  rows.row("first record after", speed.records == 0 ? "-" : ms_text(result->first_us));
  Json json{{"bench", "consume"},
            {"topic", options.topic},
            {"partitions", result->partitions},
            {"from", options.from}};
  speed.put(json);
  json["first_ms"] = speed.records == 0 ? Json(nullptr) : Json(in_milliseconds(result->first_us));
  print_figures(options.broker, rows, json, {result->interrupted, {}, result->error}, out);
  return out.end(result->error ? failure(result->error->message) : done);
}

// --- The command line

void add_send_options(CLI::App& command, SendOptions& options, const char* rate_help) {
  command
      .add_option("--topic", options.topic,
                  "The topic, created if it does not exist (default: creates one and deletes it at "
                  "the end)")
      ->option_text("TOPIC")
      ->check(is_topic)
      ->take_last();
  command
      .add_option("--partitions", options.partitions,
                  "Partitions if the topic is created (default 1)")
      ->option_text("N")
      ->check(is_count)
      ->take_last();
  add_load_options(command, options.load, rate_help);
  command
      .add_option("--acks", options.acks,
                  "The acknowledgement to wait for: all, 1, or 0 for none (default all)")
      ->option_text("all|1|0")
      ->check(is_acks)
      ->take_last();
}

}  // namespace

void add_bench_load(CLI::App& group, Chosen& chosen) {
  const auto [produce, sent] = add_broker_command<SendOptions>(
      group, chosen, "produce",
      "Measures how fast a broker accepts records; ends with one line of JSON", run_produce_bench);
  add_data_option(*produce, sent->broker);
  add_send_options(*produce, *sent, "Records a second (default 0: as fast as possible)");
  add_examples(*produce,
               {"tarry bench produce --duration 5s --topic load --partitions 8",
                "tarry bench produce --rate 1000 --duration 10s -X compression.type=zstd"});

  const auto [consume, read] = add_broker_command<ReadOptions>(
      group, chosen, "consume",
      "Measures how fast a broker serves the records of a topic; ends with one line of JSON",
      run_consume_bench);
  consume->add_option("--topic", read->topic, "The topic to read")
      ->option_text("TOPIC")
      ->required()
      ->check(is_topic)
      ->take_last();
  consume->add_option("--from", read->from, "Where to begin (default start)")
      ->option_text("start|end")
      ->check(CLI::IsMember({"start", "end"}))
      ->take_last();
  consume
      ->add_option("--count", read->count,
                   "Ends after this many records (default: at the end of the topic)")
      ->option_text("N")
      ->check(CLI::Range(std::uint64_t{1}, unlimited_records))
      ->take_last();
  consume->add_option("--duration", read->duration, "Ends after this time")
      ->option_text("D")
      ->check(is_timeout)
      ->take_last();
  consume->add_option("--idle", read->idle, "Ends when no record has come for this long")
      ->option_text("D")
      ->check(is_duration)
      ->take_last();
  add_examples(*consume, {"tarry bench consume --topic load",
                          "tarry bench consume --topic load --from end --duration 10s"});

  const auto [e2e, both] = add_broker_command<SendOptions>(
      group, chosen, "e2e",
      "Measures how long a record takes from its producer to a consumer; ends with one line of "
      "JSON",
      run_e2e);
  add_data_option(*e2e, both->broker);
  add_send_options(*e2e, *both, "Records a second (default 1000)");
  add_examples(*e2e, {"tarry bench e2e --rate 1000 --duration 30s",
                      "tarry bench e2e --rate 20000 --partitions 8 --clients 2 --json"});
}

}  // namespace tarry::cli
