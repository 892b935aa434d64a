#include "cli/load_bench.h"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/time_text.h"
#include "cli/io/interrupt.h"
#include "cli/io/number_text.h"
#include "cli/io/text.h"
#include "cli/kafka/consumer.h"
#include "cli/kafka/offsets.h"

namespace tarry::cli {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long one look for records waits, so that an interrupt is noticed.
constexpr milliseconds look_wait{50};

class ConsumeBench {
 public:
  ConsumeBench(const ConsumeBenchOptions& options, const BenchProgress& progress)
      : options_(options), progress_(progress) {}

  Result<ConsumeBenchResult> run() {
    auto consumer = KafkaConsumer::open(bench_consumer_settings(options_.kafka), options_.topic);
    if (!consumer) return std::unexpected(consumer.error());
    result_.partitions = consumer->partitions().size();
    began_ = last_ = bench_now_us();
    for (const auto partition : consumer->partitions()) {
      auto started = consumer->start(partition, options_.from_end ? log_end : log_start);
      if (!started) return std::unexpected(started.error());
    }
    const auto use = [this](const std::vector<std::string_view>& values) { count(values); };
    while (!was_interrupted() && !result_.error) {
      if (const auto taken = consumer->take(look_wait, use); !taken) result_.error = taken.error();
      progress_(result_.records);
      if (is_over(*consumer)) break;
    }
    result_.interrupted = was_interrupted();
    result_.took_us = last_ - began_;
    return std::move(result_);
  }

 private:
  void count(const std::vector<std::string_view>& values) {
    const std::int64_t now = bench_now_us();
    if (result_.records == 0) result_.first_us = now - began_;
    std::uint64_t taken = values.size();
    // Records behind the last one that was asked for belong to nobody.
    if (options_.count) taken = std::min(taken, *options_.count - result_.records);
    for (std::uint64_t i = 0; i < taken; ++i) result_.bytes += values[i].size();
    result_.records += taken;
    if (taken > 0) last_ = now;
  }

  bool is_over(const KafkaConsumer& consumer) {
    if (options_.count && result_.records >= *options_.count) return true;
    const std::int64_t now = bench_now_us();
    if (options_.duration && now - began_ >= microseconds(*options_.duration).count()) {
      // The figures would read as those of a broker that was there all the time.
      if (consumer.is_lost()) {
        result_.error = Error{Errc::io, fmt::format("{}: the connection to the broker is lost",
                                                    cell(options_.topic))};
      }
      return true;
    }
    const std::int64_t quiet = now - last_;
    // At the end of the topic the broker has no more to give; anywhere else it has to answer.
    const bool is_owed = consumer.is_lost() || !consumer.is_at_end();
    if (is_owed && quiet >= microseconds(options_.kafka.timeout).count()) {
      result_.error =
          Error{Errc::io, fmt::format("{}: no record came for {}, after {}", cell(options_.topic),
                                      format_duration(options_.kafka.timeout),
                                      counted(result_.records, "record", "records"))};
      return true;
    }
    // The broker says a while after the last record that it was the last, or is gone.
    if (options_.idle) return !is_owed && quiet >= microseconds(*options_.idle).count();
    if (options_.count && !is_owed && !std::exchange(says_wait_, true))
      options_.on_wait(result_.records);
    return !options_.count && !options_.duration && consumer.is_at_end();
  }

  const ConsumeBenchOptions& options_;
  const BenchProgress& progress_;
  ConsumeBenchResult result_;
  bool says_wait_ = false;
  std::int64_t began_ = 0, last_ = 0;  // The times of the first look and of the last record.
};

}  // namespace

Result<ProduceBenchResult> measure_produce(const BenchLoad& load,
                                           std::optional<milliseconds> duration,
                                           const BenchProgress& progress) {
  auto producers = BenchProducers::open(load);
  if (!producers) return std::unexpected(producers.error());
  DelayedFlow flow(load.plan);
  FirstError error;
  ProduceBenchResult result;
  result.flow = producers->send(flow, nullptr, error, [&] {
    std::this_thread::sleep_for(bench_watch_interval);
    progress(flow.accepted());
    if (was_interrupted()) return false;
    return !duration || bench_now_us() - flow.began() < microseconds(*duration).count();
  });
  result.flow.figures = flow.figures(bench_now_us());
  result.first_refusal = producers->first_refusal();
  result.interrupted = was_interrupted();
  result.error = error.get();
  return result;
}

Result<ConsumeBenchResult> measure_consume(const ConsumeBenchOptions& options,
                                           const BenchProgress& progress) {
  return ConsumeBench(options, progress).run();
}

}  // namespace tarry::cli
