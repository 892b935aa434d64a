#pragma once

// The commands of `tarry bench` that need a broker share this: the topic, the load's options, and
// the figures of their output.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <optional>
#include <string>

#include "cli/bench_producers.h"
#include "cli/command.h"
#include "cli/io/json.h"
#include "cli/latency_histogram.h"
#include "cli/options.h"

namespace tarry::cli {

// A quarter of a gigabyte of memory, where each record is tracked.
inline constexpr std::uint64_t max_bench_records = 1'000'000'000;

// The load that producers are to send, in the user's words.
struct LoadOptions {
  std::optional<std::uint64_t> rate, count;
  std::optional<std::string> duration;
  std::size_t size = 100;
  unsigned clients = 1;
};
// --duration and --count, of which a command takes one.
struct LoadLength {
  CLI::Option* duration;
  CLI::Option* count;
};
// --rate, --duration, --count, --size, --clients.  `options` must live as long as `command`.
LoadLength add_load_options(CLI::App& command, LoadOptions& options, const char* rate_help);

// The number of records at this rate.  The error is for stderr: none of them, or too many.
std::expected<std::uint64_t, std::string> records_in(std::chrono::milliseconds duration,
                                                     std::uint64_t rate);

// Tells the records of one run from those of others in its topic.
std::uint64_t random_run();

// The topic that a benchmark asks for.
struct TopicWish {
  std::optional<std::string> name{};         // Empty: a topic for this run alone.
  std::optional<std::int32_t> partitions{};  // Used if the topic is made; empty: 1.
  bool may_be_made = false;                  // If the named topic is missing; it stays.
};
// Calls `measure` with the name of a topic that exists and its number of partitions.  A topic of
// this run alone, "tarry-bench-BENCH-RUN", is deleted behind it, whatever came of it and with what
// is pending in it.  Returns the exit status of `measure`, or of what went wrong here.
int with_bench_topic(const BrokerOptions& broker, const char* bench, std::uint64_t run,
                     const TopicWish& wish,
                     const std::function<int(const std::string& topic, std::int32_t)>& measure);

double in_milliseconds(std::int64_t us);
std::string ms_text(std::int64_t us);
// min, p50, p90, p99, p99.9 and max in milliseconds; null: nothing was counted.
Json percentiles(const LatencyHistogram& histogram);
// Accepted records a second.
double accept_rate(const FlowResult& flow);

}  // namespace tarry::cli
