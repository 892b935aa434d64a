#include "storage/disk_rows.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include "base/log.h"
#include "storage/rocks.h"
#include "storage/rocks_options.h"

namespace tarry::storage {
namespace {

namespace fs = std::filesystem;

// Below it no more rows are asked for: compaction needs room too.
constexpr std::uintmax_t kept_free = 512u << 20;
constexpr std::chrono::seconds ask_for_room_again{1};
// No key of an owner begins with it.
constexpr std::string_view version_key{"\0version", 8};
// RocksDB leaves files alone whose names it does not know.
const std::string damage_mark = "tarry-damaged";

constexpr std::size_t rows_table_bytes = 64u << 20;

// As the broker's databases, but for what a copy does not need.
rocksdb::Options rows_options(std::size_t memory) {
  const auto cache = rocksdb::NewLRUCache(memory / 2);
  const auto buffer = std::clamp<std::size_t>(memory / 8, 1u << 20, 32u << 20);
  auto database = rocks_options(256, true);
  database.error_if_exists = false;
  database.atomic_flush = false;  // There is one column family.
  // There is no journal behind it.
  database.avoid_flush_during_shutdown = false;
  auto family = rocks_family_options(buffer, rows_table_bytes, cache);
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  // They grow with the number of rows, so they count as what is cached.
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.format_version = 5;
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return {database, family};
}

rocksdb::Slice rows_slice(std::string_view bytes) {
  return {bytes.data(), bytes.size()};
}

void check_rows(const rocksdb::Status& status, const std::string& directory) {
  if (status.ok()) return;
  throw RowsFailed(rocks_error(status, directory).message,
                   status.IsCorruption() ? RowsFailed::Kind::damaged : RowsFailed::Kind::passing);
}

class DiskCursor final : public SortedRows::Cursor {
 public:
  DiskCursor(const Rocks& rocks, const std::string& from, std::string until)
      : rocks_(rocks), until_(std::move(until)), upper_(until_) {
    rocksdb::ReadOptions options;
    options.iterate_upper_bound = &upper_;
    iterator_.reset(rocks.db->NewIterator(options));
    iterator_->Seek(from);
    check_rows(iterator_->status(), rocks_.directory);
  }

  bool valid() const override { return iterator_->Valid(); }
  std::string_view key() const override { return iterator_->key().ToStringView(); }
  std::string_view value() const override { return iterator_->value().ToStringView(); }
  void next() override {
    iterator_->Next();
    check_rows(iterator_->status(), rocks_.directory);
  }

 private:
  const Rocks& rocks_;
  const std::string until_;
  const rocksdb::Slice upper_;
  std::unique_ptr<rocksdb::Iterator> iterator_;
};

rocksdb::Status open_rocks(Rocks& rocks, std::size_t memory) {
  rocksdb::DB* db = nullptr;
  const auto status = rocksdb::DB::Open(rows_options(memory), rocks.directory, &db);
  rocks.db.reset(db);
  return status;
}

}  // namespace

DiskRows::DiskRows(std::unique_ptr<Rocks> rocks) : rocks_(std::move(rocks)) {}
DiskRows::~DiskRows() = default;

Result<std::unique_ptr<DiskRows>> DiskRows::open(const std::string& directory,
                                                 const std::string& version, std::size_t memory) {
  std::error_code unknown;
  // Opening it may succeed: the damage lies deeper.
  if (fs::exists(directory + "/" + damage_mark, unknown)) {
    log_warn("storage", "{} is damaged and is emptied", directory);
    fs::remove_all(directory, unknown);
  }
  // Its rows are a copy, so emptying it loses nothing.
  for (const bool is_first : {true, false}) {
    auto rocks = std::make_unique<Rocks>();
    rocks->directory = directory;
    const auto opened = open_rocks(*rocks, memory);
    std::string why = opened.ok() ? "" : opened.ToString();
    if (opened.ok()) {
      std::string found;
      const auto got = rocks->db->Get({}, rows_slice(version_key), &found);
      if (got.ok() && found == version)
        return std::unique_ptr<DiskRows>(new DiskRows(std::move(rocks)));
      if (got.IsNotFound()) {
        rocksdb::WriteBatch batch;
        batch.Put(rows_slice(version_key), version);
        if (const auto written = rocks->write(batch); !written)
          return std::unexpected(written.error());
        return std::unique_ptr<DiskRows>(new DiskRows(std::move(rocks)));
      }
      why = got.ok() ? "another version made it" : got.ToString();
    }
    const auto error = rocks_error(opened, directory);
    // Emptying it would take it from another process, or not help.
    if (!is_first || (!opened.ok() && (error.code == Errc::in_use || error.code == Errc::no_space)))
      return fail(error.code, error.message);
    log_warn("storage", "{} is emptied: {}", directory, why);
    // It holds files of the directory that goes.
    rocks.reset();
    std::error_code failed;
    fs::remove_all(directory, failed);
    if (failed) return fail(Errc::io, fmt::format("{}: {}", directory, failed.message()));
  }
  return fail(Errc::io, directory);
}

void DiskRows::condemn(const std::string& directory) {
  // The database is open, so the directory goes at the next start.
  if (!std::ofstream(directory + "/" + damage_mark))
    log_error("storage", "{} is damaged; remove this directory before the next start", directory);
}

std::optional<std::string> DiskRows::get(const std::string& key) const {
  std::string value;
  const auto got = rocks_->db->Get({}, key, &value);
  if (got.IsNotFound()) return std::nullopt;
  check_rows(got, rocks_->directory);
  return value;
}

std::unique_ptr<SortedRows::Cursor> DiskRows::walk(const std::string& from,
                                                   const std::string& until) const {
  return std::make_unique<DiskCursor>(*rocks_, from, until);
}

void DiskRows::write(const Changes& changes) {
  rocksdb::WriteBatch batch;
  for (const auto& [from, until] : changes.removed_ranges) batch.DeleteRange(from, until);
  // In the order of their keys: the memtable finds the place of a key from that of the one before,
  // and keys in the order of their hashes would each be looked for from its top.
  using Row = decltype(changes.rows)::value_type;
  std::vector<const Row*> rows;
  rows.reserve(changes.rows.size());
  for (const Row& row : changes.rows) rows.push_back(&row);
  std::ranges::sort(rows, {}, [](const Row* row) -> const std::string& { return row->first; });
  for (const Row* row : rows) {
    if (const auto& [key, value] = *row; value) {
      batch.Put(key, *value);
    } else {
      batch.Delete(key);
    }
  }
  if (const auto written = rocks_->write(batch); !written) {
    throw RowsFailed(written.error().message, written.error().code == Errc::corrupt
                                                  ? RowsFailed::Kind::damaged
                                                  : RowsFailed::Kind::passing);
  }
}

// There is no journal behind it, so rows that are not many enough to fill a memtable would be lost
// however old they are.
void DiskRows::flush(bool waits) {
  rocksdb::FlushOptions options;
  options.wait = waits;
  options.allow_write_stall = true;  // It need not wait before it begins.
  check_rows(rocks_->db->Flush(options), rocks_->directory);
}

bool DiskRows::has_room() const {
  const auto now = std::chrono::steady_clock::now();
  // A system call for each row would be much.
  if (now - room_asked_ < ask_for_room_again) return has_room_;
  room_asked_ = now;
  std::error_code failed;
  const auto space = fs::space(rocks_->directory, failed);
  // If there is none after all, a write will fail and report it.
  has_room_ = failed || space.available >= kept_free;
  return has_room_;
}

}  // namespace tarry::storage
