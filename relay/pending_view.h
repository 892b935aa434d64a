#pragma once

// PendingView: the pending records of one member's partitions, as the admin lists, finds and counts
// them.
//
//   admin's thread --page()--> lock, a part of the rows, unlock --.
//                                ^                                |
//                                '------- the next part ----------'
//
// It is apart from the Member because it shares nothing with the member's work but the partitions:
// it reads on the admin's thread what the member's thread changes.  A query may pass over millions
// of rows, and deliveries wait for the lock, so a query reads max_rows_locked rows at a time and
// lets the member go on between two parts.  Each page is bounded too; `next` says where the
// following one begins.
//
// Invariants
//   - Between two parts, records may come and go.  A record that is pending during the whole query
//     is shown once.
//   - No cursor into the store is kept without the lock: the member may write in between.
//   - It shows what is committed: rows that the store has, never those of a plan.
//   - An exact id is asked of the index of ids: it has one record in a partition at most.
//
// Belongs to the Member, which hands it the lock and the partitions.  Any thread may call it.

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "relay/assignment.h"
#include "relay/cluster.h"
#include "relay/pending_records.h"

namespace tarry::relay {

struct PendingQuery {
  std::optional<std::string> topic;
  std::optional<PartitionIndex> partition;
  WallTime from = WallTime::min(), until = WallTime::max();  // Due from, and before.
  std::string id, key;                                       // Globs (base/glob.h); empty: any.

  bool wants(const Source& source) const {
    return (!topic || source.topic == *topic) && (!partition || source.partition == *partition);
  }
  bool wants(const PendingRecord& record) const;
};

// Pending records are shown in this order.
struct PendingPlace {
  WallTime due{};
  Source source;
  Offset offset = 0;

  auto operator<=>(const PendingPlace&) const = default;
};

struct PendingEntry {
  Source source;
  Offset offset = 0;
  PendingRecord record;
};

struct PendingPage {
  std::vector<PendingEntry> records;
  std::optional<PendingPlace> next;  // There may be more behind it.
};

struct PendingCount {
  std::size_t total = 0;
  std::map<WallTime, std::size_t> counts;  // By the beginning of the minute, hour or day, in UTC.
};

class PendingView {
 public:
  // `mutex` guards `assignment`; both outlive the view.
  PendingView(std::mutex& mutex, const Assignment& assignment)
      : mutex_(mutex), assignment_(assignment) {}

  // The first `limit` records that the query wants; fewer when they are large, or rare.
  PendingPage page(const PendingQuery& query, const std::optional<PendingPlace>& after,
                   std::size_t limit) const;
  // The record of that id or handle in each partition that has one.
  std::vector<PendingEntry> find(const PendingQuery& where, const std::string& name) const;
  // By topic, partition and time alone.  `unit`: a minute or more.
  PendingCount count(const PendingQuery& query, std::chrono::minutes unit) const;

 private:
  std::optional<PendingPlace> add_part(const PendingQuery& query,
                                       const std::optional<PendingPlace>& after, std::size_t limit,
                                       std::size_t& bytes, PendingPage& page) const;
  PendingPage page_of_id(const PendingQuery& query, const std::string& id,
                         const std::optional<PendingPlace>& after, std::size_t limit) const;
  std::size_t count_due(const Source& source, WallTime from, WallTime until) const;

  std::mutex& mutex_;
  const Assignment& assignment_;
};

}  // namespace tarry::relay
