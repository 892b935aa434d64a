#pragma once

// RepairFinding: one thing in a data directory that is damaged, what a repair does about it, and
// what is lost.

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"

namespace tarry::storage {

struct RepairFinding {
  enum class Kind : std::uint8_t {
    segment,    // Bytes of a .log that are no whole batches.
    index,      // A .index or .timeindex that disagrees with its segment.
    metadata,   // partition.metadata or start-offset.
    log_end,    // The log ends before offsets that were given out.
    saved,      // Batches in kept/ that the log lacks.
    journal,    // Rounds of a journal.
    database,   // RocksDB's own words.
    directory,  // Anything else.
  };

  Kind kind = Kind::segment;
  std::string file;
  std::string problem;
  std::string repair;  // Empty: nothing but a copy of the data directory helps.
  std::optional<std::uint64_t> position = {};  // In the file.
  // The records with these offsets are lost; equal: none is known to be.
  Offset lost_from = 0, lost_until = 0;
  std::uint64_t moved_bytes = 0;  // To `moved_to`.
  std::string moved_to = {};

  bool can_repair() const { return !repair.empty(); }
};

constexpr const char* name_of(RepairFinding::Kind kind) {
  switch (kind) {
    case RepairFinding::Kind::segment:
      return "segment";
    case RepairFinding::Kind::index:
      return "index";
    case RepairFinding::Kind::metadata:
      return "metadata";
    case RepairFinding::Kind::log_end:
      return "log end";
    case RepairFinding::Kind::saved:
      return "saved batches";
    case RepairFinding::Kind::journal:
      return "journal";
    case RepairFinding::Kind::database:
      return "database";
    case RepairFinding::Kind::directory:
      return "directory";
  }
  return "unknown";
}

}  // namespace tarry::storage
