#pragma once

// TARRY_ASSERT: a condition that must hold, checked in every build.
//
//   TARRY_ASSERT(base_offset == log_end_, "an append may not skip offsets");
//
// It is for our own mistakes only: a client's mistake is an error code, an error of the environment
// is a Result. <cassert> is off in a release build, where a broker that continues with a broken
// invariant could acknowledge records and then lose them.  So this one is always on: it writes the
// place, the condition and the reason to stderr and aborts, and recovery starts from the files.

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace tarry {

[[noreturn, gnu::cold]] inline void assertion_failed(
    const char* condition, const char* why,
    std::source_location where = std::source_location::current()) {
  std::fprintf(stderr, "%s:%u: %s: \"%s\" does not hold: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), where.function_name(), condition, why);
  std::abort();
}

}  // namespace tarry

// An expression, so that it may stand wherever a statement may.  `condition` is evaluated once.
#define TARRY_ASSERT(condition, why) \
  (static_cast<bool>(condition) ? void() : ::tarry::assertion_failed(#condition, why))
