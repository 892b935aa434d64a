#pragma once

// The line that `consume` prints once when it has read everything and found nothing: a record that
// is pending is no record yet, and a person who has just sent one should not think that it is lost.
//
//   tarry: orders: 3 pending, next in 29m
//
// The admin knows it; it is asked in a thread of its own, so that reading goes on meanwhile.
//
// Invariant: nothing is said unless the admin has the cluster id of the broker that is read
// from, and nobody waits longer for it than max_wait.
//
// It belongs to one `consume`.  One thread, besides its own.
//
// elsewhere_note() is the line of `produce --id`, by the same rules, but without a comparison if
// neither address was given: a cancellation that goes to another partition than the pending record
// is accepted and cancels nothing.

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cli/options.h"

namespace tarry::cli {

class PendingNote {
 public:
  static constexpr std::chrono::milliseconds max_wait{500};

  PendingNote(const BrokerOptions& options, std::string topic);
  ~PendingNote();
  PendingNote(const PendingNote&) = delete;
  PendingNote& operator=(const PendingNote&) = delete;

  // There is nothing to read; asks, the first time.
  void on_empty();
  // Says it if the answer is there.
  void print_answer();
  // Waits for the answer if it was asked for, and says it.
  void say();

 private:
  BrokerOptions options_;
  const std::string topic_;
  std::future<std::string> asked_;  // Valid from the first on_empty() until it is said.
  bool was_asked_ = false;
};

// "3 pending, next in 29m"; empty for none.  `next_due` empty: not known.
std::string pending_text(std::uint64_t pending, std::optional<WallTime> next_due, WallTime now);

// Names the other partitions in which the id is pending, besides the one to which its record went;
// empty: none, or they are not known.  Asks the admin, on the calling thread.
std::string elsewhere_note(BrokerOptions options, const std::string& topic, const std::string& id,
                           PartitionIndex went_to);

// The same from the partitions in which the id is pending.
std::string elsewhere_text(const std::string& topic, const std::string& id,
                           std::vector<PartitionIndex> pending_in, PartitionIndex went_to,
                           const std::string& flags = {});

}  // namespace tarry::cli
