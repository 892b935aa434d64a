#pragma once

// run_turns(): runs a shard's thread, and measures its turns.
//
//   turn    turn  turn         wait        turn
//   [-------][---][--------]............[--------]
//
// A turn is one handler of the context: while it lasts the shard serves nothing else.  One that
// follows a wait is measured in time of the CPU, for nobody can say when it began; the others are
// measured by the clock, with the time that they wait for a lock or for another thread.
//
// The CPU time of long turns is measured too: it says how much a turn had to do, on a machine that
// other processes use as well.
//
// The turns are counted, for others to see without waking the shard whether it had anything to do.

#include <atomic>
#include <chrono>
#include <cstdint>

#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "base/windowed_histogram.h"

namespace tarry::server {

using ThreadTime = std::chrono::nanoseconds (*)();
std::chrono::nanoseconds thread_time();  // The CPU time of the calling thread.

// Until the context is stopped or has no more work, as its run() does.  `busy` gets the CPU time of
// the turns that lasted a millisecond or longer, to about a millisecond; `count`, if not null, one
// more after each turn.
void run_turns(boost::asio::io_context& context, const Clock& clock, WindowedHistogram& turns,
               WindowedHistogram& busy, ThreadTime thread_time = server::thread_time,
               std::atomic<std::uint64_t>* count = nullptr);

}  // namespace tarry::server
