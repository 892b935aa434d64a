#pragma once

// UnwrittenRows: what happened to ids and handles and is not in the store yet: rows that belong to
// no home.
//
//   tell(), forward() --> now --begin_write()--> being written --written()--> kept --> forgotten
//
// Each of these is a Generation, with a number that rises.  A written one is kept while there is
// room for it, because most ids are asked for soon after something happened to them, and a batch
// that finds all its ids here need not wait for the store.
//
// Invariants
//   - One generation is being written at most, and the one that is filled is younger.
//   - While somebody holds the Since of a generation, that one and all younger ones are here,
//     written or not: with the store's rows, read after since() was called, they tell the last
//     event of every id.
//   - memory() is the sum of what the generations are charged.
//
// Belongs to its BucketTier, on its thread.  The Background reads a generation while it is written,
// and nobody changes it then.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "base/background.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/id_events.h"
#include "storage/bucket_store.h"
#include "storage/pending.h"

namespace tarry::delay {

class UnwrittenRows {
 public:
  using PendingKey = storage::PendingKey;

  // The events between two writes.
  struct Generation {
    std::uint64_t number = 0;
    std::map<PendingKey, std::optional<PendingKey>> forwards;  // By handle.
    IdEvents ids;
    std::size_t bytes = 0;  // Charged for it.
    std::shared_ptr<const bool> pin = std::make_shared<const bool>(true);

    // Each row stands alone, so a crash may come between them.
    Result<> write_to(storage::BucketStore& store) const;
  };
  // The oldest generation for a request that comes now; keeps it and all that follow.  The store
  // has all that is older.
  struct Since {
    std::uint64_t number = 0;
    std::shared_ptr<const bool> pin;
  };

  explicit UnwrittenRows(Background& background) : background_(background) {}

  void tell(const TopicPartition& partition, std::string_view id,
            const storage::ScheduleEvent& event);
  // The record with this handle is pending under `now` from here on; empty: it is gone.
  void forward(const PendingKey& handle, std::optional<PendingKey> now);

  // The present key of the record with this handle, as far as memory knows; null: unknown.
  const std::optional<PendingKey>* forwarded(const PendingKey& handle) const;
  Since since() const;
  // The same for a request that asks the store, which has what was written.  So it need not look
  // into each generation that memory keeps beside it.
  Since since_stored() const;
  // The last event of an id; null: there is none since then.
  const storage::ScheduleEvent* last(const TopicPartition& partition, std::string_view id,
                                     std::uint64_t since) const;
  // The events of an id after begin_write() was last called; null: there are none.
  const IdEvents::Events* newest(const TopicPartition& partition, std::string_view id) const {
    return now_->ids.find(partition, id);
  }

  std::shared_ptr<const Generation> begin_write();
  void written();
  // New requests use so many bytes of what is written, the newest.  The rest is forgotten when
  // nobody needs it any more.
  void forget_unneeded(std::size_t max_bytes);

  std::size_t memory() const { return memory_; }
  std::size_t bytes_to_write() const { return now_->bytes; }

 private:
  void charge(std::size_t bytes);

  Background& background_;  // Frees what takes long to go.
  std::shared_ptr<Generation> now_ = std::make_shared<Generation>();
  std::shared_ptr<Generation> writing_;           // Null: none is.
  std::deque<std::shared_ptr<Generation>> kept_;  // Written.
  std::size_t retired_ = 0;        // So many of them, the oldest, are for no new request,
  std::size_t offered_bytes_ = 0;  //   and the bytes of the others.
  std::size_t memory_ = 0;
};

}  // namespace tarry::delay
