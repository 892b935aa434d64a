#pragma once

namespace tarry::bench {

// Registers threads_1/PEER and threads_2/PEER: one and two threads that arm and cancel against a
// thread that fires, each for `seconds` of real time.
void add_thread_benchmarks(double seconds);

}  // namespace tarry::bench
