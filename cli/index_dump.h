#pragma once

// dump_index(): prints the entries of an .index or a .timeindex file, as Kafka's DumpLogSegments
// names them:
//
//   Dumping logs/orders-0/00000000000000000000.index
//   offset: 28 position: 4169
//   timestamp: 1700000000000 offset: 28             (of a .timeindex)
//
// Every whole entry is printed.  A finding is an entry that is not behind the one before it, one
// that does not belong to a batch of the .log file beside it (if there is one), and bytes at the
// end that are no whole entry.  No file is changed.

#include <string>

#include "base/result.h"
#include "cli/dump_findings.h"
#include "storage/file.h"

namespace tarry::cli {

class Output;

// Errors: the file cannot be read, or its name is none of an index.
Result<DumpFindings> dump_index(storage::Disk& disk, const std::string& path, bool json,
                                Output& out);

}  // namespace tarry::cli
