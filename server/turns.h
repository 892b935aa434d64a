#pragma once

// run_turns(): runs a shard's thread, and measures its turns.
//
//   turn    turn  turn         wait        turn
//   [-------][---][--------]............[--------]
//
// A turn is one handler of the context: while it lasts the shard serves nothing else.  One that
// follows a wait is measured in time of the CPU, for nobody can say when it began; the others are
// measured by the clock, with the time that they wait for a lock or for another thread.

#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "base/histogram.h"

namespace tarry::server {

// Until the context is stopped or has no more work, as its run() does.
void run_turns(boost::asio::io_context& context, const Clock& clock, WindowedHistogram& turns);

}  // namespace tarry::server
