#include "storage/rocks.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

namespace tarry::storage {

Error damaged_database(const std::string& directory, std::string_view why) {
  return {Errc::corrupt,
          fmt::format("database {} is damaged: {}; nothing was changed; restore the whole data "
                      "directory from a copy",
                      directory, why)};
}

Error rocks_error(const rocksdb::Status& status, const std::string& directory) {
  if (status.IsNoSpace()) {
    return {Errc::no_space,
            fmt::format("database {}: {}; free space on the disk", directory, status.ToString())};
  }
  if (status.IsCorruption() || status.IsPathNotFound())
    return damaged_database(directory, status.ToString());
  const std::string text = status.ToString();
  // RocksDB's words for a LOCK file that another process, or this one, holds; not a path with
  // "lock".
  if (text.contains("lock file") || text.contains("lock hold by current process")) {
    return {Errc::in_use,
            fmt::format("database {} is in use: {}; stop the other process", directory, text)};
  }
  return {Errc::io, fmt::format("database {}: {}", directory, text)};
}

Rocks::~Rocks() {
  if (!db) return;
  for (Family* family : families) db->DestroyColumnFamilyHandle(family);
  // An error has no consequence: what was not flushed is in the journals.
  db->Close().PermitUncheckedError();
}

Result<> Rocks::write(rocksdb::WriteBatch& batch) {
  if (batch.Count() == 0) return {};
  rocksdb::WriteOptions options;
  // The shards' journals are the log of both databases: replay brings back what no flush has
  // written.
  options.disableWAL = true;
  auto written = db->Write(options, &batch);
  // After a flush that found the disk full it takes nothing until one has gone well.
  if (written.IsNoSpace() && db->Resume().ok()) written = db->Write(options, &batch);
  if (!written.ok()) return std::unexpected(rocks_error(written, directory));
  return {};
}

Result<bool> Rocks::get(std::size_t which, rocksdb::Slice key,
                        rocksdb::PinnableSlice& value) const {
  value.Reset();
  const auto got = db->Get(rocksdb::ReadOptions(), family(which), key, &value);
  if (got.ok()) return true;
  if (got.IsNotFound()) return false;
  return std::unexpected(rocks_error(got, directory));
}

Result<> Rocks::get_several(
    std::size_t which, std::span<const rocksdb::Slice> keys,
    const std::function<Result<>(std::size_t at, Bytes value)>& take) const {
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> told(keys.size());
  constexpr bool are_sorted = true;
  db->MultiGet(rocksdb::ReadOptions(), family(which), keys.size(), keys.data(), values.data(),
               told.data(), are_sorted);
  // Every status is looked at: RocksDB's debug builds assert that.
  std::optional<Error> failed;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (told[i].IsNotFound()) continue;
    if (!told[i].ok()) {
      failed = rocks_error(told[i], directory);
    } else if (!failed) {
      if (auto taken = take(i, bytes_of(values[i])); !taken) failed = taken.error();
    }
  }
  if (failed) return std::unexpected(*failed);
  return {};
}

Result<> Rocks::verify() const {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  const auto verified = db->VerifyChecksum(options);
  if (!verified.ok()) return std::unexpected(rocks_error(verified, directory));
  return {};
}

BoundedIterator::BoundedIterator(const Rocks& rocks, std::size_t family, Buffer from, Buffer until)
    : rocks_(rocks),
      from_(std::move(from)),
      until_(std::move(until)),
      lower_(slice(from_)),
      upper_(slice(until_)) {
  rocksdb::ReadOptions options;
  options.iterate_lower_bound = &lower_;
  options.iterate_upper_bound = &upper_;
  iterator_.reset(rocks.db->NewIterator(options, rocks.family(family)));
}

Result<> BoundedIterator::status() const {
  const auto status = iterator_->status();
  if (!status.ok()) return std::unexpected(rocks_error(status, rocks_.directory));
  return {};
}

Buffer behind_prefix(Bytes prefix) {
  Buffer out(prefix.begin(), prefix.end());
  // 0xff cannot grow, so the byte before it does.
  while (!out.empty() && out.back() == 0xff) out.pop_back();
  if (!out.empty()) ++out.back();
  return out;
}

}  // namespace tarry::storage
