#include "broker/views/delayed_records.h"

#include <algorithm>
#include <exception>
#include <map>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/background.h"
#include "base/glob.h"
#include "broker/broker.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/countdown.h"
#include "broker/context/yield_budget.h"
#include "broker/scatter.h"
#include "delay/pending_record.h"
#include "delay/time_zones.h"
#include "storage/bucket_store.h"
#include "storage/pending.h"
#include "storage/pending_counts.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;
using storage::PendingKey;
using storage::PendingRecord;
using storage::ScheduleEvent;

// The limit of names that a shard is asked at once: each may need a read of the store.
constexpr std::size_t asked_at_once = 128;

DelayedRecord taken_apart(const storage::Topic& topic, PendingRecord pending) {
  DelayedRecord record;
  record.topic = topic.name;
  record.partition = pending.partition.partition;
  record.id = std::move(pending.id);
  record.handle = storage::encode_handle(pending.first_key());
  record.due = pending.key.due;
  record.accepted = pending.accepted;
  if (pending.expires != storage::never_expires) record.expires = pending.expires;
  // Moved before it is parsed: the views below point into it.
  record.bytes = std::move(pending.record);
  const auto body = delay::PendingRecordBody::parse(record.bytes);
  if (!body) {
    record.damage = body.error().message;
    return record;
  }
  if (!body->recurrence.empty()) {
    auto recurrence = delay::Recurrence::parse(body->recurrence, delay::TimeZones::of_system());
    if (recurrence) {
      record.recurrence = std::move(*recurrence);
    } else {
      record.damage = recurrence.error().message;
    }
  }
  record.original = body->original;
  record.key = body->record.key;
  record.value = body->record.value;
  for (const auto& header : body->record.headers)
    record.headers.push_back({header.name, header.value});
  return record;
}

std::vector<PartitionIndex> asked(const storage::Topic& topic,
                                  std::optional<PartitionIndex> partition) {
  std::vector<PartitionIndex> partitions;
  if (partition) {
    if (*partition >= 0 && *partition < topic.partitions) partitions.push_back(*partition);
    // A partition that is not there has no records, which is no error.
    return partitions;
  }
  partitions.reserve(static_cast<std::size_t>(topic.partitions));
  for (PartitionIndex p = 0; p < topic.partitions; ++p) partitions.push_back(p);
  return partitions;
}

// Asks the engine of each item's shard: `ask(engine, item, done)`.  Comes back when all have called
// their `done`.
template <typename Item, typename Ask>
asio::awaitable<void> ask_all(Shard& here, ByShard<Item>& items, const Ask& ask) {
  const auto work = [&](OnShard<Item>& there, CancellationToken&) -> asio::awaitable<void> {
    std::span<Item> left(there.items.data(), there.items.size());
    while (!left.empty()) {
      const auto some = left.first(std::min(left.size(), asked_at_once));
      left = left.subspan(some.size());
      std::vector<char> has_ended(some.size());
      std::exception_ptr failed;
      Countdown answered(1);  // Answers may come at once.
      for (std::size_t i = 0; i < some.size() && !failed; ++i) {
        const auto end = [&answered, &is_over = has_ended[i]] {
          if (std::exchange(is_over, char{1}) == 0) answered.one_ended();
        };
        answered.one_begun();
        try {
          ask(there.shard->engine(), some[i], end);
        } catch (const std::bad_alloc&) {
          // It is not asked, or was answered before; but those before it refer to what we have.
          failed = std::current_exception();
          end();
        }
      }
      answered.one_ended();
      if (!answered.all_ended()) co_await answered.wait();
      // We may be inside the engine, which has not finished with the last one; and if there are
      // more, it is another's turn.
      if (left.empty() || failed) {
        co_await asio::post(there.shard->executor(), asio::use_awaitable);
      } else {
        co_await there.shard->steps().next();
      }
      if (failed) std::rethrow_exception(failed);
    }
  };
  co_await scatter(here, nullptr, items, work);
}

// A name of one partition, and what its engine answers.
template <typename Answer>
struct Asked {
  PartitionIndex partition = 0;
  const std::string* name = nullptr;
  Result<Answer> told = Answer{};
};
template <typename Answer>
using AskedByShard = ByShard<Asked<Answer>>;

