#pragma once

// Progress: whether a member's transactions and take-overs succeed; if not, why, since when, and
// when they are tried again.
//
//   transact_failed()  no transaction before its retry
//   find_failed()      no take-over goes on before its retry; owned partitions do
//   made()             a transaction was committed: the reason is over
//
// Belongs to the Member: its thread alone changes it, under the Member's lock, under which others
// read it.

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "relay/retry.h"

namespace tarry::relay {

class Progress {
 public:
  // The waits between attempts.
  Progress(std::chrono::milliseconds first, std::chrono::milliseconds longest)
      : first_(first), longest_(longest) {}

  bool may_transact(MonoTime mono) const { return transact_.may(mono); }
  MonoTime transact_at() const { return transact_.at(); }
  bool may_find(MonoTime mono) const { return find_.may(mono); }

  void transact_failed(std::string why, MonoTime mono);
  // The reason is the group's or its coordinator's, so that all partitions would fail for it.
  void find_failed(std::string why, MonoTime mono);
  void made() {
    stalled_.clear();
    stalled_since_.reset();
    transact_.reset();
  }
  void found() {
    made();
    find_.reset();
    find_why_.clear();
  }
  // A call may have failed because of the group's old generation: it is tried with the new one at
  // once.
  void retry_at_once() {
    transact_.reset();
    find_.reset();
  }

  const std::string& stalled() const { return stalled_; }  // The reason; empty: none.
  // Since when there has been a reason, perhaps another one.
  std::optional<MonoTime> stalled_since() const { return stalled_since_; }

 private:
  void stall(std::string why, MonoTime mono);

  const std::chrono::milliseconds first_, longest_;
  Retry transact_, find_;
  std::string stalled_;
  std::string find_why_;  // The last reason of find_failed(), which transactions do not end.
  std::optional<MonoTime> stalled_since_;
};

}  // namespace tarry::relay
