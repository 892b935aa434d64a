#pragma once

// TakeOver: brings the partitions that the group has assigned to this member to the stage in which
// their records are delivered.
//
//   begin() --> finding --> loading --> reading --> owned
//                                          ^---------'    read_anew(), after a stall or an outage
//
// member.h says what each stage waits for.
//
// Invariants
//   - Before a row is relied on, everything that earlier owners did is committed or will never be:
//     the end of the state partition is asked for only when the committed offset is stable.
//   - Deliveries go on however often this member stands still or is delayed: records that were due
//     when an end was asked for are delivered when the source has been read to that end, whatever
//     happens meanwhile.
//   - A partition is owned once a fetch that surely began before its end was asked for has reached
//     that end.  While there is no room it may be owned unread; when there is room, it is read to
//     its end before it delivers.
//   - Partitions are asked about in turn, however slow the answers are.
//   - A failure of one source, or of the leader of one partition, keeps only that one from being
//     taken over: it waits with a reason and is tried again.
//   - If a source ends before its committed offset, it was recreated or has lost records: nothing
//     is taken in, because new records would be skipped.
//   - If a log is stuck behind an open transaction, the producers that are named with the last
//     offset are fenced, those of one member once for all of its partitions.  If it stays stuck,
//     they are fenced again, less and less often, because that member may be alive.
//   - Exactly once: an offset that is older than one that the store knows to be committed is not
//     accepted, and no partition is taken over meanwhile.  (Seen with Kafka 4.3.1: the coordinator
//     of a node that was killed returned offsets of half an hour before, until its next start.)
//
// Belongs to the Member, on the thread of its step().  It changes what is assigned under the
// Member's lock, under which others read it.

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "relay/assignment.h"
#include "relay/cluster.h"
#include "relay/member_options.h"
#include "relay/progress.h"
#include "relay/questions.h"
#include "relay/retry.h"

namespace tarry::relay {

class TakeOver {
 public:
  // They are the Member's, and outlive it.
  struct Parts {
    Cluster& cluster;
    Questions& questions;
    const Clock& clock;
    const MemberOptions& options;
    std::mutex& guard;
    Assignment& assignment;
    Progress& progress;
    // Commits a transaction of offsets.  The Member has seen to a failure when it returns one.
    std::function<Result<>(const Transaction&)> commit;
  };

  explicit TakeOver(Parts parts) : parts_(std::move(parts)) {}

  // A partition is not taken over yet.  Under the guard.
  static void begin(AssignedPartition& assigned, MonoTime mono);
  // All begin again, because it is not known what the last transaction did.
  void begin_all();
  // Reads all sources to their ends once more: after a stall or an outage there may be acknowledged
  // records behind those that were read.
  void read_anew(MonoTime mono);
  // The wall clock was set back: of no moment that was noted is it known any more how long ago it
  // was, so all sources are read to their ends once more.
  void forget_times(MonoTime mono);
  // Nothing is read from a partition that is owned, or was not until now: what came since its last
  // fetch is not here, so its source is read to its end when it is read again.  So is that of one
  // that is owned unread, when there is room.  Under the guard.
  static void read_again(AssignedPartition& assigned, MonoTime mono);
  // The source ends at `end`, before what was read: new records would be taken for those that were
  // taken in already.  Under the guard.
  static void refuse_source(AssignedPartition& assigned, Offset end, Offset read, MonoTime mono);
  // The queue was full, so nothing was fetched from any source.
  void note_held_up(MonoTime mono);
  // Asks Kafka, and brings each as far as it can.  `is_full`: no record can be taken in.
  void advance(MonoTime mono, WallTime now, bool is_full);
  // How long poll() may wait for source records while a partition is in this stage.
  static std::chrono::milliseconds max_wait(Stage stage);

 private:
  void prepare(MonoTime mono);
  void find_all(MonoTime mono);
  std::string gone_back(std::span<const Source> sources,
                        std::span<const CommittedOffset> committed);
  void found(const std::vector<std::pair<Source, CommittedOffset>>& stable, MonoTime mono);
  void forget_copy(AssignedPartition& assigned);
  void load(AssignedPartition& assigned, MonoTime mono, WallTime now);
  void free_log(AssignedPartition& assigned, MonoTime mono);
  void read_to_end(AssignedPartition& assigned, MonoTime mono, bool is_full);
  static void taken_over(AssignedPartition& assigned, MonoTime mono);
  bool is_fetched(const AssignedPartition& assigned, MonoTime at) const;
  std::string hidden_by_transaction(const AssignedPartition& assigned);
  void ask_end(AssignedPartition& assigned, MonoTime mono);
  void wait_with(AssignedPartition& assigned, std::string why);
  void find_failed(std::string why);

  const Parts parts_;
  std::set<Source> prepared_;             // Their topics are as they have to be.
  bool has_settled_ = false;              // In this step, a transaction of another member.
  std::map<std::string, Retry> settled_;  // By owner; grows by one for each that died.
  std::optional<Source> left_out_;        // The first that the last round had no time to ask about.
};

}  // namespace tarry::relay