template <typename Answer>
AskedByShard<Answer> by_shard(Broker& broker, const TopicId& topic, const std::string& name,
                              const std::vector<PartitionIndex>& partitions) {
  AskedByShard<Answer> items;
  for (const PartitionIndex partition : partitions)
    items.add(broker.shard_of({topic, partition}), {partition, &name});
  return items;
}

// The record of a handle, in `topic` or in any.  Any shard may have it.
asio::awaitable<Result<std::optional<PendingRecord>>> find_handle(Broker& broker, Shard& here,
                                                                  std::optional<TopicId> topic,
                                                                  const std::string& handle) {
  std::optional<PendingRecord> found;
  const auto first = storage::parse_handle(handle);
  if (!first) co_return found;
  using Looked = delay::Engine::Looked;
  AskedByShard<Looked> items;
  for (std::size_t i = 0; i < broker.shard_count(); ++i) items.add(broker.shard(i), {0, &handle});
  const auto ask = [](delay::Engine& engine, Asked<Looked>& item, auto done) {
    engine.look_handle(*item.name, [&item, done](Result<Looked> told) {
      item.told = std::move(told);
      done();
    });
  };
  co_await ask_all(here, items, ask);
  std::optional<Error> fenced;
  for (auto& shard : items) {
    for (auto& item : shard.items) {
      if (!item.told && item.told.error().code == Errc::fenced) {
        fenced = item.told.error();  // Another shard may have the record.
        continue;
      }
      if (!item.told) co_return std::unexpected(item.told.error());
      auto& record = item.told->record;
      if (!record || record->first_key() != *first) continue;
      if (!topic || record->partition.topic == *topic) found = std::move(record);
    }
  }
  if (!found && fenced) co_return std::unexpected(*fenced);
  co_return found;
}

using Controls = AskedByShard<Controlled>;

asio::awaitable<void> control_all(Shard& here, const TopicId& topic, const DelayedControl& control,
                                  Controls& items) {
  const auto ask = [&](delay::Engine& engine, Asked<Controlled>& item, auto done) {
    const TopicPartition partition{topic, item.partition};
    auto told = [&item, done](Result<Controlled> answer) {
      item.told = std::move(answer);
      done();
    };
    switch (control.kind) {
      case DelayedControl::Kind::cancel:
        engine.cancel(partition, *item.name, std::move(told));
        break;
      case DelayedControl::Kind::move:
        engine.move(partition, *item.name, control.due, std::move(told));
        break;
      case DelayedControl::Kind::deliver:
        engine.deliver_now(partition, *item.name, std::move(told));
        break;
    }
  };
  co_await ask_all(here, items, ask);
}

// The conditions that the store cannot check, because it does not look into records.
bool matches(const DelayedQuery& query, const DelayedRecord& record) {
  if (query.recurring && record.recurrence.has_value() != *query.recurring) return false;
  if (!query.key.empty() && !(record.key && matches_glob(query.key, as_text(*record.key))))
    return false;
  return query.text.empty() || record.id.contains(query.text) ||
         (record.key && as_text(*record.key).contains(query.text));
}

// To look for a text or a pattern in a key may take a step for each byte of one beside each byte of
// the other.
std::size_t steps_to_match(const DelayedQuery& query, const DelayedRecord& record) {
  if (!record.key) return 0;
  return record.key->size() * std::max(query.key.size(), query.text.size());
}
constexpr std::size_t steps_a_microsecond = 200;
// More of them are the pool's.
constexpr std::size_t steps_here = 100'000;

// Records of a page of which few may match: where much is due in one bucket, each page reads it.
constexpr std::size_t looked_through = 5'000;
// The time that one of them takes.
constexpr std::size_t us_per_record = 2;

// --- An exact id, and few ids that begin alike, for which no chunk need be searched: the engines
// know where their records are.

// Partitions that a page of an id asks; where there are more, the store is searched.
constexpr std::size_t max_partitions_asked = 4'096;
static_assert(max_partitions_asked <= looked_through,
              "a search has all records of an id in its first page, before which shards write");
