#pragma once

// How our databases of RocksDB are opened and made: what db/meta and db/pending have in common.
// For .cc files of the stores alone.

#include <rocksdb/cache.h>
#include <rocksdb/options.h>

#include <cstddef>
#include <memory>
#include <string>

#include "base/result.h"

namespace tarry::storage {

// `create`: it has to be made, and may not be there yet.
rocksdb::DBOptions rocks_options(int max_open_files, bool create);

// Tables are of so many bytes; a level has four of them before it is compacted into the next one.
rocksdb::ColumnFamilyOptions rocks_family_options(std::size_t write_buffer_bytes,
                                                  std::size_t table_bytes,
                                                  const std::shared_ptr<rocksdb::Cache>& cache);

// Removes what is there and makes an empty directory.
Result<> make_rocks_directory(const std::string& directory);
// RocksDB syncs what is in its directory; that the directory is there is ours to see to.
Result<> sync_rocks_directory(const std::string& directory);

}  // namespace tarry::storage
