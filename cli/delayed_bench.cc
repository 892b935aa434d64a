#include "cli/delayed_bench.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
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

// Producers have this long to start their threads.
constexpr milliseconds lead = 50ms;
// A record that comes a second time may come after all others.
constexpr milliseconds time_for_doubles = 1s;
// After an interrupt: records that were due have this long to come.
constexpr milliseconds interrupt_patience = 2s;
// How often the main thread looks at what the others do.
constexpr milliseconds watch_interval = 10ms;
// The limit for all producers together.
constexpr unsigned max_queued_kilobytes = 131'072;
// A sender that is behind its schedule takes answers once for so many records.
constexpr unsigned records_per_poll = 16;

// The time of the machine's wall clock, with which due times are compared.
std::int64_t now_us() {
  return std::chrono::duration_cast<microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// With properties of ours, which those that the user gave override.
KafkaSettings with_properties(KafkaSettings settings, std::vector<std::string> ours) {
  // In front, because of two values of a property the last one holds.
  settings.properties.insert(settings.properties.begin(), ours.begin(), ours.end());
  return settings;
}

KafkaSettings producer_settings(const DelayedBenchOptions& options) {
  // At a rate a record does not wait for others; without one, large batches are fast.
  const char* linger = options.plan.rate > 0 ? "linger.ms=0" : "linger.ms=5";
  // All together share the bound, but each needs room for some batches.
  const unsigned share = std::max(max_queued_kilobytes / options.clients, 4096U);
  return with_properties(options.kafka,
                         {linger, fmt::format("queue.buffering.max.kbytes={}", share)});
}

// A full queue makes librdkafka pause for a second, so a burst has to fit into it.
KafkaSettings consumer_settings(const DelayedBenchOptions& options) {
  return with_properties(options.kafka,
                         {"queued.min.messages=10000000", "queued.max.messages.kbytes=262144"});
}

// The values of a run: text that compresses about as well as logs do, each another part of a long
// one, so that a compressor does not find the whole of it again.
class Values {
 public:
  Values(std::uint64_t run, std::size_t size)
      : run_(run), text_(size, '.'), pool_(pool_bytes + size, 'e') {
    // Zero would make the generator stand still.
    std::uint64_t random = run | 1;
    for (std::size_t i = 0; i < pool_.size(); i += 3) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      pool_[i] = static_cast<char>('a' + (random >> 33) % 26);
    }
    // It stands first in each value, so that records of other runs in the topic are passed over.
    std::memcpy(text_.data(), &run_, sizeof run_);
  }
  // Valid until the next call.
  std::string_view of(std::uint64_t number) {
    std::memcpy(text_.data() + sizeof run_, &number, sizeof number);
    const std::size_t from = number * text_.size() % pool_bytes;
    std::memcpy(text_.data() + min_record_size, pool_.data() + from,
                text_.size() - min_record_size);
    return text_;
  }
  static std::optional<std::uint64_t> number_in(std::string_view value, std::uint64_t run) {
    std::uint64_t found = 0, number = 0;
    if (value.size() < min_record_size) return std::nullopt;
    std::memcpy(&found, value.data(), sizeof found);
    if (found != run) return std::nullopt;
    std::memcpy(&number, value.data() + sizeof found, sizeof number);
    return number;
  }

 private:
  static constexpr std::size_t pool_bytes = 1 << 20;

  const std::uint64_t run_;
  std::string text_;
  std::string pool_;
};

// The first error of any thread.
class FirstError {
 public:
  void set(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    is_set_ = true;
  }
  bool is_set() const { return is_set_; }
  std::optional<Error> get() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> is_set_ = false;
};

// One producer.  Between two flows it belongs to the main thread, during one to its own.
class Client {
 public:
  static Result<std::unique_ptr<Client>> open(const DelayedBenchOptions& options, unsigned index) {
    auto client = std::make_unique<Client>(options, index);
    auto producer = KafkaProducer::open(
        producer_settings(options), options.topic, Acks::all,
        [us = client.get()](const Delivery& delivery) { us->on_delivery(delivery); });
    if (!producer) return std::unexpected(producer.error());
    client->producer_ = std::move(*producer);
    return client;
  }
  Client(const DelayedBenchOptions& options, unsigned index)
      : options_(options), index_(index), values_(options.run, options.size) {}

  // Sends its share of the flow: the clients take turns, group by group.  With `cancelled`, the
  // records of the flow are cancels of the records with these numbers.
  Result<> send_share(DelayedFlow& flow, const std::vector<std::uint32_t>* cancelled,
                      const std::atomic<bool>& is_stopping) {
    // Without this the kernel may wake us up 50 us late.
    ::prctl(PR_SET_TIMERSLACK, 1);
    flow_ = &flow;
    cancelled_ = cancelled;
    result_ = {};
    last_answer_ = flow.began();
    const auto& plan = flow.plan();
    set_headers(plan);
    const std::uint64_t end = plan.first + plan.count, group = flow.group_size();
    for (auto first = plan.first + index_ * group; first < end; first += options_.clients * group) {
      wait_until(flow.planned(first), is_stopping);
      if (is_stopping) break;
      for (auto number = first; number < std::min(first + group, end); ++number) {
        if (auto sent = send(flow, number); !sent) {
          static_cast<void>(producer_->finish());  // It fails for the same reason.
          return sent;
        }
      }
    }
    return producer_->finish();
  }

