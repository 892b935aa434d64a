#pragma once

// KafkaConsumer: reads partitions of one topic from given offsets, without a group.
//
//   open() --> start(partition, offset) for each --> next(), again and again
//
// Invariants
//   - A partition's records come in the order of their offsets, each once.
//   - A connection that is lost is no error: stderr says that it is lost and that it is back, one
//     line each, and reading goes on.
//
// It belongs to one command.  One thread.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cli/kafka/connection.h"
#include "cli/kafka/consumed_record.h"
#include "cli/kafka/handles.h"
#include "cli/kafka/offsets.h"
#include "cli/kafka/settings.h"

namespace tarry::cli {

class KafkaConsumer {
 public:
  static Result<KafkaConsumer> open(const KafkaSettings& settings, const std::string& topic);
  ~KafkaConsumer();
  KafkaConsumer(KafkaConsumer&&) = default;

  const std::vector<PartitionIndex>& partitions() const { return partitions_; }

  // The first offset whose timestamp is not before `epoch_ms`, in each of these partitions; -1
  // where no record is that late.
  Result<PartitionOffsets> offsets_at(const std::vector<PartitionIndex>& partitions,
                                      std::int64_t epoch_ms);

  Result<> start(PartitionIndex partition, Offset from);

  // std::monostate when nothing came for `wait`.  Errors: not_found, the offset does not exist or
  // does not exist any more.
  using Next = std::variant<std::monostate, ConsumedRecord, EndOfPartition>;
  Result<Next> next(std::chrono::milliseconds wait);

  // For a benchmark, to which a record is its value: all that has come goes to `use` at once, at
  // most max_taken records, which costs a fifth of next() for each.  Waits for the first one; does
  // not call `use` when nothing came for `wait`.  The values are valid until `use` returns.
  using UseValues = std::function<void(const std::vector<std::string_view>& values)>;
  static constexpr std::size_t max_taken = 1000;
  Result<> take(std::chrono::milliseconds wait, const UseValues& use);

  // Whether take() has reached the end of every partition that was started.
  bool is_at_end() const { return at_end_.size() == next_.size(); }

  bool is_lost() const { return connection_->is_lost(); }  // The connection.
  // See KafkaConnection; the error is that of a wait which is over.
  bool is_unreachable() const { return connection_->is_unreachable(); }
  std::unexpected<Error> timeout_error() { return connection_->timeout_error(); }
  Result<> check_in_service(const std::vector<PartitionIndex>& partitions);

 private:
  KafkaConsumer(KafkaConnectionPtr connection, std::string name);

  // The place of a record that has come.
  void mark_read(const rd_kafka_message_t& message);
  std::unexpected<Error> error_of(const rd_kafka_message_t& message);
  std::unexpected<Error> out_of_range_error(const std::string& where, PartitionIndex partition,
                                            Offset low, Offset high) const;

  KafkaConnectionPtr connection_;  // The members that follow are of its client.
  std::string name_;               // The topic's.
  KafkaTopic topic_;               // Null after a move.
  KafkaQueue queue_;               // librdkafka puts the records of all partitions here.
  std::vector<PartitionIndex> partitions_;
  // The next offset of each partition that was started; log_start or log_end before its first
  // record.
  std::map<PartitionIndex, Offset> next_;
  std::set<PartitionIndex> begun_;        // The partitions that have brought a record.
  std::set<PartitionIndex> at_end_;       // take() has reached their ends.
  KafkaMessage last_;                     // The record that next() gave last views it.
  std::vector<std::string_view> values_;  // The values of take(), kept for their memory.
};

}  // namespace tarry::cli
