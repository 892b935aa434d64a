#pragma once

// Whether nobody listens where a broker should be.
//
// librdkafka goes on trying a connection that was refused until its timeout, for a broker may be
// starting.  A person at the machine where no broker runs wants to hear so at once.

#include <string>
#include <string_view>

namespace tarry::cli {

// Whether all of "HOST:PORT[,...]" are addresses of this machine's loopback and refuse connections.
// False when any of them is elsewhere, or does not say.  Takes no longer than a moment.
bool all_refused_on_loopback(std::string_view brokers);

}  // namespace tarry::cli