  // About the last flow.
  const FlowResult& result() const { return result_; }
  std::int64_t last_answer() const { return last_answer_; }
  const std::string& first_refusal() const { return first_refusal_; }

 private:
  void set_headers(const FlowPlan& plan) {
    headers_.clear();
    if (cancelled_ != nullptr) {
      headers_ = {{"x-schedule-action", "cancel"}, {"x-schedule-id", ""}};
      return;
    }
    if (!plan.is_delayed) return;
    headers_.emplace_back("x-deliver-at", "");
    if (options_.has_ids) headers_.emplace_back("x-schedule-id", "");
  }

  // Meanwhile answers are taken.
  void wait_until(std::int64_t when, const std::atomic<bool>& is_stopping) {
    while (!is_stopping) {
      const std::int64_t left = when - now_us();
      if (left > 0 || ++unpolled_ >= records_per_poll) {
        producer_->poll();
        unpolled_ = 0;
      }
      if (left <= 0) return;
      std::this_thread::sleep_for(microseconds{std::min<std::int64_t>(left, 2000)});
    }
  }

  Result<> send(const DelayedFlow& flow, std::uint64_t number) {
    const auto target = cancelled_ == nullptr ? number : (*cancelled_)[number - flow.plan().first];
    // The header has milliseconds, so the bench counts a record as due when they begin.
    if (flow.plan().is_delayed) headers_[0].second = std::to_string(flow.due(number) / 1000);
    if (headers_.size() == 2) headers_[1].second = fmt::format("{:x}-{}", options_.run, target);
    // By the number, so that a cancel goes to the partition of the record that it cancels.
    const auto partition =
        static_cast<PartitionIndex>(target % std::uint64_t{producer_->partition_count()});
    ++result_.sent;
    auto sent = producer_->send(number, std::nullopt, values_.of(number), headers_, partition);
    if (sent || sent.error().code == Errc::io) return sent;
    refuse(sent.error().message);  // Only this record is wrong.
    return {};
  }

  void on_delivery(const Delivery& delivery) {
    if (delivery.error) {
      refuse(delivery.error->message);
      return;
    }
    const std::int64_t now = now_us();
    last_answer_ = now;
    // Without a rate all records are planned for the first moment, and this time says nothing.
    if (flow_->plan().rate > 0) result_.accept.add(now - flow_->planned(delivery.number));
    flow_->accept(delivery.number, now);
  }

  void refuse(const std::string& why) {
    ++result_.refused;
    if (first_refusal_.empty()) first_refusal_ = why;
  }

