#pragma once

// Member: one member of the relay's group.  It takes source partitions over, moves records from
// their sources to the state topics and from there to their targets, and gives partitions up.
//
//   assigned --> finding --> loading --> reading --> owned
//                   ^           |            ^         |
//                   |           |            '---------'-- after a stall or an outage
//                   '-----------'------------'---------'-- after a commit of unknown outcome
//
//   finding   the committed offset is not stable yet: a transaction of the last owner is open. When
//             it is, this member writes its producers' names with it, for the next owner
//   loading   the rows that the store does not have are read, to where the state partition ended
//             when the offset was stable: then all that the last owner did is there
//   reading   records are taken in and none is delivered, until the source was read to where it
//             ended: an acknowledged cancellation in it counts
//   owned     records are taken in and delivered
//
// Rows are in a store of this member (pending.h), with the offset up to which it has them.  It
// keeps them when the group takes a partition; whoever gets the partition back within
// longest_unread reads the tail alone.  Of partitions that others own a member may keep warm
// copies: rows, read as they are written.
//
// step() polls once, then does at most one transaction for all partitions that have something to
// do. It holds their source offsets, so Kafka refuses it when this member has lost any of them.
//
// Invariants
//   - Nothing of a partition is kept when the group takes it: poll() says so before the next
//     transaction.
//   - Nothing changes here and in the store but by a transaction that is known to be committed, and
//     by rows that are read as committed.  When an outcome is not known the producers are made
//     anew, which settles it, and all partitions are taken over again, by the rows behind the
//     store's.
//   - A log that is stuck behind an open transaction for stuck_after is freed: the producers that
//     are named with the last offset are fenced.
//
//   - What is wrong with one source, or with the leader of one partition, keeps that one from being
//     taken over, and nothing else: it waits with a reason and is tried again.
//   - Between two polls there are longest_turn and then little more than one transaction, also when
//     Kafka hardly answers: in a rebalance all members wait for the one that polls last.
//   - A target that cannot be written keeps the records waiting that are due behind one for it, in
//     their source partition, and nothing else.
//   - Partitions take turns: each transaction begins behind the one that was served last.
//   - An order is obeyed when all counts that was acknowledged before it came (waiting_orders.h);
//     and its answer is given after a commit, which the group would have refused to a member that
//     has lost the partition.
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
#include <vector>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/metrics.h"
#include "relay/assignment.h"
#include "relay/cluster.h"
#include "relay/member_status.h"
#include "relay/partition.h"
#include "relay/pending_view.h"
#include "relay/waiting_orders.h"
#include "relay/warm_copies.h"

