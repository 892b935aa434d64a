#pragma once

// PartitionSink: the delay engine's Sink in a broker, which delivers due records to their
// partitions.
//
// One a shard, on its thread.  A delivery opens its partition when nobody has used it yet.

#include <functional>
#include <utility>

#include "broker/context/shard_context.h"
#include "broker/partitions/partitions.h"
#include "broker/partitions/topic_lags.h"
#include "delay/sink.h"

namespace tarry::broker {

class PartitionSink final : public delay::Sink {
 public:
  // `request_sequences` asks for a block of sequence numbers, which the engine is given later.
  PartitionSink(ShardContext& shard, Partitions& partitions,
                std::move_only_function<void()> request_sequences)
      : shard_(shard), partitions_(partitions), request_sequences_(std::move(request_sequences)) {}

  std::optional<delay::TopicDelay> target(const TopicPartition& partition) override;
  void deliver(const TopicPartition& partition, Buffer batch, delay::Departures departures,
               delay::DeliveryTold told) override;
  void commit(storage::JournalTransaction transaction) override;
  void request_sequences() override { request_sequences_(); }
  void store_failed(const Error& error) override;

  TopicLags& lags() { return lags_; }

 private:
  ShardContext& shard_;
  Partitions& partitions_;
  std::move_only_function<void()> request_sequences_;
  TopicLags lags_;
};

}  // namespace tarry::broker
