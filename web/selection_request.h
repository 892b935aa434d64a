#pragma once

// RecordFilter and SelectionRequest: which pending records a request is about, and what is to be
// done with all of them, in the same words for broker and relay.
//
//   ?id=order-*&from=...               --read_filter()--------> RecordFilter      (a list)
//   {"id": "order-*", "action": ...}   --selection_request()--> SelectionRequest  (a change)
//
// A mistake is thrown as Refused, as in arguments.h.  A request that would select everything is
// one: a script with a variable that is not set must not cancel all there is.
//
// Times are absolute when they have been read: "now" means the same on each page of a long answer.

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/ids.h"

namespace tarry::web {

struct RecordFilter {
  std::optional<PartitionIndex> partition;                   // Empty: any.
  WallTime from = WallTime::min(), until = WallTime::max();  // Due from, and before.
  std::string id, key;                                       // Globs (base/glob.h); empty: any.
};

struct SelectionRequest {
  enum class Action { cancel, move, deliver };

  RecordFilter filter;
  Action action = Action::cancel;
  std::variant<WallTime, std::chrono::milliseconds> due{};  // A move's.
  std::optional<std::size_t> shown{};  // A dry run, which shows this many records; empty: none.
};

// The word that the request has under this name; empty: none.
using Words = std::function<std::optional<std::string>(const char* name)>;

RecordFilter read_filter(const Words& words, PartitionIndex max_partition, WallTime now);

SelectionRequest selection_request(const std::string& body, PartitionIndex max_partition,
                                   WallTime now);

}  // namespace tarry::web
