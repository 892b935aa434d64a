#include "broker/views/delayed_records.h"

#include <algorithm>
#include <span>
#include <utility>

#include <boost/asio/post.hpp>

#include "broker/broker.h"
#include "delay/pending_record.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;
using storage::PendingKey;
using storage::PendingRecord;

// Of one step on a shard: each look-up of an id is a read of the store.
constexpr std::size_t cancels_per_step = 128;

DelayedRecord taken_apart(const storage::Topic& topic, PendingRecord pending) {
  DelayedRecord record;
  record.topic = topic.name;
  record.partition = pending.partition.partition;
  record.id = std::move(pending.id);
  record.handle = storage::encode_handle(pending.key);
  record.due = pending.key.due;
  record.accepted = pending.accepted;
  if (pending.expires != storage::never_expires) record.expires = pending.expires;
  record.bytes = std::move(pending.record);
  const auto parked = delay::PendingRecordBody::parse(record.bytes);
  if (!parked) {
    record.damage = parked.error().message;
    return record;
  }
  record.original = parked->original;
  record.key = parked->record.key;
  record.value = parked->record.value;
  for (const auto& header : parked->record.headers)
    record.headers.push_back({header.name, header.value});
  return record;
}

std::vector<PartitionIndex> asked(const storage::Topic& topic,
                                  std::optional<PartitionIndex> partition) {
  std::vector<PartitionIndex> partitions;
  if (partition) {
    if (*partition >= 0 && *partition < topic.partitions) partitions.push_back(*partition);
    return partitions;
  }
  partitions.reserve(static_cast<std::size_t>(topic.partitions));
  for (PartitionIndex p = 0; p < topic.partitions; ++p) partitions.push_back(p);
  return partitions;
}

// What the store says of a name, without the records' insides.  Blocks.
struct Found {
  std::vector<PendingRecord> pending;
  std::vector<PartitionIndex> delivered;
};

Result<Found> find_handle(storage::PendingStore& store, const TopicId& topic,
                          const std::string& handle) {
  Found found;
  const auto key = storage::parse_handle(handle);
  if (!key) return found;
  auto record = store.get(*key);
  if (!record) return std::unexpected(record.error());
  if (*record && (*record)->partition.topic == topic) found.pending.push_back(std::move(**record));
  return found;
}

Result<Found> find_id(storage::PendingStore& store, const TopicId& topic, const std::string& id,
                      const std::vector<PartitionIndex>& partitions, WallTime now) {
  Found found;
  std::vector<PendingKey> keys;
  for (const PartitionIndex partition : partitions) {
    const auto state = store.find_id({topic, partition}, id, now);
    if (!state) return std::unexpected(state.error());
    if (const auto* pending = std::get_if<storage::IdPending>(&*state)) {
      keys.push_back(pending->key);
    } else if (const auto* ended = std::get_if<storage::IdEnded>(&*state);
               ended != nullptr && ended->how == storage::RemovalReason::delivered) {
      found.delivered.push_back(partition);
    }
  }
  std::ranges::sort(keys);
  auto records = store.read(keys);
  if (!records) return std::unexpected(records.error());
  for (auto& record : *records) {
    if (record) found.pending.push_back(std::move(*record));
  }
  return found;
}

// Asks the engine of `shard` about each partition, and comes back when the last has answered.
struct Asked {
  PartitionIndex partition;
  Result<CancelOutcome> outcome = CancelOutcome::unknown;
};
asio::awaitable<int> cancel_on(Shard& shard, const TopicId& topic, const std::string& name,
                               std::span<Asked> partitions) {
  std::size_t left = partitions.size() + 1;
  OneShotEvent done;
  for (Asked& each : partitions) {
    shard.engine().cancel({topic, each.partition}, name, [&](Result<CancelOutcome> outcome) {
      each.outcome = std::move(outcome);
      if (--left == 0) done.fire();
    });
  }
  if (--left == 0) co_return 0;
  co_await done.wait();
  // We are inside the engine, which has not finished with the last one.
  co_await asio::post(shard.executor(), asio::use_awaitable);
  co_return 0;
}

}  // namespace

