#pragma once

// JournalTransaction: changes that are written atomically, and the parts that the journal notifies
// of the outcome.
//
//   JournalTransaction transaction;
//   transaction.add(LogAppended{...});                    // Operations, in the order of replay.
//   engine.add_to(transaction, std::move(accepted));      // Another part adds its own.
//   transaction.on_appended([&](Lsn lsn) noexcept { ... });
//   transaction.on_settled([...](const Result<>& safe) { ... });
//   shard.commit(std::move(transaction));
//
//   commit() --- the journal refuses ------> settled(error)   inside commit(): nothing has changed
//       |
//       '--- appended(lsn) ---> later -----> settled()        safe: durable, or written
//                                  '-------> settled(error)   the journal has failed: the process
//                                                             ends, and the next start finds the
//                                                             changes or does not
//
// Invariants
//   - The operations are one journal record: after any crash all of them are there, or none.
//   - appended() is called inside commit(), before anything else can be appended.  From then on
//     nothing can refuse the changes, so it must not throw.
//   - settled() is called exactly once, in the order of the journal among those of one durability;
//     not at all only when the shard is destroyed first, or when commit() throws (std::bad_alloc),
//     which changes nothing.
//   - Each is called in the order in which the parts registered.
//
// Everything runs on the shard's thread.  The bytes that the operations view have to live until
// commit() returns; a part keeps them in what it gives to on_settled().  Megabytes are given to
// keep(), too, and then the shard does not copy them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <boost/container/small_vector.hpp>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/journal.h"
#include "storage/journal_record.h"

namespace tarry::storage {

class JournalTransaction {
 public:
  using Appended = std::move_only_function<void(Lsn) noexcept>;
  using Settled = std::move_only_function<void(const Result<>&)>;

  explicit JournalTransaction(Reserve reserve = Reserve::keep,
                              Durability durability = Durability::fsync)
      : reserve_(reserve), durability_(durability) {}

  // Returns the operation's place in the record, from 0; of several (EncodedOperations) the
  // first's.
  template <typename Operation>
  std::uint32_t add(const Operation& operation) {
    const std::uint32_t place = record_.operations();
    record_.add(operation);
    return place;
  }

  // Keeps memory that some of the operations view: the journal copies it where it writes its round
  // (kept, in Journal::append()).
  void keep(SharedBytes viewed) { kept_ = std::move(viewed); }

  void on_appended(Appended tell) { appended_.push_back(std::move(tell)); }
  void on_settled(Settled tell) { settled_.push_back(std::move(tell)); }
  // The same, of one outcome alone.
  template <typename Tell>
  void on_durable(Tell tell) {
    on_settled([tell = std::move(tell)](const Result<>& safe) mutable {
      if (safe) tell();
    });
  }

  // --- For the shard, which appends it.

  std::vector<Bytes> pieces() const { return record_.pieces(); }
  const SharedBytes& kept() const { return kept_; }
  Reserve reserve() const { return reserve_; }
  Durability durability() const { return durability_; }
  Lsn lsn() const { return lsn_; }  // Once it is appended.

  void tell_appended(Lsn lsn) noexcept {
    lsn_ = lsn;
    record_ = {};  // The journal has copied it,
    kept_ = {};    //   or keeps it itself.
    for (auto& tell : appended_) tell(lsn);
    appended_.clear();
  }
  void tell_settled(const Result<>& safe) {
    for (auto& tell : settled_) tell(safe);
  }

 private:
  Reserve reserve_;
  Durability durability_;
  Lsn lsn_ = 0;
  RecordBuilder record_;
  SharedBytes kept_;
  boost::container::small_vector<Appended, 2> appended_;
  boost::container::small_vector<Settled, 2> settled_;
};

}  // namespace tarry::storage
