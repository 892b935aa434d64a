#pragma once

// WaitingOrders: operators' orders for the partitions of a member, until they are answered.
//
//   give() --> given --take()--> waiting --ready_for()--> in a Work --tell()--> told
//                 |                 |                          '-- aborted: it waits for the next
//                 '-----------------'-- its partition is not owned here, its time is over, or
//                                       refuse()
//
// Invariants
//   - Each order is answered (told) once.
//   - At most `max` of them wait, with those that a step has yet to take: each step looks at all of
//     them, for each partition.
//   - No answer says that nothing was done when the record was sent ahead of its transaction.
//   - An order is ready when the source was read to where it ended after the order came.  While the
//     store is full it may be ready before; then no answer says that a record is not there.
//   - An order that only looks is answered without a transaction: the partition's next owner would
//     show the same.
//
// Any thread may give and refuse; all else is called on the thread of the Member's step().

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "relay/assignment.h"
#include "relay/cluster.h"
#include "relay/order.h"
#include "relay/partition.h"

namespace tarry::relay {

// An order for one partition.
struct OrderRequest {
  Source source;
  Order order;
  MonoTime deadline{};
  // Called once, on the thread of step() or of give().  Errc::not_found: the partition is not
  // owned here, so ask its owner; Errc::io: it could not be done, or it is not known whether it
  // was.
  std::function<void(OrderResult)> told;
};

class WaitingOrders {
 public:
  struct WaitingOrder {
    OrderRequest ordered;
    Offset target = -1;    // The source has to be read to here.
    bool is_over = false;  // It was told.
    bool is_read = false;  // The source was, when it was obeyed.
    bool is_sent = false;  // At least once: perhaps, and the transaction that says so has failed.

    bool is_look() const { return ordered.order.kind == Order::Kind::look; }
  };
  // The ends of these sources; one that is left out is asked for again.
  using Ends = std::function<std::map<Source, Result<Offset>>(const std::set<Source>&)>;

  explicit WaitingOrders(std::size_t max) : max_(max) {}

  // --- Any thread.

  // False: they are refused, and told so.
  bool give(std::vector<OrderRequest> orders);
  // Answers with `why` those that were given, and all that come later.
  void refuse(const std::string& why);

  // --- The thread of step().

  bool empty() const { return waiting_.empty(); }
  // `stalled`: why the member stands still, for those whose time is over.
  void take(const Assignment& assignment, const Ends& ends_of, const std::string& stalled,
            MonoTime mono);
  void tell_looks(const Assignment& assignment, bool is_full);
  // Those that may be obeyed now.
  std::vector<WaitingOrder*> ready_for(const AssignedPartition& assigned, bool is_full);
  // The records that these orders deliver are sent ahead of their transaction.
  static void note_sent(const std::vector<WaitingOrder*>& asked,
                        const std::vector<Work::Answer>& answers);
  // `answers`: those of a Work, to `asked` in their order.
  static void tell(std::vector<WaitingOrder*>& asked, std::vector<Work::Answer>& answers,
                   const TransactionResult& done);
  void refuse_waiting(const std::string& why);

 private:
  const std::size_t max_;
  std::list<WaitingOrder> waiting_;  // As they came.
  MonoTime looked_at_{};             // When ends were asked for last.

  std::mutex mutex_;  // Guards what follows; taken without any other.
  std::vector<OrderRequest> given_;
  // Those that wait, as of the last step, and in it those that it has taken.
  std::size_t open_ = 0;
  std::string refuses_;  // Why no order is taken; empty: they are.
};

}  // namespace tarry::relay
