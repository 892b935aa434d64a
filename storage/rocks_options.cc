#include "storage/rocks_options.h"

#include <fmt/core.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <filesystem>
#include <system_error>

#include "storage/file.h"
#include "storage/patient_env.h"

namespace tarry::storage {

rocksdb::DBOptions rocks_options(int max_open_files, bool create) {
  rocksdb::DBOptions options;
  options.env = patient_env();
  options.create_if_missing = create;
  options.error_if_exists = create;
  // All column families at one moment: without a log of its own only this keeps them consistent
  // after a crash.
  options.atomic_flush = true;
  // Rows that were not flushed are in the journal; a stop that wants them in the tables makes a
  // checkpoint first.
  options.avoid_flush_during_shutdown = true;
  options.max_open_files = max_open_files;
  options.max_background_jobs = 2;
  options.max_file_opening_threads = 1;
  options.skip_stats_update_on_db_open = true;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.bytes_per_sync = 1 << 20;
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  options.max_log_file_size = 1 << 20;
  options.keep_log_file_num = 2;
  options.max_manifest_file_size = 4 << 20;
  return options;
}

rocksdb::ColumnFamilyOptions rocks_family_options(std::size_t write_buffer_bytes,
                                                  std::size_t table_bytes,
                                                  const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = write_buffer_bytes;
  // More than two at once flush out of order in this RocksDB (7.8).
  options.max_write_buffer_number = 2;
  options.arena_block_size = 128 << 10;
  options.level_compaction_dynamic_level_bytes = true;
  options.target_file_size_base = table_bytes;
  options.max_bytes_for_level_base = 4 * table_bytes;
  // Young rows are soon deleted, so compressing them is wasted work; rows in the bottommost level
  // stay for a while and are read seldom.
  options.compression = rocksdb::kNoCompression;
  options.bottommost_compression = rocksdb::kLZ4Compression;

  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.format_version = 5;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

Result<> make_rocks_directory(const std::string& directory) {
  std::error_code failed;
  std::filesystem::remove_all(directory, failed);
  if (!failed) std::filesystem::create_directories(directory, failed);
  if (failed) return fail(Errc::io, fmt::format("database {}: {}", directory, failed.message()));
  return {};
}

Result<> sync_rocks_directory(const std::string& directory) {
  PosixDisk disk;
  const auto parent = std::filesystem::path(directory).parent_path();
  for (const auto& names : {parent, parent.parent_path()}) {
    if (const auto synced = disk.sync_directory(names.empty() ? "." : names.string()); !synced)
      return std::unexpected(synced.error());
  }
  return {};
}

}  // namespace tarry::storage
