#pragma once

// KafkaProducer: sends records to one topic and reports what became of each.
//
//   send() --> [ librdkafka's queue, bounded ] --> broker
//                     Delivery <-- poll(), send(), finish()
//
// Invariants
//   - Every record that send() took is reported exactly once, by the end of finish().
//   - A call fails when no record was answered for KafkaSettings::timeout; what was not answered
//     until then is reported as failed, for the same reason.
//   - reported_ <= sent_.
//
// It belongs to one command.  One thread: reports come within the calls below.  librdkafka's
// callbacks know its address, so it is neither copied nor moved.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cli/kafka/config_entry.h"
#include "cli/kafka/connection.h"
#include "cli/kafka/handles.h"
#include "cli/kafka/refusal_reasons.h"
#include "cli/kafka/settings.h"

namespace tarry::cli {

enum class Acks { none, leader, all };
// "0", "1", and for all "all" or "-1".
Acks acks_of(std::string_view word);

// Name and value; an empty optional is a null value.
using KafkaHeader = std::pair<std::string, std::optional<std::string>>;

// The broker's answer about one record.
struct Delivery {
  std::uint64_t number = 0;  // The number given to send().
  PartitionIndex partition = -1;
  std::optional<Offset> offset;  // Empty: delayed (it has none yet), or no answer wanted (acks 0).
  std::optional<Error> error;    // It was not accepted.
  // From send() to the answer; empty: librdkafka has none.
  std::optional<std::int64_t> latency_us{};
};

class KafkaProducer {
 public:
  using Report = std::function<void(const Delivery&)>;

  // A topic that does not exist is created when the broker does so by itself.
  static Result<std::unique_ptr<KafkaProducer>> open(const KafkaSettings& settings,
                                                     const std::string& topic, Acks acks,
                                                     Report report);
  KafkaProducer(const KafkaProducer&) = delete;
  KafkaProducer& operator=(const KafkaProducer&) = delete;

  std::size_t partition_count() const { return partition_count_; }

  // The topic's configs.  May be called by a report.
  Result<std::vector<ConfigEntry>> configs();

  // Copies what it is given, and waits while the queue is full.  Without a partition the key
  // chooses one, or chance when there is no key.
  // Errors: io when no record was answered for too long; any other is this record's alone, which is
  // then not reported.
  Result<> send(std::uint64_t number, const std::optional<std::string_view>& key,
                const std::optional<std::string_view>& value,
                const std::vector<KafkaHeader>& headers, std::optional<PartitionIndex> partition);
  void poll();  // Reports what has been answered.
  // Waits until every record is reported.
  Result<> finish();

 private:
  explicit KafkaProducer(Report report) : report_(std::move(report)) {}

  void on_delivered(const rd_kafka_message_t& message);
  std::string failure_reason(const rd_kafka_message_t& message);
  Result<> wait_until(const std::function<bool()>& reached);
  std::unexpected<Error> give_up();
  std::optional<std::uint64_t> max_pending();

  const Report report_;
  KafkaConnectionPtr connection_;  // Constant after open(), like the three below it.
  KafkaTopic topic_;
  std::optional<RefusalReasons> reasons_;
  std::size_t partition_count_ = 0;
  std::string given_up_;  // The reason why the rest is not sent; empty: it is.
  std::optional<std::uint64_t> max_pending_;
  bool asked_max_pending_ = false;
  std::uint64_t sent_ = 0;
  std::uint64_t reported_ = 0;
};

}  // namespace tarry::cli
