#include "storage/pending_dump.h"

#include <utility>
#include <vector>

#include "storage/bucket_tables.h"

namespace tarry::storage {

PendingDump::PendingDump(std::unique_ptr<BucketTables> tables) : tables_(std::move(tables)) {}
PendingDump::~PendingDump() = default;

Result<std::unique_ptr<PendingDump>> PendingDump::open(const std::string& directory) {
  auto tables = BucketTables::open_to_read(directory);
  if (!tables) return std::unexpected(tables.error());
  return std::unique_ptr<PendingDump>(new PendingDump(std::move(*tables)));
}

Result<> PendingDump::verify() const {
  return tables_->rocks->verify();
}

std::uint64_t PendingDump::generation() const {
  return tables_->generation;
}

void PendingDump::for_each(const TakeRecord& take, const TakeDamage& damaged) const {
  const auto owners = tables_->owners();
  if (!owners) return damaged(owners.error());
  bool more = true;
  // False: the reader wants no more.
  const auto give = [&](const Owner& owner, const ChunkRow& row) {
    const BucketTables::OwnedKey key{owner, row.key};
    const auto loaded = tables_->load_chunks(row.key.bucket, std::span(&key, 1));
    if (!loaded) return damaged(loaded.error());
    const auto& [at, chunk, live] = loaded->front();
    for (std::size_t i = 0; more && i < chunk->size(); ++i)
      if (live[i]) more = take(chunk->at(i));
  };
  for (const auto& owner : *owners) {
    const auto looked = tables_->for_rows(owner, BucketLevel::month, before_all, WallTime::max(),
                                          [&](const ChunkRow& row) -> Result<bool> {
                                            give(owner, row);
                                            return more;
                                          });
    if (!looked) damaged(looked.error());
    if (!more) return;
  }
}

}  // namespace tarry::storage
