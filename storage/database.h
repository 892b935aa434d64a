#pragma once

// Database: db/meta of a data directory, a RocksDB with everything that is looked up by a key.
//
//   topics, configs, id blocks              (catalog)
//   producers' last answers                 (producer_states)
//   groups and their committed offsets      (offset_store)
//
// Pending records have one of their own (bucket_store), so that a burst of writes to one does not
// stall the other.  RocksDB's own log is off: the journal has everything, and a flush makes all
// column families durable together (without atomic_flush a crash keeps half of what one batch
// wrote).  Rows that were written and not flushed are lost in a crash and come back by replay.
//
//   format    the name of a column family states it ("tarry-meta-2"), so that another version is
//             found by reading the manifest, before anything is changed.  Format 1 is carried over
//             to 2.  Layout of keys and values: docs/formats/db.md
//
// Invariants
//   - A database is made once, with its data directory.  A database that is missing or damaged
//     later is refused and never made anew, because that would lose what was acknowledged.
//   - A failed flush is never tried again: the caller ends the incarnation.  The exception is
//     no_space: the rows are still in memory, and flush() may be called again when there is room.
//
// Errors: Errc::unsupported for another format version, Errc::corrupt for damage, Errc::no_space,
// Errc::in_use, else Errc::io; the message names the directory and what to do.
//
// Threads: the stores' functions say; flush() blocks and belongs on a Background.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tarry::storage {

struct Rocks;  // RocksDB's side of it (rocks.h, for the stores' .cc files alone).

class Database {
 public:
  // The memory that a database may use; the defaults keep an idle broker small.
  struct Limits {
    // The write buffer of each column family, allocated as it fills.  It is larger than what is
    // written between two checkpoints: if RocksDB began a flush by itself and found the disk full,
    // it would take no more writes.  So the caller flushes before this is reached
    // (unflushed_bytes()).  There are two at most: when the second is full while the first is
    // flushed, writes wait for that.
    std::size_t write_buffer_bytes = 256u << 20;
    std::size_t block_cache_bytes = 8u << 20;  // For all column families.
    int max_open_files = 128;                  // Tables kept open; each costs some 10 to 50 kB.
  };

  // Makes a new, empty database in `directory` (whose parent exists).  If the directory exists, it
  // must be the unfinished result of an earlier make(), and is made anew.
  static Result<std::unique_ptr<Database>> make(const std::string& directory, const Limits& limits);
  static Result<std::unique_ptr<Database>> make(const std::string& directory);

  // Opens what make() made.
  static Result<std::unique_ptr<Database>> open(const std::string& directory, const Limits& limits);
  static Result<std::unique_ptr<Database>> open(const std::string& directory);
  // The same for a look while no broker has it, which changes no row; Errc::unsupported for the
  // former format too.
  static Result<std::unique_ptr<Database>> open_to_read(const std::string& directory);

  ~Database();  // Closes; unflushed rows are dropped.
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Everything written before the call is durable when it returns.  Blocks.
  Result<> flush();
  // Reads all tables and compares their checksums.  Blocks.
  Result<> verify() const;
  // The bytes that a flush would write, and somewhat more (it counts memory, not rows).
  std::uint64_t unflushed_bytes() const;

  const std::string& directory() const;
  std::uint64_t memory_bytes() const;  // Write buffers, cached blocks and table readers.

  Rocks& rocks() { return *rocks_; }

 private:
  explicit Database(std::unique_ptr<Rocks> rocks);
  // `found`: the column families that are there; none: everything is made.
  static Result<std::unique_ptr<Database>> start(const std::string& directory, const Limits& limits,
                                                 const std::vector<std::string>& found,
                                                 bool read_only = false);

  const std::unique_ptr<Rocks> rocks_;
};

}  // namespace tarry::storage