bool is_delayed_cursor(std::string_view text) {
  return storage::parse_handle(text).has_value();
}

asio::awaitable<Result<DelayedPage>> list_delayed(Broker& broker, Shard& here, DelayedQuery query) {
  storage::PendingQuery asked_for;
  if (query.topic) asked_for.topic = query.topic->id;
  asked_for.partition = query.partition;
  asked_for.from = query.from;
  asked_for.until = query.until;
  asked_for.id = std::move(query.id);
  asked_for.limit = query.limit;
  if (query.after) asked_for.after = storage::parse_handle(*query.after);
  auto page = co_await here.blocking(
      [&store = broker.pending(), &asked_for] { return store.list(asked_for); });
  if (!page) co_return std::unexpected(page.error());

  DelayedPage answer;
  answer.records.reserve(page->records.size());
  for (auto& pending : page->records) {
    const auto topic = here.topics().find(pending.partition.topic);
    if (topic) answer.records.push_back(taken_apart(*topic, std::move(pending)));
  }
  if (page->next) answer.next = storage::encode_handle(*page->next);
  co_return answer;
}

asio::awaitable<Result<FoundDelayed>> find_delayed(Broker& broker, Shard& here, TopicPtr topic,
                                                   std::string name,
                                                   std::optional<PartitionIndex> partition) {
  const auto partitions = asked(*topic, partition);
  auto found = co_await here.blocking([&, now = here.clock().wall()] {
    return name.starts_with('@') ? find_handle(broker.pending(), topic->id, name)
                                 : find_id(broker.pending(), topic->id, name, partitions, now);
  });
  if (!found) co_return std::unexpected(found.error());
  FoundDelayed answer;
  for (auto& pending : found->pending) {
    if (partition && pending.partition.partition != *partition) continue;
    answer.pending.push_back(taken_apart(*topic, std::move(pending)));
  }
  answer.delivered = std::move(found->delivered);
  co_return answer;
}

asio::awaitable<Result<std::vector<PartitionCancelled>>> cancel_delayed(
    Broker& broker, Shard& here, TopicPtr topic, std::string name,
    std::optional<PartitionIndex> partition) {
  std::vector<PartitionIndex> partitions = asked(*topic, partition);
  if (name.starts_with('@')) {
    const auto found =
        co_await here.blocking([&] { return find_handle(broker.pending(), topic->id, name); });
    if (!found) co_return std::unexpected(found.error());
    std::erase_if(partitions, [&](PartitionIndex index) {
      return found->pending.empty() || found->pending.front().partition.partition != index;
    });
  }

  std::vector<std::vector<Asked>> of_shard(broker.shard_count());
  for (const PartitionIndex index : partitions)
    of_shard[broker.shard_of({topic->id, index}).index()].push_back({index});
  std::vector<PartitionCancelled> answer;
  std::optional<Error> failed;
  for (std::size_t i = 0; i < of_shard.size(); ++i) {
    Shard& shard = broker.shard(i);
    for (std::span<Asked> rest = of_shard[i]; !rest.empty();) {
      const auto some = rest.first(std::min(rest.size(), cancels_per_step));
      rest = rest.subspan(some.size());
      auto work = [&, some] { return cancel_on(shard, topic->id, name, some); };
      co_await broker.on(here, shard, std::move(work));
    }
    for (const Asked& each : of_shard[i]) {
      if (!each.outcome) {
        failed = each.outcome.error();
      } else if (*each.outcome != CancelOutcome::unknown) {
        answer.push_back({each.partition, *each.outcome});
      }
    }
  }
  if (failed) co_return std::unexpected(*failed);
  std::ranges::sort(answer, {}, &PartitionCancelled::partition);
  co_return answer;
}

}  // namespace tarry::broker
