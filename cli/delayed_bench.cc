#include "cli/delayed_bench.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "cli/io/interrupt.h"
#include "cli/io/text.h"
#include "cli/kafka/admin.h"
#include "cli/kafka/consumer.h"
#include "cli/kafka/producer.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A record that comes a second time may come after all others.
constexpr milliseconds time_for_doubles = 1s;
// After an interrupt: records that were due have this long to come.
constexpr milliseconds interrupt_patience = 2s;

class DelayedBench {
 public:
  DelayedBench(const DelayedBenchOptions& options, std::function<void(std::uint64_t)> progress)
      : options_(options), progress_(std::move(progress)) {
    make_flows();
  }
  ~DelayedBench() { stop_reading(); }

  Result<DelayedBenchResult> run() {
    if (auto opened = open(); !opened) return std::unexpected(opened.error());
    reader_ = std::jthread([this](const std::stop_token& stop) { read(stop); });
    if (auto ready = warm_up(); !ready) return std::unexpected(ready.error());

    DelayedBenchResult result;
    // One flow after the other; after an interrupt or an error those that have not begun are left
    // out.  The floor is measured on both sides: a machine that slows down meanwhile shows there.
    for (const auto index : {floor_before, delayed, cancels, floor_after}) {
      if (!flows_[index] || was_interrupted() || error_.is_set()) continue;
      if (index == cancels) order_by_due_time();
      const FlowResult flow = run_flow(*flows_[index]);
      if (index == delayed) {
        result.delayed = flow;
      } else if (index == cancels) {
        result.cancels = flow;
      } else {
        add_to_floor(result.floor, flow);
      }
    }
    if (flows_[delayed]->began() != 0 && awaits_deliveries() && !error_.is_set())
      watch_for(time_for_doubles);
    stop_reading();
    add_figures(result);
    result.first_refusal = first_refusal();
    result.interrupted = was_interrupted();
    const auto& plan = options_.plan;
    if (plan.is_burst && !result.interrupted && !error_.is_set() &&
        // Without all of them the second reading would wait for what does not come.
        result.delayed.figures.delivered >= plan.count) {
      auto again = read_again();
      if (again) {
        result.read_again = *again;
      } else {
        error_.set(again.error());
      }
    }
    result.error = error_.get();
    return result;
  }

 private:
  enum FlowIndex : std::size_t {
    warm,
    floor_warm,
    floor_before,
    delayed,
    cancels,
    floor_after,
    flow_count
  };

  bool awaits_deliveries() const { return options_.goal == BenchGoal::deliver; }
  // The topic that is read.
  const std::string& read_topic() const {
    return options_.target ? *options_.target : options_.topic;
  }

  bool is_one_of(const DelayedFlow& flow, std::initializer_list<FlowIndex> indices) const {
    return std::ranges::any_of(indices,
                               [&](FlowIndex index) { return flows_[index].get() == &flow; });
  }
  // Whether its records are to come before the next flow begins.
  bool waits_for(const DelayedFlow& flow) const {
    if (is_one_of(flow, {cancels})) return false;
    if (awaits_deliveries()) return true;
    // A relay may be started later, and then find its source full.
    if (options_.target) return is_one_of(flow, {floor_warm, floor_before, floor_after});
    return !flow.plan().is_delayed;
  }
  BenchProducers& producers_of(const DelayedFlow& flow) {
    const bool is_floor = is_one_of(flow, {floor_warm, floor_before, floor_after});
    return is_floor && floor_producers_ ? *floor_producers_ : *producers_;
  }
  std::string first_refusal() const {
    std::string first = producers_->first_refusal();
    if (first.empty() && floor_producers_) first = floor_producers_->first_refusal();
    return first;
  }

  void make_flows() {
    std::uint64_t next = 0;
    const auto make = [&](FlowIndex index, FlowPlan plan) {
      plan.first = next;
      next += plan.count;
      if (plan.count > 0) flows_[index] = std::make_unique<DelayedFlow>(plan);
    };
    const double floor_seconds = std::chrono::duration<double>(options_.floor).count();
    const FlowPlan floor{
        .count = static_cast<std::uint64_t>(options_.plan.rate * floor_seconds / 2),
        .rate = options_.plan.rate};
    make(floor_before, floor);
    make(delayed, options_.plan);
    if (options_.goal == BenchGoal::cancel)
      make(cancels, {.count = options_.plan.count, .rate = options_.plan.rate});
    make(floor_after, floor);
    warm_first_ = next;  // The warming flows come last, because their length is not known yet.
  }

