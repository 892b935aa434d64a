#pragma once

// SendsAhead: at least once, what a member sends ahead of the transaction that forgets it.
//
//   extend --> begin() --> follow() --> extend --> begin() --> ... --> end() --> transact
//                 |            |                                         |           |
//                 |            |                                         |           '--> closed()
//                 '------------'------- some record is not there --------'--> drop()
//
// Meanwhile the Work of each partition stays open (AssignedPartition::open) and grows with each
// step; after `longest` a transaction closes all of them together.  A step that meets anything
// unusual does not run ahead: it send()s what is due, waits for it, and commits.  ADR 14 says why.
//
// Invariants
//   - What a Work delivers is begun once, behind all that was begun before and in the order of the
//     plan.  When some of it is not there nothing more is begun: drop() has all that is open
//     planned anew, and so sent again, in its order.
//   - A record is noted in its partition before it is sent, so that no order is told afterwards
//     that it was cancelled in time (Partition::note_sent()).
//   - A due time is told once, when Kafka has confirmed the record and all that were begun with it.
//   - Nothing is under way at drop() and closed(): it was ended before.  A partition that is taken
//     over anew meanwhile loses its Work alone, and may send the same again.
//
// Belongs to the Member, on the thread of its step().  Open works are no part of what views show,
// so they are changed without the Member's lock.

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "relay/assignment.h"
#include "relay/cluster.h"
#include "relay/flights.h"
#include "relay/questions.h"

namespace tarry::relay {

class SendsAhead {
 public:
  // They are the Member's, and outlive it.
  struct Parts {
    Cluster& cluster;
    Questions& questions;
    const Clock& clock;
    Assignment& assignment;
    // MemberOptions::ahead.
    std::chrono::milliseconds longest{};
    // Consumers see the scheduled records now that were due at these times.
    std::function<void(const std::vector<WallTime>&)> delivered;
    // Some of these records are not there; those that are may be there twice later.
    std::function<void(const TransactionResult&, const std::vector<ProducerRecord>&)> failed;
    // Nothing can be sent, for no reason of a record.
    std::function<void(std::string)> stalled;
  };

  explicit SendsAhead(Parts parts) : parts_(std::move(parts)) {}

  // --- Ahead.

  // The last round was committed, and had room for all: only then the next one may run ahead.
  bool went_well() const { return went_well_; }
  void note_round(bool went_well) { went_well_ = went_well; }
  // Something is open or under way: a transaction has to close it before anything else is planned.
  bool is_open() const;
  // Looks how far it is; false: some record is not there, and all that is open was dropped.
  bool follow();
  // Begins to send what these works deliver, besides what they have begun already; false: it cannot
  // be, and all that is open was dropped.
  bool begin(std::span<AssignedPartition* const> works);
  // The works have been open for `longest`.
  bool is_over() const;
  // Waits for all that is under way; false: some of it is not there, which `failed` was told.
  // `sent` is what became of it; unchanged if nothing was begun.
  bool end(TransactionResult& sent);
  // All that is open is to be planned anew.
  void drop();
  // A transaction has forgotten what was open.
  void closed() { open_since_ = {}; }
  // Waits for what is under way, whatever becomes of it, and drops what is open: it is not known
  // any more what the last transaction did.
  void give_up();

  // How long a poll may wait, if it may wait for so long without what is open.  Just behind a
  // begin() it waits for what is due within 2 ms, to send it together.
  std::chrono::milliseconds poll_wait(std::chrono::milliseconds wait, MonoTime mono) const;

  // --- One after the other.

  // Sends these, with nothing under way, and waits for them; false: some are not there, which
  // `failed` was told.
  bool send(const std::vector<ProducerRecord>& records, TransactionResult& sent);

  // Some record is refused, and it is not known which: few are to be sent at once.
  bool is_careful() const { return is_careful_; }

 private:
  bool has_open() const;

  const Parts parts_;
  Flights flights_;
  bool went_well_ = false;
  bool is_careful_ = false;
  // The first begin() since closed() or drop(); zero: there was none.
  MonoTime open_since_{};
  MonoTime begun_at_{};  // The last begin() that had something to send.
};

}  // namespace tarry::relay
