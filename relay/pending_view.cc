#include "relay/pending_view.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/glob.h"
#include "delay/pending_record.h"

namespace tarry::relay {
namespace {

// Rows that one page looks at, however few of them are wanted: the admin answers one request at a
// time.
constexpr std::size_t max_rows_read = 100'000;
// The records of a page that are read in one go under the lock: some milliseconds, for which
// deliveries wait.
constexpr std::size_t max_rows_locked = 4'000;
constexpr std::size_t max_page_bytes = 4u << 20;

}  // namespace

bool PendingQuery::wants(const PendingRecord& record) const {
  if (record.due < from || record.due >= until) return false;
  if (!id.empty() && !matches_glob(id, record.id)) return false;
  if (key.empty()) return true;
  const auto body = delay::PendingRecordBody::parse(record.body);
  return body && body->record.key && matches_glob(key, as_text(*body->record.key));
}

PendingPage PendingView::page(const PendingQuery& query, const std::optional<PendingPlace>& after,
                              std::size_t limit) const {
  if (const auto id = only_match(query.id); id && !id->empty())
    return page_of_id(query, *id, after, limit);
  PendingPage page;
  std::size_t bytes = 0;
  std::optional<PendingPlace> from = after;
  for (std::size_t looked = 0; looked < max_rows_read; looked += max_rows_locked) {
    from = add_part(query, from, limit, bytes, page);
    if (!from || page.records.size() >= limit || bytes >= max_page_bytes) break;
  }
  page.next = from;
  return page;
}

// Adds what it finds among the next ones; where to go on, empty: there are no more.
std::optional<PendingPlace> PendingView::add_part(const PendingQuery& query,
                                                  const std::optional<PendingPlace>& after,
                                                  std::size_t limit, std::size_t& bytes,
                                                  PendingPage& page) const {
  using Offsets = std::numeric_limits<Offset>;
  const std::lock_guard lock(mutex_);
  // The next one of each partition.
  std::map<PendingPlace, PendingRecords::Walk> next;
  for (const auto& [source, assigned] : assignment_) {
    if (!query.wants(source)) continue;
    std::pair first(query.from, Offsets::min());
    if (after && after->due >= query.from) {
      first = {after->due, Offsets::min()};
      if (source < after->source) first.second = Offsets::max();
      if (source == after->source) first.second = after->offset + 1;
    }
    // Before the first one are only the traces of those that were removed, which would be walked
    // through one by one.
    const auto& least = assigned.partition.pending().first();
    if (!least) continue;
    first = std::max(first, *least);
    if (auto at = assigned.partition.pending().walk(first); at.valid())
      next.emplace(PendingPlace{at.place().first, source, at.place().second}, std::move(at));
  }
  for (std::size_t looked = 0; !next.empty(); ++looked) {
    auto [place, at] = std::move(*next.begin());
    if (place.due >= query.until) return std::nullopt;
    next.erase(next.begin());
    PendingRecord record = at.record();
    if (query.wants(record)) {
      bytes += record.bytes();
      page.records.push_back({place.source, place.offset, std::move(record)});
    }
    at.next();
    if (at.valid())
      next.emplace(PendingPlace{at.place().first, place.source, at.place().second}, std::move(at));
    if (next.empty()) break;
    if (page.records.size() >= limit || looked >= max_rows_locked || bytes >= max_page_bytes)
      return place;
  }
  return std::nullopt;
}

// The page of the only id that the query may match.
PendingPage PendingView::page_of_id(const PendingQuery& query, const std::string& id,
                                    const std::optional<PendingPlace>& after,
                                    std::size_t limit) const {
  PendingPage page;
  std::vector<PendingPlace> places;
  const std::lock_guard lock(mutex_);
  for (const auto& [source, assigned] : assignment_) {
    if (!query.wants(source)) continue;
    const PendingRecords& pending = assigned.partition.pending();
    const auto offset = pending.find_id(id);
    const auto due = offset ? pending.due_of(*offset) : std::nullopt;
    if (!due) continue;
    PendingPlace place{*due, source, *offset};
    if (!after || *after < place) places.push_back(std::move(place));
  }
  std::ranges::sort(places);
  std::size_t bytes = 0;
  for (const auto& place : places) {
    auto record = assignment_.at(place.source).partition.pending().find(place.offset);
    if (!record || !query.wants(*record)) continue;
    bytes += record->bytes();
    page.records.push_back({place.source, place.offset, std::move(*record)});
    if (page.records.size() < limit && bytes < max_page_bytes) continue;
    if (place < places.back()) page.next = place;
    break;
  }
  return page;
}

std::vector<PendingEntry> PendingView::find(const PendingQuery& where,
                                            const std::string& name) const {
  std::vector<PendingEntry> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [source, assigned] : assignment_) {
    if (!where.wants(source)) continue;
    const PendingRecords& pending = assigned.partition.pending();
    const auto offset =
        name.starts_with('@') ? offset_in_handle(source, name) : pending.find_id(name);
    if (auto record = offset ? pending.find(*offset) : std::nullopt)
      found.push_back({source, *offset, std::move(*record)});
  }
  std::ranges::sort(found, {}, [](const PendingEntry& each) {
    return PendingPlace{each.record.due, each.source, each.offset};
  });
  return found;
}

