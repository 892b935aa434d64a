#pragma once

// The RocksDB side of Database and BucketStore, for the .cc files of the stores: no other file
// includes RocksDB's headers.
//
// Keys are big-endian numbers and fixed fields, so that their order as bytes is their order.
//
// A Rocks belongs to its store and may be used by several threads at once: RocksDB has locks of its
// own.  A BoundedIterator belongs to one thread, and ends before its Rocks.

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/write_batch.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace tarry::storage {

using Family = rocksdb::ColumnFamilyHandle;

// The column families of db/meta, by their place in Rocks::families.
namespace meta_family {
enum : std::size_t { format, topics, singles, producers, groups, offsets };
}

struct Rocks {
  ~Rocks();

  std::string directory;
  std::unique_ptr<rocksdb::DB> db;
  std::vector<Family*> families;  // [0] is "default", which stays empty but for RocksDB's sake.
  std::shared_ptr<rocksdb::Cache> cache;

  Family* family(std::size_t which) const { return families[which + 1]; }

  // To RocksDB's memory; durable after a flush.
  Result<> write(rocksdb::WriteBatch& batch);
  // Empty when the key is not there.
  Result<bool> get(std::size_t which, rocksdb::Slice key, rocksdb::PinnableSlice& value) const;
  // Reads all tables and compares their checksums; not those of blob files.
  Result<> verify() const;
  // Calls `take` for each of `keys` that is there, with its place among them; in one read, so a
  // few hundred.  They are in their order.
  Result<> get_several(std::size_t which, std::span<const rocksdb::Slice> keys,
                       const std::function<Result<>(std::size_t at, Bytes value)>& take) const;
};

Error rocks_error(const rocksdb::Status& status, const std::string& directory);
// The error of a database that is not as make() and the stores left it.
Error damaged_database(const std::string& directory, std::string_view why);

inline rocksdb::Slice slice(Bytes bytes) {
  // RocksDB asserts that there is an address, even of nothing.
  if (bytes.empty()) return {"", 0};
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes bytes_of(const rocksdb::Slice& slice) {
  return {reinterpret_cast<const std::uint8_t*>(slice.data()), slice.size()};
}

// An iterator over [from, until) of one family.  Both bounds are always given.
class BoundedIterator {
 public:
  BoundedIterator(const Rocks& rocks, std::size_t family, Buffer from, Buffer until);

  void seek_to_first() { iterator_->SeekToFirst(); }
  // To the first row within the bounds that is not before `key`.
  void seek(Bytes key) { iterator_->Seek(slice(key)); }
  bool valid() const { return iterator_->Valid(); }
  void next() { iterator_->Next(); }
  Bytes key() const { return bytes_of(iterator_->key()); }
  Bytes value() const { return bytes_of(iterator_->value()); }
  Result<> status() const;  // An error, if that made it invalid and not the end.

 private:
  const Rocks& rocks_;
  const Buffer from_, until_;  // The slices below point into them.
  const rocksdb::Slice lower_, upper_;
  std::unique_ptr<rocksdb::Iterator> iterator_;
};

// The first key after all that begin with `prefix`; empty: there is none.
Buffer behind_prefix(Bytes prefix);

}  // namespace tarry::storage
