#pragma once

// The generation of db/pending, noted in db/meta, so that a store which lost its newest part is
// recognized.
//
//   BucketStore::flush()      counts it up in the store itself, with what it makes durable
//   note_generation(meta)     then db/meta has it, with its own next flush
//   check_generation(meta)    at a start: the store is at least as new as db/meta says
//
// RocksDB takes a cut end of its manifest for the end, and opens an older state without a word. The
// journal has only what came after the last checkpoint, so what lies between would be lost
// silently.
//
// Blocks; any thread.  Layout: a row of the family `singles`, docs/formats/db.md.

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tarry::storage {

class Database;

Result<> note_generation(Database& meta, std::uint64_t generation);

// Errc::corrupt, with what to do, when the store in `directory` is of an older generation than the
// one noted.
Result<> check_generation(Database& meta, std::uint64_t generation, const std::string& directory);

}  // namespace tarry::storage
