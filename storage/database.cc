#include "storage/database.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/assert.h"
#include "storage/format_families.h"
#include "storage/rocks.h"
#include "storage/rocks_options.h"

namespace tarry::storage {
namespace {

// 2 has groups and offsets, which 1 has not; open() carries 1 over by making what it lacks.
// The names are in the order of meta_family.
const FormatFamilies meta_families{
    .prefix = "tarry-meta-",
    .names = {"tarry-meta-2", "topics", "singles", "producers", "groups", "offsets"},
    .former = "tarry-meta-1",
    .new_since_former = {"tarry-meta-2", "groups", "offsets"},
};

constexpr std::size_t meta_table_bytes = 32u << 20;

}  // namespace

Database::Database(std::unique_ptr<Rocks> rocks) : rocks_(std::move(rocks)) {}
Database::~Database() = default;

Result<std::unique_ptr<Database>> Database::start(const std::string& directory,
                                                  const Limits& limits,
                                                  const std::vector<std::string>& found,
                                                  bool read_only) {
  auto rocks = std::make_unique<Rocks>();
  rocks->directory = directory;
  rocks->cache = rocksdb::NewLRUCache(limits.block_cache_bytes, 2);
  const auto described = [&](const std::string& name) {
    return rocksdb::ColumnFamilyDescriptor(
        name, rocks_family_options(limits.write_buffer_bytes, meta_table_bytes, rocks->cache));
  };
  const bool create = found.empty();
  std::vector<std::string> names{rocksdb::kDefaultColumnFamilyName};
  if (!create) names = found;
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const auto& name : names) families.push_back(described(name));

  rocksdb::DB* db = nullptr;
  std::vector<Family*> opened;
  const auto options = rocks_options(limits.max_open_files, create);
  const auto status = read_only
                          ? rocksdb::DB::OpenForReadOnly(options, directory, families, &opened, &db)
                          : rocksdb::DB::Open(options, directory, families, &opened, &db);
  if (!status.ok()) return std::unexpected(rocks_error(status, directory));
  rocks->db.reset(db);
  rocks->families = opened;  // Closed with the database, whatever comes.

  // All at once: each on its own would write and sync the options again.  A former format's name
  // goes when all are there, so that what a crash leaves of this is carried over again.
  std::vector<std::string> missing;
  for (const auto& name : meta_families.names)
    if (std::ranges::find(names, name) == names.end()) missing.push_back(name);
  if (!missing.empty()) {
    std::vector<rocksdb::ColumnFamilyDescriptor> wanted;
    for (const auto& name : missing) wanted.push_back(described(name));
    std::vector<Family*> made;
    const auto created = db->CreateColumnFamilies(wanted, &made);
    rocks->families.insert(rocks->families.end(), made.begin(), made.end());
    if (!created.ok()) return std::unexpected(rocks_error(created, directory));
    names.insert(names.end(), missing.begin(), missing.end());
  }
  const auto place_of = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
  };
  if (const auto former = place_of(meta_families.former); former < names.size()) {
    Family* const family = rocks->families[former];
    const auto dropped = db->DropColumnFamily(family);
    if (!dropped.ok()) return std::unexpected(rocks_error(dropped, directory));
    db->DestroyColumnFamilyHandle(family);
    rocks->families.erase(rocks->families.begin() + static_cast<std::ptrdiff_t>(former));
    names.erase(names.begin() + static_cast<std::ptrdiff_t>(former));
  }

  // In the order in which the stores know them.
  std::vector<Family*> ordered{rocks->families[place_of(rocksdb::kDefaultColumnFamilyName)]};
  for (const auto& name : meta_families.names) ordered.push_back(rocks->families[place_of(name)]);
  TARRY_ASSERT(ordered.size() == rocks->families.size(), "every column family is known");
  rocks->families = std::move(ordered);
  return std::unique_ptr<Database>(new Database(std::move(rocks)));
}

Result<std::unique_ptr<Database>> Database::make(const std::string& directory,
                                                 const Limits& limits) {
  if (auto made = make_rocks_directory(directory); !made) return std::unexpected(made.error());
  auto made = start(directory, limits, {});
  if (!made) return made;
  if (auto synced = sync_rocks_directory(directory); !synced)
    return std::unexpected(synced.error());
  return made;
}

Result<std::unique_ptr<Database>> Database::make(const std::string& directory) {
  return make(directory, Limits());
}

Result<std::unique_ptr<Database>> Database::open(const std::string& directory,
                                                 const Limits& limits) {
  const auto found = check_format(directory, meta_families);
  if (!found) return std::unexpected(found.error());
  return start(directory, limits, *found);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& directory) {
  return open(directory, Limits());
}

Result<std::unique_ptr<Database>> Database::open_to_read(const std::string& directory) {
  const auto found = check_format(directory, meta_families);
  if (!found) return std::unexpected(found.error());
  if (std::ranges::find(*found, meta_families.former) != found->end()) {
    return fail(Errc::unsupported,
                fmt::format("database {} has an older format; start the broker once to convert it",
                            directory));
  }
  return start(directory, Limits(), *found, true);
}

Result<> Database::verify() const {
  return rocks_->verify();
}

Result<> Database::flush() {
  rocksdb::FlushOptions options;
  options.wait = true;
  auto flushed = rocks_->db->Flush(options, rocks_->families);
  // It may be an earlier one that found the disk full, and there is room now.
  if (flushed.IsNoSpace() && rocks_->db->Resume().ok())
    flushed = rocks_->db->Flush(options, rocks_->families);
  if (!flushed.ok()) return std::unexpected(rocks_error(flushed, rocks_->directory));
  return {};
}

std::uint64_t Database::unflushed_bytes() const {
  std::uint64_t bytes = 0;
  rocks_->db->GetAggregatedIntProperty("rocksdb.cur-size-all-mem-tables", &bytes);
  return bytes;
}

const std::string& Database::directory() const {
  return rocks_->directory;
}

std::uint64_t Database::memory_bytes() const {
  std::uint64_t sum = rocks_->cache->GetUsage();
  for (const char* property :
       {"rocksdb.cur-size-all-mem-tables", "rocksdb.estimate-table-readers-mem"}) {
    std::uint64_t value = 0;
    if (rocks_->db->GetAggregatedIntProperty(property, &value)) sum += value;
  }
  return sum;
}

}  // namespace tarry::storage
