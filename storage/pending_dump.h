#pragma once

// PendingDump: reads a store of pending records that no broker has open, and changes nothing in it.
//
// It gives each chunk that can be read, and says which cannot; so one damaged chunk hides no other
// one.  Records that a journal holds beyond the last checkpoint are not in the store.
//
// Blocks; one thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "storage/chunk.h"

namespace tarry::storage {

class BucketTables;

class PendingDump {
 public:
  // `directory` is db/pending.  Errors as BucketStore::open() has them.
  static Result<std::unique_ptr<PendingDump>> open(const std::string& directory);
  ~PendingDump();
  PendingDump(const PendingDump&) = delete;
  PendingDump& operator=(const PendingDump&) = delete;

  // Reads all tables and compares their checksums; chunks have their own, which for_each()
  // compares.
  Result<> verify() const;
  std::uint64_t generation() const;  // As BucketStore::generation().

  // Returns whether to go on.
  using TakeRecord = std::function<bool(const PendingView&)>;
  using TakeDamage = std::function<void(const Error&)>;
  // Each record that is pending, bucket by bucket, in a bucket by chunks; `damaged` gets what
  // cannot be read.
  void for_each(const TakeRecord& take, const TakeDamage& damaged) const;

 private:
  explicit PendingDump(std::unique_ptr<BucketTables> tables);

  const std::unique_ptr<BucketTables> tables_;
};

}  // namespace tarry::storage