namespace tarry::relay {

enum class Delivery { exactly_once, at_least_once };

struct MemberOptions {
  Rules rules;
  Delivery delivery = Delivery::exactly_once;
  Limits limits{};
  // Arrived records that are not taken in yet; above it no more are read.
  std::size_t arrived_bytes = 64u << 20;
  // A member that stood still longer reads the sources to their ends before it delivers.  The time
  // that Kafka takes for an answer does not count: records are fetched meanwhile.
  std::chrono::milliseconds stall{500};
  std::chrono::milliseconds stuck_after{1'000};
  // The same for rows.  A transaction whose offset is stable has ended, and its markers are on
  // their way; rows that come late say nothing more than that Kafka is slow.
  std::chrono::milliseconds stuck_rows_after{5'000};
  std::size_t waiting_orders = 10'000;
  // After a failure; doubled with each that follows.
  std::chrono::milliseconds retry{200};
  std::chrono::milliseconds longest_retry{10'000};
  std::chrono::milliseconds longest_transact_retry{2'000};  // For transactions and new producers.
  // For a target that took nothing in time: each attempt costs all others that time.
  std::chrono::milliseconds silent_retry{10'000};
  std::chrono::milliseconds longest_silent_retry{60'000};
  // After it a step asks Kafka nothing more: the group may wait for the next poll.
  std::chrono::milliseconds longest_turn{3'000};
  // A question to Kafka that takes longer is shown as a stall.
  std::chrono::milliseconds shown_after{3'000};
};

class Member {
 public:
  // `store` is for this member alone.
  Member(Cluster& cluster, const Clock& clock, storage::SortedRows& store, MemberOptions options);

  // Waits at most `longest` for something to do.  Throws storage::RowsFailed: it is the last step.
  void step(std::chrono::milliseconds longest);

  // --- Any thread.

  MemberStatus status() const;
  // Has an assignment, and all of it is owned.
  bool is_ready() const;
  // The pending records of its partitions, as PendingView says.
  PendingPage pending(const PendingQuery& query, const std::optional<PendingPlace>& after,
                      std::size_t limit) const {
    return view_.page(query, after, limit);
  }
  std::vector<PendingShown> find(const PendingQuery& where, const std::string& name) const {
    return view_.find(where, name);
  }
  PendingCount count(const PendingQuery& query, std::chrono::minutes unit) const {
    return view_.count(query, unit);
  }

  // Keeps warm copies of those that others own, from the next step() on.
  void keep_warm(std::vector<Source> sources) { warm_.want(std::move(sources)); }
  void give(std::vector<Ordered> orders);
  // Answers the waiting orders with `why`, and all that come later.  Not while step() runs.
  void refuse_orders(const std::string& why);

 private:
  using Waiting = WaitingOrders::Waiting;
  // A target that could not be prepared or written.  It is tried again, by itself or with others.
  struct HeldTarget {
    Retry retry;
    std::string why;
    MonoTime since{};
  };
  struct Planned {
    AssignedPartition* assigned;
    Work work;
    std::vector<Waiting*> asked;  // The orders that the work answers.
  };

  // While it lives, views say what the step's thread asks Kafka, and how long it has done so.
  class Asking;

  Result<> renew();
  Transacted transact(const Transaction& transaction);
  Result<Offset> source_end(const Source& source);
  Result<Offset> state_end(const Source& source);
  void note_gap(MonoTime mono);
  void read_anew(MonoTime mono);
  void take_polled(Polled polled, MonoTime mono, WallTime now);
  void take_rows(const Polled& polled, MonoTime mono, WallTime now);
  void begin_take_over(AssignedPartition& assigned, MonoTime mono);
  void take_over_all();
  void ask(MonoTime mono, WallTime now);
  void find_all(MonoTime mono);
  void prepare(MonoTime mono);
  void found(const std::vector<std::pair<Source, Committed>>& stable, MonoTime mono);
  void load(AssignedPartition& assigned, MonoTime mono, WallTime now);
  void free_log(AssignedPartition& assigned, MonoTime mono);
  void read_to_end(AssignedPartition& assigned, MonoTime mono);
  void tend_store(MonoTime mono, WallTime now);
  Result<> take_row(const RowRead& row, Partition& partition);
  std::vector<AssignedPartition*> in_turn();
  std::map<Source, Result<Offset>> ends_of(const std::set<Source>& sources, MonoTime mono);
  void follow_copies(bool is_disturbed, MonoTime mono);
  void confirm();
  void committed(std::vector<Planned>& works, const Transacted& done);
  void work(WallTime now);
  bool prepare_targets(const std::vector<Outgoing>& records);
  void hold_target(const std::string& topic, std::string why, std::chrono::milliseconds first,
                   std::chrono::milliseconds longest);
  void note_held(AssignedPartition& assigned, const std::string& target);
  std::set<std::string> held_targets(MonoTime mono) const;
  void refuse_all_to(const std::string& topic, const std::string& reason,
                     const std::vector<Outgoing>& records);
  bool send_first(Transaction& transaction, const std::vector<Planned>& works,
                  std::vector<Outgoing>& targets, Transacted& sent);
  void failed(const Transacted& done, const std::vector<Outgoing>& records);
  void stall(std::string why);
  void set_stalled(std::string why);
  void wait_with(AssignedPartition& assigned, std::string why);
  void find_failed(std::string why);
  std::chrono::milliseconds wait_time(std::chrono::milliseconds longest) const;
  bool has_room() const;
  bool is_late() const;

  Cluster& cluster_;
  const Clock& clock_;
  storage::SortedRows& store_;
  const MemberOptions options_;

  mutable std::mutex mutex_;  // Guards what follows; the step's thread alone changes it.
  Assignment assignment_;
  const PendingView view_{mutex_, assignment_};
  WarmCopies warm_{cluster_, store_, options_.rules, mutex_};
  std::set<Source> prepared_sources_;
  std::set<std::pair<std::string, Source>> prepared_targets_;
  std::map<std::string, HeldTarget> held_targets_;
  MemberStatus status_;
  WindowedHistogram lag_;
  std::string_view asking_;  // The question that Kafka is asked at this moment; empty: none.
  MonoTime asking_since_{};
  std::optional<MonoTime> stalled_since_;  // Empty: status_.stalled is.
  MonoTime last_polled_{};                 // Zero before the first time.
  // When this thread was last seen at work: behind a poll, or an answer of Kafka.
  MonoTime seen_at_{};
  bool stood_still_ = false;   // Since the last poll.
  bool is_confirmed_ = false;  // The group has taken offsets since the last stall or outage.
  MonoTime disturbed_at_{};    // The end of the last stall or outage.
  Retry transact_;             // No transaction before.
  Retry find_;                 // No partition is taken over further before.
  bool needs_renewal_ = false;
  bool is_careful_ = false;  // A record is refused, and is not known yet.
  Source last_served_{};
  bool asked_in_vain_ = false;                  // In this step,
  bool has_settled_ = false;                    // and a transaction of another member.
  bool was_late_ = false;                       // The last step had no time for a transaction.
  std::map<std::string, MonoTime> settled_at_;  // By owner; grows by one for each that died.
  MonoTime tended_at_{}, flushed_at_{};         // The store.
  WaitingOrders orders_{options_.waiting_orders};
};

}  // namespace tarry::relay
