#pragma once

// dump_pending(): prints the pending records of a data directory, offline, a line each:
//
//   due: 2026-12-24T18:00:00.000Z topic: 3hBl... name: orders partition: 0 id: order-1 handle: @...
//   bytes: 31
//
// They come in the order in which they are stored; sorted as text, in that of their due times.
// The topic's name comes from db/meta and the journals, and is left out where they do not have it.
// DIR is a data directory or its db/pending.  The records are those that a broker would have after
// a start there: what db/pending has, changed by the journals since the last checkpoint
// (pending_changes.h), which come last.  A record that cannot be read is a finding, and the rest is
// printed. Nothing is changed; a broker that has the store open is not asked.

#include <string>

#include "base/result.h"
#include "cli/dump_findings.h"

namespace tarry::cli {

class Output;

// Errors: there is no such store, or it is of another version.
Result<DumpFindings> dump_pending(const std::string& directory, bool json, Output& out);

}  // namespace tarry::cli
