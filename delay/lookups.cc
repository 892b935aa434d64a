#include "delay/lookups.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace tarry::delay {

namespace {

constexpr const char* too_many_lookups = "too many requests wait for the disk; try again";

// One piece of work has at most so many lookups.
constexpr std::size_t max_at_once = 1'024;
// A turn gives so many answers: most of a millisecond, if each goes into the journal.
constexpr std::size_t answers_a_turn = 128;
// They bring so many bytes of records into memory, and one record more; the others are looked up
// again.
constexpr std::size_t max_found_bytes = 8u << 20;

}  // namespace

struct Lookups::Asked {
  std::vector<Lookup> lookups;
  std::vector<PendingKey> keys;
  std::vector<std::optional<storage::PendingRecord>> records;
  std::vector<std::size_t> left;  // The numbers of those that are looked up again, sorted.
  std::vector<IdLookup> ids;
  std::vector<std::vector<storage::ScheduleEvent>> events;
  std::size_t told = 0;      // Lookups that are answered,
  std::size_t told_ids = 0;  //   and those of ids.
};

// The record that is pending under a key, if memory knows it; empty: the disk has to be asked.
std::optional<std::optional<storage::PendingRecord>> Lookups::known(const PendingKey& key) const {
  const auto view = memory_.homes.read(key);
  if (view && !memory_.dropped.contains(view->partition.topic)) return view->owned();
  // Before the horizon everything that is pending is in memory.
  if (key < memory_.horizon.at() || memory_.homes.is_gone(key) ||
      !memory_.homes.may_be_on_disk(key))
    return std::optional<storage::PendingRecord>();
  return std::nullopt;
}

void Lookups::find(const PendingKey& key, Found found) {
  if (auto now = known(key)) return found(std::move(*now));
  // Each holds a request, whose client would otherwise wait with all the others.
  if (waiting_.size() >= max_waiting) return found(fail(Errc::exhausted, too_many_lookups));
  waiting_.push_back({key, std::move(found), false});
  begin_if_idle();
}

void Lookups::find_handle(const PendingKey& handle, Found found) {
  if (const auto* const moved = memory_.unwritten.forwarded(handle)) {
    if (!*moved) return found(std::optional<storage::PendingRecord>());
    return find(**moved, unless_moved(handle, **moved, std::move(found)));
  }
  if (auto now = known(handle); now && *now) return found(std::move(*now));
  if (waiting_.size() >= max_waiting) return found(fail(Errc::exhausted, too_many_lookups));
  waiting_.push_back({handle, std::move(found), true});
  begin_if_idle();
}

// The record of a handle is looked up where it was last, and it may be moved again before it is
// found.
Lookups::Found Lookups::unless_moved(const PendingKey& handle, const PendingKey& at, Found found) {
  return [=, this, found = std::move(found)](auto record) mutable {
    const auto* const now = memory_.unwritten.forwarded(handle);
    const bool is_gone_for_good = now != nullptr && (!*now || **now == at);
    if (!record || *record || is_gone_for_good) return found(std::move(record));
    find_handle(handle, std::move(found));
  };
}

void Lookups::find_id(const TopicPartition& partition, std::string id, Events events) {
  if (waiting_ids_.size() >= max_waiting) return events(fail(Errc::exhausted, too_many_lookups));
  waiting_ids_.push_back({partition, std::move(id), std::move(events)});
  begin_if_idle();
}

bool Lookups::begin() {
  if (answering_ || (waiting_.empty() && waiting_ids_.empty())) return false;
  std::shared_ptr<Asked> asked;
  try {
    // The chunks of a foreign home belong to no shard, so the store would not find the record
    // there.
    const std::size_t next =
        memory_.homes.any_foreign() ? std::min(waiting_.size(), max_at_once) : 0;
    for (std::size_t i = 0; i < next; ++i) {
      const auto home = memory_.homes.foreign_home(waiting_[i].key);
      if (home) return adopt_(*home), true;
    }
    asked = std::make_shared<Asked>();
    for (; !waiting_.empty() && asked->lookups.size() < max_at_once; waiting_.pop_front())
      asked->lookups.push_back(std::move(waiting_.front()));
    for (; !waiting_ids_.empty() && asked->ids.size() < max_at_once; waiting_ids_.pop_front())
      asked->ids.push_back(std::move(waiting_ids_.front()));
    lane_.run<void>([&store = store_, owner = owner_, asked] { return read(store, owner, *asked); },
                    [this, asked] {
                      answering_ = asked;
                      answer();
                    });
    return true;
  } catch (const std::bad_alloc&) {
    refuse_all(asked.get());
    return false;
  }
}

