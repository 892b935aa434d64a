#pragma once

// dump_journal(): prints the rounds of a journal file, and the operations of their records:
//
//   Dumping journal/0/0000000000000000.journal
//   shard: 0 incarnation: 3 first: 0000000000000000 begin: 0000000000000000
//   round: 1 lsn: 0000000000001000 records: 2 bytes: 311 synced: 0000000000001000 isvalid: true
//   | lsn: 0000000000001040 PendingAdded topic: 3hBl... partition: 0 sequence: 7 due: ... id: o-1
//
// Every round of the file's incarnation is printed, also behind damage; then a finding says which
// bytes are damaged.  A journal's last round may be torn, and behind it there are whole rounds of
// an earlier life of the file: these are not the journal's, and are not printed.  No file is
// changed.

#include <string>

#include "base/result.h"
#include "cli/dump_findings.h"
#include "storage/file.h"

namespace tarry::cli {

class Output;

// Errors: the file cannot be read, or it is no journal file.
Result<DumpFindings> dump_journal(storage::Disk& disk, const std::string& path, bool json,
                                  Output& out);

}  // namespace tarry::cli