  Result<> open() {
    auto admin = KafkaAdmin::open(options_.kafka);
    if (!admin) return std::unexpected(admin.error());
    auto consumer = KafkaConsumer::open(bench_consumer_settings(options_.kafka), read_topic());
    if (!consumer) return std::unexpected(consumer.error());
    partitions_ = consumer->partitions();
    // Asks for numbers, because the consumer itself looks for the end some time later.
    auto ends = admin->offsets(read_topic(), partitions_, log_end);
    if (!ends) return std::unexpected(ends.error());
    begins_ = std::move(*ends);
    consumer_.emplace(std::move(*consumer));
    // Reading begins before anything is sent.
    for (const auto& [partition, offset] : begins_)
      if (auto started = consumer_->start(partition, offset); !started) return started;
    const auto topic = admin->topic(options_.topic);
    if (!topic) return std::unexpected(topic.error());
    auto producers = BenchProducers::open(options_);
    if (!producers) return std::unexpected(producers.error());
    producers_.emplace(std::move(*producers));
    const std::uint64_t warm_count = topic->partitions.size() * producers_->size();
    flows_[warm] =
        std::make_unique<DelayedFlow>(FlowPlan{.first = warm_first_, .count = warm_count});
    return open_floor(warm_first_ + warm_count);
  }

  // With a target the floor's records bypass the relay.
  Result<> open_floor(std::uint64_t first) {
    if (!options_.target || !flows_[floor_before]) return {};
    const BenchLoad& load = options_;
    floor_load_ = load;
    floor_load_.topic = *options_.target;
    auto producers = BenchProducers::open(floor_load_);
    if (!producers) return std::unexpected(producers.error());
    floor_producers_.emplace(std::move(*producers));
    flows_[floor_warm] = std::make_unique<DelayedFlow>(
        FlowPlan{.first = first, .count = partitions_.size() * floor_producers_->size()});
    return {};
  }

  // Every client sends a record to some partition, and every partition gives one back, so that
  // all connections stand and all fetches wait.
  Result<> warm_up() {
    // The target first: if the floor's records do not come from it, it is not for want of a relay.
    for (const auto index : {floor_warm, warm}) {
      if (!flows_[index]) continue;
      if (auto ready = warm_up(*flows_[index]); !ready) return ready;
    }
    return {};
  }
  Result<> warm_up(DelayedFlow& warming) {
    const FlowResult flow = run_flow(warming);
    const bool bypasses_relay = is_one_of(warming, {floor_warm});
    const std::string topic = cell(bypasses_relay ? *options_.target : options_.topic);
    if (auto error = error_.get()) return std::unexpected(std::move(*error));
    if (flow.refused > 0) {
      return fail(Errc::invalid,
                  fmt::format("{}: the first record was not accepted: {}", topic, first_refusal()));
    }
    if (was_interrupted()) return fail(Errc::stopped, "interrupted before it began");
    if (!waits_for(warming) || warming.delivered() >= warming.accepted()) return {};
    if (options_.target && !bypasses_relay) {
      return fail(Errc::io, fmt::format("{}: the first record, which has no delay, did not "
                                        "arrive in {}: is a relay running that delivers there?",
                                        topic, cell(*options_.target)));
    }
    return fail(Errc::io, fmt::format("{}: the first record, which has no delay, was not "
                                      "delivered at once: is tarry.delay.ms set?",
                                      topic));
  }

  // The order in which the delayed records are cancelled.
  void order_by_due_time() {
    const DelayedFlow& flow = *flows_[delayed];
    in_due_order_.resize(flow.plan().count);
    std::iota(in_due_order_.begin(), in_due_order_.end(),
              static_cast<std::uint32_t>(flow.plan().first));
    std::ranges::stable_sort(in_due_order_, {},
                             [&](std::uint32_t number) { return flow.due(number); });
  }

  // No more of its records are sent.
  bool is_over(const DelayedFlow& flow) const {
    return options_.send_limit && &flow == flows_[delayed].get() &&
           bench_now_us() - flow.began() >= microseconds(*options_.send_limit).count();
  }

  FlowResult run_flow(DelayedFlow& flow) {
    const bool is_cancelling = &flow == flows_[cancels].get();
    current_ = &flow;
    const auto result =
        producers_of(flow).send(flow, is_cancelling ? &in_due_order_ : nullptr, error_, [&] {
          watch_for(bench_watch_interval);
          if (was_interrupted() && !interrupted_at_) interrupted_at_ = bench_now_us();
          return !was_interrupted() && !is_over(flow);
        });
    if (waits_for(flow)) wait_for_deliveries(flow);
    return result;
  }

  // Until all that was accepted has come; or none came for the timeout, and none was due.
  void wait_for_deliveries(const DelayedFlow& flow) {
    std::uint64_t delivered = flow.delivered();
    std::int64_t quiet_since = bench_now_us();
    while (!error_.is_set()) {
      const std::int64_t now = bench_now_us();
      if (was_interrupted()) {
        if (!interrupted_at_) interrupted_at_ = now;
        // Records that are due behind the interrupt are not waited for.
        if (flow.missing(*interrupted_at_) == 0 ||
            now - *interrupted_at_ > microseconds(interrupt_patience).count()) {
          return;
        }
      } else if (flow.delivered() >= flow.accepted() && flow.missing(flow.last_due()) == 0) {
        return;
      }
      // Each delivery begins the patience anew, and it does not run while records are still to
      // become due.
      if (std::exchange(delivered, flow.delivered()) != flow.delivered() || now < flow.last_due())
        quiet_since = now;
      if (now - quiet_since > microseconds(options_.kafka.timeout).count()) return;
      watch_for(bench_watch_interval);
    }
  }