// Not thrown: the last one that asks could not know that its question was kept, and the others
// would wait for ever.
void Lookups::refuse_all(Asked* asked) {
  const auto no_memory = [] { return fail(Errc::exhausted, "no memory"); };
  if (asked != nullptr) {
    for (auto& lookup : asked->lookups) lookup.found(no_memory());
    for (auto& lookup : asked->ids) lookup.events(no_memory());
  }
  while (!waiting_.empty()) {
    auto found = std::move(waiting_.front().found);
    waiting_.pop_front();
    found(no_memory());
  }
  while (!waiting_ids_.empty()) {
    auto events = std::move(waiting_ids_.front().events);
    waiting_ids_.pop_front();
    events(no_memory());
  }
}

// On the Background, where it may outlive the tier.
Result<> Lookups::read(storage::BucketStore& store, storage::Owner owner, Asked& asked) {
  for (const auto& lookup : asked.lookups) {
    asked.keys.push_back(lookup.key);
    if (!lookup.by_handle) continue;
    const auto moved = store.forward(lookup.key);
    if (!moved) return std::unexpected(moved.error());
    if (*moved) asked.keys.back() = **moved;
  }
  auto found = store.find(owner, asked.keys, max_found_bytes, &asked.left);
  if (!found) return std::unexpected(found.error());
  asked.records = std::move(*found);
  std::ranges::sort(asked.left);
  for (const auto& lookup : asked.ids) {
    auto events = store.id_events(lookup.partition, lookup.id);
    if (!events) return std::unexpected(events.error());
    asked.events.push_back(std::move(*events));
  }
  return {};
}

void Lookups::answer() {
  const auto asked = answering_;
  std::size_t budget = answers_a_turn;
  for (; budget > 0 && asked->told < asked->lookups.size(); --budget) answer(*asked, asked->told++);
  for (; budget > 0 && asked->told_ids < asked->ids.size(); --budget)
    answer_id(*asked, asked->told_ids++);
  if (asked->told == asked->lookups.size() && asked->told_ids == asked->ids.size())
    answering_.reset();
}

// Memory may have learned more meanwhile: what it knows counts.
void Lookups::answer(Asked& asked, std::size_t number) {
  Lookup& lookup = asked.lookups[number];
  const PendingKey& at = asked.keys[number];
  if (std::ranges::binary_search(asked.left, number))
    waiting_.push_back(std::move(lookup));
  else if (lookup.by_handle && memory_.unwritten.forwarded(lookup.key) != nullptr)
    find_handle(lookup.key, std::move(lookup.found));
  else if (memory_.homes.foreign_home(at))
    waiting_.push_back({at,
                        lookup.by_handle ? unless_moved(lookup.key, at, std::move(lookup.found))
                                         : std::move(lookup.found),
                        false});
  else if (auto now = known(at))
    lookup.found(std::move(*now));
  else
    lookup.found(unless_dropped(std::move(asked.records[number])));
}

// Its topic may have been deleted since the disk was read.
std::optional<storage::PendingRecord> Lookups::unless_dropped(
    std::optional<storage::PendingRecord> record) const {
  if (record && memory_.dropped.contains(record->partition.topic)) return std::nullopt;
  return record;
}

void Lookups::answer_id(Asked& asked, std::size_t number) {
  IdLookup& lookup = asked.ids[number];
  auto& events = asked.events[number];
  if (memory_.dropped.contains(lookup.partition.topic)) events.clear();
  if (const auto* const more = memory_.unwritten.newest(lookup.partition, lookup.id))
    events.insert(events.end(), more->begin(), more->end());
  lookup.events(std::move(events));
}

}  // namespace tarry::delay
