#pragma once

// Partition: decides what one transaction does for one source partition: pure, without Kafka.
//
//   arrive() --> arrived, in the order of the source --plan()--> Work --transact--> apply()
//                                                       ^                |
//   load_row() --> pending records --- due -------------'                '-- aborted: nothing; the
//                                                                            next plan() is made
//                                                                            anew
//
// At least once a Work may grow first: extend() adds to it what has come and what has become due
// since, and add_rows() closes it.  plan() is both at once.
//
// A Work is what changes and what is sent:
//
//   arrives                              row of it    sent
//   delayed                              written      -
//   due already, or without a schedule   -            to its target
//   with the id of a pending record      written      -; the row of that one is removed
//   cancel                               -            -; the row of the one with that id is removed
//   invalid                              -            to NAME.invalid, with x-error
//   pending and due                      removed      to its target
//   recurring and due                    rewritten    to its target
//   expired                              removed      -
//   cancelled by an order                removed      -
//   moved by an order                    rewritten    -; to its target if it is due then
//   delivered by an order                removed      to its target
//
// Invariants
//   - Nothing changes but in apply(), which is called when the transaction is known to be
//     committed; and so it is with the rows in the store.
//   - Records are taken in the order of the source, each once.
//   - Records leave in the order of (due, place in the source).  While records stay behind for the
//     next Work, only what was due before the first of them came is delivered: a cancellation among
//     them came later.
//   - plan() delivers nothing without `may_deliver`: what is due then gets a row.
//   - What a Work holds already is not planned again when it grows: a record that it delivers is
//     sent once, and an order that comes later finds it gone.
//   - No order is told that it has cancelled or moved a record that may be at its target.
//   - Orders come after what has arrived and before what is due.  Orders for which the bound of a
//     transaction has no room are left for the next Work.
//   - A target that takes nothing now holds what is due behind a record for it, and nothing else.

#include <chrono>
#include <cstddef>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/schedule.h"
#include "relay/cluster.h"
#include "relay/delivered_ids.h"
#include "relay/order.h"
#include "relay/pending_records.h"
#include "relay/prepared_targets.h"

namespace tarry::relay {

inline constexpr std::string_view state_mark = "-pending-";

// A store that has not followed its state topic for longer may lack a tombstone that is gone: Kafka
// keeps one for delete.retention.ms, an hour at least (kafka_topics.h).
inline constexpr std::chrono::minutes longest_unread{45};
// Rows that are read for longer since then are read again: a tombstone among them may be gone.
inline constexpr std::chrono::minutes longest_read{58};

// The operator's settings for all sources.
struct Rules {
  std::string group;
  std::string deliver_to;  // The topics that x-deliver-to may name (base/glob.h); empty: none.
  bool same_partition = false;

  std::string state_topic(const std::string& source) const;
};

inline constexpr std::string_view source_suffix = ".delayed";
inline constexpr std::string_view invalid_suffix = ".invalid";
inline constexpr std::string_view deliver_to_header = "x-deliver-to";
inline constexpr std::string_view error_header = "x-error";

// orders.delayed -> orders; empty: the name has no such end.
std::string default_target(std::string_view source_topic);
bool is_topic_name(std::string_view name);

// The bound of one transaction.
struct Limits {
  std::size_t arrivals = 4'000;
  std::size_t deliveries = 4'000;
  std::size_t bytes = 8u << 20;
  // Above it no record is taken in; those that are due leave.
  std::size_t pending_bytes = std::numeric_limits<std::size_t>::max();
  // Records that are due later are not delivered: a cancellation may not have been read yet.
  WallTime last_due = WallTime::max();
  // These targets take nothing now; null means that there are none.  Records that are due behind a
  // record for one of them wait with it.
  const std::set<std::string>* held_targets = nullptr;
  // A record for another target, or from another source, cuts the Work short; null: any is
  // delivered.
  const PreparedTargets* prepared_targets = nullptr;
};

struct Change {
  std::optional<PendingRecord> record;  // Empty: it is pending no more.
};

struct Counts {
  std::uint64_t taken = 0, delivered = 0, cancelled = 0, replaced = 0, expired = 0, invalid = 0;
  std::uint64_t dropped = 0;  // No topic takes them, not even NAME.invalid.

  void add(const Counts& more);
};

struct Work {
  Offset next = -1;       // The source offset to commit.
  std::size_t taken = 0;  // The number of arrived records that are taken.
  std::vector<ProducerRecord> records;
  std::map<Offset, Change> changes;
  std::vector<WallTime> delivered_due;  // The due time of each scheduled record that is delivered.
  std::vector<std::string> delivered_ids;  // The ids of records that are pending no more.
  // To each order that was obeyed, in their order; the others come again.  The offset of one that
  // is delivered is still to be found: it is that of the record from `from`.
  struct Answer {
    OrderResult told;
    Offset from = -1;
  };
  std::vector<Answer> answers;
  std::string held_by;        // The held target that what is due waits for; empty: none.
  bool is_cut_short = false;  // The bound of the transaction has left something for the next one.
  WallTime now{};
  // The least `now` of its plans, of those behind the last jump of the clock.
  WallTime earliest = WallTime::max();
  Counts counts;
  std::size_t bytes = 0;  // The part of the bound that is used.
  // The ids of the changes; empty: nobody has it any more.
  std::map<std::string, std::optional<Offset>> ids;
  // All that is pending before `unwalked` is among the changes; empty: all of it.
  bool is_walked = false;
  std::optional<PendingRecords::Place> unwalked;

  // Answers too are given under the fence of a transaction.
  bool empty() const { return taken == 0 && records.empty() && changes.empty() && answers.empty(); }
};

class Partition {
 public:
  Partition(const Source& source, const Rules& rules, storage::SortedRows& store)
      : source_(source), rules_(rules), pending_(store, source) {}

