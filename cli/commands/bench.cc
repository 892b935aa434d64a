#include "cli/commands/bench.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "cli/command_tree.h"
#include "cli/commands/bench_delayed.h"
#include "cli/commands/bench_load.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/io/table.h"
#include "cli/options.h"
#include "cli/timer_bench.h"

namespace tarry::cli {
namespace {

// A thousand million timers take some 100 GB: a larger number is refused, not tried.
constexpr std::size_t max_pending = 100'000'000;
// More threads than the largest machines have cores would measure the scheduler.
constexpr unsigned max_threads = 64;

struct TimersOptions {
  TimerBenchOptions bench;
  bool json = false;
};

// More digits would only differ from run to run.
double rounded(double number) {
  return std::round(number * 100) / 100;
}
Json cost(double ns) {
  return {{"ns", rounded(ns)}, {"per_second", std::llround(1e9 / ns)}};
}

Json json_of(const TimersOptions& options, const TimerBench& bench) {
  Json json{{"bench", "timers"},
            {"pending", options.bench.pending},
            {"budget", options.bench.budget},
            {"seed", options.bench.seed}};
  for (const auto& figures : bench.figures) {
    json[figures.name] = {{"insert", cost(figures.insert_ns)},
                          {"hot_pair", cost(figures.hot_pair_ns)},
                          {"cold_pair", cost(figures.cold_pair_ns)},
                          {"reschedule", cost(figures.reschedule_ns)},
                          {"expiry", cost(figures.expiry_ns)},
                          {"step_us",
                           {{"p50", rounded(figures.step_us.p50)},
                            {"p99", rounded(figures.step_us.p99)},
                            {"p99.99", rounded(figures.step_us.p9999)},
                            {"max", rounded(figures.step_us.max)}}},
                          {"bytes_per_timer", rounded(figures.bytes)}};
  }
  if (options.bench.threads > 0) {
    json["service"] = {{"threads", options.bench.threads},
                       {"pairs_per_second", std::llround(bench.pairs_per_second)}};
  }
  return json;
}

void show(const TimersOptions& options, const TimerBench& bench, Output& out) {
  Table table({{"what"}, {"unit"}, {bench.figures[0].name, true}, {bench.figures[1].name, true}});
  const auto row = [&](const char* what, const char* unit, auto figure) {
    table.row({what, unit, fmt::format("{:.1f}", figure(bench.figures[0])),
               fmt::format("{:.1f}", figure(bench.figures[1]))});
  };
  using F = const TimerFigures&;
  row("insert", "ns", [](F each) { return each.insert_ns; });
  row("schedule + cancel, hot", "ns", [](F each) { return each.hot_pair_ns; });
  row("cancel + schedule, cold", "ns", [](F each) { return each.cold_pair_ns; });
  row("reschedule later", "ns", [](F each) { return each.reschedule_ns; });
  row("expiry over 10 s", "ns", [](F each) { return each.expiry_ns; });
  row("a step, p50", "us", [](F each) { return each.step_us.p50; });
  row("a step, p99", "us", [](F each) { return each.step_us.p99; });
  row("a step, p99.99", "us", [](F each) { return each.step_us.p9999; });
  row("a step, longest", "us", [](F each) { return each.step_us.max; });
  row("memory per timer", "bytes", [](F each) { return each.bytes; });
  if (options.bench.threads > 0) {
    table.row({fmt::format("pairs of {}", counted(options.bench.threads, "thread", "threads")),
               "M/s", fmt::format("{:.1f}", bench.pairs_per_second / 1e6), "-"});
  }
  table.print(out);
}

int run_timers(const TimersOptions& options) {
  Output out;
  Progress progress("parts");
  const auto bench = measure_timers(
      options.bench, [&](int part, int) { progress.at(static_cast<std::uint64_t>(part)); });
  progress.clear();
  if (!options.json) show(options, bench, out);
  // People get the line too, as the last one: it can be kept and compared with a later run.
  out.line(text_of(json_of(options, bench)));
  return out.end(done);
}

}  // namespace

void add_bench(CLI::App& program, Chosen& chosen) {
  auto* group = add_group(program, chosen, "bench", "Runs benchmarks");
  auto options = std::make_shared<TimersOptions>();
  auto* command = group->add_subcommand(
      "timers", "Compares the timing wheel with a sorted map; ends with one line of JSON");
  command
      ->add_option("--pending", options->bench.pending,
                   "The number of pending timers (default 1000000)")
      ->option_text("N")
      ->check(CLI::Range(std::size_t{1}, max_pending))
      ->take_last();
  command
      ->add_option("--budget", options->bench.budget,
                   "The largest number of timers in a step of the wheel (default 512)")
      ->option_text("N")
      ->check(CLI::Range(std::size_t{1}, max_pending))
      ->take_last();
  command
      ->add_option("--threads", options->bench.threads,
                   "The number of threads that share a TimerService (default 2; 0: none)")
      ->option_text("N")
      ->check(CLI::Range(0U, max_threads))
      ->take_last();
  command->add_option("--seed", options->bench.seed, "Seed of the random deadlines (default 1)")
      ->option_text("N")
      ->take_last();
  command->add_flag("--json", options->json, "Prints only the line of JSON");
  take_broker_options(*command);
  command->callback(
      [options, &chosen] { chosen.run = [options] { return run_timers(*options); }; });
  add_examples(*command,
               {"tarry bench timers", "tarry bench timers --pending 10000000 --threads 1"});
  add_bench_load(*group, chosen);
  add_bench_delayed(*group, chosen);
  add_examples(*group, {"tarry bench produce --duration 5s", "tarry bench delayed --rate 50000"});
}

}  // namespace tarry::cli
