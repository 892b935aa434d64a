#include "broker/views/delayed_records.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "base/glob.h"
#include "broker/broker.h"
#include "broker/context/countdown.h"
#include "delay/pending_record.h"
#include "delay/time_zones.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;
using storage::PendingKey;
using storage::PendingRecord;

// Of one step on a shard: each look-up of an id is a read of the store.
constexpr std::size_t controls_per_step = 128;

// Locators that one visit to the pool counts.
constexpr std::size_t counted_at_once = 50'000;

DelayedRecord taken_apart(const storage::Topic& topic, PendingRecord pending) {
  DelayedRecord record;
  record.topic = topic.name;
  record.partition = pending.partition.partition;
  record.id = std::move(pending.id);
  record.handle = storage::encode_handle(pending.first_key());
  record.due = pending.key.due;
  record.accepted = pending.accepted;
  if (pending.expires != storage::never_expires) record.expires = pending.expires;
  record.bytes = std::move(pending.record);
  const auto parked = delay::PendingRecordBody::parse(record.bytes);
  if (!parked) {
    record.damage = parked.error().message;
    return record;
  }
  if (!parked->recurrence.empty()) {
    auto recurrence = delay::Recurrence::parse(parked->recurrence, delay::TimeZones::of_system());
    if (recurrence) {
      record.recurrence = std::move(*recurrence);
    } else {
      record.damage = recurrence.error().message;
    }
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
  const auto first = storage::parse_handle(handle);
  if (!first) return found;
  const auto key = store.current_key(*first);
  if (!key) return std::unexpected(key.error());
  auto record = store.get(*key);
  if (!record) return std::unexpected(record.error());
  if (*record && (*record)->partition.topic == topic && (*record)->first_key() == *first)
    found.pending.push_back(std::move(**record));
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

// A record, or a name, of one partition, and what its engine says.
struct Asked {
  PartitionIndex partition;
  const std::string* name;
  Result<Controlled> told = Controlled{};
};

// Asks the engine of `shard` about each of them, and comes back when the last has answered.
asio::awaitable<int> control_on(Shard& shard, const TopicId& topic, const DelayedControl& control,
                                std::span<Asked> several) {
  Countdown answered(1);  // Answers may come at once.
  for (Asked& each : several) {
    const TopicPartition partition{topic, each.partition};
    answered.one_begun();
    auto done = [&](Result<Controlled> told) {
      each.told = std::move(told);
      answered.one_ended();
    };
    delay::Engine& engine = shard.engine();
    switch (control.kind) {
      case DelayedControl::Kind::cancel:
        engine.cancel(partition, *each.name, std::move(done));
        break;
      case DelayedControl::Kind::move:
        engine.move(partition, *each.name, control.due, std::move(done));
        break;
      case DelayedControl::Kind::deliver:
        engine.deliver_now(partition, *each.name, std::move(done));
        break;
    }
  }
  answered.one_ended();
  if (answered.all_ended()) co_return 0;
  co_await answered.wait();
  // We are inside the engine, which has not finished with the last one.
  co_await asio::post(shard.executor(), asio::use_awaitable);
  co_return 0;
}

// Each at its shard, so many at once.
asio::awaitable<void> control_all(Broker& broker, Shard& here, const TopicId& topic,
                                  const DelayedControl& control,
                                  std::vector<std::vector<Asked>>& of_shard) {
  for (std::size_t i = 0; i < of_shard.size(); ++i) {
    Shard& shard = broker.shard(i);
    for (std::span<Asked> rest = of_shard[i]; !rest.empty();) {
      const auto some = rest.first(std::min(rest.size(), controls_per_step));
      rest = rest.subspan(some.size());
      auto work = [&, some] { return control_on(shard, topic, control, some); };
      co_await broker.on(here, shard, std::move(work));
    }
  }
}

bool matches_key(const DelayedRecord& record, const std::string& pattern) {
  if (pattern.empty()) return true;
  return record.key && matches_glob(pattern, as_text(*record.key));
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
    if (!topic) continue;
    auto record = taken_apart(*topic, std::move(pending));
    if (matches_key(record, query.key)) answer.records.push_back(std::move(record));
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

asio::awaitable<Result<DelayedCounts>> count_delayed(Broker& broker, Shard& here,
                                                     DelayedQuery query,
                                                     std::chrono::milliseconds by) {
  DelayedCounts counts;
  PendingKey from{query.from, 0};
  for (bool more = true; more;) {
    auto window = co_await here.blocking([&store = broker.pending(), from, until = query.until] {
      return store.window(from, until, counted_at_once);
    });
    if (!window) co_return std::unexpected(window.error());
    for (const auto& locator : window->locators) {
      if (query.topic && locator.partition.topic != query.topic->id) continue;
      if (query.partition && locator.partition.partition != *query.partition) continue;
      ++counts.total;
      ++counts.counts[WallTime(locator.key.due.time_since_epoch() / by * by)];
    }
    if (counts.counts.size() > max_delayed_counts) {
      co_return fail(Errc::too_large,
                     fmt::format("there are more than {} counts: choose a longer unit, or a "
                                 "shorter time from and to",
                                 max_delayed_counts));
    }
    more = window->next.has_value();
    if (more) from = *window->next;
  }
  co_return counts;
}

asio::awaitable<Result<std::vector<PartitionEvent>>> trace_delayed(
    Broker& broker, Shard& here, TopicPtr topic, std::string name,
    std::optional<PartitionIndex> partition) {
  auto partitions = asked(*topic, partition);
  std::vector<PartitionEvent> events;
  if (name.starts_with('@')) {
    auto found =
        co_await here.blocking([&] { return find_handle(broker.pending(), topic->id, name); });
    if (!found) co_return std::unexpected(found.error());
    if (found->pending.empty()) co_return events;
    const PendingRecord& record = found->pending.front();
    partitions = {record.partition.partition};
    name = record.id;
    if (name.empty()) {
      using Kind = storage::IdEvent::Kind;
      events.push_back({partitions[0], {Kind::scheduled, record.accepted, record.first_due}});
      co_return events;
    }
  }
  const auto failed = co_await here.blocking([&, now = here.clock().wall()]() -> Result<> {
    for (const PartitionIndex index : partitions) {
      const auto found = broker.pending().trace({topic->id, index}, name, now);
      if (!found) return std::unexpected(found.error());
      for (const auto& event : *found) events.push_back({index, event});
    }
    return {};
  });
  if (!failed) co_return std::unexpected(failed.error());
  std::ranges::stable_sort(events, {}, [](const PartitionEvent& one) { return one.event.at; });
  co_return events;
}

asio::awaitable<Result<std::vector<PartitionControlled>>> control_delayed(
    Broker& broker, Shard& here, TopicPtr topic, std::string name,
    std::optional<PartitionIndex> partition, DelayedControl control) {
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
    of_shard[broker.shard_of({topic->id, index}).index()].push_back({index, &name});
  co_await control_all(broker, here, topic->id, control, of_shard);
  std::vector<PartitionControlled> answer;
  std::optional<Error> failed;
  for (const auto& group : of_shard) {
    for (const Asked& each : group) {
      if (!each.told) {
        failed = each.told.error();
      } else if (each.told->outcome != ControlOutcome::unknown) {
        answer.push_back({each.partition, *each.told});
      }
    }
  }
  if (failed) co_return std::unexpected(*failed);
  std::ranges::sort(answer, {}, &PartitionControlled::partition);
  co_return answer;
}

asio::awaitable<void> control_several(Broker& broker, Shard& here, TopicPtr topic,
                                      std::vector<NamedRecord>& several, DelayedControl control) {
  std::vector<std::vector<Asked>> of_shard(broker.shard_count());
  std::vector<std::vector<NamedRecord*>> records(broker.shard_count());
  for (NamedRecord& record : several) {
    const std::size_t shard = broker.shard_of({topic->id, record.partition}).index();
    of_shard[shard].push_back({record.partition, &record.handle});
    records[shard].push_back(&record);
  }
  co_await control_all(broker, here, topic->id, control, of_shard);
  for (std::size_t shard = 0; shard < of_shard.size(); ++shard) {
    for (std::size_t i = 0; i < of_shard[shard].size(); ++i)
      records[shard][i]->told = std::move(of_shard[shard][i].told);
  }
}

}  // namespace tarry::broker
