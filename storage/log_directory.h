#pragma once

// The directory of log.dirs, if it is not below the data directory: locked against other processes,
// and marked with the data directory whose segments it has.
//
//   log.dirs/.lock              held as that of the data directory
//   log.dirs/owner.properties   directory.id, data.directory: whose segments these are
//   DATA/directory.id           the same id.  A backup does not have it, because it is another data
//                               directory with the same cluster id.
//
// Two data directories that write the same segments lose what one of them has acknowledged, even
// one after the other: so the second is refused.  A data directory may be moved; but one that was
// copied is another one while the original is where it was.  A directory without an owner, or
// without partitions, is taken over.
//
// Blocks; one thread, at the start.

#include <optional>
#include <string>
#include <string_view>

#include "base/random.h"
#include "base/result.h"
#include "storage/directory_lock.h"
#include "storage/file.h"

namespace tarry::storage {

// Whether `path` is `directory` or below it, by their names alone: it does not look at the disk.
bool is_within(std::string_view path, std::string_view directory);

// Locks `logs` for the data directory `data`; changes nothing else.  Empty: it is not there, or
// below `data`, whose lock is enough.  Errc::in_use: another process has it, and `advice` says what
// to do; Errc::invalid: its segments belong to another data directory.
Result<std::optional<DirectoryLock>> lock_log_directory(Disk& disk, const std::string& data,
                                                        const std::string& logs,
                                                        DirectoryLock::For use,
                                                        std::string_view advice);

// Whether take_log_directory() would be refused now.  Changes nothing.
Result<> check_log_directory(Disk& disk, const std::string& data, const std::string& logs);

// The same as lock_log_directory() for writing, by a data directory that is locked: makes `logs` if
// necessary and notes the owner.
Result<std::optional<DirectoryLock>> take_log_directory(Disk& disk, const std::string& data,
                                                        const std::string& logs, Random& random);

}  // namespace tarry::storage
