#pragma once

// BenchProducers: the producers of a benchmark, which send the records of a flow by its schedule.
//
//   open() --> send(flow), one flow after the other
//                one thread for each producer --> broker
//                DelayedFlow::accept()  <-----------'
//
// Open loop: the flow says when each record is to be sent, and an acknowledgement is timed from
// then.  A stall, whether of the broker or of the sender, therefore counts for every record that it
// delays.
//
// It belongs to one benchmark.  Between two flows its producers belong to the thread that calls
// send(), during one each to a thread of its own.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/delayed_flow.h"
#include "cli/kafka/producer.h"
#include "cli/kafka/settings.h"
#include "cli/latency_histogram.h"

namespace tarry::cli {

// A value begins with the run and the number.
inline constexpr std::size_t min_record_size = 16;
// How often a benchmark looks at what its threads do.
inline constexpr std::chrono::milliseconds bench_watch_interval{10};

// The records of a benchmark, and who sends them.
struct BenchLoad {
  KafkaSettings kafka;
  std::string topic;       // It exists.
  std::uint64_t run = 0;   // Tells this run's records from others in the topic.
  FlowPlan plan;           // `first` has no meaning.
  std::size_t size = 100;  // Bytes of a value, at least min_record_size.
  unsigned clients = 1;    // Producers.
  Acks acks = Acks::all;
  bool has_ids = false;  // Each delayed record has a schedule id.
  // Without a rate all records are planned for the first moment: acknowledgements are timed from
  // the call that sends the record, or not at all.
  bool times_without_rate = false;
};

struct FlowResult {
  FlowFigures figures;
  std::uint64_t sent = 0;
  std::uint64_t refused = 0;
  std::int64_t accepted_in_us = 0;  // From the first record's time to the last acknowledgement.
  LatencyHistogram accept;          // From when a record was to be sent to its acknowledgement.
};

// The time of the machine's wall clock in microseconds, with which due times are compared.
std::int64_t bench_now_us();

// For consumers that must not pause while records come in a burst; they read committed.
KafkaSettings bench_consumer_settings(const KafkaSettings& settings);

// The number of a record of this run, by its value; empty: it is another run's, or none of ours.
std::optional<std::uint64_t> bench_number_in(std::string_view value, std::uint64_t run);

// The first error of any thread.
class FirstError {
 public:
  void set(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  bool is_set() const {
    const std::lock_guard lock(mutex_);
    return error_.has_value();
  }
  std::optional<Error> get() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

class BenchProducer;

class BenchProducers {
 public:
  // `load` must outlive the producers.
  static Result<BenchProducers> open(const BenchLoad& load);
  BenchProducers(BenchProducers&& other) noexcept;
  ~BenchProducers();

  std::size_t size() const { return producers_.size(); }
  // The first refusal of any record so far; empty: none was refused.
  std::string first_refusal() const;

  // Begins the flow and sends its records; returns when each that was sent is answered.  With
  // `cancelled` they are cancels of the records with these numbers.  `goes_on` is called again and
  // again meanwhile, and waits a moment each time: when it returns false, or after an error, no
  // more records are sent.  The figures of the flow are the caller's to add.
  FlowResult send(DelayedFlow& flow, const std::vector<std::uint32_t>* cancelled, FirstError& error,
                  const std::function<bool()>& goes_on);

 private:
  explicit BenchProducers(std::vector<std::unique_ptr<BenchProducer>> producers);

  std::vector<std::unique_ptr<BenchProducer>> producers_;
};

}  // namespace tarry::cli
