#include "broker/partitions/partition_sink.h"

#include <memory>
#include <utility>

namespace tarry::broker {

std::optional<delay::TopicDelay> PartitionSink::target(const TopicPartition& partition) {
  const auto topic = shard_.topics().find(partition.topic);
  if (!topic) return std::nullopt;
  return Partition::delay_config_of(*shard_.config_of(*topic));
}

void PartitionSink::deliver(const TopicPartition& partition, Buffer batch,
                            delay::Departures departures, delay::DeliveryTold told) {
  if (shard_.stopping()) return told.done(fail(Errc::stopped, "the broker is stopping"));
  partitions_.with(partition, [batch = std::move(batch), departures = std::move(departures),
                               told = std::move(told)](auto found) mutable {
    if (found) return (*found)->deliver(std::move(batch), departures, std::move(told));
    if (found.error() == protocol::ErrorCode::unknown_topic_or_partition) {
      return told.done(fail(Errc::not_found, "its topic is deleted"));
    }
    told.done(fail(Errc::fenced, "its partition cannot be opened"));
  });
}

void PartitionSink::commit(storage::JournalTransaction transaction) {
  (void)shard_.commit(std::move(transaction));  // The engine's parts of it are told.
}

void PartitionSink::store_failed(const Error& error) {
  shard_.journal_failed(error);
}

}  // namespace tarry::broker
