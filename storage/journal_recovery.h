#pragma once

// What is done with a journal's directory while no Journal is open in it: reading what survived,
// the checkpoint, and putting away the journals of shards that are no more.
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

// Takes one record; what it answers as an error stops the recovery with that error.
using OnRecord = std::function<Result<>(Lsn lsn, Bytes record)>;

// What recover_journal() found, and Journal::open() goes on from.
struct RecoveredJournal {
  bool exists = false;  // There was a file at all.
  Lsn checkpoint = 0;
  Lsn end = 0;                    // Everything before it is whole; what is behind it is cut.
  std::uint64_t incarnation = 0;  // The last one's number.
  std::uint64_t rounds = 0, records = 0, bytes = 0;  // Read behind the checkpoint.
  bool torn = false;  // Something that was never synced has been cut.
};

// Reads the journal in `directory` from its checkpoint to its last whole round and gives
// each record, in the order of LSNs, to `on_record`; records before the checkpoint are skipped.
// What it gives is durable: it syncs before it reads, so that what a killed process had written
// but not synced is not acted upon and then lost to a power cut.  Changes nothing else, so it may
// be called again, also on the journals of shards that do not run.
//
// A broken round that nothing says was synced is the torn end: it is cut, with all records in it.
// A broken round of which something behind it (a round, a file, the checkpoint) says that it was
// synced is damage: Errc::corrupt, with file, position and what to do.
Result<RecoveredJournal> recover_journal(Disk& disk, const std::string& directory,
                                         const OnRecord& on_record);

// What was noted last; zeros when nothing was yet.  Journal::checkpoint() writes it.
struct JournalCheckpoint {
  Lsn lsn = 0;                    // Everything before it is kept elsewhere.
  std::uint64_t incarnation = 0;  // Whose it is.
};
Result<JournalCheckpoint> read_checkpoint(Disk& disk, const std::string& directory);
Result<> write_checkpoint(Disk& disk, const std::string& directory, JournalCheckpoint checkpoint);

// The numbers of the journals below `root`, in order; none when there is no such directory.
Result<std::vector<std::uint32_t>> journal_shards(Disk& disk, const std::string& root);

// Takes the journal of a shard that is no more out of the way, at one stroke, and frees it: to be
// called when everything in it is kept elsewhere.  A journal of that number made later must start
// behind its end (JournalOptions::first_lsn), for LSNs of it may have been noted.
Result<> retire_journal(Disk& disk, const std::string& root, std::uint32_t shard);

// Removes what a crash left of retire_journal().
Result<> remove_retired_journals(Disk& disk, const std::string& root);

}  // namespace tarry::storage