// Those of them that are asked together.
constexpr std::size_t partitions_asked_together = 64;
// The bytes of the records of ids, beyond which the store is searched, whose pages have fewer.
constexpr std::size_t max_bytes_of_ids = 8u << 20;
// Ids of a pattern that are asked for; where more match it, the store is searched, which is sooner
// where most records match.
constexpr std::size_t max_ids_alike = 128;
// The rows of ids that begin as the pattern does, also of those that ended lately: some
// milliseconds at most, for each page again.
constexpr std::size_t max_rows_alike = 1'000;
constexpr std::size_t max_partitions_of_ids_alike = 256;

// A partition, and what its engine knows about an id, which belongs to the caller.
struct AskedForId {
  TopicPartition partition;
  const std::string* id = nullptr;
  Result<delay::Engine::Looked> told = delay::Engine::Looked{};
};

// The partitions that may have records of the query; empty: they are too many.
asio::awaitable<std::optional<std::vector<TopicPartition>>> partitions_to_ask(
    Broker& broker, Shard& here, const DelayedQuery& query) {
  std::optional<std::vector<TopicPartition>> out;
  out.emplace();
  const auto add_topic = [&](const TopicPtr& topic) {
    for (const PartitionIndex partition : asked(*topic, query.partition))
      out->push_back({topic->id, partition});
    return out->size() <= max_partitions_asked;
  };
  if (query.topic) {
    if (!add_topic(query.topic)) out.reset();
    co_return out;
  }
  // One list, because there may be others after each wait.
  const auto topics = here.topics().by_name();
  YieldBudget budget(here, nullptr);
  for (const auto& topic : topics) {
    if (budget.spend()) co_await budget.yield();
    if (query.hidden.contains(topic->id)) continue;
    // Counted in memory, so topics without pending records cost no question.
    if (broker.pending_counts().pending_of(topic->id) == 0) continue;
    if (add_topic(topic)) continue;
    out.reset();
    break;
  }
  co_return out;
}

// A pending id, as the store knows it.
struct StoredId {
  TopicPartition partition;
  std::string id;
};
using StoredIds = std::vector<StoredId>;

// Those that match `pattern`, whose matches begin with `beginning`; empty: too many begin so, or
// they cannot be read.  Blocks.
std::optional<StoredIds> ids_alike(storage::BucketStore& store,
                                   const std::vector<TopicPartition>& partitions,
                                   std::string_view beginning, std::string_view pattern) {
  StoredIds out;
  std::size_t rows = max_rows_alike;
  for (const auto& partition : partitions) {
    auto ids = store.pending_ids(partition, beginning, rows);
    if (!ids || !*ids) return std::nullopt;
    for (auto& id : **ids) {
      if (!matches_glob(pattern, id)) continue;
      if (out.size() == max_ids_alike) return std::nullopt;
      out.push_back({partition, std::move(id)});
    }
  }
  return out;
}

// The page that the store would give for the ids that the query may match; empty: the store has to
// be searched, because the bytes are too many, or a partition does not answer (one that is out of
// service has records all the same).
asio::awaitable<std::optional<storage::PendingPage>> page_of_ids(
    Broker& broker, Shard& here, const std::vector<AskedForId>& asked_for,
    const storage::PendingQuery& query) {
  storage::PendingPage page;
  if (query.limit == 0) co_return page;
  const auto ask = [](delay::Engine& engine, AskedForId& item, auto done) {
    engine.look_id(item.partition, *item.id, [&item, done](Result<delay::Engine::Looked> told) {
      item.told = std::move(told);
      done();
    });
  };
  std::size_t bytes = 0;
  for (std::size_t at = 0; at < asked_for.size(); at += partitions_asked_together) {
    ByShard<AskedForId> items;
    const std::size_t end = std::min(asked_for.size(), at + partitions_asked_together);
    for (std::size_t i = at; i < end; ++i)
      items.add(broker.shard_of(asked_for[i].partition),
                {.partition = asked_for[i].partition, .id = asked_for[i].id});
    co_await ask_all(here, items, ask);
    for (auto& shard : items) {
      for (AskedForId& item : shard.items) {
        if (!item.told) co_return std::nullopt;
        auto& record = item.told->record;
        if (!record || record->key.due < query.from || record->key.due >= query.until) continue;
        if (query.after && record->key <= *query.after) continue;
        bytes += record->record.size();
        if (bytes > max_bytes_of_ids) co_return std::nullopt;
        page.records.push_back(std::move(*record));
      }
    }
  }
  std::ranges::sort(page.records, {}, &PendingRecord::key);
  if (page.records.size() > query.limit) {
    page.records.erase(page.records.begin() + static_cast<std::ptrdiff_t>(query.limit),
                       page.records.end());
    page.next = page.records.back().key;
  }
  co_return page;
}

