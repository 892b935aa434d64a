#pragma once

// TARRY_ASSERT: what must hold, checked in every build.
//
//   TARRY_ASSERT(base_offset == log_end_, "an append may not skip offsets");
//
// For our own mistakes alone: a client's mistake is an error code, the world's is a Result.
// <cassert> falls silent in a release build, where a broker that went on with a broken
// invariant could acknowledge what it then loses.  So this one is always on: it says where,
// what and why on stderr and aborts, and recovery starts from what is on disk.

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