  void watch_for(milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    // It sleeps once at least, so that the callers' loops do not spin.
    do {
      std::this_thread::sleep_for(std::min(time, bench_watch_interval));
      // Null until the first flow begins.
      if (current_ != nullptr)
        progress_(awaits_deliveries() ? current_->delivered() : current_->accepted());
    } while (std::chrono::steady_clock::now() < until && !was_interrupted());
  }

  // The consumer's thread.
  void read(const std::stop_token& stop) {
    const auto use = [this](const std::vector<std::string_view>& values) {
      // The values came together, so they have one time.
      const std::int64_t now = bench_now_us();
      for (const auto value : values) {
        const auto number = bench_number_in(value, options_.run);
        if (!number) continue;
        for (const auto& flow : flows_)
          // Each record belongs to the flow that has its number, whichever runs now.
          if (flow && flow->has(*number)) flow->arrive(*number, now);
      }
    };
    while (!stop.stop_requested() && !error_.is_set()) {
      if (const auto taken = consumer_->take(50ms, use); !taken) error_.set(taken.error());
    }
  }

  void stop_reading() {
    if (!reader_.joinable()) return;
    reader_.request_stop();
    reader_.join();
  }

  static void add_to_floor(std::optional<FlowResult>& floor, const FlowResult& flow) {
    if (!floor) floor.emplace();
    floor->sent += flow.sent;
    floor->refused += flow.refused;
    floor->accepted_in_us += flow.accepted_in_us;
    floor->accept.add(flow.accept);
  }

  // Adds the figures of the deliveries, when no more come.
  void add_figures(DelayedBenchResult& result) const {
    const std::int64_t end = interrupted_at_.value_or(bench_now_us());
    for (const auto index : {floor_before, delayed, cancels, floor_after}) {
      if (!flows_[index] || flows_[index]->began() == 0) continue;
      // If no deliveries are awaited, records that have not come are pending.
      const bool is_awaited = index != cancels && (index != delayed || awaits_deliveries());
      const auto figures = flows_[index]->figures(is_awaited ? end : 0);
      if (index == delayed) {
        result.delayed.figures = figures;
      } else if (index == cancels && result.cancels) {
        result.cancels->figures = figures;
      } else if (result.floor) {
        result.floor->figures.add(figures);
      }
    }
  }

  // A second consumer reads everything from where the first one began.
  Result<ReadAgain> read_again() {
    auto consumer = KafkaConsumer::open(bench_consumer_settings(options_.kafka), read_topic());
    if (!consumer) return std::unexpected(consumer.error());
    const auto& flow = *flows_[delayed];
    AtomicSet seen(flow.plan().count);
    std::uint64_t count = 0;
    ReadAgain again;
    const std::int64_t began = bench_now_us();
    std::int64_t last = began;
    for (const auto& [partition, offset] : begins_)
      if (auto started = consumer->start(partition, offset); !started)
        return std::unexpected(started.error());
    while (count < flow.delivered() && !was_interrupted()) {
      const auto taken = consumer->take(50ms, [&](const std::vector<std::string_view>& values) {
        last = bench_now_us();
        for (const auto value : values) {
          const auto number = bench_number_in(value, options_.run);
          if (!number || !flow.has(*number)) continue;
          if (count == 0) again.first_us = last - began;
          count += seen.insert(*number - flow.plan().first);
        }
      });
      if (!taken) return std::unexpected(taken.error());
      if (bench_now_us() - last > microseconds(options_.kafka.timeout).count()) {
        return fail(Errc::io, fmt::format("{}: only {} of {} records could be read again",
                                          cell(read_topic()), count, flow.delivered()));
      }
    }
    again.all_us = last - began;
    return again;
  }

  const DelayedBenchOptions& options_;
  const std::function<void(std::uint64_t)> progress_;
  std::array<std::unique_ptr<DelayedFlow>, flow_count> flows_;  // Constant while reader_ runs.
  std::uint64_t warm_first_ = 0;
  std::vector<std::uint32_t> in_due_order_;  // Numbers of delayed records; constant during a flow.
  std::vector<PartitionIndex> partitions_;
  PartitionOffsets begins_;  // The first offsets that this run may have records at.
  std::optional<BenchProducers> producers_;
  BenchLoad floor_load_{};                         // For the producers that follow.
  std::optional<BenchProducers> floor_producers_;  // With a target and a floor.
  DelayedFlow* current_ = nullptr;                 // The one that runs, or ran last.
  FirstError error_;
  std::optional<std::int64_t> interrupted_at_;  // Records that are due later are not waited for.
  std::optional<KafkaConsumer> consumer_;       // The thread's while it runs.
  std::jthread reader_;
};

}  // namespace

Result<DelayedBenchResult> measure_delayed(const DelayedBenchOptions& options,
                                           const std::function<void(std::uint64_t)>& progress) {
  return DelayedBench(options, progress).run();
}

}  // namespace tarry::cli