// The answer, if the engines know it at once; empty: the store has to be searched.
asio::awaitable<std::optional<storage::PendingPage>> page_without_search(
    Broker& broker, Shard& here, const DelayedQuery& query, const storage::PendingQuery& asked_for,
    bool& written) {
  const auto id = only_match(asked_for.id);
  const std::string beginning = common_beginning(asked_for.id);
  if (beginning.empty()) co_return std::nullopt;
  // There is a page behind so large a one only because more ids match.
  if (!id && asked_for.after && query.limit > max_ids_alike) co_return std::nullopt;
  if ((!query.topic || !id) && !written) {
    // A record that is arriving is in no topic's count before it is in the store, nor is its id.
    co_await write_pending(broker, here);
    written = true;
  }
  const auto partitions = co_await partitions_to_ask(broker, here, query);
  if (!partitions) co_return std::nullopt;
  std::vector<AskedForId> asked_ids;
  std::optional<StoredIds> alike;
  if (id) {
    asked_ids.reserve(partitions->size());
    for (const auto& partition : *partitions) asked_ids.push_back({partition, &*id});
  } else {
    if (partitions->size() > max_partitions_of_ids_alike) co_return std::nullopt;
    auto look = [&store = broker.pending(), &partitions, &beginning, &asked_for] {
      return ids_alike(store, *partitions, beginning, asked_for.id);
    };
    alike = co_await here.blocking(std::move(look));
    if (!alike) co_return std::nullopt;
    asked_ids.reserve(alike->size());
    for (const auto& each : *alike) asked_ids.push_back({each.partition, &each.id});
  }
  auto page = co_await page_of_ids(broker, here, asked_ids, asked_for);
  co_return page;
}

}  // namespace

std::vector<PartitionEvent> folded(PartitionIndex partition,
                                   const std::vector<ScheduleEvent>& events) {
  using Kind = ScheduleEvent::Kind;
  std::vector<PartitionEvent> out;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const ScheduleEvent& event = events[i];
    // It follows a move, which has shown it, or a delivery of a record that recurs.
    if (event.kind == Kind::scheduled && event.key.due != event.first) continue;
    // Other events have something else there.
    const Offset offset = event.kind == Kind::delivered ? event.offset : -1;
    PartitionEvent told{partition, event.kind, event.at, event.key.due, offset};
    const ScheduleEvent* const next = i + 1 < events.size() ? &events[i + 1] : nullptr;
    if (next != nullptr && next->kind == Kind::scheduled) {
      const bool is_same = next->key.sequence == event.key.sequence;
      if (event.kind == Kind::moved && is_same) {
        told.due = next->key.due;
        ++i;
      } else if (event.kind == Kind::replaced && !is_same) {
        told.at = next->at;
        told.due = next->key.due;
        ++i;
      }
    }
    out.push_back(told);
  }
  return out;
}

asio::awaitable<void> write_pending(Broker& broker, Shard& here) {
  struct Nothing {};
  ByShard<Nothing> shards;
  for (std::size_t i = 0; i < broker.shard_count(); ++i) shards.add(broker.shard(i), {});
  const auto ask = [](delay::Engine& engine, Nothing&, auto done) {
    engine.write_all(std::move(done));
  };
  co_await ask_all(here, shards, ask);
}

bool is_delayed_cursor(std::string_view text) {
  return storage::parse_handle(text).has_value();
}

