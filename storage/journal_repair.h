#pragma once

// JournalRepair: reads a journal whose synced part is damaged, behind the damage too, and closes
// the gap so that a broker starts.
//
//   | round 7 | broken      | round 10 | round 11 |   damage: round 10 says that 8, 9 were synced
//   | round 7 |  8  |   9   | round 10 | round 11 |   8 and 9 are new, without the lost records
//
// A broken round is replaced by one of the same number and size at the same place: so all later
// rounds keep their LSNs, which the stores know, and only the contents of the broken one are lost.
// If it held batches of a log that later rounds continue, the new round has a control batch over
// the same offsets, which consumers pass over: the log has a hole there and is not fenced.
//
// A torn end is no damage: recovery cuts it by itself.  The broken bytes are kept in a file.
//
// A file that is missing or too short is not repaired: it may be found again, and what it held must
// not have been given up by then.  A checkpoint that is not whole is not repaired either: the
// position from which to replay is not known.  A journal of a later version is refused.
//
// Blocks; one thread; no broker has the directory.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"
#include "storage/journal_recovery.h"
#include "storage/repair_finding.h"

namespace tarry::storage {

class JournalRepair {
 public:
  // Reads the journal in `directory` and gives its records to `on_record` as recover_journal() will
  // once the repair is done.  Changes nothing.
  static Result<JournalRepair> inspect(Disk& disk, const std::string& directory,
                                       const OnRecord& on_record);

  const std::vector<RepairFinding>& findings() const { return findings_; }
  std::uint64_t records() const { return records_; }
  bool is_torn() const { return torn_; }
  // Does what the findings say; the broken bytes go to files in `kept`.
  Result<> run(const std::string& kept);

  // The bytes that replace a stretch of a file.
  struct Patch {
    std::string file;
    std::uint64_t position = 0, bytes = 0;
    Buffer replacement;  // At the position; not longer than `bytes`.
  };

 private:
  friend class JournalReading;

  Disk* disk_ = nullptr;
  std::vector<RepairFinding> findings_;
  std::vector<Patch> patches_;
  std::uint64_t records_ = 0;
  bool torn_ = false;
};

}  // namespace tarry::storage
