#include "cli/bench_producers.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include <fmt/core.h>

namespace tarry::cli {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Producers have this long to start their threads.
constexpr milliseconds lead{50};
// The limit for all producers together.
constexpr unsigned max_queued_kilobytes = 131'072;
// A sender that is behind its schedule takes answers once for so many records.
constexpr unsigned records_per_poll = 16;
// A sender that is ahead of it.
constexpr std::int64_t least_sleep_us = 1000;

// With properties of ours, which those that the user gave override.
KafkaSettings with_properties(KafkaSettings settings, const std::vector<std::string>& ours) {
  // In front, because of two values of a property the last one holds.
  settings.properties.insert(settings.properties.begin(), ours.begin(), ours.end());
  return settings;
}

// librdkafka's idempotent producer has five requests of a partition on their way, and while more
// records wait for one of them it asks for the time and polls without a pause: it takes a core,
// which the broker beside it lacks.  Without idempotence as many are on their way, and it sleeps;
// but a record that is sent again could be there twice, so none is.
constexpr std::array not_idempotent{"enable.idempotence=false",
                                    "max.in.flight.requests.per.connection=5", "retries=0"};

Result<KafkaSettings> producer_settings(const BenchLoad& load) {
  auto given = expanded(load.kafka);
  if (!given) return std::unexpected(given.error());
  // All together share the bound, but each needs room for some batches.
  const unsigned share = std::max(max_queued_kilobytes / load.clients, 4096U);
  // At a rate a record does not wait for others; without one, large batches are fast.
  std::vector<std::string> ours{load.plan.rate > 0 ? "linger.ms=0" : "linger.ms=5",
                                fmt::format("queue.buffering.max.kbytes={}", share)};
  // To a user's idempotent producer librdkafka does not allow zero retries.
  const bool is_chosen = std::ranges::any_of(given->properties, [](const std::string& each) {
    return each.starts_with("enable.idempotence=");
  });
  if (!is_chosen) ours.insert(ours.end(), not_idempotent.begin(), not_idempotent.end());
  return with_properties(std::move(*given), ours);
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

 private:
  static constexpr std::size_t pool_bytes = 1 << 20;

  const std::uint64_t run_;
  std::string text_;
  std::string pool_;
};

}  // namespace