// The store gives a page in the order of due times.  Conditions that it cannot check are checked
// here, so a page may have fewer records than its limit, and a next one all the same.
asio::awaitable<Result<DelayedPage>> list_delayed(Broker& broker, Shard& here, DelayedQuery query,
                                                  bool written) {
  const bool looks_through = !query.key.empty() || !query.text.empty() || query.recurring;
  storage::PendingQuery asked_for;
  if (query.topic) asked_for.topic = query.topic->id;
  asked_for.partition = query.partition;
  asked_for.from = query.from;
  asked_for.until = query.until;
  asked_for.id = std::move(query.id);
  asked_for.hidden = query.hidden;
  asked_for.limit = looks_through ? std::max(query.limit, looked_through) : query.limit;
  if (query.after) asked_for.after = storage::parse_handle(*query.after);
  auto page = co_await page_without_search(broker, here, query, asked_for, written);
  if (!page) {
    if (!written) co_await write_pending(broker, here);
    auto found = co_await here.blocking(
        [&store = broker.pending(), &asked_for] { return store.page(asked_for); });
    if (!found) co_return std::unexpected(found.error());
    page = std::move(*found);
  }

  DelayedPage answer;
  answer.records.reserve(std::min(page->records.size(), query.limit));
  YieldBudget budget(here, nullptr);
  for (auto& pending : page->records) {
    if (budget.spend(us_per_record)) co_await budget.yield();
    const auto topic = here.topics().find(pending.partition.topic);
    if (!topic) continue;
    const PendingKey key = pending.key;
    const bool is_last = &pending == &page->records.back();
    auto record = taken_apart(*topic, std::move(pending));
    const std::size_t steps = steps_to_match(query, record);
    bool is_match = false;
    if (steps > steps_here) {
      is_match = co_await here.blocking([&] { return matches(query, record); });
    } else {
      if (budget.spend(steps / steps_a_microsecond)) co_await budget.yield();
      is_match = matches(query, record);
    }
    if (!is_match) continue;
    answer.records.push_back(std::move(record));
    // The page is full before the store's own page ends, so the next one begins after this record.
    if (answer.records.size() == query.limit && !is_last) {
      answer.next = storage::encode_handle(key);
      co_return answer;
    }
  }
  if (page->next) answer.next = storage::encode_handle(*page->next);
  co_return answer;
}

asio::awaitable<Result<std::optional<WallTime>>> first_due_on_disk(Broker& broker, Shard& here,
                                                                   WallTime from) {
  storage::PendingQuery query;
  query.from = from;
  query.limit = 1;
  for (;;) {  // A page at a time, so that others get at the pool.
    const auto page = co_await here.blocking([&store = broker.pending(), &query] {
      return Background::caught([&] { return store.page(query); });
    });
    if (!page) co_return std::unexpected(page.error());
    if (!page->records.empty()) co_return page->records.front().key.due;
    if (!page->next) co_return std::nullopt;
    query.after = page->next;
  }
}

asio::awaitable<Result<FoundDelayed>> find_delayed(Broker& broker, Shard& here, TopicPtr topic,
                                                   std::string name,
                                                   std::optional<PartitionIndex> partition) {
  FoundDelayed answer;
  if (name.starts_with('@')) {
    auto found = co_await find_handle(broker, here, topic->id, name);
    if (!found) co_return std::unexpected(found.error());
    if (*found && (!partition || (*found)->partition.partition == *partition))
      answer.pending.push_back(taken_apart(*topic, std::move(**found)));
    co_return answer;
  }
  using Looked = delay::Engine::Looked;
  auto items = by_shard<Looked>(broker, topic->id, name, asked(*topic, partition));
  const auto ask = [&](delay::Engine& engine, Asked<Looked>& item, auto done) {
    engine.look_id({topic->id, item.partition}, *item.name, [&item, done](Result<Looked> told) {
      item.told = std::move(told);
      done();
    });
  };
  co_await ask_all(here, items, ask);
  std::vector<PendingRecord> pending;
  std::optional<Error> fenced;
  for (auto& shard : items) {
    for (auto& item : shard.items) {
      if (!item.told && item.told.error().code == Errc::fenced) {
        fenced = item.told.error();  // Another partition may have the record.
        continue;
      }
      if (!item.told) co_return std::unexpected(item.told.error());
      if (item.told->record) {
        pending.push_back(std::move(*item.told->record));
      } else if (item.told->delivered) {
        answer.delivered.push_back(item.partition);
      }
    }
  }
  if (fenced && pending.empty() && answer.delivered.empty()) co_return std::unexpected(*fenced);
  std::ranges::sort(pending, {}, &PendingRecord::key);
  for (auto& record : pending) answer.pending.push_back(taken_apart(*topic, std::move(record)));
  std::ranges::sort(answer.delivered);
  co_return answer;
}

