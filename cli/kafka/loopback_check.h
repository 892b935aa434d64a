#pragma once

// all_refused_on_loopback(): whether nobody listens where a broker should be.
//
// librdkafka tries a connection that was refused again until its timeout, because a broker may be
// starting.  A person at a machine where no broker runs wants to know it at once.

#include <string>
#include <string_view>

namespace tarry::cli {

// Whether all of "HOST:PORT[,...]" are addresses of this machine's loopback and refuse connections.
// False when any of them is on another machine, or does not answer.  Takes 200 ms for each address
// at most.
bool all_refused_on_loopback(std::string_view brokers);

}  // namespace tarry::cli
