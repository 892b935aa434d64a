#pragma once

// Sink: the engine's host, as the engine sees it.  It takes due records, writes what must survive
// a crash, and answers questions about topics.
//
//   engine --deliver(batch, ...)--> sink: one journal record, [LogAppended, PendingRemoved...],
//                                         and a PendingAdded for each that is due again
//   engine <----appended(place)---- sink: nothing can refuse it any more
//   engine <-----done(offset)------ sink: that record is durable
//
// The broker's Sink is a partition and its shard's journal; a relay beside an existing Kafka would
// be another.  Everything runs on the engine's thread.  A `done` may be called inside the call
// that it was given to, if that call refuses; it is called once, or never if the incarnation ends
// first.  Once the journal has taken a record, its `done` is called in the order of the journal.

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/recurrence.h"
#include "records/compression.h"
#include "storage/bucket.h"
#include "storage/journal_record.h"
#include "storage/journal_transaction.h"

namespace tarry::delay {

// The timestamp of a delivered record (tarry.delay.timestamp).
enum class DeliveredTimestamp {
  due,       // Its due time.
  original,  // The producer's.
  delivery,  // The time of its delivery.
};

// The settings of a topic that delay/ needs to accept and to deliver.
struct TopicDelay {
  bool enable = true;                                  // tarry.delay.enable: look at headers.
  std::chrono::milliseconds default_delay{0};          // tarry.delay.ms; 0: none.
  std::optional<std::chrono::milliseconds> max_delay;  // tarry.delay.max.ms
  std::optional<std::int64_t> max_pending;             // tarry.delay.max.pending
  DeliveredTimestamp timestamp = DeliveredTimestamp::due;
  bool log_append_time = false;               // message.timestamp.type
  std::size_t max_message_bytes = 1'048'588;  // Bounds delivered batches, not records.
  MissedPolicy missed{};                      // tarry.delay.missed, tarry.delay.missed.max
  // The codec of delivered batches (compression.type); empty: the one that their records' producer
  // used.
  std::optional<records::Codec> codec = std::nullopt;
};

// The pending records that a delivery ends, and those that it makes.
struct Departures {
  std::span<const storage::PendingRemoved> gone;
  std::span<const storage::PendingAdded> again;
};

// The calls by which the engine learns how a delivery went.
struct DeliveryTold {
  // It is in the journal: `first` is the place of the first of Departures::gone, and the others,
  // then Departures::again, follow it one by one.  Not called when it is refused.
  std::move_only_function<void(storage::JournalPlace first) noexcept> appended;
  // With the offset of the first record, when it is durable; or with the reason why nothing was
  // written, and then the engine tries again later (Errc::not_found: the topic is deleted;
  // Errc::fenced: the partition is out of service, and is asked no more before the next start).
  std::move_only_function<void(Result<Offset>)> done;
};

class Sink {
 public:
  virtual ~Sink() = default;

  // The topic as it is now; empty if it is deleted, and its pending records with it.
  virtual std::optional<TopicDelay> target(const TopicPartition& partition) = 0;

  // Appends `batch` (offsets from 0; producer id -1) to the partition and `departures.gone`, one
  // for each of its records with the offset that it gets, to the same journal record; then
  // `departures.again`, those of them that are due again.  The bytes that these view live until
  // `told.done` is called.  No record is written that is not due by the wall clock at the append:
  // a sink that delays a batch checks the clock again.
  virtual void deliver(const TopicPartition& partition, Buffer batch, Departures departures,
                       DeliveryTold told) = 0;

  // Commits the removals of the engine.
  virtual void commit(storage::JournalTransaction transaction) = 0;

  // Sequence numbers run low: reserve a block durably, then call Engine::give_sequences().  Not
  // called again until they come.
  virtual void request_sequences() = 0;

  // The pending store could not be written or read: the incarnation is over, and the engine does
  // nothing any more.  Called once.
  virtual void store_failed(const Error& error) = 0;
};

}  // namespace tarry::delay