PendingCount PendingView::count(const PendingQuery& query, std::chrono::minutes unit) const {
  using std::chrono::minutes;
  using Minute = std::chrono::sys_time<minutes>;
  std::vector<Source> sources;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [source, assigned] : assignment_)
      if (query.wants(source)) sources.push_back(source);
  }
  // Whole minutes are counted already.
  const bool is_from_start = query.from == WallTime::min(),
             is_to_end = query.until == WallTime::max();
  const Minute first = is_from_start ? Minute::min() : std::chrono::ceil<minutes>(query.from);
  const Minute last = is_to_end ? Minute::max() : std::chrono::floor<minutes>(query.until);
  PendingCount all;
  const auto add = [&](Minute minute, std::size_t count) {
    if (count == 0) return;
    all.total += count;
    // Minutes before 1970 are none: a due time is not before the year 2000, or 0 for "at once".
    all.counts[WallTime{minute - minute.time_since_epoch() % unit}] += count;
  };
  for (const auto& source : sources) {
    if (first <= last) {
      const std::lock_guard lock(mutex_);
      const auto assigned = assignment_.find(source);
      if (assigned == assignment_.end()) continue;
      const auto& by_minute = assigned->second.partition.pending().by_minute();
      for (auto at = by_minute.lower_bound(first); at != by_minute.end() && at->first < last; ++at)
        add(at->first, at->second);
    }
    const WallTime whole_from = is_from_start ? WallTime::min() : WallTime{first};
    if (!is_from_start && query.from < std::min(whole_from, query.until))
      add(std::chrono::floor<minutes>(query.from),
          count_due(source, query.from, std::min(whole_from, query.until)));
    if (!is_to_end && first <= last && WallTime{last} < query.until)
      add(last, count_due(source, WallTime{last}, query.until));
  }
  return all;
}

// Counts stretches of less than a minute, a part at a time under the lock.
std::size_t PendingView::count_due(const Source& source, WallTime from, WallTime until) const {
  std::size_t count = 0;
  std::pair at(from, std::numeric_limits<Offset>::min());
  for (;;) {
    const std::lock_guard lock(mutex_);
    const auto assigned = assignment_.find(source);
    if (assigned == assignment_.end()) return count;
    auto walk = assigned->second.partition.pending().walk(at);
    for (std::size_t looked = 0; looked < max_rows_locked; ++looked, walk.next(), ++count)
      if (!walk.valid() || walk.place().first >= until) return count;
    if (!walk.valid()) return count;
    at = walk.place();
  }
}

}  // namespace tarry::relay