  const DelayedBenchOptions& options_;
  const unsigned index_;
  Values values_;
  std::vector<KafkaHeader> headers_;
  DelayedFlow* flow_ = nullptr;  // The one whose records are sent.
  const std::vector<std::uint32_t>* cancelled_ = nullptr;
  FlowResult result_;
  std::int64_t last_answer_ = 0;
  std::string first_refusal_;
  unsigned unpolled_ = 0;                    // Records sent since the last answers were taken.
  std::unique_ptr<KafkaProducer> producer_;  // Reports to us, so it goes first.
};

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
    for (const auto& client : clients_)
      if (result.first_refusal.empty()) result.first_refusal = client->first_refusal();
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
  enum FlowIndex : std::size_t { warm, floor_before, delayed, cancels, floor_after, flow_count };

  bool awaits_deliveries() const { return options_.goal == BenchGoal::deliver; }

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
    warm_first_ = next;  // It comes last, because its length is not known yet.
  }

  Result<> open() {
    auto admin = KafkaAdmin::open(options_.kafka);
    if (!admin) return std::unexpected(admin.error());
    auto consumer = KafkaConsumer::open(consumer_settings(options_), options_.topic);
    if (!consumer) return std::unexpected(consumer.error());
    partitions_ = consumer->partitions();
    // Asks for numbers, because the consumer itself looks for the end some time later.
    auto ends = admin->offsets(options_.topic, partitions_, log_end);
    if (!ends) return std::unexpected(ends.error());
    begins_ = std::move(*ends);
    consumer_.emplace(std::move(*consumer));
    // Reading begins before anything is sent.
    for (const auto& [partition, offset] : begins_)
      if (auto started = consumer_->start(partition, offset); !started) return started;
    for (unsigned i = 0; i < options_.clients; ++i) {
      auto client = Client::open(options_, i);
      if (!client) return std::unexpected(client.error());
      clients_.push_back(std::move(*client));
    }
    flows_[warm] = std::make_unique<DelayedFlow>(
        FlowPlan{.first = warm_first_, .count = partitions_.size() * clients_.size()});
    return {};
  }

  // Every client sends a record to some partition, and every partition gives one back, so that
  // all connections stand and all fetches wait.
  Result<> warm_up() {
    const FlowResult flow = run_flow(*flows_[warm]);
    if (auto error = error_.get()) return std::unexpected(std::move(*error));
    if (flow.refused > 0) {
      for (const auto& client : clients_) {
        if (client->first_refusal().empty()) continue;
        return fail(Errc::invalid, fmt::format("{}: the first record was not accepted: {}",
                                               cell(options_.topic), client->first_refusal()));
      }
    }
    if (was_interrupted()) return fail(Errc::stopped, "interrupted before it began");
    if (flows_[warm]->delivered() < flows_[warm]->accepted()) {
      return fail(Errc::io, fmt::format("{}: the first record, which has no delay, was not "
                                        "delivered at once: is tarry.delay.ms set?",
                                        cell(options_.topic)));
    }
    return {};
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

  FlowResult run_flow(DelayedFlow& flow) {
    const bool is_cancelling = &flow == flows_[cancels].get();
    flow.begin(now_us() + microseconds(lead).count());
    current_ = &flow;
    is_stopping_ = false;
    std::atomic<std::size_t> sending = clients_.size();
    {
      // They have joined at the end of this block, so that their results can be read behind it.
      std::vector<std::jthread> threads;
      for (const auto& client : clients_) {
        threads.emplace_back([&, us = client.get()] {
          if (auto sent =
                  us->send_share(flow, is_cancelling ? &in_due_order_ : nullptr, is_stopping_);
              !sent)
            error_.set(sent.error());
          --sending;
        });
      }
      while (sending > 0) {
        watch_for(watch_interval);
        if (was_interrupted() && !interrupted_at_) interrupted_at_ = now_us();
        // The senders look at is_stopping_ before each group, and then wait for their answers.
        if (was_interrupted() || error_.is_set()) is_stopping_ = true;
      }
    }
    if (!is_cancelling && (awaits_deliveries() || !flow.plan().is_delayed))
      wait_for_deliveries(flow);

    FlowResult result;
    std::int64_t last_answer = flow.began();
    for (const auto& client : clients_) {
      const auto& share = client->result();
      result.sent += share.sent;
      result.refused += share.refused;
      result.accept.add(share.accept);
      last_answer = std::max(last_answer, client->last_answer());
    }
    result.accepted_in_us = last_answer - flow.began();
    return result;
  }

  // Until all that was accepted has come; or none came for the timeout, and none was due.
  void wait_for_deliveries(const DelayedFlow& flow) {
    std::uint64_t delivered = flow.delivered();
    std::int64_t quiet_since = now_us();
    while (!error_.is_set()) {
      const std::int64_t now = now_us();
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
      watch_for(watch_interval);
    }
  }

  void watch_for(milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    // It sleeps once at least, so that the callers' loops do not spin.
    do {
      std::this_thread::sleep_for(std::min(time, watch_interval));
      // Null until the first flow begins.
      if (current_ != nullptr)
        progress_(awaits_deliveries() ? current_->delivered() : current_->accepted());
    } while (std::chrono::steady_clock::now() < until && !was_interrupted());
  }

  // The consumer's thread.
  void read(const std::stop_token& stop) {
    const auto use = [this](const std::vector<std::string_view>& values) {
      // The values came together, so they have one time.
      const std::int64_t now = now_us();
      for (const auto value : values) {
        const auto number = Values::number_in(value, options_.run);
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
    const std::int64_t end = interrupted_at_.value_or(now_us());
    for (const auto index : {floor_before, delayed, cancels, floor_after}) {
      if (!flows_[index] || flows_[index]->began() == 0) continue;
      // Where no deliveries are awaited, what has not come is pending.
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
    auto consumer = KafkaConsumer::open(consumer_settings(options_), options_.topic);
    if (!consumer) return std::unexpected(consumer.error());
    const auto& flow = *flows_[delayed];
    AtomicSet seen(flow.plan().count);
    std::uint64_t count = 0;
    ReadAgain again;
    const std::int64_t began = now_us();
    std::int64_t last = began;
    for (const auto& [partition, offset] : begins_)
      if (auto started = consumer->start(partition, offset); !started)
        return std::unexpected(started.error());
    while (count < flow.delivered() && !was_interrupted()) {
      const auto taken = consumer->take(50ms, [&](const std::vector<std::string_view>& values) {
        last = now_us();
        for (const auto value : values) {
          const auto number = Values::number_in(value, options_.run);
          if (!number || !flow.has(*number)) continue;
          if (count == 0) again.first_us = last - began;
          count += seen.insert(*number - flow.plan().first);
        }
      });
      if (!taken) return std::unexpected(taken.error());
      if (now_us() - last > microseconds(options_.kafka.timeout).count()) {
        return fail(Errc::io, fmt::format("{}: only {} of {} records could be read again",
                                          cell(options_.topic), count, flow.delivered()));
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
  std::vector<std::unique_ptr<Client>> clients_;
  DelayedFlow* current_ = nullptr;  // The one that runs, or ran last.
  std::atomic<bool> is_stopping_ = false;
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
