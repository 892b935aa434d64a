#pragma once

// PartitionSink: where the delay engine's due records go in a broker: into their partitions.
//
// One a shard, on its thread.  A delivery opens its partition when nobody has used it yet.

#include "delay/sink.h"

namespace tarry::broker {

class Shard;

class PartitionSink final : public delay::Sink {
 public:
  explicit PartitionSink(Shard& shard) : shard_(shard) {}

  std::optional<delay::TopicDelay> target(const TopicPartition& partition) override;
  bool owns(const TopicPartition& partition) override;
  void deliver(const TopicPartition& partition, Buffer batch, std::vector<storage::Gone> gone,
               std::move_only_function<void(Result<Offset>)> done) override;
  void commit(storage::RecordBuilder record, std::move_only_function<void(Result<>)> done) override;
  void want_sequences() override;
  void store_failed(const Error& error) override;

 private:
  Shard& shard_;
};

}  // namespace tarry::broker
