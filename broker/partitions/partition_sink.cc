#include "broker/partitions/partition_sink.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace tarry::broker {
namespace {

// The due times of a delivery's records, summed: of their lags the sum alone is wanted.
struct Dues {
  std::int64_t records = 0;
  WallTime first{};
  WallTime::duration after_first{0};  // The sum.
};

Dues dues_of(const delay::Departures& departures) {
  Dues dues;
  for (const auto& gone : departures.gone) {
    if (dues.records++ == 0) dues.first = gone.due;
    dues.after_first += gone.due - dues.first;
  }
  return dues;
}

// A clock that was set back makes no lag negative.
TopicLags::Lag lag_of(const Dues& dues, WallTime now) {
  const auto sum = (now - dues.first) * dues.records - dues.after_first;
  return {static_cast<std::uint64_t>(dues.records), std::max(sum, WallTime::duration{0})};
}

}  // namespace

std::optional<delay::TopicDelay> PartitionSink::target(const TopicPartition& partition) {
  const auto topic = shard_.topics().find(partition.topic);
  if (!topic) return std::nullopt;
  return Partition::delay_config_of(*shard_.config_of(*topic));
}

void PartitionSink::deliver(const TopicPartition& partition, Buffer batch,
                            delay::Departures departures, delay::DeliveryTold told) {
  // A shard that stops writes its last checkpoint and takes nothing more.
  if (shard_.stopping()) return told.done(fail(Errc::stopped, "the broker is stopping"));
  told.done = [this, topic = partition.topic, due = dues_of(departures),
               done = std::move(told.done)](Result<Offset> result) mutable {
    if (result) lags_.delivered(topic, lag_of(due, shard_.clock().wall()));
    done(std::move(result));
  };
  partitions_.with(partition, [batch = std::move(batch), departures = std::move(departures),
                               told = std::move(told)](auto found) mutable {
    if (found) return (*found)->deliver(std::move(batch), departures, std::move(told));
    if (found.error() == protocol::ErrorCode::unknown_topic_or_partition) {
      return told.done(fail(Errc::not_found, "its topic is deleted"));
    }
    // The reason may pass (no descriptor is free), so it is asked again.
    told.done(
        fail(Errc::io, "its partition cannot be opened; the log of the broker has the reason"));
  });
}

void PartitionSink::commit(storage::JournalTransaction transaction) {
  (void)shard_.commit(std::move(transaction));  // The engine's parts of it get the outcome.
}

void PartitionSink::store_failed(const Error& error) {
  shard_.journal_failed(error);
}

}  // namespace tarry::broker
