#pragma once

// These functions say what a request used of its client's quotas, and for how long the client has
// to be muted; 0: it is within them.
//
//   run() ------------------> throttle_request()  every API but ApiVersions, SASL, Produce, Fetch
//   produce ----------------> throttle_produce()  the request's bytes, and its time
//   fetch --> fetch_limit() -> throttle_fetch()   the answer's bytes, and its time
//
// As in Kafka the longer wait counts where two quotas are exceeded, and that for time is at most
// one window long.  Use before a quota was set does not count.
//
// Without any quota this costs the look at two numbers.

#include <chrono>
#include <cstddef>

#include "broker/context/request_context.h"

namespace tarry::broker {

// There is a quota that concerns Fetch requests of this client.
bool is_metered(const RequestContext& context);
// The most that one answer may have, so that a client is never sent more at once than it may have
// in all windows together.
std::size_t fetch_limit(const RequestContext& context);

std::chrono::milliseconds throttle_counted_request(const RequestContext& context);
inline std::chrono::milliseconds throttle_request(const RequestContext& context) {
  return context.time ? throttle_counted_request(context) : std::chrono::milliseconds{0};
}
std::chrono::milliseconds throttle_produce(const RequestContext& context, bool counts_time);
std::chrono::milliseconds throttle_fetch(const RequestContext& context, std::size_t answer_bytes);

}  // namespace tarry::broker
