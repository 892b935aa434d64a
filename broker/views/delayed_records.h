#pragma once

// The admin's operations on pending records: list them, show one and its past, cancel, move or
// deliver it.  (delayed_counts.h counts them.)
//
//   GET /delayed            --> list_delayed()     a page in due order: every shard writes what it
//                                                  has to the store, which is read on the pool, in
//                                                  pieces; for an exact id, and for few that
//                                                  begin alike, engines are asked
//   GET /delayed/T/ID       --> find_delayed()     in which partitions of T, and the records: each
//   GET /delayed/T/ID/trace --> trace_delayed()    partition's own engine is asked
//   DELETE /delayed/T/ID    --> control_delayed()  the same, which answers when that is durable
//     (and PATCH, POST)
//
// A record is named by its id, which may be pending in several partitions of its topic, or by its
// handle (it begins with '@'), which names one record for ever.
//
// Everything here starts and ends on the thread of `here`.  Errors are the world's (the store
// cannot be read, the journal not written); "there is no such record" is none.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "broker/topics/topics.h"
#include "delay/engine.h"
#include "delay/recurrence.h"
#include "storage/bucket_change.h"
#include "storage/pending.h"

namespace tarry::broker {

class Broker;
class Shard;

// A pending record, taken apart.  Moved, never copied: it views its own bytes.
struct DelayedRecord {
  struct Header {
    std::string_view name;
    std::optional<Bytes> value;
  };

  std::string topic;
  PartitionIndex partition = 0;
  std::string id;  // Empty: none.
  std::string handle;
  WallTime due;
  WallTime accepted;
  WallTime original;                // The producer's timestamp.
  std::optional<WallTime> expires;  // Empty: never.
  std::optional<Bytes> key;
  std::optional<Bytes> value;
  std::vector<Header> headers;                  // Without those that scheduled it.
  std::optional<delay::Recurrence> recurrence;  // Empty: it is delivered once.
  std::string damage;                           // Not empty: it cannot be read, for this reason.

  DelayedRecord() = default;
  DelayedRecord(DelayedRecord&&) noexcept = default;
  DelayedRecord& operator=(DelayedRecord&&) noexcept = default;

  Buffer bytes;  // Key, value and headers view these.
};

struct DelayedQuery {
  TopicPtr topic;  // Null: all.
  std::optional<PartitionIndex> partition;
  WallTime from = WallTime::min();
  WallTime until = WallTime::max();  // Exclusive.
  std::string id;                    // A pattern with * and ?; empty: any, with id or without.
  std::string key;                   // The same, of keys.
  std::string text;                  // A part of the id or of the key; empty: any.
  std::optional<bool> recurring;     // Whether it recurs; empty: either.
  std::size_t limit = 100;
  std::optional<std::string> after;  // DelayedPage::next of the previous page.
  storage::HiddenTopics hidden;
};

struct DelayedPage {
  std::vector<DelayedRecord> records;  // In due order; there may be none although there is a next.
  std::string next;                    // Empty: there is no more.  Safe in a URL.
};

// Whether `text` is what a page may give as `next`; a handle is, too.
bool is_delayed_cursor(std::string_view text);

// Everything that was durable before the call is in the store when it returns.  Small pieces that
// would have been written later, together: not to be called all the time.
boost::asio::awaitable<void> write_pending(Broker& broker, Shard& here);

// `written`: write_pending() was called for an earlier page of this query.
boost::asio::awaitable<Result<DelayedPage>> list_delayed(Broker& broker, Shard& here,
                                                         DelayedQuery query, bool written = false);

// When the first record on disk is due, from `from` on; what shards have in memory alone does not
// count.
boost::asio::awaitable<Result<std::optional<WallTime>>> first_due_on_disk(Broker& broker,
                                                                          Shard& here,
                                                                          WallTime from);

// The state of a name in a topic.
struct FoundDelayed {
  std::vector<DelayedRecord> pending;     // In due order.
  std::vector<PartitionIndex> delivered;  // Its last record there has been delivered.
};

// `partition`: look in this one alone.
boost::asio::awaitable<Result<FoundDelayed>> find_delayed(Broker& broker, Shard& here,
                                                          TopicPtr topic, std::string name,
                                                          std::optional<PartitionIndex> partition);

// The record of a handle, of whatever topic.
boost::asio::awaitable<Result<std::optional<DelayedRecord>>> find_by_handle(Broker& broker,
                                                                            Shard& here,
                                                                            std::string handle);

struct PartitionEvent {
  using Kind = storage::ScheduleEvent::Kind;

  PartitionIndex partition = 0;
  Kind kind = Kind::scheduled;
  WallTime at;
  WallTime due;        // From then on; of an end: which it had.
  Offset offset = -1;  // The offset of a delivered record; -1: not known.
};

// The events of an id as people are shown them: what replaces or moves a record is one event, and
// the next time of a recurring record is none.
std::vector<PartitionEvent> folded(PartitionIndex partition,
                                   const std::vector<storage::ScheduleEvent>& events);

// The events of a name in a topic, as far as they are remembered, in the order of time.  The events
// of a record without an id are known only while it is pending.
boost::asio::awaitable<Result<std::vector<PartitionEvent>>> trace_delayed(
    Broker& broker, Shard& here, TopicPtr topic, std::string name,
    std::optional<PartitionIndex> partition);

using delay::Controlled;
using delay::ControlOutcome;

// An action on a record.
struct DelayedControl {
  enum class Kind { cancel, move, deliver };
  Kind kind = Kind::cancel;
  delay::Engine::NewDue due{};  // The new due time of a move.
};

struct PartitionControlled {
  PartitionIndex partition;
  Controlled told;
};

// The partitions that know the name, in their order: none of them is `unknown`.  Durable.  When
// one of them fails, what was done in the others stays so.
boost::asio::awaitable<Result<std::vector<PartitionControlled>>> control_delayed(
    Broker& broker, Shard& here, TopicPtr topic, std::string name,
    std::optional<PartitionIndex> partition, DelayedControl control);

// Many records by their handles, each in its partition; the answers are in the same order.  They
// are asked for at once, as many as `several` has: the caller bounds it.
struct NamedRecord {
  PartitionIndex partition;
  std::string handle;
  Result<Controlled> told = Controlled{};
};
boost::asio::awaitable<void> control_several(Broker& broker, Shard& here, TopicPtr topic,
                                             std::vector<NamedRecord>& several,
                                             DelayedControl control);

}  // namespace tarry::broker
