#pragma once

// Member: one member of the relay's group.  It takes source partitions over, moves records from
// their sources to the state topics and from there to their targets, and gives partitions up.
//
//   assigned --> finding --> loading --> reading --> owned
//                   ^           |            ^         |
//                   |           |            '---------'-- after a stall or an outage
//                   '-----------'------------'---------'-- after a commit of unknown outcome
//
//   finding   the committed offset is not stable yet: a transaction of the last owner is open.
//             When it is stable, this member commits it again with the names of its producers, for
//             the next owner
//   loading   the rows that the store lacks are read, up to the end that the state partition had
//             when the offset was stable: so they include everything that the last owner did
//   reading   records are taken in until the source has been read to its end: an acknowledged
//             cancellation in it counts.  The records that were due when an end was asked for are
//             delivered when the source has been read to that end: so deliveries go on through
//             repeated stalls
//   owned     records are taken in and delivered
//
// The rows are in a store of this member (pending_records.h), with the offset up to which it has
// them.  It keeps them when the group revokes a partition; if it gets the partition back within
// longest_unread, it reads only the rows since.  A member may keep warm copies of partitions that
// others own: their rows, read as they are written.
//
// step() polls once, then does at most one transaction for all partitions that have something to
// do.  It contains their source offsets, so Kafka refuses it when this member has lost any of them.
//
// At least once, a step that meets nothing unusual runs ahead of the transaction instead
// (sends_ahead.h).  Unusual is that an order waits, a target is held or new, a bound is reached,
// the store is full, something has failed or this thread stood still: open works are closed first,
// and rounds do one thing after the other, until one of them has succeeded.
//
// Invariants
//   - Nothing of a partition is kept in memory when the group revokes it: poll() reports that
//     before the next transaction.
//   - Memory and store change only by a transaction that is known to be committed, and by rows that
//     are read as committed.  If an outcome is unknown, the producers are created again, which
//     settles it, and all partitions are taken over again, with the rows after the store's.
//   - An open work is closed when all records that were sent of it are confirmed.  If some are not
//     confirmed, all open works are planned and sent again, in order.  If only the transaction is
//     aborted, only the transaction is repeated.
//   - Whether a record is due is decided by the wall clock at the moment of the plan, without jumps
//     that may be mistakes (believed_clock.h).  After it was set back, each source is read to its
//     end before its records are delivered, because the times that were noted are worthless.
//   - Between two polls there are longest_turn and then little more than one transaction
//     (questions.h).
//   - If a target cannot be written, only its records wait, and the records of their source
//     partitions that are due after them.
//   - If Kafka refuses the offsets of a source, or its state topic or NAME.invalid cannot be
//     written, only that source waits.
//   - From a partition that is paused, because too much has arrived (intake.h), no record is
//     delivered that was due after its last fetch: its cancellation may be in the source.
//   - While nothing can be taken in for lack of room, due records are delivered although their
//     source is not read.  When there is room, each source is read to its end first.
//   - Partitions take turns: each transaction begins with the first one that the bound of the last
//     transaction cut short, except for the one with which that transaction began.
//   - An order is carried out once everything acknowledged before it has been taken in
//     (waiting_orders.h).  Its answer is given after a commit, which the group would have refused
//     to a member that has lost the partition.
//
// step() is called on one thread; the views and give() may be called on any: locks guard what they
// show and take.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/windowed_histogram.h"
#include "relay/assignment.h"
#include "relay/believed_clock.h"
#include "relay/cluster.h"
#include "relay/held_targets.h"
#include "relay/intake.h"
#include "relay/member_options.h"
#include "relay/member_status.h"
#include "relay/partition.h"
#include "relay/pending_view.h"
#include "relay/prepared_targets.h"
#include "relay/progress.h"
#include "relay/questions.h"
#include "relay/sends_ahead.h"
#include "relay/take_over.h"
#include "relay/waiting_orders.h"
#include "relay/warm_copies.h"

namespace tarry::relay {

class Member {
 public:
  // `store` is for this member alone.
  Member(Cluster& cluster, const Clock& clock, storage::SortedRows& store, MemberOptions options);

  // Waits at most `longest` for something to do.  Throws storage::RowsFailed: it is the last step.
  void step(std::chrono::milliseconds longest);
  // Behind the last step: commits what was sent ahead, so that the next owner does not send it
  // again.  Throws as step() does.
  void finish();

  // --- Any thread.

  MemberStatus status() const;
  // From one of its partitions at least.
  bool may_deliver() const;
  // Has an assignment, and all of it is owned.
  bool is_ready() const;
  // The pending records of its partitions, as PendingView says.
  PendingPage pending(const PendingQuery& query, const std::optional<PendingPlace>& after,
                      std::size_t limit) const {
    return view_.page(query, after, limit);
  }
  std::vector<PendingEntry> find(const PendingQuery& where, const std::string& name) const {
    return view_.find(where, name);
  }
  PendingCount count(const PendingQuery& query, std::chrono::minutes unit) const {
    return view_.count(query, unit);
  }

