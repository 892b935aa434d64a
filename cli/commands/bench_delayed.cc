#include "cli/commands/bench_delayed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
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
#include "cli/options.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds max_floor = 10s;
// None is due before it is cancelled.
constexpr milliseconds delay_of_cancelled = 1h;
constexpr milliseconds max_delay = std::chrono::hours{24 * 3650};

// How fast the records of a burst are accepted, at least, so that all are before they are due.
constexpr std::uint64_t burst_accept_rate = 50'000;

struct Options {
  BrokerOptions broker;
  LoadOptions load;
  std::optional<std::string> topic, target;
  std::int32_t partitions = 1;
  std::optional<std::uint64_t> burst;
  std::optional<std::string> delay, spread, floor;
  bool has_ids = false;
  bool fills = false;
  bool cancels = false;
  std::optional<std::uint64_t> seed;
};

milliseconds duration_of(const std::optional<std::string>& word, milliseconds otherwise) {
  return word ? *parse_duration(*word) : otherwise;
}

// The plan that the options ask for; sets the floor too.  The error is for stderr.
std::expected<DelayedBenchOptions, std::string> plan_of(const Options& options) {
  // A topic of this run alone is deleted at its end, with all that was filled in.
  if (options.fills && !options.topic) {
    return std::unexpected("--fill: the records stay pending; give their topic with --topic");
  }
  if (options.target && !options.topic) {
    return std::unexpected("--target: give the topic that the relay reads with --topic");
  }
  if (options.target && *options.target == *options.topic) {
    return std::unexpected(
        "--target: it is the topic that the relay reads; give the one that it delivers to");
  }
  DelayedBenchOptions bench;
  bench.target = options.target;
  bench.run = random_run();
  bench.size = options.load.size;
  bench.clients = options.load.clients;
  // A cancel names its record by an id.
  bench.has_ids = options.has_ids || options.cancels;
  if (options.fills) bench.goal = BenchGoal::fill;
  if (options.cancels) bench.goal = BenchGoal::cancel;
  bench.kafka = options.broker.kafka();
  FlowPlan& plan = bench.plan;
  plan.is_delayed = true;
  // Without a seed every run has other due times, and prints the one that it took.
  plan.seed = options.seed.value_or(bench.run);
  const std::uint64_t rate = options.load.rate.value_or(options.burst ? 0 : 20'000);
  plan.rate = static_cast<double>(rate);
  milliseconds longest{0};
  if (options.burst) {
    plan.is_burst = true;
    plan.count = *options.burst;
    const std::uint64_t accepted =
        // All are to be accepted before the first is due, or the lag would be that of their
        // acceptance.
        rate == 0 ? burst_accept_rate : std::min(rate, burst_accept_rate);
    plan.delay = duration_of(
        options.delay, 5s + milliseconds{static_cast<std::int64_t>(plan.count * 1000 / accepted)});
  } else {
    if (rate == 0 && !options.load.count)
      return std::unexpected("--rate: with rate 0, give the number of records with --count");
    if (options.load.count) {
      plan.count = *options.load.count;
    } else {
      const auto records = records_in(duration_of(options.load.duration, 10s), rate);
      if (!records) return std::unexpected(records.error());
      plan.count = *records;
    }
    plan.delay = duration_of(options.delay, options.cancels ? delay_of_cancelled : 5s);
    plan.spread = duration_of(options.spread, 1s);
    // The floor is measured at a rate, and only where deliveries are measured.
    if (rate > 0 && bench.goal == BenchGoal::deliver) {
      const double planned = static_cast<double>(plan.count) / plan.rate;
      longest = std::min(max_floor, milliseconds{std::llround(planned * 1000)});
    }
  }
  for (const auto& [name, time] : {std::pair{"--delay", plan.delay}, {"--spread", plan.spread}}) {
    if (time > max_delay) {
      return std::unexpected(fmt::format("{}: {} is too long; the limit is {}", name,
                                         format_duration(time), format_duration(max_delay)));
    }
  }
  bench.floor = std::min(duration_of(options.floor, longest), milliseconds{std::chrono::hours{1}});
  if (bench.floor > 0ms && rate == 0)
    return std::unexpected("--floor: the floor is measured at a rate; give --rate");
  return bench;
}

Json json_of_flow(const FlowResult& flow, bool is_lost_known) {
  const auto& figures = flow.figures;
  return {{"sent", flow.sent},
          {"accepted", figures.accepted},
          {"accepted_per_s", std::llround(accept_rate(flow))},
          {"accept_ms", percentiles(flow.accept)},
          {"delivered", figures.delivered},
          {"lag_ms", percentiles(figures.lag)},
          {"early", figures.early},
          {"lost", is_lost_known ? Json(figures.lost) : Json(nullptr)},
          {"twice", figures.twice},
          {"refused", flow.refused},
          {"accepted_late", figures.accepted_late},
          {"unconfirmed", figures.unconfirmed},
          {"not_due", figures.not_due}};
}

Json json_of(const DelayedBenchOptions& options, const DelayedBenchResult& result,
             std::int32_t partitions) {
  const auto& plan = options.plan;
  Json json{{"bench", "delayed"},
            {"topic", options.topic},
            {"target", options.target ? Json(*options.target) : Json(nullptr)},
            {"partitions", partitions},
            {"clients", options.clients},
            {"size", options.size},
            {"rate", plan.rate},
            {"count", plan.count},
            {"delay_ms", plan.delay.count()},
            {"spread_ms", plan.spread.count()},
            {"ids", options.has_ids},
            {"seed", plan.seed}};
  // After an error nobody knows what is lost and what only did not come yet.
  json.update(json_of_flow(result.delayed, !result.error));
  json["cancels"] = nullptr;
  if (const auto& cancels = result.cancels) {
    json["cancels"] = {{"sent", cancels->sent},
                       {"accepted", cancels->figures.accepted},
                       {"accepted_per_s", std::llround(accept_rate(*cancels))},
                       {"accept_ms", percentiles(cancels->accept)},
                       {"refused", cancels->refused}};
  }
  if (plan.is_burst) {
    const auto& lag = result.delayed.figures.lag;
    json["burst"] = {
        {"first_ms", lag.count() > 0 ? Json(in_milliseconds(lag.min())) : Json(nullptr)},
        {"all_ms", result.read_again ? Json(in_milliseconds(lag.max())) : Json(nullptr)}};
    json["floor"] = nullptr;
    if (result.read_again) {
      json["floor"] = {{"first_ms", in_milliseconds(result.read_again->first_us)},
                       {"all_ms", in_milliseconds(result.read_again->all_us)}};
    }
  } else {
    json["floor"] = result.floor ? json_of_flow(*result.floor, !result.error) : Json(nullptr);
  }
  json["interrupted"] = result.interrupted;
  if (!result.first_refusal.empty()) json["first_refusal"] = result.first_refusal;
  if (result.error) json["error"] = result.error->message;
  return json;
}

class Report {
 public:
  Report(const DelayedBenchOptions& options, const DelayedBenchResult& result)
      : options_(options),
        result_(result),
        compared_(result.cancels ? result.cancels : result.floor),
        table_({{"what"},
                {"delayed", true},
                {result.cancels          ? "cancels"
                 : options.plan.is_burst ? "read again"
                                         : "floor",
                 true}}) {}

  void print(Output& out) {
    row("records accepted", [](const FlowResult& flow) { return grouped(flow.figures.accepted); });
    row("accepted a second", [](const FlowResult& flow) {
      return grouped(static_cast<std::uint64_t>(accept_rate(flow)));
    });
    if (options_.plan.rate > 0) {
      for (const auto& [name, share] : {std::pair{"accepted after, p50", 0.5}, {"p99", 0.99}})
        quantile(
            name, share, [](const FlowResult& flow) -> auto& { return flow.accept; });
    }
    // Such a run ends before anything is due, so there is no lag to show.
    if (options_.goal != BenchGoal::deliver) {
      row("refused", [](const FlowResult& flow) { return grouped(flow.refused); });
      table_.print(out);
      return;
    }
    if (options_.plan.is_burst) add_burst();
    add_lags();
    row("early", [](const FlowResult& flow) { return grouped(flow.figures.early); });
    row("lost", [&](const FlowResult& flow) {
      return result_.error ? std::string("-") : grouped(flow.figures.lost);
    });
    row("twice", [](const FlowResult& flow) { return grouped(flow.figures.twice); });
    row("refused", [](const FlowResult& flow) { return grouped(flow.refused); });
    if (result_.delayed.figures.not_due > 0)
      row("not due yet", [](const FlowResult& flow) { return grouped(flow.figures.not_due); });
    table_.print(out);
  }

 private:
  template <typename Text>
  void row(const char* what, Text text) {
    table_.row({what, text(result_.delayed), compared_ ? text(*compared_) : "-"});
  }
  template <typename Histogram>
  void quantile(const char* what, double share, Histogram histogram) {
    row(what, [&](const FlowResult& flow) {
      const LatencyHistogram& values = histogram(flow);
      return values.count() == 0 ? std::string("-") : ms_text(values.quantile(share));
    });
  }
  void add_lags() {
    const auto lag = [](const FlowResult& flow) -> auto& {
      return flow.figures.lag;
    };
    for (const auto& [name, share] :
         {std::pair{"lag, p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1.0}})
      quantile(name, share, lag);
  }
  void add_burst() {
    const auto& lag = result_.delayed.figures.lag;
    const auto& again = result_.read_again;
    table_.row({"first fetchable", lag.count() > 0 ? ms_text(lag.min()) : "-",
                again ? ms_text(again->first_us) : "-"});
    table_.row(
        {"all fetchable", again ? ms_text(lag.max()) : "-", again ? ms_text(again->all_us) : "-"});
  }

  const DelayedBenchOptions& options_;
  const DelayedBenchResult& result_;
  const std::optional<FlowResult>& compared_;
  Table table_;
};

// The reason for status 1; empty: there is none.
std::string failure_reason(const DelayedBenchResult& result) {
  if (result.error) return result.error->message;
  FlowFigures all = result.delayed.figures;
  std::uint64_t refused = result.delayed.refused;
  if (result.floor) {
    all.add(result.floor->figures);
    refused += result.floor->refused;
  }
  if (result.cancels) refused += result.cancels->refused;
  // These are faults of the broker. A refusal may be one of its bounds at work, and comes second.
  if (all.early + all.lost + all.twice > 0) {
    return fmt::format("{} delivered early, {} lost, {} delivered twice",
                       counted(all.early, "record", "records"), all.lost, all.twice);
  }
  if (refused > 0) {
    return fmt::format("{} not accepted, the first of them: {}",
                       counted(refused, "record", "records"), result.first_refusal);
  }
  return {};
}

int measure(const Options& options, const DelayedBenchOptions& bench, std::int32_t partitions,
            Output& out) {
  Progress progress(bench.goal == BenchGoal::deliver ? "records delivered" : "records accepted");
  const auto result = measure_delayed(bench, [&](std::uint64_t done) { progress.at(done); });
  // The line of progress goes before anything else is printed.
  progress.clear();
  if (!result) return failure(result.error().message);
  if (!options.broker.json) Report(bench, *result).print(out);
  out.line(text_of(json_of(bench, *result, partitions)));
  // Before the lines on stderr, which would otherwise come first.
  out.flush();
  if (const auto late = result->delayed.figures.accepted_late; late > 0) {
    complain(fmt::format(
        "{} accepted after the due time, so the lag includes the time until acceptance; "
        "give a longer --delay",
        counted(late, "record was", "records were")));
  }
  if (const auto delivered = result->delayed.figures.delivered;
      bench.goal == BenchGoal::cancel && delivered > 0) {
    complain(fmt::format("{} delivered before the cancel; give a longer --delay",
                         counted(delivered, "record was", "records were")));
  }
  const std::string why = failure_reason(*result);
  return why.empty() ? done : failure(why);
}

int run(const Options& options) {
  auto bench = plan_of(options);
  if (!bench) return usage_error(bench.error());
  Output out;
  end_in_order_on_signals();
  TopicWish wish{.name = options.topic};
  // A topic that is named has its own number.
  if (!options.topic) wish.partitions = options.partitions;
  return out.end(with_bench_topic(options.broker, "delayed", bench->run, wish,
                                  [&](const auto& topic, auto partitions) {
                                    bench->topic = topic;
                                    return measure(options, *bench, partitions, out);
                                  }));
}

void add_schedule_options(CLI::App& command, Options& options) {
  const auto [duration, count] =
      add_load_options(command, options.load,
                       "Records a second (default 20000; 0: as fast as the broker accepts them)");
  command
      .add_option("--delay", options.delay,
                  "The shortest time from sending a record to its due time (default 5s; longer for "
                  "a large burst)")
      ->option_text("D")
      ->check(is_duration)
      ->take_last();
  auto* spread = command
                     .add_option("--spread", options.spread,
                                 "Due times are spread over this time, at random (default 1s)")
                     ->option_text("D")
                     ->check(is_duration)
                     ->take_last();
  command
      .add_option("--burst", options.burst,
                  "Sends this many records that are all due in one millisecond")
      ->option_text("N")
      ->check(CLI::Range(std::uint64_t{1}, max_bench_records))
      ->take_last()
      ->excludes(duration)
      ->excludes(count)
      ->excludes(spread);
}

}  // namespace

void add_bench_delayed(CLI::App& group, Chosen& chosen) {
  const auto [command, options] = add_broker_command<Options>(
      group, chosen, "delayed",
      "Measures how late delayed records are delivered; ends with one line of JSON", run);
  add_data_option(*command, options->broker);
  add_schedule_options(*command, *options);
  command
      ->add_option(
          "--floor", options->floor,
          "How long to measure records that are due at once, half before and half after the "
          "delayed ones (default: as long as those are sent, at most 10s; 0: not at all)")
      ->option_text("D")
      ->check(is_duration)
      ->take_last();
  auto* partitions =
      command
          ->add_option("--partitions", options->partitions,
                       "Partitions of the topic that is made for the run (default 1)")
          ->option_text("N")
          ->check(is_count)
          ->take_last();
  command
      ->add_option("--topic", options->topic,
                   "Sends to this topic (default: makes a topic and deletes it at the end)")
      ->option_text("TOPIC")
      ->check(is_topic)
      ->take_last()
      ->excludes(partitions);
  command
      ->add_option("--target", options->target,
                   "For a relay: reads the committed records that it delivers to TOPIC; --topic is "
                   "then its source")
      ->option_text("TOPIC")
      ->check(is_topic)
      ->take_last();
  auto* fill =
      command->add_flag("--fill", options->fills,
                        "Ends when the records are accepted, and leaves them pending in --topic");
  command
      ->add_flag("--cancel", options->cancels,
                 "Cancels the records by their ids, in due order, and ends when that is "
                 "acknowledged (default of --delay: 1h)")
      ->excludes(fill);
  command->add_flag("--id", options->has_ids, "Each delayed record has a schedule id");
  command->add_option("--seed", options->seed, "Seed of the random due times (default: any)")
      ->option_text("N")
      ->take_last();
  add_examples(
      *command,
      {"tarry bench delayed --rate 50000 --duration 30s", "tarry bench delayed --burst 1000000",
       "tarry bench delayed --rate 100000 --count 1000000 --cancel",
       "tarry bench delayed --rate 0 --count 10000000 --spread 30d --fill --topic full",
       "tarry bench delayed --rate 5000 --topic orders.delayed --target orders"});
}

}  // namespace tarry::cli
