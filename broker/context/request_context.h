#pragma once

// RequestContext and Answer: the input and the output of a handler.
//
//   frame --> header --> RequestContext --> handler --> Answer --> the connection's next answer
//
// The context goes by value into the handler's coroutine and lives in its frame: so the memory that
// `charge` counts, and the request's bytes, are free as soon as the handler ends, also when it is
// cancelled.  Broker, shard and connection outlive it.
//
// A context is used on the shard of its connection; a part that works on another shard takes from
// it what it needs.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "broker/context/connection.h"
#include "broker/context/ledger.h"
#include "protocol/header.h"

namespace tarry::broker {

class Broker;
class Shard;

// The time that a request takes of its shard's thread: until it waits for the first time, or for as
// long as it runs if it never does.  Its work after a wait, and on other shards, is not
// counted.
struct RequestTime {
  MonoTime begun;
  std::optional<std::chrono::nanoseconds> until_wait = {};
};

// The argument of a handler beside its request.  The views in `header` are of the request's frame,
// which lives until the answer is given.
struct RequestContext {
  Broker& broker;
  Shard& shard;  // The connection's own: the handler starts and ends on it.
  Connection& connection;
  protocol::RequestHeader header;
  // Owns that frame's memory, with its size; null if no handler may keep it.  Nothing else reads
  // the bytes, so a handler may also change them.
  std::shared_ptr<void> frame = nullptr;
  std::size_t frame_bytes = 0;
  // The memory that the request holds beside its frame: the decoded request, and the growing
  // answer.
  Charge charge = {};
  std::size_t fetch_limit = std::numeric_limits<std::size_t>::max();  // Bytes; by its quota.
  std::shared_ptr<RequestTime> time = {};                             // Null: it is not counted.
  bool out_of_memory = false;  // An AnswerMemory found none: the connection ends.
  // All that an AnswerMemory has counted, or a handler whose answer is what its group has.
  std::size_t answer_bytes = 0;

  std::int16_t version() const { return header.version; }
};

// The result of a request.
struct Answer {
  std::vector<SharedBytes> frame;  // Whole, with its size; empty: there is none (acks=0).
  std::string close;               // Not empty: the connection ends, for this reason.
  // The parts of `frame` that lie in a log's tail.
  std::vector<SharedViews::View> tail_views = {};
  // The connection is not read for so long, by a quota.
  std::chrono::milliseconds mute{0};
};

}  // namespace tarry::broker