  // Keeps warm copies of those that others own, from the next step() on.
  void keep_warm(std::vector<Source> sources) { warm_.want(std::move(sources)); }
  void give(std::vector<OrderRequest> orders);
  // Answers the waiting orders with `why`, and all that come later.  Not while step() runs.
  void refuse_orders(const std::string& why);

 private:
  using WaitingOrder = WaitingOrders::WaitingOrder;
  struct PartitionWork {
    AssignedPartition* assigned;       // Its open work.
    std::vector<WaitingOrder*> asked;  // The orders that the work answers.
  };
  // What a step has planned.
  struct Round {
    std::vector<PartitionWork> works;
    bool is_cut_short = false;
    bool must_close = false;
  };

  std::pair<std::string, MonoTime> what_holds(const AssignedPartition& assigned) const;
  std::set<Source> pause(MonoTime mono);
  void take_polled(PollResult polled, MonoTime mono, WallTime now);
  void take_rows(const PollResult& polled, MonoTime mono, WallTime now);
  void begin_anew();
  void ask(MonoTime mono, WallTime now);
  void tend_store(MonoTime mono, WallTime now);
  Result<> take_row(const StateRecord& row, Partition& partition);
  std::vector<AssignedPartition*> in_turn();
  void pass_turn(const std::vector<AssignedPartition*>& turn,
                 const std::set<const AssignedPartition*>& cut_short);
  std::map<Source, Result<Offset>> ends_of(const std::set<Source>& sources, MonoTime mono);
  void follow_copies(bool is_disturbed, MonoTime mono);
  void follow_clock(MonoTime mono, WallTime now);
  void confirm();
  Result<> commit(const Transaction& transaction);
  void committed(std::vector<PartitionWork>& works, const TransactionResult& done);
  void work(WallTime now, WallTime at);
  Round plan(WallTime now, WallTime at, bool is_ahead);
  Limits limits_left() const;
  bool may_run_ahead() const;
  void close(std::vector<PartitionWork>& works, bool was_ahead);
  void close_open();
  void note_full(bool is_full, std::size_t pending_bytes);
  void note_delivered(const std::vector<WallTime>& due);
  void read_unread(AssignedPartition& assigned);
  bool prepare_targets(const std::vector<ProducerRecord>& records);
  void note_held(AssignedPartition& assigned, const std::string& target);
  void refuse_all_to(const std::string& topic, const std::string& reason,
                     const std::vector<ProducerRecord>& records);
  bool send_first(Transaction& transaction, const std::vector<PartitionWork>& works,
                  std::vector<ProducerRecord>& targets, TransactionResult& sent);
  void failed(const TransactionResult& done, const std::vector<ProducerRecord>& records);
  void rest(const Source& source, const std::string& why);
  bool rest_if_silent(const std::set<Source>& sources);
  void end_rest(AssignedPartition& assigned);
  void stall(std::string why);
  std::chrono::milliseconds wait_time(std::chrono::milliseconds longest) const;

  Cluster& cluster_;
  BelievedClock clock_;
  storage::SortedRows& store_;
  const MemberOptions options_;

  // The step's thread alone uses these.
  PreparedTargets prepared_targets_;
  bool is_confirmed_ = false;  // The group has taken offsets since the last stall or outage.
  bool needs_renewal_ = false;
  // A transaction had a refusal whose record is not known: the next ones take few records.
  bool is_careful_ = false;
  Source first_in_turn_{};
  bool was_late_ = false;                // The last step had no time for a transaction.
  MonoTime tended_at_{}, flushed_at_{};  // The store.

  WaitingOrders orders_{options_.waiting_orders};  // Has a lock of its own.

  mutable std::mutex mutex_;  // Guards what follows; the step's thread alone changes it.
  Assignment assignment_;
  const PendingView view_{mutex_, assignment_};
  WarmCopies warm_{cluster_, store_, options_.rules, mutex_};
  HeldTargets held_targets_;
  Intake intake_{options_.arrived_bytes};
  Progress progress_{options_.retry, options_.longest_transact_retry};
  MemberStatus status_;
  WindowedHistogram lag_;
  Questions questions_{cluster_, clock_, mutex_, {options_.stall, options_.longest_turn}};
  TakeOver take_over_{{.cluster = cluster_,
                       .questions = questions_,
                       .clock = clock_,
                       .options = options_,
                       .guard = mutex_,
                       .assignment = assignment_,
                       .progress = progress_,
                       .commit = [this](const auto& offsets) { return commit(offsets); }}};
  SendsAhead sends_ahead_{
      {.cluster = cluster_,
       .questions = questions_,
       .clock = clock_,
       .assignment = assignment_,
       .longest = options_.ahead,
       .delivered = [this](const auto& due) { note_delivered(due); },
       .failed = [this](const auto& done, const auto& records) { failed(done, records); },
       .stalled = [this](std::string why) { stall(std::move(why)); }}};
};

}  // namespace tarry::relay
