#pragma once

// WarmCopies: the rows of partitions that other members own, read as they are written, so that a
// take-over reads only the rows since.
//
//   want() --> wanted --follow()--> started, rows come by poll() --take()--> the new owner's
//                                      '-- not wanted, stale, no room, or a stall: dropped; it
//                                          begins again with what the store has
//
// Invariant: a copy that has not been known to be complete for longest_read is stale, whatever the
// reason (the partition's leader was unavailable, for example): a row and its tombstone may have
// been compacted away meanwhile.  A partition to which nothing is written shows nothing, so the end
// of each is asked for now and then.
//
// Any thread may say what is wanted; all else is called on the thread of the Member's step(), and
// what changes is changed under the Member's lock, under which others count.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "relay/assignment.h"
#include "relay/cluster.h"
#include "relay/partition.h"

namespace tarry::relay {

class WarmCopies {
 public:
  struct Copy {
    explicit Copy(Partition with) : partition(std::move(with)) {}
    // Finds out, and tells the log once, that it is stale.
    bool is_stale_at(WallTime now);

    Partition partition;
    Offset rows_end = -1;
    // When it was known to be complete.
    WallTime complete_at{};
    // It is again when it has been read to the end that it had at this time; -1: none was asked
    // for.
    Offset target = -1;
    WallTime target_at{};
    MonoTime asked{};
    bool is_bad = false;    // It has a row of a newer version.
    bool is_stale = false;  // It may have rows whose tombstones are gone.
  };
  // For a step: what the member may do in it.
  struct StepTerms {
    bool is_disturbed = false;  // Rows may have been missed.
    bool has_room = true;
    const Assignment& assignment;
    MonoTime mono{};
    WallTime now{};
    std::chrono::milliseconds retry{}, longest_retry{};
    std::function<bool()> is_late{};  // The group may wait for the next poll.
    std::function<Result<Offset>(const Source&)> state_end{};
  };

  WarmCopies(Cluster& cluster, storage::SortedRows& store, const Rules& rules, std::mutex& guard)
      : cluster_(cluster), store_(store), rules_(rules), guard_(guard) {}

  // Any thread.  Replaces the wanted copies, from the next step on.
  void want(std::vector<Source> sources);

  void follow(const StepTerms& terms);
  bool contains(const Source& source) const { return copies_.contains(source); }
  // Null: there is none.
  Copy* find(const Source& source);
  // Its rows are read no more.
  void drop(const Source& source);
  // It is the owner's now, and its rows are read on.  Under the guard.
  std::optional<Copy> take(const Source& source);

  // Those that have been read to the end once, and the bytes of all.  Under the guard.
  std::size_t complete() const;
  std::size_t bytes() const;

 private:
  Result<> start(const Source& source, Copy& copy, const StepTerms& terms);
  void judge(const StepTerms& terms);
  void ask_end(const StepTerms& terms);

  Cluster& cluster_;
  storage::SortedRows& store_;
  const Rules& rules_;
  std::mutex& guard_;  // The Member's.
  std::map<Source, Copy> copies_;
  std::map<Source, Retry> starts_;

  std::mutex wanted_mutex_;  // Guards what follows; taken without the other one.
  std::set<Source> wanted_;
};

}  // namespace tarry::relay