asio::awaitable<Result<std::optional<DelayedRecord>>> find_by_handle(Broker& broker, Shard& here,
                                                                     std::string handle) {
  std::optional<DelayedRecord> found;
  auto pending = co_await find_handle(broker, here, std::nullopt, handle);
  if (!pending) co_return std::unexpected(pending.error());
  if (*pending) {
    if (const auto topic = here.topics().find((*pending)->partition.topic))
      found = taken_apart(*topic, std::move(**pending));
  }
  co_return found;
}

asio::awaitable<Result<std::vector<PartitionEvent>>> trace_delayed(
    Broker& broker, Shard& here, TopicPtr topic, std::string name,
    std::optional<PartitionIndex> partition) {
  auto partitions = asked(*topic, partition);
  std::vector<PartitionEvent> events;
  if (name.starts_with('@')) {
    const auto found = co_await find_handle(broker, here, topic->id, name);
    if (!found) co_return std::unexpected(found.error());
    if (!*found) co_return events;
    const PendingRecord& record = **found;
    partitions = {record.partition.partition};
    // A past is kept under an id; without one only the acceptance is known.
    name = record.id;
    if (name.empty()) {
      events.push_back(
          {partitions[0], PartitionEvent::Kind::scheduled, record.accepted, record.first_due});
      co_return events;
    }
  }
  using Events = std::vector<ScheduleEvent>;
  auto items = by_shard<Events>(broker, topic->id, name, partitions);
  const auto ask = [&](delay::Engine& engine, Asked<Events>& item, auto done) {
    engine.trace({topic->id, item.partition}, *item.name, [&item, done](Result<Events> told) {
      item.told = std::move(told);
      done();
    });
  };
  co_await ask_all(here, items, ask);
  for (const auto& shard : items) {
    for (const auto& item : shard.items) {
      if (!item.told) co_return std::unexpected(item.told.error());
      std::ranges::copy(folded(item.partition, *item.told), std::back_inserter(events));
    }
  }
  // By time, and those of one time by partition.
  std::ranges::stable_sort(events, {}, &PartitionEvent::partition);
  std::ranges::stable_sort(events, {}, &PartitionEvent::at);
  co_return events;
}

asio::awaitable<Result<std::vector<PartitionControlled>>> control_delayed(
    Broker& broker, Shard& here, TopicPtr topic, std::string name,
    std::optional<PartitionIndex> partition, DelayedControl control) {
  std::vector<PartitionIndex> partitions = asked(*topic, partition);
  if (name.starts_with('@')) {
    const auto found = co_await find_handle(broker, here, topic->id, name);
    if (!found) co_return std::unexpected(found.error());
    // Only the partition that has the record is asked.
    std::erase_if(partitions, [&](PartitionIndex index) {
      return !*found || (*found)->partition.partition != index;
    });
  }
  auto items = by_shard<Controlled>(broker, topic->id, name, partitions);
  co_await control_all(here, topic->id, control, items);
  std::vector<PartitionControlled> answer;
  std::optional<Error> failed, fenced;
  for (const auto& shard : items) {
    for (const auto& item : shard.items) {
      if (!item.told) {
        // Reported when all have answered: the others may have carried it out.
        const bool is_fenced = item.told.error().code == Errc::fenced;
        (is_fenced ? fenced : failed) = item.told.error();
      } else if (item.told->outcome != ControlOutcome::unknown) {
        answer.push_back({item.partition, *item.told});
      }
    }
  }
  if (failed) co_return std::unexpected(*failed);
  // A partition out of service does not hide what became of the record in another one.
  if (fenced && answer.empty()) co_return std::unexpected(*fenced);
  std::ranges::sort(answer, {}, &PartitionControlled::partition);
  co_return answer;
}

asio::awaitable<void> control_several(Broker& broker, Shard& here, TopicPtr topic,
                                      std::vector<NamedRecord>& several, DelayedControl control) {
  Controls items;
  std::map<const std::string*, NamedRecord*> records;  // By their names' places.
  for (NamedRecord& record : several) {
    items.add(broker.shard_of({topic->id, record.partition}), {record.partition, &record.handle});
    records[&record.handle] = &record;
  }
  co_await control_all(here, topic->id, control, items);
  for (auto& shard : items) {
    for (auto& item : shard.items) records.at(item.name)->told = std::move(item.told);
  }
}

}  // namespace tarry::broker
