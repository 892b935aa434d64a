#pragma once

// Ledger: the memory that clients make a shard hold, and to which connection it is charged.
//
//   connection A:  frames, unread answers  --+
//   connection B:  a request's own memory  --+-->  Ledger (shard 0) --+
//                                            |                        +-->  MemoryPool
//   connection C:  ...                     ----->  Ledger (shard 1) --+     tarry.memory.bytes
//
// Everything is charged by a Charge, which gives back what it holds when it goes:
//
//   if (!co_await context.charge.grow(bytes)) refuse;    // Before the work: asks, and may wait.
//   charge.set(bytes);                                   // For memory that is there already.
//
// Above the limit, in this order
//   - Work waits for memory: grow() looks again every few milliseconds.
//   - After a moment the connection that holds the most is closed, on each shard that holds more
//     than its part.
//   - Work that has waited for a second is refused.
//
// An eighth of the pool is kept from grow(): small requests go on while work waits.  Bytes that
// have come cannot wait; if they fill that eighth too, the connection that holds the most is closed
// at once, and a connection that has requests takes and begins no more of them until one has ended.
// The excess above the limit is then less than one read from each socket.
//
// Views of the log's tail cost no memory of their own while the tail is there; afterwards they keep
// it alive, once for all that begin with the same byte (SharedViews).
//
// A ledger, its debtors and its charges belong to its shard's thread; whatever asks it or takes
// more asserts that, and only giving back does not.  The pool is shared by the shards; a ledger
// reports to it only when its sum has moved by some kilobytes, so that shards do not contend for
// it.

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/intrusive/list.hpp>

#include "base/bytes.h"
#include "base/owner_thread.h"
#include "broker/context/memory_pool.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class Ledger;
class ShardContext;

// A holder of memory that can be made to give it back: a connection.
class Debtor : public boost::intrusive::list_base_hook<
                   boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  Debtor(const Debtor&) = delete;
  Debtor& operator=(const Debtor&) = delete;

  std::size_t debt() const { return debt_; }

  // Gives back what it can at once, and the rest soon.
  virtual void foreclose(std::string_view reason) = 0;

 protected:
  explicit Debtor(Ledger& ledger);
  virtual ~Debtor();

  // Bytes that it may share with others; the second to be asked for.
  std::size_t viewed_bytes_ = 0;

 private:
  friend class Ledger;
  MemoryPool& pool_;
  std::size_t debt_ = 0;
  bool foreclosed_ = false;
};

class Ledger {
 public:
  // `thread` is the shard's.
  Ledger(ShardContext& shard, const OwnerThread& thread, MemoryPool& pool);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // The memory that this shard's clients hold.
  std::size_t used() const {
    thread_.check();
    return used_;
  }
  // The memory that work of all shards together may still take.
  std::size_t room() const;
  // All shards together hold more than they may: nobody should begin what can wait.
  bool is_full() const;
  // The limit for one answer: it shrinks with the free memory, so that later requests find some
  // too.
  std::size_t fair_part() const;

 private:
  friend class Charge;
  friend class Debtor;
  friend class MemoryPool;
  friend class SharedViews;

  void change(Debtor* debtor, std::size_t before, std::size_t now);
  void publish();
  // Closes the connections that hold the most, and `at_least` that much, until no more than `goal`
  // is held.
  void relieve(std::size_t goal, std::size_t at_least);
  void relieve_all(std::size_t goal, std::size_t at_least);
  // Until work has room for so many bytes.
  void relieve_for(std::size_t bytes);
  // A connection that holds less is not closed.
  std::size_t min_foreclosed() const;
  std::pair<Debtor*, std::size_t> find_largest(std::size_t at_least);

  ShardContext& shard_;
  const OwnerThread& thread_;
  MemoryPool& pool_;
  std::size_t used_ = 0;
  std::size_t published_ = 0;  // The part of it that the pool knows.
  bool relieving_ = false;     // A turn of its own is on its way.
  timing::Tick relieved_ = 0;
  boost::intrusive::list<Debtor, boost::intrusive::constant_time_size<false>> debtors_;

  struct View {
    std::size_t holders = 0;
    std::size_t bytes = 0;  // The longest.
  };
  std::unordered_map<const std::uint8_t*, View> views_;  // By their first byte.
};

class Charge {
 public:
  Charge() = default;
  // Holds nothing yet.  `debtor` owes it, and outlives it; null: nobody who could be closed.
  Charge(Ledger& ledger, Debtor* debtor) : ledger_(&ledger), debtor_(debtor) {}
  Charge(Charge&& other) noexcept
      : ledger_(other.ledger_), debtor_(other.debtor_), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    if (this == &other) return *this;
    set(0);
    ledger_ = other.ledger_;
    debtor_ = other.debtor_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~Charge() { set(0); }

  std::size_t bytes() const { return bytes_; }

  // Without asking: for what is there.
  void set(std::size_t bytes) {
    if (bytes == bytes_ || ledger_ == nullptr) return;
    ledger_->change(debtor_, std::exchange(bytes_, bytes), bytes);
  }
  void add(std::size_t bytes) { set(bytes_ + bytes); }

  // Takes more if there is room for it; a charge without a ledger takes everything.
  bool try_grow(std::size_t bytes);
  // The same after a wait of a second at most; false: the work is to be refused.
  boost::asio::awaitable<bool> grow(std::size_t bytes);

 private:
  Ledger* ledger_ = nullptr;
  Debtor* debtor_ = nullptr;
  std::size_t bytes_ = 0;
};

// The bytes of a log's tail that an answer views, charged once for all answers whose views begin
// with the same byte.  They lie one after the other in the log, so the longest has them all.
class SharedViews {
 public:
  struct View {
    const std::uint8_t* first;
    std::size_t bytes;
  };

  SharedViews() = default;
  SharedViews(Ledger& ledger, std::vector<View> views);
  SharedViews(SharedViews&& other) noexcept
      : ledger_(std::exchange(other.ledger_, nullptr)), views_(std::move(other.views_)) {}
  SharedViews& operator=(SharedViews&& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(views_, other.views_);
    return *this;
  }
  ~SharedViews();

 private:
  Ledger* ledger_ = nullptr;
  std::vector<View> views_;
};

}  // namespace tarry::broker
