#pragma once

// Database: one of the two RocksDBs of a data directory, where what waits or is looked up is
// kept between a checkpoint and the next.
//
//   db/pending   parked records and their ids            (pending_store)
//   db/meta      topics, configs, id blocks              (catalog)
//                producers' last answers                 (producer_states)
//                groups and their committed offsets      (offset_store)
//
// Two, so that a storm in one does not stall the other.  RocksDB's own log is off: the journal
// has everything, and a flush makes all column families durable together (without atomic_flush
// a crash keeps half of what one batch wrote).  What was written and not flushed is lost in a
// crash and comes back by replay.
//
//   format    the name of a column family states it ("tarry-pending-1"), so that another version
//             is found by reading the manifest, before anything is changed.  db/meta of format 1
//             is carried over to 2.  Layout of keys and values: docs/formats/db.md
//
// What always holds
//   - A database is made once, with its data directory.  One that is missing or damaged later is
//     refused and never made anew: that would lose what waits.
//   - A failed flush is never tried again: the caller ends the incarnation.
//     But after no_space: what was to be written is still in memory, and flush() may be called
//     again when there is room.
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
  enum class Kind { pending, meta };

  // What a database may take of memory; the defaults keep an idle broker small.
  struct Limits {
    // Of each column family, taken as it fills.  More than is written between two checkpoints: a
    // flush that RocksDB begins by itself finds a full disk unasked, and then it takes no writes
    // any more.  Who writes calls flush() before this is reached (unflushed_bytes()).
    std::size_t write_buffer_bytes = 256u << 20;
    std::size_t block_cache_bytes = 8u << 20;  // For all column families.
    int max_open_files = 128;                  // Tables kept open; each costs some 10 to 50 kB.
  };

  // Makes a new, empty database in `directory` (whose parent exists).  What stands there already
  // must be what an earlier make() left unfinished, and is made anew.
  static Result<std::unique_ptr<Database>> make(const std::string& directory, Kind kind,
                                                const Limits& limits);
  static Result<std::unique_ptr<Database>> make(const std::string& directory, Kind kind);

  // Opens what make() made.
  static Result<std::unique_ptr<Database>> open(const std::string& directory, Kind kind,
                                                const Limits& limits);
  static Result<std::unique_ptr<Database>> open(const std::string& directory, Kind kind);

  ~Database();  // Closes; what was not flushed is not kept.
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Everything written before the call is durable when it returns.  Blocks.
  Result<> flush();
  // What a flush would write, and somewhat more (memory, not rows).
  std::uint64_t unflushed_bytes() const;

  const std::string& directory() const;
  std::uint64_t memory_bytes() const;  // Write buffers, cached blocks and table readers.

  Rocks& rocks() { return *rocks_; }

 private:
  explicit Database(std::unique_ptr<Rocks> rocks);
  // `found`: the column families that are there; none: everything is made.
  static Result<std::unique_ptr<Database>> start(const std::string& directory, Kind kind,
                                                 const Limits& limits,
                                                 const std::vector<std::string>& found);

  const std::unique_ptr<Rocks> rocks_;
};

}  // namespace tarry::storage
