#pragma once

// KafkaGroupConsumer: reads a topic as a member of a consumer group.
//
//   open() --> next() ... store_offset() --> close()
//                \-- before_revoke, when the group takes partitions from us
//
// Invariants
//   - Only offsets given to store_offset() are committed: soon after it, before partitions are
//     taken from us, and by close().
//   - A connection that is lost is no error, as with KafkaConsumer.
//
// It belongs to one command.  One thread: `before_revoke` is called within the calls below.
// librdkafka's callbacks know its address, so it is neither copied nor moved.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cli/kafka/connection.h"
#include "cli/kafka/consumer.h"
#include "cli/kafka/handles.h"
#include "cli/kafka/settings.h"

namespace tarry::cli {

class KafkaGroupConsumer {
 public:
  // The group takes these partitions from us: the last moment to call store_offset() for them. With
  // `still_assigned` false they were another's already, and nothing can be committed.
  using BeforeRevoke =
      std::function<void(const std::vector<PartitionIndex>& partitions, bool still_assigned)>;

  // A partition without a committed offset is read from its start, or from its end.
  static Result<std::unique_ptr<KafkaGroupConsumer>> open(const KafkaSettings& settings,
                                                          const std::string& topic,
                                                          const std::string& group, bool from_end,
                                                          BeforeRevoke before_revoke);
  // Leaves the group.  Some member reads again all that was not committed.
  ~KafkaGroupConsumer();
  KafkaGroupConsumer(const KafkaGroupConsumer&) = delete;
  KafkaGroupConsumer& operator=(const KafkaGroupConsumer&) = delete;

  // See KafkaConsumer::next().
  using Next = KafkaConsumer::Next;
  Result<Next> next(std::chrono::milliseconds wait);
  bool is_lost() const { return connection_->is_lost(); }  // The connection.
  bool is_unreachable() const { return connection_->is_unreachable(); }
  std::unexpected<Error> timeout_error() { return connection_->timeout_error(); }
  Result<> check_in_service(const std::vector<PartitionIndex>& partitions);

  // The partitions that the group has given us, which may be none; nullopt until it has decided.
  std::optional<std::vector<PartitionIndex>> assigned();

  // The records before offset `next` need not be read again: it is committed soon.
  void store_offset(PartitionIndex partition, Offset next);
  // Commits and leaves the group.
  Result<> close();

 private:
  KafkaGroupConsumer(std::string topic, std::string group, BeforeRevoke before_revoke);

  Result<> join();
  void on_rebalanced(rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* partitions);

  const std::string topic_name_;
  const std::string group_;
  const BeforeRevoke before_revoke_;
  KafkaConnectionPtr connection_;  // Constant after open(), like topic_.
  KafkaTopic topic_;
  KafkaMessage last_;         // The record that next() gave last views it.
  bool is_member_ = false;    // Joined, and not left yet.
  bool is_assigned_ = false;  // The group has given us partitions, perhaps none of them.
};

}  // namespace tarry::cli
