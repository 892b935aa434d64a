#pragma once

// RequestContext and Answer: the input and the output of a handler.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "broker/context/connection.h"
#include "broker/context/ledger.h"
#include "protocol/header.h"

namespace tarry::broker {

class Broker;
class Shard;

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
  bool out_of_memory = false;  // An AnswerMemory found none: the connection ends.

  std::int16_t version() const { return header.version; }
};

// The result of a request.
struct Answer {
  std::vector<SharedBytes> frame;  // Whole, with its size; empty: there is none (acks=0).
  std::string close;               // Not empty: the connection ends, for this reason.
  // The parts of `frame` that lie in a log's tail.
  std::vector<SharedViews::View> tail_views = {};
};

}  // namespace tarry::broker
