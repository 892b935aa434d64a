#pragma once

// A message of any API as text, for tools: they know its key only when they run.

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace tarry::protocol {

struct Dumped {
  std::string json;  // Its fields under Kafka's names ("throttleTimeMs"), in Kafka's order.
  Buffer bytes;      // The same message, encoded again.
};

// `body` is a message without any header.  Fields that a version does not have and tagged fields at
// their defaults are not in the JSON; tagged fields that we do not know are in neither.
// Errors: unsupported (no such key or version in the schema), corrupt (does not decode, or
// something is left over).
Result<Dumped> dump_message(int key, bool request, int version, Bytes body);

}  // namespace tarry::protocol
