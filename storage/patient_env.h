#pragma once

// RocksDB's way to the disk, which waits when no file can be opened, and whose log may lose lines.
//
// RocksDB takes no more writes after a flush or compaction that failed, and an entry that cannot be
// read ends the process; a lack of file descriptors or memory passes.  So a call that opens
// something and finds none (EMFILE, ENFILE, ENOMEM) is made again for up to open_patience before
// RocksDB hears of it.  It blocks its caller, as a slow disk does: a thread of the pool, or the
// start.
//
// RocksDB writes the failure of a compaction to its own log, the file LOG; on a full disk that
// write fails as well, and with Debian's RocksDB, which has its assertions, the next line ends the
// process.  So a line that cannot be written is left out.

#include <chrono>

#include <memory>

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

namespace tarry::storage {

inline constexpr std::chrono::seconds open_patience{30};

// `below` opens; what it cannot open for now is asked of it again.
std::shared_ptr<rocksdb::FileSystem> make_patient(std::shared_ptr<rocksdb::FileSystem> below);

// Over the machine's files.  One for the process; never goes.
rocksdb::Env* patient_env();

// For tests: databases that are opened from here on have their files there, patiently; null: where
// they have them otherwise.  Databases that are open are closed first.
void set_rocks_files(std::shared_ptr<rocksdb::FileSystem> files);

}  // namespace tarry::storage
