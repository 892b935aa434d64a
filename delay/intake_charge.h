#pragma once

// IntakeCharge: the memory and the pending records that a batch is charged for from its acceptance
// until the tier has it.
//
//   accepted --> [ bytes: memory for delayed records;  records: pending ones of their topic ]
//                     applied(n): n of its records are pending    gone: the batch is applied, or
//                                                                       nothing came of it
//
// A producer has its answer when its batch is durable, and many batches may wait then to be
// applied.  Without this nothing would bound them.
//
// Belongs to its engine, on its thread; may outlive it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "storage/pending_counts.h"

namespace tarry::delay {

class IntakeCharge {
 public:
  // The sums that it is in, which live as long as `alive` says so.
  struct Sums {
    std::size_t* bytes = nullptr;
    storage::PendingCounts::Counter* records = nullptr;  // All shards'.
    std::shared_ptr<const bool> alive = nullptr;
  };

  IntakeCharge() = default;
  IntakeCharge(Sums sums, std::size_t bytes, std::size_t records)
      : sums_(std::move(sums)), bytes_(bytes), records_(static_cast<std::int64_t>(records)) {
    *sums_.bytes += bytes_;
    add(records_);
  }
  IntakeCharge(IntakeCharge&& other) noexcept { swap(other); }
  IntakeCharge& operator=(IntakeCharge&& other) noexcept {
    IntakeCharge(std::move(other)).swap(*this);
    return *this;
  }
  ~IntakeCharge() {
    if (!is_counted()) return;
    *sums_.bytes -= bytes_;
    add(-records_);
  }

  void set_bytes(std::size_t bytes) {
    if (!is_counted()) return;
    *sums_.bytes += bytes - bytes_;
    bytes_ = bytes;
  }
  void applied(std::size_t records) {
    if (!is_counted()) return;
    records_ -= static_cast<std::int64_t>(records);
    add(-static_cast<std::int64_t>(records));
  }

 private:
  bool is_counted() const { return sums_.alive != nullptr && *sums_.alive; }
  // Shards add to the same counter, and nothing else follows from its value.
  void add(std::int64_t records) {
    if (sums_.records != nullptr) sums_.records->fetch_add(records, std::memory_order_relaxed);
  }
  void swap(IntakeCharge& other) noexcept {
    std::swap(sums_, other.sums_);
    std::swap(bytes_, other.bytes_);
    std::swap(records_, other.records_);
  }

  Sums sums_;
  std::size_t bytes_ = 0;
  std::int64_t records_ = 0;
};

}  // namespace tarry::delay
