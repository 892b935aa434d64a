#pragma once

// Questions: what a member asks Kafka in a step, and the time that it takes.
//
//   Member, TakeOver --> Questions --> Cluster
//                            '--> to the views: what is asked at this moment, and since when
//
// Each call is the Cluster's of the same name, and blocks.  The time is read before and after it,
// to know two things: whether Kafka or this thread is slow, and whether a step may ask anything
// more.
//
// Invariants
//   - Between two polls there are longest_turn and then one question, also when Kafka hardly
//     answers: in a rebalance all members wait for the one that polls last.
//   - The time of an answer is never taken for a stall of this thread: records are fetched
//     meanwhile.
//
// Belongs to the Member, on the thread of its step(); asked() may be called on any, under the
// guard.

#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "relay/cluster.h"

namespace tarry::relay {

class Questions {
 public:
  struct Times {
    // This thread has stood still if nothing was seen of it for longer.
    std::chrono::milliseconds stall{};
    // After it a step asks nothing more.
    std::chrono::milliseconds longest_turn{};
  };
  struct OpenQuestion {
    std::string_view what;  // Behind "Kafka was asked".
    MonoTime since{};
  };

  Questions(Cluster& cluster, const Clock& clock, std::mutex& guard, Times times)
      : cluster_(cluster), clock_(clock), guard_(guard), times_(times) {}

  Result<> renew();
  TransactionResult transact(const Transaction& transaction);
  TransactionResult send(std::span<const ProducerRecord> records);
  Result<> begin_send(std::vector<ProducerRecord> records);
  SendResult end_send();
  Result<> prepare(std::span<const Source> sources);
  Result<> prepare_target(const std::string& topic, const Source& source);
  Result<std::vector<CommittedOffset>> committed(std::span<const Source> sources);
  Result<Offset> source_end(const Source& source);
  Result<std::vector<Offset>> source_ends(std::span<const Source> sources);
  Result<Offset> state_end(const Source& source);
  Result<Offset> stable_source_end(const Source& source);
  Result<> settle(const std::string& owner);

  // --- The step.

  // poll() has returned at `mono`.
  void begin_turn(MonoTime mono) { last_polled_ = seen_at_ = mono; }
  // The group may wait for the next poll.
  bool is_late() const { return clock_.mono() - last_polled_ >= times_.longest_turn; }
  // A partition's leader that is away takes a while to say nothing, so in a step one question is
  // asked in vain.
  bool asked_in_vain() const { return asked_in_vain_; }
  void note_in_vain() { asked_in_vain_ = true; }
  void allow_in_vain() { asked_in_vain_ = false; }

  // --- Stalls.

  // The time since this thread was last seen is its own: nobody waits for it with Kafka's answers.
  // A long one means that it stood still, and whatever was read for it meanwhile may have stood
  // still too.
  void note_gap(MonoTime mono);
  void note_standstill(MonoTime mono) {
    stood_still_ = true;
    disturbed_at_ = mono;
  }
  // Kafka was away: the records that were read may lack some that were acknowledged meanwhile.
  void note_outage(MonoTime mono) { disturbed_at_ = mono; }
  bool take_standstill() { return std::exchange(stood_still_, false); }
  MonoTime disturbed_at() const { return disturbed_at_; }

  // Empty: nothing is asked.  Under the guard; any thread.
  std::optional<OpenQuestion> asked() const;

 private:
  class QuestionScope;

  Cluster& cluster_;
  const Clock& clock_;
  std::mutex& guard_;  // The Member's; of asked_.
  const Times times_;

  OpenQuestion asked_{};    // `what` is empty: nothing.
  MonoTime last_polled_{};  // Zero before the first time.
  MonoTime seen_at_{};      // This thread was last seen at work: behind a poll, or an answer.
  bool stood_still_ = false;
  MonoTime disturbed_at_{};  // The end of the last stall or outage.
  bool asked_in_vain_ = false;
};

}  // namespace tarry::relay
