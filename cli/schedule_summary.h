#pragma once

// ScheduleSummary: when the records that were just sent are due, and how to find them until then.
//
//   1 record accepted, to be delivered later
//   due about 2026-11-21T10:30:00.012Z
//   to find it: tarry delayed get orders order-4711
//
// A broker answers a delayed record without an offset, and the answer has neither its due time nor
// its handle.  So the due time is computed here, from the record's headers and the topic's configs,
// by the broker's own code (explanation.h).  A delay counts from the arrival at the broker, which
// is between sending and answer: then there are two bounds, by this machine's clock.  A record
// without an id has a name that only the broker knows, so what finds it is a list of that time.
//
// All records have the same headers.  Invariant: nothing is said about a due time unless
// headers and configs tell it.
//
// Pure, and of constant size, however many records there are.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/explanation.h"
#include "cli/kafka/config_entry.h"
#include "delay/sink.h"

namespace tarry::cli {

class ScheduleSummary {
 public:
  // The outcome of a record that was accepted without an offset.
  enum class Fate { delayed, cancellation, expired, dead_letter };

  // `configs` are the topic's, as far as they are known; the first record was sent at `sent`.
  // `flags` name the broker in the command that finds the records; see broker_flags().
  ScheduleSummary(std::string topic, RecordHeaders headers, const std::vector<ConfigEntry>& configs,
                  WallTime sent, std::string flags = {});

  // One more record has been answered without an offset, at `answered`.
  void add(WallTime answered);

  // About the record that was added last.
  Fate fate() const { return fate_; }
  const Explanation& explanation() const { return explanation_; }
  // Its due time is at most the one that is explained.
  bool is_estimated() const { return counts_from_arrival_; }

  // "3 records accepted, 2 of them to be delivered later", of `accepted` in all.
  std::string accepted(std::uint64_t accepted) const;
  // The lines after it; none if no record is delayed.  On a terminal the due time is in the
  // machine's zone.
  std::vector<std::string> lines(bool is_terminal = false) const;

 private:
  void explain_at(WallTime answered);
  std::string due_line(bool is_terminal) const;
  std::string find_line() const;

  const std::string topic_;
  const std::string flags_;
  const RecordHeaders headers_;
  const delay::TopicDelay delay_;
  bool has_dead_letters_;             // Constant after construction, like the one below it.
  bool counts_from_arrival_ = false;  // The due time, at least in part.

  std::optional<WallTime> at_;  // When explanation_ and fate_ are from; empty: nothing was added.
  Explanation explanation_;
  Fate fate_ = Fate::delayed;
  // The due time of a record that arrived when it was sent, and that of a record that arrived when
  // the last one was answered; *earliest_ <= *latest_.  Empty: headers and configs do not tell it.
  std::optional<WallTime> earliest_, latest_;
  std::string refusal_;  // The reason of the last dead letter.
  std::uint64_t delayed_ = 0, cancellations_ = 0, expired_ = 0, dead_letters_ = 0;
};

}  // namespace tarry::cli
