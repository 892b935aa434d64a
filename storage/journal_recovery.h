#pragma once

// Operations on a journal's directory while no Journal is open in it: reading the surviving
// records, the checkpoint file, and removing the journals of shards that no longer exist.
//
//   JOURNAL/SHARD/*.journal     files of rounds (journal_format.h)
//   JOURNAL/SHARD/*.spare       files made ahead; nothing in them counts
//   JOURNAL/SHARD/checkpoint    one line: before which LSN all is kept elsewhere
//
// All of it blocks.

#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"

namespace tarry::storage {

// Takes one record; an error stops the recovery with that error.
using OnRecord = std::function<Result<>(Lsn lsn, Bytes record)>;

// The result of recover_journal(), from which Journal::open() continues.
struct RecoveredJournal {
  bool exists = false;  // There was at least one file.
  Lsn checkpoint = 0;
  Lsn end = 0;                    // Everything before it is whole; what is after it is cut.
  std::uint64_t incarnation = 0;  // The last one's number.
  std::uint64_t rounds = 0, records = 0, bytes = 0;  // Read after the checkpoint.
  bool torn = false;  // Something that was never synced has been cut.
};

// Reads the journal in `directory` from its checkpoint to its last whole round and gives each
// record, in the order of LSNs, to `on_record`; records before the checkpoint are skipped.  The
// records that it gives are durable: it syncs before it reads, because a killed process may have
// written records without a sync, and a power cut could take them after the recovery has acted on
// them.  Changes nothing else, so it may be called again, also on the journals of shards that do
// not run.
//
// A broken round is the torn end if nothing states that it was synced: it is cut, with all records
// in it.  If a later round, a later file or the checkpoint states that it was synced, it is damage:
// Errc::corrupt, with file, position and what to do.
Result<RecoveredJournal> recover_journal(Disk& disk, const std::string& directory,
                                         const OnRecord& on_record);

// The last checkpoint; zeros when there was none.  Journal::checkpoint() writes it.
struct JournalCheckpoint {
  Lsn lsn = 0;                    // Everything before it is kept elsewhere.
  std::uint64_t incarnation = 0;  // The incarnation that wrote it.
};
Result<JournalCheckpoint> read_checkpoint(Disk& disk, const std::string& directory);
Result<> write_checkpoint(Disk& disk, const std::string& directory, JournalCheckpoint checkpoint);

// The numbers of the journals below `root`, in order; none when there is no such directory.
Result<std::vector<std::uint32_t>> journal_shards(Disk& disk, const std::string& root);

// Removes the journal of a shard that no longer exists; one rename takes it out of use, so a crash
// leaves it whole or out of use.  Called when everything in it is kept elsewhere.  A journal of
// that number made later must start after its end (JournalOptions::first_lsn), for LSNs of it may
// have been noted.
Result<> retire_journal(Disk& disk, const std::string& root, std::uint32_t shard);

// Removes what a crash left of retire_journal().
Result<> remove_retired_journals(Disk& disk, const std::string& root);

}  // namespace tarry::storage