  // The offset of the first row that the store lacks.  The store's part is emptied if it may hold
  // records that are gone: after longest_unread, or when the topic is not the one that was read.
  // `committed`: the source's offset, if it is known; without it the one before stays known.
  Offset rows_from(WallTime now, Offset rows_end, std::optional<Offset> committed = {});
  // A row of the state topic, in its order.  An error names the row, which is left out.
  Result<> load_row(std::string_view key, const std::optional<Buffer>& value, Offset offset);
  // Nothing before `end` is missing; -1: nothing is known.  The loaded rows go to the store.
  void loaded(Offset end, WallTime now);
  // All rows are loaded, and `next` is committed.
  void begin(Offset next, WallTime now);
  // The rows are to be loaded anew, from the first on; what has arrived stays, and what is known to
  // be committed.
  void forget();
  // The group has this offset of the source, so it is never to be taken in from before it again.
  // One that is lower than what was known was believed nevertheless (take_over.cc): the rows belong
  // to another past, and are to be loaded anew.
  void note_committed(Offset next);

  // `fetched_at`: all that was fetched by then arrived before it, so it came later.
  void arrive(SourceRecord record, WallTime fetched_at = WallTime::max());

  // Orders are given only where `may_deliver`.
  Work plan(WallTime now, bool may_deliver, const Limits& limits,
            std::span<const Order* const> orders = {}) const;
  // Adds to a Work, which was planned since the last apply() and has no rows, what is to be done
  // since.  New records come after those in it.  `limits` are those of this part.
  void extend(Work& work, WallTime now, bool may_deliver, Limits limits,
              std::span<const Order* const> orders = {}) const;
  // The rows and tombstones of its changes, to `rows`.
  void add_rows(Work& work, std::vector<ProducerRecord>& rows) const;
  // The rows of the work are in the state topic, and it ends at `rows_end`; -1: this is not known.
  void apply(Work&& work, Offset rows_end = -1);
  // The clock has jumped ahead to `now`: runs of recurring records that were due before it were
  // missed.
  void note_jump(WallTime now) { running_since_ = now; }
  // The store has all of the state topic at this moment.
  void note_complete(WallTime now);
  // Kafka will never take the record from this place: the next plan sends it to NAME.invalid.
  void refuse(Offset offset, std::string reason);
  // NAME.invalid refuses it, too: the next plan sends only the error there, and if that is refused
  // as well, nothing.
  void refuse_invalid(Offset offset, std::string reason);

  // The record is sent ahead of the transaction that forgets it.  If that fails, nobody knows
  // whether it has arrived, and no order is told that it was cancelled or moved.
  void note_sent(Offset offset) { sent_.insert(offset); }

  // No more ids of delivered records than `max` are kept.
  void limit_delivered(std::size_t max) { delivered_.limit(max); }

  const Source& source() const { return source_; }
  const PendingRecords& pending() const { return pending_; }
  Offset next() const { return next_; }  // The first offset that is not taken in; -1: unknown.
  // The first offset that has not arrived.
  Offset arrived_end() const {
    return arrived_.empty() ? next_ : arrived_.back().record.offset + 1;
  }
  std::size_t arrived() const { return arrived_.size(); }
  bool has_arrived_before(Offset end) const {
    return !arrived_.empty() && arrived_.front().record.offset < end;
  }
  // The memory of what has arrived.
  std::size_t arrived_bytes() const { return arrived_bytes_; }
  std::optional<WallTime> next_due() const;
  // That of the records that the Work does not deliver.
  std::optional<WallTime> next_due(const Work& open) const;

 private:
  struct PlanState;
  struct ArrivedRecord {
    SourceRecord record;
    WallTime came_after{};

    std::size_t bytes() const;
  };
  struct Refusal {
    enum class Sends { record, error, nothing };

    std::string reason;
    Sends sends = Sends::record;  // To NAME.invalid.
  };

  void take(const SourceRecord& source, PlanState& planning) const;
  void take_id(const std::string& id, PlanState& planning, std::uint64_t& count) const;
  void obey(const Order& order, PlanState& planning) const;
  void doubt_if_sent(Offset offset, OrderResult& told) const;
  OrderResult move(Offset offset, const PendingRecord& record, const Order& order,
                   PlanState& planning, Offset& delivered) const;
  bool is_held(Offset offset, const PendingRecord& record, const PlanState& planning) const;
  bool stops_at(Offset offset, const PendingRecord& record, PlanState& planning) const;
  std::optional<Offset> offset_named(const std::string& name, const PlanState& planning) const;
  void make_invalid(const records::RecordView& record, WallTime timestamp, Offset offset,
                    std::string reason, PlanState& planning) const;
  WallTime last_due(const PlanState& planning, const Limits& limits) const;
  void deliver_due(WallTime last, PlanState& planning, const Limits& limits) const;
  void deliver(Offset offset, const PendingRecord& record, PlanState& planning) const;
  std::expected<std::string, std::string> target_of(const records::RecordView& record) const;

  const Source source_;
  const Rules& rules_;
  PendingRecords pending_;
  std::deque<ArrivedRecord> arrived_;
  std::size_t arrived_bytes_ = 0;
  Offset next_ = -1;
  Offset loaded_ = 0;  // Behind the last row that was loaded.
  // For missed runs of recurring records; earlier when the clock was set back since.
  WallTime running_since_{};
  std::map<Offset, Refusal> refused_;
  std::set<Offset> sent_;  // Pending, and may be at their targets.
  DeliveredIds delivered_;
};

}  // namespace tarry::relay
