#include "storage/store_generation.h"

#include <fmt/core.h>

#include "storage/database.h"
#include "storage/fields.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

constexpr std::string_view key = "pending.generation";

Result<std::uint64_t> noted(Database& meta) {
  rocksdb::PinnableSlice value;
  const auto found = meta.rocks().get(meta_family::singles, slice(as_bytes(key)), value);
  if (!found) return std::unexpected(found.error());
  if (!*found) return 0;
  Fields fields(bytes_of(value));
  const auto generation = fields.number<std::uint64_t>();
  if (!fields.good())
    return fail(Errc::corrupt, fmt::format("{}: the row {} is damaged", meta.directory(), key));
  return generation;
}

}  // namespace

Result<> note_generation(Database& meta, std::uint64_t generation) {
  const auto before = noted(meta);
  if (!before) return std::unexpected(before.error());
  // It never shrinks, or an older copy would pass for whole.
  if (*before >= generation) return {};
  Buffer value;
  append_be(value, generation);
  rocksdb::WriteBatch batch;
  batch.Put(meta.rocks().family(meta_family::singles), slice(as_bytes(key)), slice(value));
  return meta.rocks().write(batch);
}

Result<> check_generation(Database& meta, std::uint64_t generation, const std::string& directory) {
  const auto least = noted(meta);
  if (!least) return std::unexpected(least.error());
  if (generation >= *least) return {};
  return fail(Errc::corrupt,
              fmt::format("{}: its newest part is missing: it ends with flush {}, but flush {} was "
                          "made; its MANIFEST was truncated, or it is an older copy; restore the "
                          "whole data directory from a copy",
                          directory, generation, *least));
}

}  // namespace tarry::storage