std::int64_t bench_now_us() {
  return std::chrono::duration_cast<microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

KafkaSettings bench_consumer_settings(const KafkaSettings& settings) {
  // A full queue makes librdkafka pause for a second, so a burst has to fit into it.
  return with_properties(settings,
                         {"queued.min.messages=10000000", "queued.max.messages.kbytes=262144",
                          // A record of an open transaction is not delivered yet.
                          "isolation.level=read_committed"});
}

std::optional<std::uint64_t> bench_number_in(std::string_view value, std::uint64_t run) {
  std::uint64_t found = 0, number = 0;
  if (value.size() < min_record_size) return std::nullopt;
  std::memcpy(&found, value.data(), sizeof found);
  if (found != run) return std::nullopt;
  std::memcpy(&number, value.data() + sizeof found, sizeof number);
  return number;
}

// One producer.  Between two flows it belongs to the main thread, during one to its own.
class BenchProducer {
 public:
  static Result<std::unique_ptr<BenchProducer>> open(const BenchLoad& load, unsigned index) {
    auto made = std::make_unique<BenchProducer>(load, index);
    const auto settings = producer_settings(load);
    if (!settings) return std::unexpected(settings.error());
    auto producer = KafkaProducer::open(
        *settings, load.topic, load.acks,
        [us = made.get()](const Delivery& delivery) { us->on_delivery(delivery); });
    if (!producer) return std::unexpected(producer.error());
    made->producer_ = std::move(*producer);
    return made;
  }
  BenchProducer(const BenchLoad& load, unsigned index)
      : load_(load), index_(index), values_(load.run, load.size) {}

  // Sends its share of the flow: the producers take turns, group by group.
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
    for (auto first = plan.first + index_ * group; first < end; first += load_.clients * group) {
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
    if (load_.has_ids) headers_.emplace_back("x-schedule-id", "");
  }

  // Meanwhile answers are taken.  At high rates the records of a millisecond are sent together, a
  // little late: to wake up for each takes more of a small machine than to send it, and of what is
  // measured.
  void wait_until(std::int64_t when, const std::atomic<bool>& is_stopping) {
    while (!is_stopping) {
      const std::int64_t left = when - bench_now_us();
      if (left > 0 || ++unpolled_ >= records_per_poll) {
        producer_->poll();
        unpolled_ = 0;
      }
      if (left <= 0) return;
      std::this_thread::sleep_for(
          microseconds{std::clamp<std::int64_t>(left, least_sleep_us, 2000)});
    }
  }

  Result<> send(const DelayedFlow& flow, std::uint64_t number) {
    const auto target = cancelled_ == nullptr ? number : (*cancelled_)[number - flow.plan().first];
    // The header has milliseconds, so the bench counts a record as due when they begin.
    if (flow.plan().is_delayed) headers_[0].second = std::to_string(flow.due(number) / 1000);
    if (headers_.size() == 2) headers_[1].second = fmt::format("{:x}-{}", load_.run, target);
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
    const std::int64_t now = bench_now_us();
    last_answer_ = now;
    if (flow_->plan().rate > 0) {
      result_.accept.add(now - flow_->planned(delivery.number));
    } else if (load_.times_without_rate && delivery.latency_us) {
      result_.accept.add(*delivery.latency_us);
    }
    flow_->accept(delivery.number, now);
  }

  void refuse(const std::string& why) {
    ++result_.refused;
    if (first_refusal_.empty()) first_refusal_ = why;
  }

  const BenchLoad& load_;
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

BenchProducers::BenchProducers(std::vector<std::unique_ptr<BenchProducer>> producers)
    : producers_(std::move(producers)) {}
BenchProducers::BenchProducers(BenchProducers&& other) noexcept = default;
BenchProducers::~BenchProducers() = default;

Result<BenchProducers> BenchProducers::open(const BenchLoad& load) {
  std::vector<std::unique_ptr<BenchProducer>> producers;
  for (unsigned i = 0; i < load.clients; ++i) {
    auto producer = BenchProducer::open(load, i);
    if (!producer) return std::unexpected(producer.error());
    producers.push_back(std::move(*producer));
  }
  return BenchProducers(std::move(producers));
}

std::string BenchProducers::first_refusal() const {
  for (const auto& producer : producers_)
    if (!producer->first_refusal().empty()) return producer->first_refusal();
  return {};
}

FlowResult BenchProducers::send(DelayedFlow& flow, const std::vector<std::uint32_t>* cancelled,
                                FirstError& error, const std::function<bool()>& goes_on) {
  flow.begin(bench_now_us() + microseconds(lead).count());
  std::atomic<bool> is_stopping = false;
  std::atomic<std::size_t> sending = producers_.size();
  {
    // They have joined at the end of this block, so that their results can be read behind it.
    std::vector<std::jthread> threads;
    for (const auto& producer : producers_) {
      threads.emplace_back([&, us = producer.get()] {
        if (auto sent = us->send_share(flow, cancelled, is_stopping); !sent)
          error.set(sent.error());
        --sending;
      });
    }
    // The senders look at is_stopping before each group, and then wait for their answers.
    while (sending > 0)
      if (!goes_on() || error.is_set()) is_stopping = true;
  }
  FlowResult result;
  std::int64_t last_answer = flow.began();
  for (const auto& producer : producers_) {
    const auto& share = producer->result();
    result.sent += share.sent;
    result.refused += share.refused;
    result.accept.add(share.accept);
    last_answer = std::max(last_answer, producer->last_answer());
  }
  result.accepted_in_us = last_answer - flow.began();
  return result;
}

}  // namespace tarry::cli
